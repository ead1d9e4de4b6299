//! A task's end: its completion word, its entry in the completion queue, and the counters.

use super::Context;
use super::scan::Claim;
use crate::ir::{AtomicOp, Builder, Operand, Order, Place, Scope, Value};
use crate::protocol::{NORMAL, completion, launch, outlet, state, task};

/// Reports the claimed task as ended, by its RESULT and FAULT words. For the leader alone; where the task wrote memory,
/// every lane's release and a control barrier must lie before.
pub fn complete(b: &mut Builder, cx: &Context, claim: &Claim) {
    let result = cx.load_task(b, task::RESULT);
    let fault = cx.load_task(b, task::FAULT);
    let failed = b.ne(fault, 0u32);
    let outcome = b.select(failed, completion::FAULT, completion::DONE);
    let level = if cx.mutation == Some(super::Mutation::IgnoreLevel) { b.value(NORMAL) } else { claim.level };
    let above = b.shl(level, completion::LEVEL_SHIFT);
    let outcome = b.or(outcome, above);
    let above = b.shl(fault, completion::FAULT_SHIFT);
    let outcome = b.or(outcome, above);
    let position = position(b, cx, claim);

    // The direct completion first: it is what a waiting host looks at.
    let lines = round_to_lines(b, cx.slots);
    let index = b.mul(claim.slot, completion::WORDS);
    let index = b.add(lines, index);
    let index = b.add(index, outlet::STATUS_WORDS);
    entry(b, cx, index, [result, position, outcome, claim.generation]);

    let ticket = b.at(cx.state, state::COMPLETION_TICKET);
    let ticket = b.atomic(AtomicOp::Add, ticket, 1u32, Scope::Device, Order::Relaxed);
    let entries = b.param(launch::ENTRIES);
    let mask = b.sub(entries, 1u32);
    let index = b.and(ticket, mask);
    let index = b.mul(index, completion::WORDS);
    let words = b.mul(cx.slots, completion::WORDS);
    let words = round_to_lines(b, words);
    let first = b.add(lines, words);
    let first = b.add(first, outlet::STATUS_WORDS);
    let index = b.add(first, index);
    let phase = b.add(ticket, 1u32);
    entry(b, cx, index, [result, position, outcome, phase]);

    count(b, cx, state::DONE_COUNT);
}

/// Counts a claim. For the leader alone.
pub fn count_claim(b: &mut Builder, cx: &Context, claim: &Claim) {
    count(b, cx, state::CLAIM_COUNT);
    let word = b.add(claim.level, state::LEVEL_COUNTERS);
    count(b, cx, word);
}

fn count(b: &mut Builder, cx: &Context, word: impl Into<Operand>) {
    let place = b.at(cx.state, word);
    b.atomic(AtomicOp::Add, place, 1u32, Scope::Device, Order::Relaxed);
}

/// Stores a completion as one access; its phase is the last component.
fn entry(b: &mut Builder, cx: &Context, index: Value, words: [Value; 4]) {
    let words = b.compose(words.map(Operand::Value));
    let place: Place = b.at(cx.outlet, index);
    b.store4(place, words);
}

/// Low 32 bits of the task's position in its level: lap times slots of the level, plus the slot's index in it.
fn position(b: &mut Builder, cx: &Context, claim: &Claim) -> Value {
    let levels = cx.levels() as usize;
    let (mut begin, mut end) = (cx.offsets[0], cx.offsets[1]);
    for level in 1..levels {
        let here = b.eq(claim.level, level as u32);
        begin = b.select(here, cx.offsets[level], begin);
        end = b.select(here, cx.offsets[level + 1], end);
    }
    let slots = b.sub(end, begin);
    let index = b.sub(claim.slot, begin);
    let lap = b.sub(claim.generation, 1u32);
    let laps = b.mul(lap, slots);
    b.add(laps, index)
}

/// Rounds words up to whole lines, as [`crate::protocol::lines`] does.
pub fn round_to_lines(b: &mut Builder, words: Value) -> Value {
    let up = b.add(words, crate::protocol::LINE - 1);
    b.and(up, !(crate::protocol::LINE - 1))
}
