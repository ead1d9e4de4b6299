//! From a claim to a task whose words are all here: tags, extension, bindings, and the slot given back.

use super::context::round_to_lines;
use super::scan::{Claim, copy_slot, copy_units};
use super::{Context, Fences, Mutation};
use crate::ir::{Builder, MemoryClasses, Order, Scope, Value};
use crate::protocol::completion::fault;
use crate::protocol::{binding, launch, opcode, outlet, slot, state, task};

/// Times that a unit whose tag is old is read again: far more than a store needs to cross the bus.
pub const ARRIVAL_BUDGET: u32 = 4096;

/// Takes in a claimed task and gives its opcode. All lanes take part; afterwards, and after a control barrier, they may
/// read the task's words. What is wrong with the task is in its FAULT word.
pub fn take_in(b: &mut Builder, cx: &Context, claim: &Claim) -> Value {
    if cx.mutation == Some(Mutation::TakenEarly) {
        b.when(cx.leader, |b| take(b, cx, claim));
    }
    await_slot(b, cx, claim);
    let kind = cx.load_task(b, task::SLOT + slot::KIND);
    let opcode = b.and(kind, slot::HANDLER_MASK);
    let level = b.shr(kind, slot::LEVEL_SHIFT);
    let level = b.and(level, slot::LEVEL_MASK);
    let wrong = b.ne(level, claim.level);
    if cx.mutation != Some(Mutation::IgnoreLevel) {
        b.when(wrong, |b| cx.store_task(b, task::FAULT, fault::WRONG_LEVEL));
    }
    let handler = b.ge(opcode, opcode::FIRST_HANDLER);
    b.when(handler, |b| {
        copy_payload(b, cx);
        let extended = b.and(kind, slot::FLAG_EXTENDED);
        let extended = b.ne(extended, 0u32);
        b.when(extended, |b| {
            copy_extension(b, cx, claim);
            // The slot is given back below, by one lane: every lane must have read its part by then.
            cx.barrier(b, MemoryClasses::ALL);
        });
    });
    if cx.mutation != Some(Mutation::TakenEarly) {
        b.when(cx.leader, |b| take(b, cx, claim));
    }
    opcode
}

/// A device-scope barrier on buffers, or nothing under [`Fences::None`].
pub fn fence(b: &mut Builder, cx: &Context, order: Order) {
    if cx.fences == Fences::Full {
        b.memory_barrier(Scope::Device, order, MemoryClasses::BUFFERS);
    }
}

/// Waits, within bounds, for units of the slot that the scan's copy came too early for.
fn await_slot(b: &mut Builder, cx: &Context, claim: &Claim) {
    let torn = b.var(false);
    let check = |b: &mut Builder| {
        b.set(torn, false);
        for tag in slot::TAGS {
            let seen = cx.load_task(b, task::SLOT + tag);
            let old = b.ne(seen, claim.generation);
            b.when(old, |b| b.set(torn, true));
        }
    };
    check(b);
    let late = b.get(torn);
    b.when(late, |b| {
        b.count(ARRIVAL_BUDGET, |b, _| {
            cx.barrier(b, MemoryClasses::SHARED);
            copy_slot(b, cx, claim.slot);
            cx.barrier(b, MemoryClasses::SHARED);
            check(b);
            let torn = b.get(torn);
            let whole = b.eq(torn, false);
            b.break_if(whole);
        });
        let torn = b.get(torn);
        b.when(torn, |b| cx.store_task(b, task::FAULT, fault::TORN));
    });
}

/// Index in the state buffer of a word of this worker's scratch.
pub fn scratch(b: &mut Builder, cx: &Context, word: impl Into<crate::ir::Operand>) -> Value {
    scratch_at(b, cx, cx.worker, word)
}

/// Index in the state buffer of a word of a worker's scratch.
pub fn scratch_at(b: &mut Builder, cx: &Context, worker: Value, word: impl Into<crate::ir::Operand>) -> Value {
    let lines = round_to_lines(b, cx.slots);
    let worker = b.mul(worker, state::SCRATCH_WORDS);
    let first = b.add(lines, worker);
    let first = b.add(first, state::SLOT_STATES);
    b.add(first, word)
}

/// Copies the inline payload to the worker's scratch, where handlers read their push constants.
pub fn copy_payload(b: &mut Builder, cx: &Context) {
    copy_units(b, cx, slot::INLINE_PAYLOAD, |b, word| {
        let skipped = b.ge(word, 3u32);
        let skipped = b.select(skipped, 1u32, 0u32);
        let from = b.add(word, skipped);
        let from = b.add(from, task::SLOT + slot::PAYLOAD[0]);
        let from = b.shared_at(cx.task, from);
        let value = b.load(from);
        let to = scratch(b, cx, word);
        let to = b.at(cx.state, to);
        b.store(to, value);
    });
}

