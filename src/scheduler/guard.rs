//! The starvation guard: no flood at urgent levels keeps a less urgent one waiting for ever.
//!
//! A level whose work a worker has seen and passed over is counted, once for each claim at a more urgent level, until its own
//! next claim. Once that is as often as its threshold says, the level is *due*: it is served before all that are not, and
//! among several the one that was passed over most often goes first. A due level without claimable work holds nobody up.
//!
//! A worker acts on the counts of its pass before. So the most urgent task of a level that a worker sees is claimed after at
//! most threshold + 1 + (levels - 1) of that worker's further claims, and, since each worker counts what it sees, after at
//! most that many claims of each worker that goes over the task's part of the ring.

use super::{Context, Mutation};
use crate::ir::{AtomicOp, Builder, Order, Scope, Value};
use crate::protocol::{inlet, state, task};

/// Bits of a level's place in a packed order.
const PLACE_BITS: u32 = 4;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
const _: () = assert!(crate::protocol::MAX_LEVELS * PLACE_BITS <= 32);

/// In a packed order, under a planted fault alone: the level is not served at all.
const REFUSED: u32 = PLACE_MASK;

/// The order in which levels are served, packed, one word for even and one for odd passes.
const ORDER: u32 = task::KERNEL + 7;
/// Levels whose work the worker has seen in a pass, as bits; one word for even and one for odd passes.
const SEEN: u32 = task::KERNEL + 9;
const _: () = assert!(SEEN + 2 <= task::WORDS);

/// The word of `first`'s pair for a pass, or the other one.
fn word_of(b: &mut Builder, cx: &Context, first: u32, pass: Value) -> crate::ir::Place {
    let parity = b.and(pass, 1u32);
    let word = b.add(parity, first);
    b.shared_at(cx.task, word)
}

/// Prepares the worker's words; for the leader alone, before a control barrier.
pub fn prepare(b: &mut Builder, cx: &Context) {
    let order = work_out(b, cx);
    for parity in 0..2 {
        cx.store_task(b, ORDER + parity, order);
        cx.store_task(b, SEEN + parity, 0u32);
    }
}

/// Works out the order for the pass after this one. For the leader alone, before the pass's first barrier.
pub fn look(b: &mut Builder, cx: &Context, pass: Value) {
    let order = work_out(b, cx);
    let word = word_of(b, cx, ORDER, pass);
    b.store(word, order);
}

/// The order in which the levels are served by the counts as they are now.
pub fn work_out(b: &mut Builder, cx: &Context) -> Value {
    let keys: Vec<Value> = (0..cx.levels())
        .map(|level| {
            let passed = b.at(cx.state, state::PASSED + level);
            let passed = b.load(passed);
            let threshold = b.at(cx.inlet, inlet::STARVATION_THRESHOLDS + level);
            let threshold = b.load(threshold);
            let some = b.ne(threshold, 0u32);
            let enough = b.ge(passed, threshold);
            let due = b.and(some, enough);
            b.select(due, passed, 0u32)
        })
        .collect();
    let zero = b.value(0u32);
    let mut places = vec![zero; keys.len()];
    for low in 1..keys.len() {
        for high in 0..low {
            // Of two that are equally due, or both not, the more urgent goes first.
            let in_turn = b.ge(keys[high], keys[low]);
            let after = b.select(in_turn, 1u32, 0u32);
            places[low] = b.add(places[low], after);
            let after = b.select(in_turn, 0u32, 1u32);
            places[high] = b.add(places[high], after);
        }
    }
    if cx.mutation == Some(Mutation::GuardShutsOut) {
        let mut any = b.value(false);
        for &key in &keys {
            let due = b.ne(key, 0u32);
            any = b.or(any, due);
        }
        for (place, &key) in places.iter_mut().zip(&keys) {
            let idle = b.eq(key, 0u32);
            let refused = b.and(any, idle);
            *place = b.select(refused, REFUSED, *place);
        }
    }
    let mut order = zero;
    for (level, &place) in places.iter().enumerate() {
        let place = b.shl(place, level as u32 * PLACE_BITS);
        order = b.or(order, place);
    }
    order
}

