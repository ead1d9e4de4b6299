//! The built-in handlers. Each reaches memory only through the task's binding table, within its lengths.

use super::worker::ask_to_leave;
use super::{Context, Mutation};
use crate::ir::{AtomicOp, Builder, Order, Place, Scope, Value};
use crate::protocol::completion::fault;
use crate::protocol::{binding, opcode, outlet, slot, task};

/// A buffer of the task's binding table.
#[derive(Clone, Copy)]
struct Bound {
    low: Value,
    high: Value,
    /// Length in words.
    words: Value,
}

/// Runs a built-in, or leaves fault NO_HANDLER for a reserved opcode. All lanes take part; a control barrier must lie
/// between the intake and this.
pub fn run(b: &mut Builder, cx: &Context, code: Value) {
    let known = b.le(code, opcode::SHUTDOWN);
    b.branch(
        known,
        |b| {
            let copies = b.eq(code, opcode::MEMCPY);
            b.branch(
                copies,
                |b| copy(b, cx),
                |b| {
                    b.when(cx.leader, |b| {
                        let shutdown = b.eq(code, opcode::SHUTDOWN);
                        b.branch(shutdown, |b| ask_to_leave(b, cx, outlet::exit::SHUTDOWN), |b| one_word(b, cx, code));
                    });
                },
            );
        },
        |b| cx.store_task(b, task::FAULT, fault::NO_HANDLER),
    );
}

fn payload(b: &mut Builder, cx: &Context, word: usize) -> Value {
    cx.load_task(b, task::SLOT + slot::PAYLOAD[word])
}

fn bound(b: &mut Builder, cx: &Context, entry: u32) -> Bound {
    let first = task::BINDINGS + entry * binding::ENTRY_WORDS;
    let low = cx.load_task(b, first);
    let high = cx.load_task(b, first + 1);
    let length_low = cx.load_task(b, first + 2);
    let length_high = cx.load_task(b, first + 3);
    // An index is one word: of a longer buffer its first 2^32 - 1 words are in reach.
    let long = b.ge(length_high, 4u32);
    let above = b.shl(length_high, 30u32);
    let below = b.shr(length_low, 2u32);
    let words = b.or(above, below);
    let words = b.select(long, u32::MAX, words);
    Bound { low, high, words }
}

/// Runs `then` where the buffer is there and `count` words from `index` on lie inside, else leaves a fault.
fn within(
    b: &mut Builder,
    cx: &Context,
    buffer: Bound,
    (index, count): (Value, Value),
    then: impl FnOnce(&mut Builder),
) {
    let missing = b.eq(buffer.words, 0u32);
    b.branch(
        missing,
        |b| cx.store_task(b, task::FAULT, fault::NOT_BOUND),
        |b| {
            let begins = b.le(index, buffer.words);
            let room = b.sub(buffer.words, index);
            let ends = b.le(count, room);
            let mut inside = b.and(begins, ends);
            if cx.mutation == Some(Mutation::UncheckedIndex) {
                inside = b.value(true);
            }
            b.branch(inside, then, |b| cx.store_task(b, task::FAULT, fault::OUT_OF_RANGE));
        },
    );
}

/// STORE, ATOMIC_ADD, LOAD and COMPARE_SWAP.
fn one_word(b: &mut Builder, cx: &Context, code: Value) {
    let buffer = bound(b, cx, 0);
    let index = payload(b, cx, 0);
    let operand = payload(b, cx, 1);
    let swapped = payload(b, cx, 2);
    let one = b.value(1u32);
    within(b, cx, buffer, (index, one), |b| {
        let place = Place::Address { low: buffer.low, high: buffer.high, index, access: cx.address_access() };
        // All of these are atomic, so that tasks that share a word never see half an effect; the worker's own barriers
        // around the task order them with other tasks.
        let relaxed = Order::Relaxed;
        on(b, code, opcode::STORE, |b| {
            b.atomic_store(place, operand, Scope::Device, relaxed);
            cx.store_task(b, task::RESULT, operand);
        });
        on(b, code, opcode::LOAD, |b| {
            let value = b.atomic_load(place, Scope::Device, relaxed);
            cx.store_task(b, task::RESULT, value);
        });
        on(b, code, opcode::ATOMIC_ADD, |b| {
            let before = b.atomic(AtomicOp::Add, place, operand, Scope::Device, relaxed);
            cx.store_task(b, task::RESULT, before);
        });
        on(b, code, opcode::COMPARE_SWAP, |b| {
            let before = b.compare_exchange(place, operand, swapped, Scope::Device, relaxed);
            cx.store_task(b, task::RESULT, before);
        });
    });
}

fn on(b: &mut Builder, code: Value, opcode: u32, then: impl FnOnce(&mut Builder)) {
    let this = b.eq(code, opcode);
    b.when(this, then);
}

/// MEMCPY: payload words to, from, count; all lanes copy, and go round as often as the first does.
fn copy(b: &mut Builder, cx: &Context) {
    let (target, source) = (bound(b, cx, 0), bound(b, cx, 1));
    let (to, from, count) = (payload(b, cx, 0), payload(b, cx, 1), payload(b, cx, 2));
    within(b, cx, target, (to, count), |b| {
        within(b, cx, source, (from, count), |b| {
            let access = cx.address_access();
            let rest = b.rem(count, cx.width);
            let partial = b.ne(rest, 0u32);
            let partial = b.select(partial, 1u32, 0u32);
            let turns = b.div(count, cx.width);
            let turns = b.add(turns, partial);
            b.count(turns, |b, turn| {
                let ahead = b.mul(turn, cx.width);
                let word = b.add(ahead, cx.lane);
                // A word number that wraps past 2^32 is below the turn's first.
                let unwrapped = b.ge(word, ahead);
                let inside = b.lt(word, count);
                let inside = b.and(inside, unwrapped);
                b.when(inside, |b| {
                    let index = b.add(from, word);
                    let value = b.load(Place::Address { low: source.low, high: source.high, index, access });
                    let index = b.add(to, word);
                    b.store(Place::Address { low: target.low, high: target.high, index, access }, value);
                });
            });
            b.when(cx.leader, |b| cx.store_task(b, task::RESULT, count));
        });
    });
}