/// Copies the extension's payload to the scratch, behind the inline payload.
pub fn copy_extension(b: &mut Builder, cx: &Context, claim: &Claim) {
    let tables = b.param(launch::TABLES);
    let first = b.mul(cx.slots, slot::WORDS);
    let tables = b.mul(tables, binding::TABLE_WORDS);
    let first = b.add(first, tables);
    let ahead = b.mul(claim.slot, slot::EXTENSION_WORDS);
    let first = b.add(first, ahead);
    let first = b.add(first, crate::protocol::inlet::CONTROL_WORDS);
    copy_units(b, cx, slot::EXTENSION_WORDS / 4, |b, unit| {
        let ahead = b.mul(unit, 4u32);
        let from = b.add(first, ahead);
        let from = b.at(cx.inlet, from);
        let words = b.load4(from);
        let seen = b.var(words);
        let tag = b.extract(words, 0);
        let old = b.ne(tag, claim.generation);
        b.when(old, |b| {
            let arrived = b.var(false);
            b.count(ARRIVAL_BUDGET, |b, _| {
                let words = b.load4(from);
                b.set(seen, words);
                let tag = b.extract(words, 0);
                let whole = b.eq(tag, claim.generation);
                b.when(whole, |b| {
                    b.set(arrived, true);
                    b.break_();
                });
            });
            let arrived = b.get(arrived);
            let lost = b.eq(arrived, false);
            b.when(lost, |b| cx.store_task(b, task::FAULT, fault::TORN));
        });
        let words = b.get(seen);
        let ahead = b.mul(unit, 3u32);
        for part in 1..4 {
            let value = b.extract(words, part);
            let word = b.add(ahead, slot::INLINE_PAYLOAD + part - 1);
            let to = scratch(b, cx, word);
            let to = b.at(cx.state, to);
            b.store(to, value);
        }
    });
}

/// Gives the slot back: the next generation may be published, and may be claimed. For one lane alone.
pub fn take(b: &mut Builder, cx: &Context, claim: &Claim) {
    let empty = b.shl(claim.generation, slot::state::BITS);
    let empty = b.or(empty, slot::state::EMPTY);
    let place = cx.slot_state(b, claim.slot);
    // Release: pairs with the acquire of the slot's next claim.
    let order = cx.order(Order::Release);
    b.atomic_store(place, empty, Scope::Device, order);
    report_taken(b, cx, claim.slot, claim.generation);
}

/// Tells the host that it may write the slot's next generation.
pub fn report_taken(b: &mut Builder, cx: &Context, slot: Value, generation: Value) {
    let taken = b.add(slot, outlet::STATUS_WORDS);
    let taken = b.at(cx.outlet, taken);
    b.store(taken, generation);
}

/// Copies the binding table to the task's words; a task without one gets an empty table where a handler looks for it.
pub fn copy_bindings(b: &mut Builder, cx: &Context) {
    let table = cx.load_task(b, task::SLOT + slot::BINDINGS);
    let named = b.ne(table, binding::NONE);
    b.when(named, |b| {
        let tables = b.param(launch::TABLES);
        let known = b.lt(table, tables);
        b.branch(
            known,
            |b| {
                let first = b.mul(cx.slots, slot::WORDS);
                let ahead = b.mul(table, binding::TABLE_WORDS);
                let first = b.add(first, ahead);
                let first = b.add(first, crate::protocol::inlet::CONTROL_WORDS);
                copy_units(b, cx, binding::ENTRIES, |b, entry| {
                    let ahead = b.mul(entry, binding::ENTRY_WORDS);
                    let from = b.add(first, ahead);
                    let from = b.at(cx.inlet, from);
                    let words = b.load4(from);
                    for part in 0..binding::ENTRY_WORDS {
                        let value = b.extract(words, part);
                        let to = b.add(ahead, task::BINDINGS + part);
                        let to = b.shared_at(cx.task, to);
                        b.store(to, value);
                    }
                });
            },
            |b| cx.store_task(b, task::FAULT, fault::NOT_BOUND),
        );
    });
    let unnamed = b.eq(table, binding::NONE);
    b.when(unnamed, |b| {
        copy_units(b, cx, binding::TABLE_WORDS, |b, word| {
            let to = b.add(word, task::BINDINGS);
            let to = b.shared_at(cx.task, to);
            b.store(to, 0u32);
        });
    });
}

/// Fills the words that a linked handler reads: one workgroup, its grid, and the address of its payload.
pub fn describe(b: &mut Builder, cx: &Context) {
    b.when(cx.leader, |b| {
        for word in 0..3 {
            cx.store_task(b, task::GROUP + word, 0u32);
            cx.store_task(b, task::GRID + word, 1u32);
        }
        let low = b.param(launch::STATE_LOW);
        let high = b.param(launch::STATE_HIGH);
        let ahead = scratch(b, cx, 0u32);
        let ahead = b.shl(ahead, 2u32);
        let low = b.add(low, ahead);
        let carry = b.lt(low, ahead);
        let carry = b.select(carry, 1u32, 0u32);
        let high = b.add(high, carry);
        cx.store_task(b, task::PAYLOAD_LOW, low);
        cx.store_task(b, task::PAYLOAD_HIGH, high);
    });
}