/// The order in which this pass serves the levels: as the leader saw it in the pass before.
pub fn order(b: &mut Builder, cx: &Context, pass: Value) -> Value {
    let before = b.sub(pass, 1u32);
    let word = word_of(b, cx, ORDER, before);
    b.load(word)
}

/// A level's place in an order, and whether it is served at all.
pub fn place(b: &mut Builder, cx: &Context, order: Value, level: Value) -> (Value, Value) {
    let shift = b.mul(level, PLACE_BITS);
    let place = b.shr(order, shift);
    let place = b.and(place, PLACE_MASK);
    let served = match cx.mutation {
        Some(Mutation::GuardShutsOut) => b.ne(place, REFUSED),
        _ => b.value(true),
    };
    (b.and(place, PLACE_MASK >> 1), served)
}

/// Adds levels whose work this lane has seen in a pass, as bits.
pub fn report_seen(b: &mut Builder, cx: &Context, pass: Value, levels: Value) {
    let word = word_of(b, cx, SEEN, pass);
    b.atomic(AtomicOp::Or, word, levels, Scope::Workgroup, Order::Relaxed);
}

/// Clears what the next pass will see. For the leader alone, between the pass's barriers.
pub fn clear_next(b: &mut Builder, cx: &Context, pass: Value) {
    let next = b.add(pass, 1u32);
    let word = word_of(b, cx, SEEN, next);
    b.store(word, 0u32);
}

/// Levels whose work was seen in a pass, as bits; after the pass's first barrier.
pub fn seen(b: &mut Builder, cx: &Context, pass: Value) -> Value {
    let word = word_of(b, cx, SEEN, pass);
    b.load(word)
}

/// How many tasks of `level` may be claimed at once by who saw work of the levels `seen`, as bits: as many as a less urgent one
/// of them may still be passed over, and one at least.
pub fn allowance(b: &mut Builder, cx: &Context, level: Value, seen: Value) -> Value {
    let mut allowed = b.value(u32::MAX);
    for other in 1..cx.levels() {
        let lower = b.lt(level, other);
        let here = b.and(seen, 1u32 << other);
        let here = b.ne(here, 0u32);
        let passed = b.at(cx.state, state::PASSED + other);
        let passed = b.load(passed);
        let threshold = b.at(cx.inlet, inlet::STARVATION_THRESHOLDS + other);
        let threshold = b.load(threshold);
        let guarded = b.ne(threshold, 0u32);
        let early = b.lt(passed, threshold);
        let left = b.sub(threshold, passed);
        let left = b.select(early, left, 1u32);
        let counts = b.and(here, lower);
        let counts = b.and(counts, guarded);
        let left = b.select(counts, left, u32::MAX);
        allowed = b.min(allowed, left);
    }
    allowed
}

/// Counts a claim at `level` by a worker that saw work of the levels `seen`, as bits. For the leader alone.
pub fn count_claim(b: &mut Builder, cx: &Context, level: Value, seen: Value) {
    let one = b.value(1u32);
    count_claims(b, cx, level, seen, one);
}

/// As [`count_claim`], for `claims` claims at once.
pub fn count_claims(b: &mut Builder, cx: &Context, level: Value, seen: Value, claims: Value) {
    for other in 0..cx.levels() {
        let lower = b.lt(level, other);
        let here = b.and(seen, 1u32 << other);
        let here = b.ne(here, 0u32);
        let here = if cx.mutation == Some(Mutation::GuardShutsOut) { lower } else { b.and(here, lower) };
        let word = b.at(cx.state, state::PASSED + other);
        b.when(here, |b| {
            b.atomic(AtomicOp::Add, word, claims, Scope::Device, Order::Relaxed);
        });
        let own = b.eq(level, other);
        let own = match cx.mutation {
            // All that are less urgent than the most urgent share one fate.
            Some(Mutation::GuardAsClass) if other > 0 => b.ge(level, crate::protocol::LOW),
            _ => own,
        };
        b.when(own, |b| b.atomic_store(word, 0u32, Scope::Device, Order::Relaxed));
    }
}
