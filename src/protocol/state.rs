//! The state buffer: words that only the kernel writes. The host clears it before the first launch and may read the
//! counters at any time.

use super::{LINE, MAX_LEVELS, binding, lines, slot};

/// Next ticket of the completion queue. A line of its own.
pub const COMPLETION_TICKET: u32 = 0;
/// Workers of the running launch that have left. A line of its own.
pub const LEFT: u32 = LINE;
/// Launch in which a SHUTDOWN task asked the workers to leave. A line of its own.
pub const SHUTDOWN: u32 = 2 * LINE;
/// Tasks that ended, of all levels.
pub const DONE_COUNT: u32 = 3 * LINE;
/// Claims of each level.
pub const LEVEL_COUNTERS: u32 = 4 * LINE;
/// State words of the slots.
pub const SLOT_STATES: u32 = 5 * LINE;

const _: () = assert!(LEVEL_COUNTERS + MAX_LEVELS <= SLOT_STATES);

/// Words of a worker's scratch: the payload of the task that it runs, where handlers read their push constants.
pub const SCRATCH_WORDS: u32 = 64;

const _: () = assert!(slot::MAX_PAYLOAD <= SCRATCH_WORDS && binding::TABLE_WORDS <= SCRATCH_WORDS);

/// State word of a slot.
pub const fn slot_state_at(index: u32) -> u32 {
    SLOT_STATES + index
}

/// First word of a worker's scratch.
pub const fn scratch_at(slots: u32, worker: u32) -> u32 {
    SLOT_STATES + lines(slots) + worker * SCRATCH_WORDS
}

/// Words of the whole state buffer.
pub const fn words(slots: u32, workers: u32) -> u32 {
    scratch_at(slots, workers)
}
