//! The reference claim policy: a priority scan.
//!
//! From the most urgent level down, the lanes of all workers look at the slots of a level, strided, and claim the first
//! schedulable one by compare-and-swap. The lanes of a worker look together; the lane that found the worker's best slot
//! claims for all. What a claim costs grows with the slots of the ring, once, not once a level.
//!
//! Where the workers' lanes are too few for that, a launch can ask for [`heads`](super::heads) in each pass and one round of
//! the ring now and then.

use super::probe::{Probe, probe, rounds};
use super::tenants::Tenants;
use super::{Context, Mutation, guard, heads};
use crate::ir::{AtomicOp, Builder, MemoryClasses, Order, Place, Scope, Value, Var};
use crate::protocol::slot::{self, state};
use crate::protocol::{NORMAL, launch, task};

/// In a claim: no slot, level or tenant.
pub const NO_CLAIM: u32 = u32::MAX;

/// Bits of a key that hold the slot.
const SLOT_BITS: u32 = 24;
/// Bits of a key that hold the rank: slots of a lane's own share of the ring come before heads, which all workers see.
const RANK_BITS: u32 = 5;
/// The level's place in the order of service is on top, so that the least key is the most urgent slot.
const PLACE_SHIFT: u32 = SLOT_BITS + RANK_BITS;
const _: () = assert!(crate::protocol::MAX_SLOTS + crate::protocol::tenant::MAX_TENANTS <= 1 << SLOT_BITS);
const _: () = assert!(crate::protocol::MAX_LEVELS <= 1 << (32 - PLACE_SHIFT));

/// The highest rank.
pub const LAST_RANK: u32 = (1 << RANK_BITS) - 1;

/// Least key that the worker's lanes found, one word for even and one for odd passes.
const BEST: u32 = task::KERNEL;
/// Claimed slot, or [`NO_CLAIM`].
const CLAIMED: u32 = task::KERNEL + 2;
/// Generation of the claimed slot.
const GENERATION: u32 = task::KERNEL + 3;
/// Level of the claimed slot.
const LEVEL: u32 = task::KERNEL + 4;

/// A pass's outcome, the same for all lanes of the worker.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Slot, or [`NO_CLAIM`]; a number behind the slots' for a task that lies in a tenant's queue.
    pub slot: Value,
    /// Generation of the slot.
    pub generation: Value,
    /// Level that the slot lies in.
    pub level: Value,
    /// Tenant of the task, or [`NO_CLAIM`].
    pub tenant: Value,
    /// Levels whose work the worker saw in the pass, as bits.
    pub seen: Value,
}

/// What a lane keeps from pass to pass.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Rounds that cover the longest level.
    rounds: Value,
    /// Lanes that scan together.
    stride: Value,
    /// Round that the next sweep goes over.
    next: Var,
    /// Times that the sweeps have been through all rounds.
    laps: Var,
    /// Passes from one sweep to the next; 0 where each pass goes over the whole ring.
    interval: Value,
    heads: heads::Heads,
    tenants: Tenants,
}

/// What a lane found in a pass.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The order in which the pass serves the levels.
    order: Value,
    key: Var,
    level: Var,
    /// Levels with schedulable slots, as bits.
    seen: Var,
    generation: Var,
    /// 1 where the found slot is its level's head, else 0.
    front: Var,
    /// The level's cursor once the head is claimed.
    cursor: Var,
}

impl Found {
    fn none(b: &mut Builder, cx: &Context, pass: Value) -> Self {
        Self {
            order: guard::order(b, cx, pass),
            key: b.var(NO_CLAIM),
            level: b.var(0u32),
            seen: b.var(0u32),
            generation: b.var(0u32),
            front: b.var(0u32),
            cursor: b.var(0u32),
        }
    }

    /// Keeps a schedulable slot if it is better than what was found before. `front` is 1 where it is its level's head, and
    /// `cursor` then what follows it.
    pub fn offer(
        &self,
        b: &mut Builder,
        cx: &Context,
        (level, rank, slot): (Value, Value, Value),
        generation: Value,
        (front, cursor): (Value, Value),
    ) {
        let bit = b.value(1u32);
        let bit = b.shl(bit, level);
        let seen = b.get(self.seen);
        let seen = b.or(seen, bit);
        b.set(self.seen, seen);
        let (place, served) = guard::place(b, cx, self.order, level);
        let key = b.shl(place, PLACE_SHIFT);
        let rank = b.shl(rank, SLOT_BITS);
        let key = b.or(key, rank);
        let key = b.or(key, slot);
        let least = b.get(self.key);
        let better = b.lt(key, least);
        let better = b.and(better, served);
        b.when(better, |b| {
            b.set(self.key, key);
            b.set(self.level, level);
            b.set(self.generation, generation);
            b.set(self.front, front);
            b.set(self.cursor, cursor);
        });
    }
}

