//! The inlet: control words, ring, binding tables and extensions, written by the host and read by the kernel.

use super::{LINE, MAX_LEVELS, binding, slot, tenant};

/// Non-zero asks the kernel to leave. Its line holds what the host says to the whole kernel.
pub const STOP: u32 = 0;
/// Doorbell of each level: low 32 bits of a position before which everything is published. A hint, and may be old.
pub const DOORBELLS: u32 = 4;
/// First slot of each level, then the total as a sentinel: levels + 1 words.
pub const PRIORITY_OFFSETS: u32 = LINE;
/// For each level how often it is passed over before it is served first, or 0 for never. A line of its own.
pub const STARVATION_THRESHOLDS: u32 = 2 * LINE;
/// Counts the changes of [`TENANTS_OPEN`]; stored after them.
pub const TENANTS_EPOCH: u32 = STARVATION_THRESHOLDS + MAX_LEVELS;
/// Tenants whose tasks may run, as a bitmap.
pub const TENANTS_OPEN: u32 = 3 * LINE;
/// Tenants that are registered, as a bitmap.
pub const TENANTS_KNOWN: u32 = TENANTS_OPEN + tenant::BITMAP_WORDS;
/// Words before the first slot.
pub const CONTROL_WORDS: u32 = 4 * LINE;

const _: () = assert!(STOP < DOORBELLS && DOORBELLS + MAX_LEVELS <= PRIORITY_OFFSETS);
const _: () = assert!(PRIORITY_OFFSETS + MAX_LEVELS < STARVATION_THRESHOLDS);
const _: () = assert!(TENANTS_EPOCH < TENANTS_OPEN);
const _: () = assert!(TENANTS_KNOWN + tenant::BITMAP_WORDS <= CONTROL_WORDS);

/// First word of a slot.
pub const fn slot_at(index: u32) -> u32 {
    CONTROL_WORDS + index * slot::WORDS
}

/// First word of the binding tables, behind the ring.
pub const fn tables_at(slots: u32) -> u32 {
    slot_at(slots)
}

/// First word of the extensions, behind the binding tables.
pub const fn extensions_at(slots: u32, tables: u32) -> u32 {
    tables_at(slots) + tables * binding::TABLE_WORDS
}

/// Words of the whole inlet.
pub const fn words(slots: u32, tables: u32) -> u32 {
    extensions_at(slots, tables) + slots * slot::EXTENSION_WORDS
}
