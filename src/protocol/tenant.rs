//! Tenants: who a task belongs to, and where the tasks of those that may not run now wait.
//!
//! Tenant 0 is always there, runs always and has no limit. The others have a queue each in the state buffer, with room for
//! all tasks that they may have in flight.

use super::slot;

/// The most tenants, tenant 0 included.
pub const MAX_TENANTS: u32 = 256;
/// Words of a bitmap with one bit for each tenant.
pub const BITMAP_WORDS: u32 = MAX_TENANTS / 32;

/// In a tenant's line: ticket of its next task to run.
pub const HEAD: u32 = 0;
/// In a tenant's line: ticket of the next task that has to wait.
pub const TAIL: u32 = 1;
/// In a tenant's line: tasks that were run for it.
pub const RUNS: u32 = 2;

/// Words of a task that waits: its slot's, then its extension's payload.
pub const ENTRY_WORDS: u32 = slot::WORDS + slot::EXTENSION_PAYLOAD;
/// In an entry: index of the slot that the task came from, in place of a tag.
pub const ENTRY_SLOT: u32 = slot::TAGS[1];
/// In an entry: ticket plus one, stored last, in place of a tag.
pub const ENTRY_STAMP: u32 = slot::TAGS[2];

/// The most entries of all tenants' queues: 256 MiB.
pub const MAX_ENTRIES: u32 = 1 << 20;

const _: () = assert!(BITMAP_WORDS * 32 == MAX_TENANTS && BITMAP_WORDS.is_multiple_of(4));
const _: () = assert!(ENTRY_WORDS.is_multiple_of(super::LINE));
