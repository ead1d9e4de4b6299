//! Running a range: its slots are copied to workgroup memory, plain NOPs get a lane each, the others the whole worker.

use super::{COUNT, ENTRY, Fast, GENERATION, INDEX, LEVEL, OTHERS, RESULTS, SLOTS, TICKET, claim_of};
use crate::ir::{AtomicOp, Builder, MemoryClasses, Operand, Order, Place, Scope, UnaryOp, Value, Var};
use crate::protocol::completion::{self, fault};
use crate::protocol::{NORMAL, opcode, slot, state, task};
use crate::scheduler::complete::{self, queue_entry, take_entries};
use crate::scheduler::intake::{ARRIVAL_BUDGET, copy_extension, copy_payload, report_taken};
use crate::scheduler::scan::copy_units;
use crate::scheduler::{Mutation, worker};

/// Loads that a lane has under way at once: with as many lanes as tasks they copy all slots of the range.
const LOADS: u32 = slot::WORDS / 4;

/// A range, the same for all lanes of the worker.
struct Range {
    level: Value,
    /// First slot and number of slots of the level.
    partition: (Value, Value),
    /// Low 32 bits of the first position.
    ticket: Value,
    count: Value,
    /// Index and generation of the first slot.
    index: Value,
    generation: Value,
}

/// Runs the range that was decided on. All lanes of the worker take part.
pub(super) fn run(b: &mut Builder, fast: &Fast, canary: Value, exit: Var) {
    let cx = &fast.cx;
    let range = Range::load(b, fast);
    if cx.mutation == Some(Mutation::TakenEarly) {
        let mine = b.lt(cx.lane, range.count);
        let (slot, generation) = range.task(b, cx.lane);
        b.when(mine, |b| report_taken(b, cx, slot, generation));
    }
    copy_slots(b, fast, &range);
    cx.barrier(b, MemoryClasses::SHARED);
    let result = sort(b, fast, &range);
    cx.barrier(b, MemoryClasses::SHARED);
    let others = fast.word(b, OTHERS);
    complete_plain(b, fast, &range, others, result);
    let count = b.unary(UnaryOp::CountOnes, others);
    let rest = b.var(others);
    b.count(count, |b, _| {
        let bits = b.get(rest);
        let number = b.unary(UnaryOp::FindLsb, bits);
        let less = b.sub(bits, 1u32);
        let bits = b.and(bits, less);
        b.set(rest, bits);
        run_one(b, fast, &range, number, (canary, exit));
    });
}

impl Range {
    fn load(b: &mut Builder, fast: &Fast) -> Self {
        let level = fast.word(b, LEVEL);
        Self {
            level,
            partition: fast.cx.partition(b, level),
            ticket: fast.word(b, TICKET),
            count: fast.word(b, COUNT),
            index: fast.word(b, INDEX),
            generation: fast.word(b, GENERATION),
        }
    }

    /// Slot and generation of the range's task of that number.
    fn task(&self, b: &mut Builder, number: Value) -> (Value, Value) {
        let (begin, size) = self.partition;
        let index = b.add(self.index, number);
        let wraps = b.ge(index, size);
        let wrapped = b.sub(index, size);
        let index = b.select(wraps, wrapped, index);
        let next = b.add(self.generation, 1u32);
        (b.add(begin, index), b.select(wraps, next, self.generation))
    }
}

/// A unit of the range that a lane copies.
struct Unit {
    place: Place,
    /// First of its words in workgroup memory.
    to: Value,
    generation: Value,
    valid: Value,
    seen: Var,
}

/// Copies the range's slots to workgroup memory. Units that are late are read again, within bounds: their tags stay wrong
/// otherwise.
fn copy_slots(b: &mut Builder, fast: &Fast, range: &Range) {
    let cx = &fast.cx;
    let units = b.mul(range.count, LOADS);
    // All loads are under way before the first is used.
    let units: Vec<Unit> = (0..LOADS)
        .map(|load| {
            let ahead = b.mul(cx.width, load);
            let unit = b.add(cx.lane, ahead);
            let valid = b.lt(unit, units);
            let unit = b.select(valid, unit, 0u32);
            let number = b.shr(unit, 2u32);
            let (slot, generation) = range.task(b, number);
            let part = b.and(unit, 3u32);
            let word = b.shl(part, 2u32);
            let place = cx.slot_word(b, slot, word);
            let seen = b.load4(place);
            let seen = b.var(seen);
            let to = b.shl(unit, 2u32);
            let to = b.add(to, SLOTS);
            Unit { place, to, generation, valid, seen }
        })
        .collect();
    let late = any_late(b, &units);
    b.when(late, |b| {
        b.count(ARRIVAL_BUDGET, |b, _| {
            for unit in &units {
                let late = is_late(b, unit);
                b.when(late, |b| {
                    let seen = b.load4(unit.place);
                    b.set(unit.seen, seen);
                });
            }
            let late = any_late(b, &units);
            let all = b.eq(late, false);
            b.break_if(all);
        });
    });
    for unit in &units {
        b.when(unit.valid, |b| {
            let seen = b.get(unit.seen);
            for part in 0..4 {
                let value = b.extract(seen, part);
                let to = b.add(unit.to, part);
                let to = b.shared_at(fast.words, to);
                b.store(to, value);
            }
        });
    }
}

