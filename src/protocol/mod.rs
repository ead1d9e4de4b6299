//! The words that the host and the kernel share: offsets, values and layouts, each defined once.
//!
//! Depends on `core` alone, so that the build script, the IR and both halves of the queues read the same
//! definitions. Everything is counted in 32-bit words unless a name says bytes.
//!
//! Three buffers carry the protocol. The *inlet* is written by the host and read by the kernel; the *outlet* is
//! written by the kernel and read by the host; the *state* belongs to the kernel. No 64-byte line has writers on
//! both sides.

pub mod binding;
pub mod completion;
pub mod inlet;
pub mod launch;
pub mod opcode;
pub mod outlet;
pub mod slot;
pub mod state;
pub mod task;
pub mod tenant;

/// Words in a 64-byte line.
pub const LINE: u32 = 16;

/// Levels of the default configuration.
pub const PRIORITY_LEVELS: u32 = 5;

/// The most levels that a kernel is baked for.
pub const MAX_LEVELS: u32 = 8;

/// The most slots that a ring may have: a slot's index and its level share one word in the scan, with room for one number
/// more for each tenant.
pub const MAX_SLOTS: u32 = (1 << 24) - tenant::MAX_TENANTS;

/// How often a level is passed over, by default, before it is served first.
pub const STARVATION_THRESHOLD: u32 = 16;

/// Most urgent level of the default five.
pub const CRITICAL: u32 = 0;
/// Second level of the default five.
pub const HIGH: u32 = 1;
/// Middle level of the default five; the default of a task.
pub const NORMAL: u32 = 2;
/// Fourth level of the default five.
pub const LOW: u32 = 3;
/// Least urgent level of the default five.
pub const IDLE: u32 = 4;

const _: () = assert!(IDLE + 1 == PRIORITY_LEVELS && PRIORITY_LEVELS <= MAX_LEVELS);

/// The level that takes the remainder of an even split: NORMAL of the default five, else the middle one.
pub const fn middle_level(levels: u32) -> u32 {
    if levels == PRIORITY_LEVELS { NORMAL } else { levels / 2 }
}

/// Rounds a word count up to whole 64-byte lines.
pub const fn lines(words: u32) -> u32 {
    words.div_ceil(LINE) * LINE
}
