//! A slot of the ring: one 64-byte line that describes one task.
//!
//! Words 0, 4, 8 and 12 all hold the generation, so that each 16-byte unit says for itself whether it has arrived.
//! The host stores word 0 last wherever its stores are smaller than the line; the kernel reads it first.

/// Words of a slot.
pub const WORDS: u32 = 16;

/// Generation: the lap of this slot's position, plus one, modulo 2^32. Never-written memory (0) is generation 0.
pub const GENERATION: u32 = 0;
/// Handler, level, class and flags, packed by [`pack_kind`].
pub const KIND: u32 = 1;
/// Tenant that the task belongs to.
pub const TENANT: u32 = 2;
/// Binding table, or [`super::binding::NONE`].
pub const BINDINGS: u32 = 3;
/// Grid, x.
pub const GRID_X: u32 = 5;
/// Grid, y in the low and z in the high half.
pub const GRID_YZ: u32 = 6;
/// Resume word.
pub const RESUME: u32 = 7;
/// Words that repeat the generation, one to each 16 bytes.
pub const TAGS: [u32; 4] = [GENERATION, 4, 8, 12];
/// Words that carry the inline payload, in order.
pub const PAYLOAD: [u32; 6] = [9, 10, 11, 13, 14, 15];

/// Payload words that fit the slot.
pub const INLINE_PAYLOAD: u32 = PAYLOAD.len() as u32;

/// Words of the extension that a task with more payload has beside the ring: 256 bytes.
pub const EXTENSION_WORDS: u32 = 64;
/// Payload words of an extension: three of each 16 bytes, the first of which is the generation.
pub const EXTENSION_PAYLOAD: u32 = EXTENSION_WORDS / 4 * 3;
/// The longest payload of a task, in words.
pub const MAX_PAYLOAD: u32 = INLINE_PAYLOAD + EXTENSION_PAYLOAD;

/// Bits of a kind that hold the handler.
pub const HANDLER_MASK: u32 = 0xffff;
/// Shift of the level in a kind.
pub const LEVEL_SHIFT: u32 = 16;
/// Mask of the level, after the shift.
pub const LEVEL_MASK: u32 = 0x7;
/// Flag in a kind: the task's payload goes on in the slot's extension.
pub const FLAG_EXTENDED: u32 = 1 << 24;

const _: () = assert!(super::MAX_LEVELS <= LEVEL_MASK + 1);
const _: () = assert!(WORDS == super::LINE && EXTENSION_WORDS.is_multiple_of(super::LINE));

/// Packs a slot's kind word.
pub const fn pack_kind(handler: u32, level: u32, flags: u32) -> u32 {
    (handler & HANDLER_MASK) | ((level & LEVEL_MASK) << LEVEL_SHIFT) | flags
}

/// State of a slot in the scan policy's array: the low bits of a word whose other bits hold the generation.
pub mod state {
    /// Nothing to run here; the slot may be published again once its claimer has reported it taken.
    pub const EMPTY: u32 = 0;
    /// The host has stored the next generation. Never stored by the kernel: the slot's generation says it.
    pub const PUBLISHED: u32 = 1;
    /// A worker has claimed the slot and is copying its payload.
    pub const CLAIMED: u32 = 2;
    /// The task ran to its end.
    pub const DONE: u32 = 3;
    /// The task waits for an event.
    pub const WAIT: u32 = 4;
    /// The task gave way to others and may go on.
    pub const YIELD: u32 = 5;
    /// The task runs again from the tail of its level.
    pub const REQUEUE: u32 = 6;
    /// The task failed.
    pub const FAULT: u32 = 7;

    /// Bits that hold the state.
    pub const BITS: u32 = 3;
    /// Mask of the state.
    pub const MASK: u32 = (1 << BITS) - 1;

    const _: () = assert!(FAULT <= MASK);

    /// Packs a generation and a state into one word; the generation's top bits are dropped.
    pub const fn pack(generation: u32, state: u32) -> u32 {
        (generation << BITS) | state
    }
}
