//! The state buffer: words that only the kernel writes. The host clears it before the first launch and may read the
//! counters at any time.

use super::{LINE, MAX_LEVELS, binding, lines, slot, tenant};

/// Next ticket of the completion queue. A line of its own.
pub const COMPLETION_TICKET: u32 = 0;
/// Workers of the running launch that have left. A line of its own.
pub const LEFT: u32 = LINE;
/// Asks all workers of a launch to leave, with the reason packed by [`pack_leave`]. A line of its own.
pub const LEAVE: u32 = 2 * LINE;
/// Tasks that were claimed, of all levels.
pub const CLAIM_COUNT: u32 = 3 * LINE;
/// Tasks that ended, of all levels. With those that wait for their tenants the same as the claims while no worker is busy.
pub const DONE_COUNT: u32 = 3 * LINE + 1;
/// Tasks that wait in tenants' queues.
pub const PARKED_COUNT: u32 = 3 * LINE + 2;
/// Claims of each level.
pub const LEVEL_COUNTERS: u32 = 4 * LINE;
/// Where each level's next task is expected, packed by [`pack_cursor`]: a hint.
pub const CURSORS: u32 = 5 * LINE;
/// How often each level's work was passed over since the level's last claim.
pub const PASSED: u32 = 6 * LINE;
/// 1 while a worker looks at a tenant's queue, else 0. A line of its own, with [`NEXT_TENANT`].
pub const TENANT_TOKEN: u32 = 7 * LINE;
/// The tenant whose queue is looked at next.
pub const NEXT_TENANT: u32 = TENANT_TOKEN + 1;
/// Tenants whose queues may hold tasks, as a bitmap.
pub const BACKLOG: u32 = 8 * LINE;
/// Words from one word that many workers change to the next: no two of them in what a GPU moves at once.
pub const APART: u32 = 2 * LINE;
/// Fast policy: tasks of a level that were taken in and that no worker has claimed, [`APART`]; below 0 for moments.
pub const AVAILABLE: u32 = 10 * LINE;
/// Fast policy: next ticket of a level, low 32 bits of a position, [`APART`]. Older where nothing is available.
pub const TICKETS: u32 = AVAILABLE + MAX_LEVELS * APART;
/// Fast policy: the poller's place; a launch's stamp while one of its workers holds it.
pub const PLACE: u32 = TICKETS + MAX_LEVELS * APART;
/// Fast policy: for each level the next position to be taken in, low 32 bits, while nobody holds the place; and its index in
/// the level, and its lap.
pub const INTAKE: u32 = PLACE + APART;
/// See [`INTAKE`].
pub const INTAKE_INDEX: u32 = INTAKE + MAX_LEVELS;
/// See [`INTAKE`].
pub const INTAKE_LAP: u32 = INTAKE_INDEX + MAX_LEVELS;
/// Fast policy: looks that pollers have taken, while nobody holds the place.
pub const POLLS: u32 = INTAKE_LAP + MAX_LEVELS;
/// Fast policy: what an idle worker might store, and doesn't.
pub const SINK: u32 = POLLS + 1;
/// Fast policy: index and lap of the position 0, and of the position 2^31, of the 2^32 that a level's tickets count, in which
/// its claims lie now: four words a level.
pub const BASES: u32 = INTAKE + APART;
/// Words of a level's bases.
pub const BASE_WORDS: u32 = 4;
/// State words of the slots.
pub const SLOT_STATES: u32 = BASES + MAX_LEVELS * BASE_WORDS;

const _: () = assert!(LEVEL_COUNTERS + MAX_LEVELS <= CURSORS && CURSORS + MAX_LEVELS <= PASSED);
const _: () = assert!(PASSED + MAX_LEVELS <= TENANT_TOKEN && BACKLOG + tenant::BITMAP_WORDS <= AVAILABLE);
const _: () = assert!(AVAILABLE.is_multiple_of(APART));
const _: () = assert!(SINK < BASES && SLOT_STATES.is_multiple_of(LINE));

/// Bits of a cursor that hold the slot's index in its level; the lap's low bits are above.
pub const CURSOR_INDEX_BITS: u32 = 24;

const _: () = assert!(super::MAX_SLOTS <= 1 << CURSOR_INDEX_BITS);

/// Packs a cursor; the lap's top bits are dropped.
pub const fn pack_cursor(lap: u32, index: u32) -> u32 {
    (lap << CURSOR_INDEX_BITS) | index
}

/// Words of a worker's scratch: the payload of the task that it runs, where handlers read their push constants.
pub const SCRATCH_WORDS: u32 = 64;

const _: () = assert!(slot::MAX_PAYLOAD <= SCRATCH_WORDS && binding::TABLE_WORDS <= SCRATCH_WORDS);

/// Packs a request to leave: the launch that it is for and one of [`super::outlet::exit`].
pub const fn pack_leave(launch: u32, reason: u32) -> u32 {
    (launch << LEAVE_REASON_BITS) | reason
}

/// Bits of a request to leave that hold its reason; the launch's top bits are dropped.
pub const LEAVE_REASON_BITS: u32 = 3;

/// State word of a slot.
pub const fn slot_state_at(index: u32) -> u32 {
    SLOT_STATES + index
}

/// First word of a worker's scratch.
pub const fn scratch_at(slots: u32, worker: u32) -> u32 {
    SLOT_STATES + lines(slots) + worker * SCRATCH_WORDS
}

/// First word of a tenant's line.
pub const fn tenant_at(slots: u32, workers: u32, tenant: u32) -> u32 {
    scratch_at(slots, workers) + tenant * LINE
}

/// Words of the whole state buffer, for so many tenants with so many entries each.
pub const fn words(slots: u32, workers: u32, (tenants, credits): (u32, u32)) -> u32 {
    tenant_at(slots, workers, tenants) + tenants * credits * tenant::ENTRY_WORDS
}
