//! What can go wrong with a queue, with the value that was wrong and how to mend it.

use std::time::Duration;

use super::link::LinkError;
use super::task::Task;
use super::ticket::Ticket;

/// Why a task can never be taken by the queue that it was given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The opcode doesn't fit the slot.
    #[error("opcode {opcode} is over the limit of {limit}: use the opcode that registering the handler gave")]
    Opcode {
        /// The task's opcode.
        opcode: u32,
        /// The largest opcode.
        limit: u32,
    },
    /// The queue has no such level.
    #[error("level {level} does not exist: the queue has levels 0 to {}", levels - 1)]
    Level {
        /// The task's level.
        level: u32,
        /// Levels of the queue.
        levels: u32,
    },
    /// The level's partition is empty.
    #[error("level {level} has no slots: give it some in the partition offsets, or push to another level")]
    NoSlots {
        /// The task's level.
        level: u32,
    },
    /// The payload is longer than a slot and its extension.
    #[error("a payload of {words} words is over the limit of {limit}: put the data in a bound buffer")]
    Payload {
        /// Words of the task's payload.
        words: usize,
        /// The most words.
        limit: u32,
    },
    /// The task's tenant is not registered.
    #[error("tenant {tenant} is not registered: register it, and use the number that this gives")]
    Tenant {
        /// The task's tenant.
        tenant: u32,
    },
    /// The runtime has no such binding table.
    #[error("binding table {table} does not exist: the runtime was built with {tables}")]
    Bindings {
        /// The task's binding table.
        table: u32,
        /// Binding tables of the runtime.
        tables: u32,
    },
}

/// Why a task was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError<'a> {
    /// The task's level has no room now; here is the task back.
    #[error("level {} is full: publish, take completions, then push again", .0.level)]
    Full(Task<'a>),
    /// The task's tenant has as many tasks in flight as it may; here is the task back.
    #[error("tenant {} has used up its credits: take completions of its tasks, then push again", .0.tenant)]
    NoCredit(Task<'a>),
    /// The task can never be pushed to this queue.
    #[error(transparent)]
    Invalid(#[from] TaskError),
    /// Nothing pushed now would ever run.
    #[error(transparent)]
    Lost(#[from] LinkError),
}

/// Why a batch was not pushed; none of its tasks was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The level has no room for all of the batch now.
    #[error("level {level} has no room for {len} tasks now: publish, take completions, then push again")]
    Full {
        /// The batch's level.
        level: u32,
        /// Tasks of the batch.
        len: usize,
    },
    /// A tenant has too many tasks in flight for those of the batch.
    #[error("tenant {tenant} has not the credits for its tasks of the batch: take completions, then push again")]
    NoCredit {
        /// The tenant.
        tenant: u32,
    },
    /// The level never has room for a batch as long as this.
    #[error("a batch of {len} tasks never fits level {level}, which holds {limit}: push it in parts")]
    TooLong {
        /// The batch's level.
        level: u32,
        /// Tasks of the batch.
        len: usize,
        /// The most tasks that the level can hold at once.
        limit: u32,
    },
    /// The tasks are of several levels, which can't be reserved together.
    #[error("task {index} is of level {level} and the first of level {first}: push one batch for each level")]
    MixedLevels {
        /// The first task's level.
        first: u32,
        /// Index of the task that differs.
        index: usize,
        /// That task's level.
        level: u32,
    },
    /// One of the tasks can never be pushed to this queue.
    #[error("task {index} of the batch: {error}")]
    Invalid {
        /// Index of the task.
        index: usize,
        /// What is wrong with it.
        error: TaskError,
    },
    /// Nothing pushed now would ever run.
    #[error(transparent)]
    Lost(#[from] LinkError),
}

/// Why waiting gave no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// No task of this pair of queues has the ticket.
    #[error("the ticket ({0}) was never issued by this pair of queues")]
    NeverIssued(Ticket),
    /// The task's completion has been handed out before.
    #[error("the completion of the ticket ({0}) was already delivered: each comes once")]
    AlreadyDelivered(Ticket),
    /// The task was not finished in time; it can be waited for again.
    #[error(
        "the task ({ticket}) was not finished after {waited:?}: it was {}, and the kernel {}",
        if *.taken { "taken in" } else { "not taken in" },
        if *.alive { "is running" } else { "has left" }
    )]
    Timeout {
        /// The task's ticket.
        ticket: Ticket,
        /// How long it was waited for.
        waited: Duration,
        /// True where the kernel had taken the task in.
        taken: bool,
        /// True where the kernel had not left.
        alive: bool,
    },
    /// No task was finished in time.
    #[error(
        "none of {outstanding} tasks was finished after {waited:?}, and the kernel {}",
        if *.alive { "is running" } else { "has left" }
    )]
    Quiet {
        /// How long it was waited.
        waited: Duration,
        /// Tasks that were pushed and whose completions have not been delivered.
        outstanding: u64,
        /// True where the kernel had not left.
        alive: bool,
    },
    /// The kernel can't finish the task.
    #[error(transparent)]
    Lost(#[from] LinkError),
}