impl Scan {
    /// Prepares the worker's words and what stays the same; a control barrier must follow before the first pass. `stride`
    /// lanes scan together: a worker set of another width than the launch gives its own.
    pub fn new(b: &mut Builder, cx: &Context, stride: Value) -> Self {
        b.when(cx.leader, |b| {
            cx.store_task(b, BEST, NO_CLAIM);
            cx.store_task(b, BEST + 1, NO_CLAIM);
            guard::prepare(b, cx);
        });
        let mut longest = cx.partitions[0].1;
        for &(_, slots) in &cx.partitions[1..] {
            longest = b.max(longest, slots);
        }
        let rounds = rounds(b, longest, stride, cx.mutation);
        let interval = b.param(launch::SWEEP);
        let heads = heads::Heads::new(b, cx);
        // Launches that end after few passes would otherwise sweep the same slots each time.
        let launch = b.param(launch::LAUNCH);
        let first = b.rem(launch, rounds);
        let tenants = Tenants::new(b, cx);
        Self { rounds, stride, next: b.var(first), laps: b.var(0u32), interval, heads, tenants }
    }

    /// The tenants' queues that passes take from as well.
    pub(super) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Times that this lane has been through all rounds: in each pass, or where a pass is over the heads once in many.
    pub fn laps(&self, b: &mut Builder) -> Value {
        b.get(self.laps)
    }

    /// One pass of the whole worker. `lane` numbers this lane among those that scan together and changes from lap to lap at
    /// most, `pass` counts the worker's passes, and `idle` has a pass over the heads sweep as well, whether it is due or not.
    ///
    /// The claimed slot's words are copied to the task's words on the way, while the claim is under way: its tags, not the
    /// claim, tell whether they are whole, and nobody but the claimer frees the slot.
    pub fn pass(&self, b: &mut Builder, cx: &Context, lane: Value, (pass, idle): (Value, Value)) -> Claim {
        let found = Found::none(b, cx, pass);
        self.look(b, cx, lane, (pass, idle), &found);
        b.when(cx.leader, |b| self.tenants.look(b, cx, &found));
        let mine = b.get(found.key);
        let parity = b.and(pass, 1u32);
        let word = b.add(parity, BEST);
        let this = b.shared_at(cx.task, word);
        let other = b.sub(2 * BEST + 1, word);
        let other = b.shared_at(cx.task, other);
        let any = b.ne(mine, NO_CLAIM);
        b.when(any, |b| {
            b.atomic(AtomicOp::Min, this, mine, Scope::Workgroup, Order::Relaxed);
            let seen = b.get(found.seen);
            guard::report_seen(b, cx, pass, seen);
        });
        cx.barrier(b, MemoryClasses::SHARED);

        let least = b.load(this);
        let some = b.ne(least, NO_CLAIM);
        let slot = b.and(least, (1u32 << SLOT_BITS) - 1);
        b.when(cx.leader, |b| {
            b.store(other, NO_CLAIM);
            guard::clear_next(b, cx, pass);
        });
        b.branch(
            some,
            |b| {
                let winner = b.eq(mine, least);
                b.when(winner, |b| claim(b, cx, slot, &found));
                let in_ring = b.lt(slot, cx.slots);
                b.when(in_ring, |b| copy_slot(b, cx, slot));
            },
            |b| b.when(cx.leader, |b| cx.store_task(b, CLAIMED, NO_CLAIM)),
        );
        cx.barrier(b, MemoryClasses::SHARED);
        let slot = cx.load_task(b, CLAIMED);
        let generation = cx.load_task(b, GENERATION);
        let level = cx.load_task(b, LEVEL);
        let tenant = cx.load_task(b, task::SLOT + slot::TENANT);
        let none = b.eq(slot, NO_CLAIM);
        let tenant = b.select(none, NO_CLAIM, tenant);
        let seen = guard::seen(b, cx, pass);
        Claim { slot, generation, level, tenant, seen }
    }

    /// Looks at what this lane looks at in this pass.
    fn look(&self, b: &mut Builder, cx: &Context, lane: Value, (pass, idle): (Value, Value), found: &Found) {
        let whole = b.eq(self.interval, 0u32);
        let some = b.ne(self.interval, 0u32);
        b.when(some, |b| self.heads.look(b, cx, found));
        let mask = b.sub(self.interval, 1u32);
        let since = b.and(pass, mask);
        let due = b.eq(since, 0u32);
        let due = b.or(due, idle);
        let swept = b.select(due, 1u32, 0u32);
        let turns = b.select(whole, self.rounds, swept);
        // One loop for both, so that there is one copy of its body. A whole pass starts with round 0 and ends there.
        b.count(turns, |b, _| {
            let round = b.get(self.next);
            self.look_at(b, cx, lane, round, found);
            let after = b.add(round, 1u32);
            let wrap = b.ge(after, self.rounds);
            let after = b.select(wrap, 0u32, after);
            b.set(self.next, after);
            b.when(wrap, |b| {
                let laps = b.get(self.laps);
                let laps = b.add(laps, 1u32);
                b.set(self.laps, laps);
            });
        });
    }

