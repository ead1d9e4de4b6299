//! The outlet: status, taken words and completions, written by the kernel and read by the host.

use super::{LINE, completion, lines};

/// Sign of life, packed by [`pack_beat`]; any worker's changes it. A line of its own.
pub const HEARTBEAT: u32 = 0;
/// Number of the last launch whose workers have all left, stored by the last of them. A line of its own.
pub const ENDED: u32 = LINE;
/// Why that launch ended: one of [`exit`].
pub const EXIT: u32 = LINE + 1;
/// Tasks that waited in tenants' queues when that launch ended.
pub const PARKED: u32 = LINE + 2;
/// 1 where some of them were an open tenant's, else 0.
pub const PARKED_OPEN: u32 = LINE + 3;
/// [`TENANTS_EPOCH`](super::inlet::TENANTS_EPOCH) as that was found out.
pub const PARKED_EPOCH: u32 = LINE + 4;
/// Words before the taken words.
pub const STATUS_WORDS: u32 = 2 * LINE;

/// Passes of a worker from one beat to its next, as a power of two.
pub const BEAT_SHIFT: u32 = 8;
/// Bits of a heartbeat that count beats.
pub const BEAT_BITS: u32 = 20;

/// Packs a heartbeat; top bits of the launch and of the worker's passes are dropped.
pub const fn pack_beat(launch: u32, pass: u32) -> u32 {
    (launch << BEAT_BITS) | ((pass >> BEAT_SHIFT) & ((1 << BEAT_BITS) - 1))
}

/// Why a worker left the kernel.
pub mod exit {
    /// The host asked for it.
    pub const STOP: u32 = 1;
    /// Nothing to do for as long as the launch allows.
    pub const IDLE: u32 = 2;
    /// The launch's budget of passes is used up.
    pub const BUDGET: u32 = 3;
    /// The launch runs one handler a worker (drivers that cut loops short).
    pub const ONE_TASK: u32 = 4;
    /// A SHUTDOWN task asked for it.
    pub const SHUTDOWN: u32 = 5;
}

/// Taken word of a slot: the generation whose payload its claimer has copied; the slot is free for the next.
pub const fn taken_at(index: u32) -> u32 {
    STATUS_WORDS + index
}

/// Direct completion of a slot: a hint for who waits for one ticket; a later lap may overwrite it.
pub const fn direct_at(slots: u32, index: u32) -> u32 {
    STATUS_WORDS + lines(slots) + index * completion::WORDS
}

/// Entry of the completion queue; `entries` is a power of two and `ticket` counts on.
pub const fn entry_at(slots: u32, entries: u32, ticket: u32) -> u32 {
    direct_at(slots, 0) + lines(slots * completion::WORDS) + (ticket & (entries - 1)) * completion::WORDS
}

/// Words of the whole outlet.
pub const fn words(slots: u32, entries: u32) -> u32 {
    entry_at(slots, entries, 0) + entries * completion::WORDS
}
