//! A task's end: its completion word, its entry in the completion queue, and the counters.

use super::scan::Claim;
use super::{Context, guard};
use crate::ir::{AtomicOp, Builder, Operand, Order, Place, Scope, Value};
use crate::protocol::{NORMAL, completion, slot, state, task};

/// Reports the claimed task as ended, by its RESULT and FAULT words. For the leader alone; where the task wrote memory,
/// every lane's release and a control barrier must lie before.
pub fn complete(b: &mut Builder, cx: &Context, claim: &Claim) {
    let result = cx.load_task(b, task::RESULT);
    let fault = cx.load_task(b, task::FAULT);
    let tenant = cx.load_task(b, task::SLOT + slot::TENANT);
    let partition = cx.partition(b, claim.level);
    report(b, cx, claim, partition, (result, fault, tenant));
}

/// As [`complete`], for a task of the level that lies in `slots` slots from `begin` on.
pub fn report(
    b: &mut Builder,
    cx: &Context,
    claim: &Claim,
    (begin, slots): (Value, Value),
    (result, fault, tenant): (Value, Value, Value),
) {
    // Low 32 bits of the task's position in its level.
    let index = b.sub(claim.slot, begin);
    let lap = b.sub(claim.generation, 1u32);
    let laps = b.mul(lap, slots);
    let position = b.add(laps, index);
    report_at(b, cx, claim, position, (result, fault, tenant));
}

/// As [`report`], where the low 32 bits of the task's position are known.
pub fn report_at(
    b: &mut Builder,
    cx: &Context,
    claim: &Claim,
    position: Value,
    (result, fault, tenant): (Value, Value, Value),
) {
    let failed = b.ne(fault, 0u32);
    let outcome = b.select(failed, completion::FAULT, completion::DONE);
    let level = if cx.mutation == Some(super::Mutation::IgnoreLevel) { b.value(NORMAL) } else { claim.level };
    let above = b.shl(level, completion::LEVEL_SHIFT);
    let outcome = b.or(outcome, above);
    let above = b.and(fault, completion::FAULT_MASK);
    let above = b.shl(above, completion::FAULT_SHIFT);
    let outcome = b.or(outcome, above);
    let above = b.shl(tenant, completion::TENANT_SHIFT);
    let outcome = b.or(outcome, above);

    // The direct completion first: it is what a waiting host looks at.
    let index = b.mul(claim.slot, completion::WORDS);
    let index = b.add(cx.direct, index);
    entry(b, cx, index, [result, position, outcome, claim.generation]);

    let one = b.value(1u32);
    let ticket = take_entries(b, cx, one);
    queue_entry(b, cx, ticket, [result, position, outcome]);

    count(b, cx, state::DONE_COUNT, 1u32);
}

/// Takes `entries` entries of the completion queue in a row; gives the ticket of the first.
pub fn take_entries(b: &mut Builder, cx: &Context, entries: Value) -> Value {
    let ticket = b.at(cx.state, state::COMPLETION_TICKET);
    b.atomic(AtomicOp::Add, ticket, entries, Scope::Device, Order::Relaxed)
}

/// Stores the entry of the completion queue that has this ticket.
pub fn queue_entry(b: &mut Builder, cx: &Context, ticket: Value, [result, position, outcome]: [Value; 3]) {
    let index = b.and(ticket, cx.entry_mask);
    let index = b.mul(index, completion::WORDS);
    let index = b.add(cx.queue, index);
    let phase = b.add(ticket, 1u32);
    entry(b, cx, index, [result, position, outcome, phase]);
}

/// Counts a claim. For the leader alone.
pub fn count_claim(b: &mut Builder, cx: &Context, claim: &Claim) {
    count_claims(b, cx, claim.level, 1u32);
    guard::count_claim(b, cx, claim.level, claim.seen);
}

/// Counts `claims` claims of a level. For the leader alone.
pub fn count_claims(b: &mut Builder, cx: &Context, level: Value, claims: impl Into<Operand>) {
    let claims = b.value(claims);
    count(b, cx, state::CLAIM_COUNT, claims);
    let word = b.add(level, state::LEVEL_COUNTERS);
    count(b, cx, word, claims);
}

/// Adds to a counter of the state buffer.
pub fn count(b: &mut Builder, cx: &Context, word: impl Into<Operand>, by: impl Into<Operand>) {
    let place = b.at(cx.state, word);
    b.atomic(AtomicOp::Add, place, by, Scope::Device, Order::Relaxed);
}

/// Stores a completion as one access; its phase is the last component.
fn entry(b: &mut Builder, cx: &Context, index: Value, words: [Value; 4]) {
    let words = b.compose(words.map(Operand::Value));
    let place: Place = b.at(cx.outlet, index);
    b.store4(place, words);
}