fn is_late(b: &mut Builder, unit: &Unit) -> Value {
    let seen = b.get(unit.seen);
    let tag = b.extract(seen, 0);
    let late = b.ne(tag, unit.generation);
    b.and(late, unit.valid)
}

fn any_late(b: &mut Builder, units: &[Unit]) -> Value {
    let mut any = b.value(false);
    for unit in units {
        let late = is_late(b, unit);
        any = b.or(any, late);
    }
    any
}

/// Word `word` of the range's task of that number, in workgroup memory.
fn copied(b: &mut Builder, fast: &Fast, number: Value, word: impl Into<Operand>) -> Value {
    let first = b.mul(number, slot::WORDS);
    let first = b.add(first, SLOTS);
    let word = b.add(first, word);
    let place = b.shared_at(fast.words, word);
    b.load(place)
}

/// What is wrong with a task before it has run: a fault code, or 0.
fn flaw(b: &mut Builder, fast: &Fast, range: &Range, number: Value, generation: Value) -> Value {
    let kind = copied(b, fast, number, slot::KIND);
    let level = b.shr(kind, slot::LEVEL_SHIFT);
    let level = b.and(level, slot::LEVEL_MASK);
    let wrong = b.ne(level, range.level);
    let mut flaw = b.select(wrong, fault::WRONG_LEVEL, 0u32);
    // Runtimes with other tenants scan.
    let tenant = copied(b, fast, number, slot::TENANT);
    let foreign = b.ne(tenant, 0u32);
    flaw = b.select(foreign, fault::TENANT, flaw);
    for tag in slot::TAGS {
        let seen = copied(b, fast, number, tag);
        let old = b.ne(seen, generation);
        flaw = b.select(old, fault::TORN, flaw);
    }
    flaw
}

/// Whether a task of this kind and flaw goes on in its slot's extension, which is copied when the task runs.
fn is_extended(b: &mut Builder, kind: Value, flaw: Value) -> Value {
    let opcode = b.and(kind, slot::HANDLER_MASK);
    let handler = b.ge(opcode, opcode::FIRST_HANDLER);
    let extended = b.and(kind, slot::FLAG_EXTENDED);
    let extended = b.ne(extended, 0u32);
    let whole = b.eq(flaw, 0u32);
    let extended = b.and(extended, handler);
    b.and(extended, whole)
}

/// Each lane looks at its task: it says which others there are, gives slots back, and gives the result of a plain one.
fn sort(b: &mut Builder, fast: &Fast, range: &Range) -> Value {
    let cx = &fast.cx;
    let result = b.var(0u32);
    let mine = b.lt(cx.lane, range.count);
    b.when(mine, |b| {
        let (slot, generation) = range.task(b, cx.lane);
        let flaw = flaw(b, fast, range, cx.lane, generation);
        let kind = copied(b, fast, cx.lane, slot::KIND);
        let opcode = b.and(kind, slot::HANDLER_MASK);
        let nop = b.eq(opcode, opcode::NOP);
        let whole = b.eq(flaw, 0u32);
        let plain = b.and(nop, whole);
        let echo = copied(b, fast, cx.lane, slot::PAYLOAD[0]);
        b.set(result, echo);
        let relaxed = Order::Relaxed;
        b.branch(
            plain,
            |b| {
                let some = b.ne(echo, 0u32);
                b.when(some, |b| {
                    let results = b.shared_at(fast.words, RESULTS);
                    b.atomic(AtomicOp::Or, results, 1u32, Scope::Workgroup, relaxed);
                });
            },
            |b| {
                let bit = b.shl(1u32, cx.lane);
                let others = b.shared_at(fast.words, OTHERS);
                b.atomic(AtomicOp::Or, others, bit, Scope::Workgroup, relaxed);
            },
        );
        // All lanes have copied their parts: the slot may be written again, but for what the task has in its extension.
        let extended = is_extended(b, kind, flaw);
        let copied = b.eq(extended, false);
        if cx.mutation != Some(Mutation::TakenEarly) {
            b.when(copied, |b| report_taken(b, cx, slot, generation));
        }
    });
    b.get(result)
}

