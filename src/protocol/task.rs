//! The running task's words in workgroup memory: how the kernel and a linked handler meet.
//!
//! The kernel fills them after a claim; a handler's prologue reads its bindings, grid and payload address from here,
//! and the epilogue reads result and outcome.

use super::binding;

/// The task's binding table, entry by entry.
pub const BINDINGS: u32 = 0;
/// WorkgroupId: three words.
pub const GROUP: u32 = BINDINGS + binding::TABLE_WORDS;
/// NumWorkgroups: three words.
pub const GRID: u32 = GROUP + 3;
/// Device address of the payload copy, low word; handlers read push constants there.
pub const PAYLOAD_LOW: u32 = GRID + 3;
/// Device address of the payload copy, high word.
pub const PAYLOAD_HIGH: u32 = PAYLOAD_LOW + 1;
/// Result word that the completion carries.
pub const RESULT: u32 = PAYLOAD_HIGH + 1;
/// Fault code of the handler, or 0 for Done.
pub const FAULT: u32 = RESULT + 1;
/// The claimed slot's 16 words.
pub const SLOT: u32 = FAULT + 1;
/// Words for the kernel's own use.
pub const KERNEL: u32 = SLOT + super::slot::WORDS;
/// Words of the whole.
pub const WORDS: u32 = KERNEL + 16;

const _: () = assert!(WORDS * 4 <= 16384, "Vulkan promises 16 KiB of workgroup memory");