/// What is wrong with the shape of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The number of levels is not one that kernels are baked for.
    #[error("{levels} levels: give offsets for 1 to {limit} levels, one more than levels")]
    Levels {
        /// Levels that the offsets describe.
        levels: usize,
        /// The most levels.
        limit: u32,
    },
    /// There is not one window for each level.
    #[error("{windows} windows for {levels} levels: give one for each")]
    Windows {
        /// Windows given.
        windows: usize,
        /// Levels.
        levels: usize,
    },
    /// The offsets don't start at 0.
    #[error("the first offset is {first}: it must be 0")]
    Start {
        /// The first offset.
        first: u32,
    },
    /// A level would end before it starts.
    #[error("level {level} would start at {start} and end at {end}: offsets must not fall")]
    Falling {
        /// The level.
        level: usize,
        /// Its first slot.
        start: u32,
        /// The first slot behind it.
        end: u32,
    },
    /// The ring has no slots, or more than the protocol can count.
    #[error("{slots} slots: a ring has 1 to {limit}")]
    Slots {
        /// Slots of the ring.
        slots: u32,
        /// The most slots.
        limit: u32,
    },
    /// A level that has slots has a window of 0.
    #[error("the window of level {level} is 0: let at least one task be in flight")]
    Window {
        /// The level.
        level: usize,
    },
    /// The number of completion entries is not a power of two.
    #[error("{entries} completion entries: the number must be a power of two, up to {limit}")]
    Entries {
        /// The entries.
        entries: u32,
        /// The most entries.
        limit: u32,
    },
    /// Completions could overrun their queue.
    #[error("windows of {sum} tasks in all and {entries} completion entries: lower the windows or add entries")]
    Overrun {
        /// Sum of the windows.
        sum: u64,
        /// The entries.
        entries: u32,
    },
    /// The number of tenants is not one that the protocol can count.
    #[error("{tenants} tenants: use 1 (no other than tenant 0) to {limit}")]
    Tenants {
        /// The tenants.
        tenants: u32,
        /// The most tenants.
        limit: u32,
    },
    /// The tenants' queues can't have that many entries.
    #[error("{credits} tasks in flight for each of {tenants} tenants: use a power of two, up to {limit}")]
    Credits {
        /// The tasks.
        credits: u32,
        /// The tenants.
        tenants: u32,
        /// The most tasks for that many tenants.
        limit: u32,
    },
    /// The rings would have more words than 32 bits can count.
    #[error("the {buffer} would have {words} words, which 32 bits can't count: use fewer slots, tables or entries")]
    Words {
        /// Which buffer: inlet or outlet.
        buffer: &'static str,
        /// Its words.
        words: u64,
    },
    /// Memory that was handed over is smaller than its shape.
    #[error("the {buffer} has {words} words and needs {needed}")]
    Memory {
        /// Which buffer: inlet or outlet.
        buffer: &'static str,
        /// Its words.
        words: u32,
        /// Words that the shape needs.
        needed: u32,
    },
    /// Positions would run out.
    #[error("a first lap of {lap} leaves no positions: start under {limit}")]
    FirstLap {
        /// The first lap.
        lap: u64,
        /// The laps end before this one.
        limit: u64,
    },
}
