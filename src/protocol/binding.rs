//! Binding tables: which buffers a task's handler reads and writes.
//!
//! A table is a row of entries in the inlet, {address low, address high, length low, length high}, length in bytes. It
//! must stay as it is while a task that names it is unfinished.

/// Words of an entry.
pub const ENTRY_WORDS: u32 = 4;
/// Entries of a table.
pub const ENTRIES: u32 = 16;
/// Words of a table.
pub const TABLE_WORDS: u32 = ENTRY_WORDS * ENTRIES;
/// In a slot: the task has no binding table.
pub const NONE: u32 = u32::MAX;

const _: () = assert!(TABLE_WORDS.is_multiple_of(super::LINE));