    /// Looks at this lane's slots of one round. The levels' loads are all under way before the first is used: one latency a
    /// round, not one a level.
    fn look_at(&self, b: &mut Builder, cx: &Context, lane: Value, round: Value, found: &Found) {
        let loads: Vec<(Probe, Value, Value)> = cx
            .partitions
            .iter()
            .map(|&level| {
                let probe = probe(b, level, lane, self.stride, round, cx.mutation);
                let (generation, state) = load_slot(b, cx, probe.slot);
                (probe, generation, state)
            })
            .collect();
        for (level, (probe, generation, state)) in loads.into_iter().enumerate() {
            let schedulable = schedulable(b, cx, generation, state);
            let schedulable = b.and(schedulable, probe.valid);
            let level = if cx.mutation == Some(Mutation::IgnoreLevel) { NORMAL } else { level as u32 };
            b.when(schedulable, |b| {
                let level = b.value(level);
                let zero = b.value(0u32);
                found.offer(b, cx, (level, zero, probe.slot), generation, (zero, zero));
            });
        }
    }
}

/// Loads a slot's generation and its state.
pub fn load_slot(b: &mut Builder, cx: &Context, slot: Value) -> (Value, Value) {
    let generation = cx.slot_word(b, slot, slot::GENERATION);
    let generation = b.load(generation);
    (generation, load_state(b, cx, slot))
}

/// Loads a slot's state.
pub fn load_state(b: &mut Builder, cx: &Context, slot: Value) -> Value {
    let place = cx.slot_state(b, slot);
    b.load(place)
}

/// Whether the host has published the generation that follows the last one taken from the slot.
pub fn schedulable(b: &mut Builder, cx: &Context, generation: Value, state: Value) -> Value {
    if cx.mutation == Some(Mutation::NoGeneration) {
        let last = b.and(state, state::MASK);
        let empty = b.eq(last, state::EMPTY);
        let published = b.ne(generation, 0u32);
        return b.and(empty, published);
    }
    let before = expected_state(b, generation);
    b.eq(state, before)
}

fn expected_state(b: &mut Builder, generation: Value) -> Value {
    let before = b.sub(generation, 1u32);
    let before = b.shl(before, state::BITS);
    b.or(before, state::EMPTY)
}

/// Claims a slot for the worker, or finds that another worker was quicker.
fn claim(b: &mut Builder, cx: &Context, slot: Value, found: &Found) {
    let level = b.get(found.level);
    let generation = b.get(found.generation);
    // A task of a tenant's queue is this worker's already.
    let won = b.var(true);
    let in_ring = b.lt(slot, cx.slots);
    b.when(in_ring, |b| {
        let claimed = try_claim(b, cx, slot, generation);
        b.set(won, claimed);
    });
    let won = b.get(won);
    let front = b.get(found.front);
    let front = b.ne(front, 0u32);
    let advance = b.and(won, front);
    b.when(advance, |b| {
        let cursor = b.get(found.cursor);
        heads::store_cursor(b, cx, level, cursor);
    });
    let slot = b.select(won, slot, NO_CLAIM);
    cx.store_task(b, CLAIMED, slot);
    cx.store_task(b, GENERATION, generation);
    cx.store_task(b, LEVEL, level);
    cx.store_task(b, task::RESULT, 0u32);
    cx.store_task(b, task::FAULT, 0u32);
}

/// Tries to make a slot that was found schedulable this worker's.
pub fn try_claim(b: &mut Builder, cx: &Context, slot: Value, generation: Value) -> Value {
    let place = cx.slot_state(b, slot);
    let expected =
        if cx.mutation == Some(Mutation::NoGeneration) { b.load(place) } else { expected_state(b, generation) };
    let claimed = b.shl(generation, state::BITS);
    let claimed = b.or(claimed, state::CLAIMED);
    // Acquire: pairs with the release in `intake` by which the last claimer freed the slot. The host's payload is guarded by
    // its tags.
    let order = cx.order(Order::Acquire);
    let before = b.compare_exchange(place, expected, claimed, Scope::Device, order);
    b.eq(before, expected)
}

/// Copies the slot's four 16-byte units to the task's words, each as one access.
pub fn copy_slot(b: &mut Builder, cx: &Context, slot: Value) {
    copy_units(b, cx, 4, |b, unit| {
        let word = b.mul(unit, 4u32);
        let place = cx.slot_word(b, slot, word);
        let words = b.load4(place);
        for part in 0..4 {
            let value = b.extract(words, part);
            let at = b.add(word, task::SLOT + part);
            let at: Place = b.shared_at(cx.task, at);
            b.store(at, value);
        }
    });
}

/// Deals `units` units of work out to the worker's lanes.
pub fn copy_units(b: &mut Builder, cx: &Context, units: u32, mut each: impl FnMut(&mut Builder, Value)) {
    let turns = b.add(cx.width, units - 1);
    let turns = b.div(turns, cx.width);
    b.count(turns, |b, turn| {
        let ahead = b.mul(turn, cx.width);
        let unit = b.add(cx.lane, ahead);
        let valid = b.lt(unit, units);
        b.when(valid, |b| each(b, unit));
    });
}