/// Completes the plain tasks of the range, of which this lane's has that result.
fn complete_plain(b: &mut Builder, fast: &Fast, range: &Range, others: Value, result: Value) {
    let cx = &fast.cx;
    let results = fast.word(b, RESULTS);
    let alike = b.or(results, others);
    let alike = b.eq(alike, 0u32);
    let several = b.gt(range.count, 1u32);
    let one_entry = b.and(alike, several);
    let lone = b.eq(others, 0u32);
    let single = b.eq(several, false);
    let lone = b.and(lone, single);
    let other = b.unary(UnaryOp::CountOnes, others);
    let plain = b.sub(range.count, other);
    let level = if cx.mutation == Some(Mutation::IgnoreLevel) { b.value(NORMAL) } else { range.level };
    let level = b.shl(level, completion::LEVEL_SHIFT);
    let done = b.or(level, completion::DONE);
    b.branch(
        one_entry,
        |b| {
            b.when(cx.leader, |b| {
                let entries = b.value(1u32);
                let entry = take_entries(b, cx, entries);
                let tasks = b.shl(range.count, completion::FAULT_SHIFT);
                let outcome = b.or(done, tasks);
                let outcome = b.or(outcome, completion::RANGE);
                let none = b.value(0u32);
                queue_entry(b, cx, entry, [none, range.ticket, outcome]);
                complete::count(b, cx, state::DONE_COUNT, range.count);
            });
        },
        |b| {
            b.branch(
                lone,
                |b| {
                    b.when(cx.leader, |b| {
                        let zero = b.value(0u32);
                        let (slot, generation) = range.task(b, zero);
                        let claim = claim_of(b, slot, generation, range.level);
                        complete::report_at(b, cx, &claim, range.ticket, (result, zero, zero));
                    });
                },
                |b| {
                    let some = b.ne(plain, 0u32);
                    b.when(some, |b| {
                        b.when(cx.leader, |b| {
                            let entry = take_entries(b, cx, plain);
                            fast.set_word(b, ENTRY, entry);
                        });
                        cx.barrier(b, MemoryClasses::SHARED);
                        complete_each(b, fast, range, others, (result, done));
                        b.when(cx.leader, |b| complete::count(b, cx, state::DONE_COUNT, plain));
                    });
                },
            );
        },
    );
}

/// Each lane stores the entry of its plain task.
fn complete_each(b: &mut Builder, fast: &Fast, range: &Range, others: Value, (result, done): (Value, Value)) {
    let cx = &fast.cx;
    let mine = b.lt(cx.lane, range.count);
    b.when(mine, |b| {
        let bit = b.shl(1u32, cx.lane);
        let other = b.and(others, bit);
        let plain = b.eq(other, 0u32);
        b.when(plain, |b| {
            let before = b.sub(bit, 1u32);
            let skipped = b.and(others, before);
            let skipped = b.unary(UnaryOp::CountOnes, skipped);
            let rank = b.sub(cx.lane, skipped);
            let first = fast.word(b, ENTRY);
            let entry = b.add(first, rank);
            let position = b.add(range.ticket, cx.lane);
            queue_entry(b, cx, entry, [result, position, done]);
        });
    });
}

/// Runs one of the other tasks with all lanes of the worker.
fn run_one(b: &mut Builder, fast: &Fast, range: &Range, number: Value, (canary, exit): (Value, Var)) {
    let cx = &fast.cx;
    let (slot, generation) = range.task(b, number);
    let claim = claim_of(b, slot, generation, range.level);
    // The task before is done with its words.
    cx.barrier(b, MemoryClasses::SHARED);
    let flaw = flaw(b, fast, range, number, generation);
    copy_units(b, cx, slot::WORDS, |b, word| {
        let value = copied(b, fast, number, word);
        let to = b.add(word, task::SLOT);
        let to = b.shared_at(cx.task, to);
        b.store(to, value);
    });
    b.when(cx.leader, |b| {
        cx.store_task(b, task::RESULT, 0u32);
        cx.store_task(b, task::FAULT, flaw);
    });
    cx.barrier(b, MemoryClasses::SHARED);
    let kind = cx.load_task(b, task::SLOT + slot::KIND);
    let code = b.and(kind, slot::HANDLER_MASK);
    let handler = b.ge(code, opcode::FIRST_HANDLER);
    b.when(handler, |b| {
        copy_payload(b, cx);
        let extended = is_extended(b, kind, flaw);
        b.when(extended, |b| {
            copy_extension(b, cx, &claim);
            // Every lane has read its part of the extension before one gives the slot back.
            cx.barrier(b, MemoryClasses::ALL);
            b.when(cx.leader, |b| report_taken(b, cx, slot, generation));
        });
    });
    worker::run(b, cx, code, canary, exit);
    b.when(cx.leader, |b| {
        let result = cx.load_task(b, task::RESULT);
        let fault = cx.load_task(b, task::FAULT);
        let tenant = cx.load_task(b, task::SLOT + slot::TENANT);
        let position = b.add(range.ticket, number);
        complete::report_at(b, cx, &claim, position, (result, fault, tenant));
    });
}
