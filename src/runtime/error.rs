//! What can go wrong with a runtime.

use std::time::Duration;

use crate::device;
use crate::planner::PlanError;
use crate::protocol::binding;
use crate::queue::{ConfigError, LinkError};
use crate::scheduler::PartitionError;
use crate::spirv;

/// Result of the runtime.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device layer's.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// The ring can't be split like that.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// A starvation threshold was given for a level that there isn't.
    #[error("a starvation threshold for level {level} of a ring with {levels}: use 0 to {}", levels - 1)]
    StarvationLevel {
        /// The level.
        level: u32,
        /// Levels of the ring.
        levels: u32,
    },
    /// The queues can't have that shape.
    #[error(transparent)]
    Queue(#[from] ConfigError),
    /// No launch can be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A handler can't be linked.
    #[error(transparent)]
    Link(#[from] spirv::link::LinkError),
    /// The kernel can't be lowered.
    #[error(transparent)]
    Lower(#[from] spirv::LowerError),
    /// A resident kernel was asked for where the admission test refuses it.
    #[error("{device} can't keep a kernel resident: {reason}; ask for epochs, or leave the mode to the admission test")]
    NotResident {
        /// Name of the device.
        device: String,
        /// Why.
        reason: String,
    },
    /// The environment asks for an unknown policy.
    #[error("{name} is {value:?}: use scan or fast, or unset it")]
    BadPolicy {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The environment asks for an unknown mode.
    #[error("{name} is {value:?}: use resident or epochs, or unset it")]
    BadMode {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// [`Reach::Heads`](super::Reach::Heads) of a number that is no power of two.
    #[error("a sweep each {0} passes: use a power of two")]
    Sweep(u32),
    /// Too many handlers.
    #[error("{count} handlers: opcodes end at {limit}")]
    Handlers {
        /// Handlers given.
        count: usize,
        /// The most that there are opcodes for.
        limit: usize,
    },
    /// Handlers of another total size than the requested width.
    #[error("handlers of {handlers} invocations in a kernel of {width}: leave the width to the handlers")]
    Width {
        /// Invocations of the handlers' workgroups.
        handlers: u32,
        /// The width that was asked for.
        width: u32,
    },
    /// More buffers than a binding table has entries.
    #[error("{0} buffers in one binding table: it has {limit} entries", limit = binding::ENTRIES)]
    Entries(usize),
    /// All binding tables are taken.
    #[error(
        "all {0} binding tables are taken: drop some and take the completions of their tasks, or build the runtime \
         with more"
    )]
    Tables(u32),
    /// A buffer of another device.
    #[error("{name} is of another device than the runtime: make it by Runtime::buffer")]
    ForeignBuffer {
        /// Name of the buffer.
        name: String,
    },
    /// A part of a buffer that can't be bound.
    #[error(
        "bytes {offset} to {} of {name} can't be bound: it has {size}; start at a multiple of 16 and bind whole words",
        .offset.saturating_add(*.bytes)
    )]
    BindRange {
        /// Name of the buffer.
        name: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Bytes of the buffer.
        size: u64,
    },
    /// Words beyond the end of a buffer.
    #[error("{name} has {words} words: none up to {end}")]
    Range {
        /// Name of the buffer.
        name: String,
        /// The end of the words asked for.
        end: u64,
        /// Words of the buffer.
        words: u64,
    },
    /// The host can't read the buffer.
    #[error("the host can't map {name}: make buffers for the host by Runtime::buffer")]
    Unmapped {
        /// Name of the buffer.
        name: String,
    },
    /// A copy takes too long.
    #[error("copying from {name} hasn't ended within {waited:?}: the device may hang")]
    CopyTimeout {
        /// Name of the buffer.
        name: String,
        /// How long it was waited.
        waited: Duration,
    },
    /// The kernel hasn't left in time.
    #[error("the kernel hasn't left within {waited:?}: a handler takes longer; wait again, or drop the runtime")]
    StillRunning {
        /// How long it was waited.
        waited: Duration,
    },
    /// The keeper's thread can't be started.
    #[error("the keeper's thread can't be started: {0}")]
    Keeper(#[source] std::io::Error),
    /// The kernel can't run any more.
    #[error(transparent)]
    Lost(#[from] LinkError),
}
