//! The reference claim policy: a priority scan.
//!
//! From the most urgent level down, the lanes of all workers look at the slots of a level, strided, and claim the first
//! schedulable one by compare-and-swap. The lanes of a worker look together; the lane that found the worker's best slot
//! claims for all. What a claim costs grows with the slots of the ring, once, not once a level.

use super::probe::{Probe, probe, rounds};
use super::{Context, Mutation};
use crate::ir::{AtomicOp, Builder, MemoryClasses, Order, Place, Scope, Value};
use crate::protocol::slot::{self, state};
use crate::protocol::{NORMAL, task};

/// In a claim: no slot, level or tenant.
pub const NO_CLAIM: u32 = u32::MAX;

/// Bits of a key that hold the slot; the level is above them, so that the least key is the most urgent slot.
const SLOT_BITS: u32 = 24;
const _: () = assert!(crate::protocol::MAX_SLOTS <= 1 << SLOT_BITS);

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
    /// Slot, or [`NO_CLAIM`].
    pub slot: Value,
    /// Generation of the slot.
    pub generation: Value,
    /// Level that the slot lies in.
    pub level: Value,
}

/// Prepares the worker's words; a control barrier must follow before the first [`scan`].
pub fn prepare(b: &mut Builder, cx: &Context) {
    b.when(cx.leader, |b| {
        cx.store_task(b, BEST, NO_CLAIM);
        cx.store_task(b, BEST + 1, NO_CLAIM);
    });
}

/// One pass over the ring by the whole worker. `lane` numbers this lane among `stride` lanes that scan together; a worker
/// set of another width than the launch gives its own. `pass` counts the worker's passes.
///
/// The claimed slot's words are copied to the task's words on the way, while the claim is under way: its tags, not the
/// claim, tell whether they are whole, and nobody but the claimer frees the slot.
pub fn scan(b: &mut Builder, cx: &Context, lane: Value, stride: Value, pass: Value) -> Claim {
    let best = b.var(NO_CLAIM);
    let found = b.var(0u32);
    look(b, cx, lane, stride, |b, key, generation| {
        let least = b.get(best);
        let better = b.lt(key, least);
        b.when(better, |b| {
            b.set(best, key);
            b.set(found, generation);
        });
    });
    let mine = b.get(best);
    let parity = b.and(pass, 1u32);
    let word = b.add(parity, BEST);
    let this = b.shared_at(cx.task, word);
    let other = b.sub(2 * BEST + 1, word);
    let other = b.shared_at(cx.task, other);
    let any = b.ne(mine, NO_CLAIM);
    b.when(any, |b| {
        b.atomic(AtomicOp::Min, this, mine, Scope::Workgroup, Order::Relaxed);
    });
    b.control_barrier(MemoryClasses::SHARED);

    let least = b.load(this);
    let some = b.ne(least, NO_CLAIM);
    let slot = b.and(least, (1u32 << SLOT_BITS) - 1);
    b.when(cx.leader, |b| b.store(other, NO_CLAIM));
    b.branch(
        some,
        |b| {
            let winner = b.eq(mine, least);
            b.when(winner, |b| {
                let level = b.shr(least, SLOT_BITS);
                let generation = b.get(found);
                claim(b, cx, slot, level, generation);
            });
            copy_slot(b, cx, slot);
        },
        |b| b.when(cx.leader, |b| cx.store_task(b, CLAIMED, NO_CLAIM)),
    );
    b.control_barrier(MemoryClasses::SHARED);
    let slot = cx.load_task(b, CLAIMED);
    let generation = cx.load_task(b, GENERATION);
    let level = cx.load_task(b, LEVEL);
    Claim { slot, generation, level }
}

/// Looks at this lane's slots of all levels and hands each schedulable one on as a key and its generation.
///
/// The levels' loads of one round are all under way before the first is used: one latency a round, not one a level.
fn look(b: &mut Builder, cx: &Context, lane: Value, stride: Value, mut found: impl FnMut(&mut Builder, Value, Value)) {
    let levels: Vec<(Value, Value)> = (0..cx.levels() as usize)
        .map(|level| (cx.offsets[level], b.sub(cx.offsets[level + 1], cx.offsets[level])))
        .collect();
    let mut longest = levels[0].1;
    for &(_, slots) in &levels[1..] {
        longest = b.max(longest, slots);
    }
    let rounds = rounds(b, longest, stride, cx.mutation);
    b.count(rounds, |b, round| {
        let loads: Vec<(Probe, Value, Value)> = levels
            .iter()
            .map(|&level| {
                let probe = probe(b, level, lane, stride, round, cx.mutation);
                let generation = cx.slot_word(b, probe.slot, slot::GENERATION);
                let generation = b.load(generation);
                let state = cx.slot_state(b, probe.slot);
                let state = b.load(state);
                (probe, generation, state)
            })
            .collect();
        for (level, (probe, generation, state)) in loads.into_iter().enumerate() {
            let schedulable = schedulable(b, cx, generation, state);
            let schedulable = b.and(schedulable, probe.valid);
            let level = if cx.mutation == Some(Mutation::IgnoreLevel) { NORMAL } else { level as u32 };
            b.when(schedulable, |b| {
                let key = b.or(probe.slot, level << SLOT_BITS);
                found(b, key, generation);
            });
        }
    });
}

/// Whether the host has published the generation that follows the last one taken from the slot.
fn schedulable(b: &mut Builder, cx: &Context, generation: Value, state: Value) -> Value {
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
fn claim(b: &mut Builder, cx: &Context, slot: Value, level: Value, generation: Value) {
    let place = cx.slot_state(b, slot);
    let expected =
        if cx.mutation == Some(Mutation::NoGeneration) { b.load(place) } else { expected_state(b, generation) };
    let claimed = b.shl(generation, state::BITS);
    let claimed = b.or(claimed, state::CLAIMED);
    // Acquire: pairs with the release in `intake::take` by which the last claimer freed the slot. The host's payload is
    // guarded by its tags.
    let order = cx.order(Order::Acquire);
    let before = b.compare_exchange(place, expected, claimed, Scope::Device, order);
    let won = b.eq(before, expected);
    let slot = b.select(won, slot, NO_CLAIM);
    cx.store_task(b, CLAIMED, slot);
    cx.store_task(b, GENERATION, generation);
    cx.store_task(b, LEVEL, level);
    cx.store_task(b, task::RESULT, 0u32);
    cx.store_task(b, task::FAULT, 0u32);
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
