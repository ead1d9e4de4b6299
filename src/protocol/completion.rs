//! A completion: 16 bytes that the kernel stores as one access, phase last, and the host reads phase first.

/// Words of a completion.
pub const WORDS: u32 = 4;

/// Result word of the task.
pub const RESULT: u32 = 0;
/// Low 32 bits of the task's position in its level; of a range's first.
pub const POSITION: u32 = 1;
/// Outcome and level, packed by [`pack_outcome`].
pub const OUTCOME: u32 = 2;
/// Phase: the entry's own ticket plus one in the queue; the slot's generation in a direct completion.
pub const PHASE: u32 = 3;

/// The handler ran to its end.
pub const DONE: u32 = super::slot::state::DONE;
/// The task failed; the fault code says why.
pub const FAULT: u32 = super::slot::state::FAULT;

/// Shift of the level in an outcome word.
pub const LEVEL_SHIFT: u32 = 4;
/// Flag in an outcome word of the queue: the entry stands for several tasks in a row, all Done with result 0.
pub const RANGE: u32 = 1 << 7;
/// Shift of the fault code in an outcome word; of the number of tasks in that of a range, which is of tenant 0.
pub const FAULT_SHIFT: u32 = 8;
/// Mask of the fault code, after the shift.
pub const FAULT_MASK: u32 = 0xffff;
/// Shift of the tenant in an outcome word.
pub const TENANT_SHIFT: u32 = 24;
/// Mask of the outcome.
pub const OUTCOME_MASK: u32 = 0xf;

/// Packs an outcome word; top bits of the fault code and of the tenant are dropped.
pub const fn pack_outcome(outcome: u32, level: u32, fault: u32, tenant: u32) -> u32 {
    outcome | (level << LEVEL_SHIFT) | ((fault & FAULT_MASK) << FAULT_SHIFT) | (tenant << TENANT_SHIFT)
}

/// Packs the outcome word of a range of `tasks` tasks.
pub const fn pack_range(level: u32, tasks: u32) -> u32 {
    pack_outcome(DONE, level, tasks, 0) | RANGE
}

const _: () = assert!(super::MAX_LEVELS << LEVEL_SHIFT <= RANGE && RANGE < 1 << FAULT_SHIFT);

/// Fault codes that the kernel itself gives; handlers use codes from [`fault::USER`] on.
pub mod fault {
    /// No handler is registered under the task's opcode.
    pub const NO_HANDLER: u32 = 1;
    /// A built-in was given an index outside the buffer that the task is bound to.
    pub const OUT_OF_RANGE: u32 = 2;
    /// The task names no binding table, or one whose entry is empty, and its handler needs it.
    pub const NOT_BOUND: u32 = 3;
    /// Parts of the slot never arrived: its tags differ from its generation.
    pub const TORN: u32 = 4;
    /// The driver cut the handler's loops short.
    pub const LOOP_LIMIT: u32 = 5;
    /// The slot's level is not the level of the partition that it lies in.
    pub const WRONG_LEVEL: u32 = 6;
    /// The task's tenant is not registered.
    pub const TENANT: u32 = 7;
    /// First code that is a handler's own.
    pub const USER: u32 = 0x100;
}
