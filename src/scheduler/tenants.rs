//! Tenants in the kernel: a task whose tenant is blocked moves to that tenant's queue, and runs once the tenant is open.
//!
//! The worker that has claimed a task looks at its tenant's bits. A blocked tenant's task is copied to the tenant's queue in
//! the state buffer, where it costs the others nothing: the slot it came from is free by then. A queue is a ring with one
//! entry for each task that the tenant may have in flight, so that there is always room. In each pass a worker's leader looks
//! whether an open tenant has such tasks; one worker at a time takes the first of a queue, which then competes in the scan by
//! its level, as a slot does. A tenant's tasks come out of its queue in the order in which they came in.

use super::scan::{Claim, Found, NO_CLAIM, copy_units};
use super::{Context, Mutation, guard, intake};
use crate::ir::{AtomicOp, Builder, MemoryClasses, Order, Place, Scope, UnaryOp, Value, Var};
use crate::protocol::completion::fault;
use crate::protocol::tenant::{BITMAP_WORDS, ENTRY_SLOT, ENTRY_STAMP, ENTRY_WORDS, HEAD, RUNS, TAIL};
use crate::protocol::{LINE, inlet, launch, opcode, outlet, slot, state, task};

/// First word of the queue entry that the worker takes or fills.
const ENTRY: u32 = task::KERNEL + 11;
/// What becomes of the task that was claimed.
const VERDICT: u32 = task::KERNEL + 12;
const _: () = assert!(VERDICT < task::WORDS);

const RUN: u32 = 0;
const PARK: u32 = 1;

/// What stays the same for a launch, and what a worker's leader holds during a pass.
#[derive(Clone, Debug)]
pub(super) struct Tenants {
    /// Whether there are tenants but the first.
    on: Value,
    count: Value,
    credits: Value,
    /// First tenant's line.
    lines: Value,
    /// First tenant's first entry.
    entries: Value,
    /// The tenant whose queue the leader may take from in this pass, plus one.
    held: Var,
    /// Ticket of the first task in that queue.
    head: Var,
}

/// A task that was taken from a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resumed {
    /// Slot that it was published in.
    pub slot: Value,
    /// Generation of the slot then.
    pub generation: Value,
    /// Its opcode.
    pub code: Value,
}

impl Tenants {
    /// Reads what stays the same.
    pub fn new(b: &mut Builder, cx: &Context) -> Self {
        let count = b.param(launch::TENANTS);
        let on = b.gt(count, 1u32);
        let credits = b.param(launch::CREDITS);
        let scratch = intake::scratch_at(b, cx, cx.workers, 0u32);
        let words = b.mul(count, LINE);
        let entries = b.add(scratch, words);
        Self { on, count, credits, lines: scratch, entries, held: b.var(0u32), head: b.var(0u32) }
    }

    /// Whether a claim is of a task in a tenant's queue: those have numbers behind the slots'.
    pub fn is_parked(&self, b: &mut Builder, cx: &Context, claim: &Claim) -> Value {
        let some = b.ne(claim.slot, NO_CLAIM);
        let behind = b.ge(claim.slot, cx.slots);
        b.and(some, behind)
    }

    /// Offers the first task of an open tenant's queue to the pass. For the leader alone.
    pub fn look(&self, b: &mut Builder, cx: &Context, found: &Found) {
        b.when(self.on, |b| {
            let ready = ready(b, cx);
            let mut any = b.value(0u32);
            for &word in &ready {
                any = b.or(any, word);
            }
            let some = b.ne(any, 0u32);
            b.when(some, |b| self.take_hold(b, cx, &ready, found));
        });
    }

    /// Becomes the one that looks at queues, if nobody is, and looks at the next ready tenant's.
    fn take_hold(&self, b: &mut Builder, cx: &Context, ready: &[Value], found: &Found) {
        let token = b.at(cx.state, state::TENANT_TOKEN);
        // Acquire: pairs with the release in `let_go`; what the last holder did to the queues is seen.
        let order = cx.order(Order::Acquire);
        let free = b.value(0u32);
        let before = b.compare_exchange(token, free, 1u32, Scope::Device, order);
        let won = b.eq(before, free);
        b.when(won, |b| {
            let next = b.at(cx.state, state::NEXT_TENANT);
            let next = b.load(next);
            let tenant = first_from(b, ready, next);
            let held = b.add(tenant, 1u32);
            b.set(self.held, held);
            let head = self.word(b, cx, tenant, HEAD);
            let head = b.load(head);
            b.set(self.head, head);
            let entry = self.entry(b, tenant, head);
            let here = stamped(b, cx, entry, head);
            b.branch(
                here,
                |b| {
                    let kind = b.add(entry, slot::KIND);
                    let kind = b.at(cx.state, kind);
                    let kind = b.load(kind);
                    let level = b.shr(kind, slot::LEVEL_SHIFT);
                    let level = b.and(level, slot::LEVEL_MASK);
                    let number = b.add(cx.slots, tenant);
                    let zero = b.value(0u32);
                    cx.store_task(b, ENTRY, entry);
                    found.offer(b, cx, (level, zero, number), zero, (zero, zero));
                },
                |b| self.clear(b, cx, tenant, (entry, head)),
            );
        });
    }

    /// Takes a tenant whose queue is empty out of the backlog.
    fn clear(&self, b: &mut Builder, cx: &Context, tenant: Value, (entry, head): (Value, Value)) {
        let (word, bit) = backlog_bit(b, cx, tenant);
        let others = b.xor(bit, u32::MAX);
        // Acquire: pairs with the release in `park`. A task whose bit was set before this is seen below; the bit of one that
        // comes later stays.
        let order = cx.order(Order::AcquireRelease);
        b.atomic(AtomicOp::And, word, others, Scope::Device, order);
        let here = stamped(b, cx, entry, head);
        b.when(here, |b| {
            let (word, bit) = backlog_bit(b, cx, tenant);
            b.atomic(AtomicOp::Or, word, bit, Scope::Device, Order::Relaxed);
        });
    }

    /// Takes the claimed task out of the queue that the leader holds. For the leader alone, after the pass and before it lets go.
    pub fn take_out(&self, b: &mut Builder, cx: &Context, claim: &Claim) {
        let held = b.get(self.held);
        let tenant = b.sub(held, 1u32);
        let head = b.get(self.head);
        let next = b.add(head, 1u32);
        let word = self.word(b, cx, tenant, HEAD);
        b.store(word, next);
        let less = b.value(u32::MAX);
        add(b, cx, state::PARKED_COUNT, less);
        guard::count_claim(b, cx, claim.level, claim.seen);
    }

    /// Lets others look at queues again, if the leader was the one. For the leader alone, after the pass.
    pub fn let_go(&self, b: &mut Builder, cx: &Context) {
        let held = b.get(self.held);
        let holds = b.ne(held, 0u32);
        b.when(holds, |b| {
            b.set(self.held, 0u32);
            let next = b.at(cx.state, state::NEXT_TENANT);
            b.store(next, held);
            let token = b.at(cx.state, state::TENANT_TOKEN);
            // Release: pairs with the acquire in `take_hold`.
            let order = cx.order(Order::Release);
            b.atomic_store(token, 0u32, Scope::Device, order);
        });
    }

    /// Copies the claimed task from its queue to where a task that was taken in lies. All lanes take part; a control barrier
    /// must follow.
    pub fn resume(&self, b: &mut Builder, cx: &Context) -> Resumed {
        // The leader has seen the entry's stamp: what was stored before it is visible to every lane after this.
        cx.barrier(b, MemoryClasses::ALL);
        intake::fence(b, cx, Order::Acquire);
        let entry = cx.load_task(b, ENTRY);
        copy_units(b, cx, slot::WORDS, |b, word| {
            let from = b.add(entry, word);
            let from = b.at(cx.state, from);
            let value = b.load(from);
            let to = b.add(word, task::SLOT);
            let to = b.shared_at(cx.task, to);
            b.store(to, value);
        });
        copy_units(b, cx, slot::EXTENSION_PAYLOAD, |b, word| {
            let from = b.add(entry, word);
            let from = b.add(from, slot::WORDS);
            let from = b.at(cx.state, from);
            let value = b.load(from);
            let to = b.add(word, slot::INLINE_PAYLOAD);
            let to = intake::scratch(b, cx, to);
            let to = b.at(cx.state, to);
            b.store(to, value);
        });
        cx.barrier(b, MemoryClasses::ALL);
        intake::copy_payload(b, cx);
        let kind = cx.load_task(b, task::SLOT + slot::KIND);
        Resumed {
            slot: cx.load_task(b, task::SLOT + ENTRY_SLOT),
            generation: cx.load_task(b, task::SLOT + slot::GENERATION),
            code: b.and(kind, slot::HANDLER_MASK),
        }
    }

    /// Decides whether the task that was taken in runs now: true where it moves to its tenant's queue. All lanes take part.
    pub fn must_wait(&self, b: &mut Builder, cx: &Context) -> Value {
        let tenant = cx.load_task(b, task::SLOT + slot::TENANT);
        let other = b.ne(tenant, 0u32);
        let waits = b.var(false);
        b.when(other, |b| {
            b.when(cx.leader, |b| self.judge(b, cx, tenant));
            cx.barrier(b, MemoryClasses::ALL);
            let verdict = cx.load_task(b, VERDICT);
            let park = b.eq(verdict, PARK);
            b.set(waits, park);
        });
        b.get(waits)
    }

    fn judge(&self, b: &mut Builder, cx: &Context, tenant: Value) {
        cx.store_task(b, VERDICT, RUN);
        let exists = b.lt(tenant, self.count);
        let index = b.select(exists, tenant, 0u32);
        let known = host_bit(b, cx, inlet::TENANTS_KNOWN, index);
        let known = b.and(known, exists);
        let known = if cx.mutation == Some(Mutation::AnyTenant) { b.value(true) } else { known };
        let open = host_bit(b, cx, inlet::TENANTS_OPEN, index);
        let open = match cx.mutation {
            Some(Mutation::AnyTenant | Mutation::IgnoreMask) => b.value(true),
            _ => open,
        };
        b.branch(
            known,
            |b| {
                b.branch(
                    open,
                    |b| {
                        let runs = self.word(b, cx, index, RUNS);
                        b.atomic(AtomicOp::Add, runs, 1u32, Scope::Device, Order::Relaxed);
                    },
                    |b| {
                        // Always free: a tenant has no more tasks in flight than its queue has entries.
                        let tail = self.word(b, cx, index, TAIL);
                        let ticket = b.atomic(AtomicOp::Add, tail, 1u32, Scope::Device, Order::Relaxed);
                        let entry = self.entry(b, index, ticket);
                        cx.store_task(b, ENTRY, entry);
                        // Where a resumed task's ticket would be: nobody reads the task's tags any more.
                        cx.store_task(b, task::SLOT + ENTRY_STAMP, ticket);
                        cx.store_task(b, VERDICT, PARK);
                    },
                );
            },
            |b| cx.store_task(b, task::FAULT, fault::TENANT),
        );
    }

    /// Moves the task that was taken in to its tenant's queue. All lanes take part.
    pub fn park(&self, b: &mut Builder, cx: &Context, claim: &Claim) {
        let entry = cx.load_task(b, ENTRY);
        let kind = cx.load_task(b, task::SLOT + slot::KIND);
        copy_units(b, cx, slot::WORDS, |b, word| {
            let stamp = b.eq(word, ENTRY_STAMP);
            let other = b.eq(stamp, false);
            b.when(other, |b| {
                let from = b.add(word, task::SLOT);
                let from = b.shared_at(cx.task, from);
                let value = b.load(from);
                let number = b.eq(word, ENTRY_SLOT);
                let value = b.select(number, claim.slot, value);
                let to = b.add(entry, word);
                let to = b.at(cx.state, to);
                b.store(to, value);
            });
        });
        let code = b.and(kind, slot::HANDLER_MASK);
        let handler = b.ge(code, opcode::FIRST_HANDLER);
        let extended = b.and(kind, slot::FLAG_EXTENDED);
        let extended = b.ne(extended, 0u32);
        let extended = b.and(handler, extended);
        b.when(extended, |b| {
            copy_units(b, cx, slot::EXTENSION_PAYLOAD, |b, word| {
                let from = b.add(word, slot::INLINE_PAYLOAD);
                let from = intake::scratch(b, cx, from);
                let from = b.at(cx.state, from);
                let value = b.load(from);
                let to = b.add(entry, word);
                let to = b.add(to, slot::WORDS);
                let to = b.at(cx.state, to);
                b.store(to, value);
            });
        });
        // Release of every lane, then all lanes before the leader's stamp.
        intake::fence(b, cx, Order::Release);
        cx.barrier(b, MemoryClasses::ALL);
        b.when(cx.leader, |b| {
            let ticket = cx.load_task(b, task::SLOT + ENTRY_STAMP);
            let stamp = b.add(ticket, 1u32);
            let place = b.add(entry, ENTRY_STAMP);
            let place = b.at(cx.state, place);
            // Release: pairs with the acquire in `stamped`.
            let order = cx.order(Order::Release);
            b.atomic_store(place, stamp, Scope::Device, order);
            let tenant = cx.load_task(b, task::SLOT + slot::TENANT);
            let (word, bit) = backlog_bit(b, cx, tenant);
            // Release: pairs with the acquire in `clear`.
            let order = cx.order(Order::Release);
            b.atomic(AtomicOp::Or, word, bit, Scope::Device, order);
            let one = b.value(1u32);
            add(b, cx, state::PARKED_COUNT, one);
        });
    }

    /// Tells the host, at the end of a launch, what waits in queues. For the leader of the last worker alone.
    pub fn leave(&self, b: &mut Builder, cx: &Context) {
        b.when(self.on, |b| {
            let epoch = b.at(cx.inlet, inlet::TENANTS_EPOCH);
            // Acquire: the bitmap is read after it, as the host stores the bitmap before.
            let order = cx.order(Order::Acquire);
            let epoch = b.atomic_load(epoch, Scope::Device, order);
            let mut any = b.value(0u32);
            for word in ready(b, cx) {
                any = b.or(any, word);
            }
            let some = b.ne(any, 0u32);
            let some = b.select(some, 1u32, 0u32);
            let count = b.at(cx.state, state::PARKED_COUNT);
            let count = b.load(count);
            for (word, value) in [(outlet::PARKED, count), (outlet::PARKED_OPEN, some), (outlet::PARKED_EPOCH, epoch)] {
                let place = b.at(cx.outlet, word);
                b.store(place, value);
            }
        });
    }

    /// A word of a tenant's line.
    fn word(&self, b: &mut Builder, cx: &Context, tenant: Value, word: u32) -> Place {
        let line = b.mul(tenant, LINE);
        let line = b.add(line, self.lines);
        let index = b.add(line, word);
        b.at(cx.state, index)
    }

    /// First word of a ticket's entry in a tenant's queue.
    fn entry(&self, b: &mut Builder, tenant: Value, ticket: Value) -> Value {
        let first = b.mul(tenant, self.credits);
        let mask = b.sub(self.credits, 1u32);
        let index = b.and(ticket, mask);
        let index = b.add(first, index);
        let words = b.mul(index, ENTRY_WORDS);
        b.add(self.entries, words)
    }
}

/// Adds to a word of the state.
fn add(b: &mut Builder, cx: &Context, word: u32, value: Value) {
    let place = b.at(cx.state, word);
    b.atomic(AtomicOp::Add, place, value, Scope::Device, Order::Relaxed);
}

/// Whether the entry holds the task with that ticket.
fn stamped(b: &mut Builder, cx: &Context, entry: Value, ticket: Value) -> Value {
    let stamp = b.add(entry, ENTRY_STAMP);
    let stamp = b.at(cx.state, stamp);
    // Acquire: pairs with the release in `park`.
    let order = cx.order(Order::Acquire);
    let stamp = b.atomic_load(stamp, Scope::Device, order);
    let expected = b.add(ticket, 1u32);
    b.eq(stamp, expected)
}

/// Place and bit of a tenant in the backlog.
fn backlog_bit(b: &mut Builder, cx: &Context, tenant: Value) -> (Place, Value) {
    let word = b.shr(tenant, 5u32);
    let word = b.and(word, BITMAP_WORDS - 1);
    let word = b.add(word, state::BACKLOG);
    (b.at(cx.state, word), bit_of(b, tenant))
}

fn bit_of(b: &mut Builder, tenant: Value) -> Value {
    let shift = b.and(tenant, 31u32);
    let one = b.value(1u32);
    b.shl(one, shift)
}

/// A tenant's bit in one of the host's bitmaps.
fn host_bit(b: &mut Builder, cx: &Context, bitmap: u32, tenant: Value) -> Value {
    let word = b.shr(tenant, 5u32);
    let word = b.and(word, BITMAP_WORDS - 1);
    let word = b.add(word, bitmap);
    let word = b.at(cx.inlet, word);
    let word = b.load(word);
    let bit = bit_of(b, tenant);
    let bit = b.and(word, bit);
    b.ne(bit, 0u32)
}

/// Open tenants with a backlog, as a bitmap.
fn ready(b: &mut Builder, cx: &Context) -> Vec<Value> {
    let quads: Vec<(Value, Value)> = (0..BITMAP_WORDS)
        .step_by(4)
        .map(|word| {
            let backlog = b.at(cx.state, state::BACKLOG + word);
            let backlog = b.load4(backlog);
            let open = b.at(cx.inlet, inlet::TENANTS_OPEN + word);
            (backlog, b.load4(open))
        })
        .collect();
    let mut words = Vec::new();
    for (backlog, open) in quads {
        for part in 0..4 {
            let (backlog, open) = (b.extract(backlog, part), b.extract(open, part));
            words.push(b.and(backlog, open));
        }
    }
    words
}

/// The first tenant of a bitmap that isn't empty, from tenant `start` on and round.
fn first_from(b: &mut Builder, bitmap: &[Value], start: Value) -> Value {
    let start_word = b.shr(start, 5u32);
    let bit = bit_of(b, start);
    let below = b.sub(bit, 1u32);
    let from = b.xor(below, u32::MAX);
    let (first, later) = (b.var(0u32), b.var(NO_CLAIM));
    for (index, &word) in bitmap.iter().enumerate().rev() {
        let number = |b: &mut Builder, bits: Value| {
            let lowest = b.unary(UnaryOp::FindLsb, bits);
            b.add(lowest, index as u32 * 32)
        };
        let some = b.ne(word, 0u32);
        b.when(some, |b| {
            let tenant = number(b, word);
            b.set(first, tenant);
        });
        let here = b.eq(start_word, index as u32);
        let behind = b.lt(start_word, index as u32);
        let mask = b.select(here, from, 0u32);
        let mask = b.select(behind, u32::MAX, mask);
        let rest = b.and(word, mask);
        let some = b.ne(rest, 0u32);
        b.when(some, |b| {
            let tenant = number(b, rest);
            b.set(later, tenant);
        });
    }
    let (first, later) = (b.get(first), b.get(later));
    let none = b.eq(later, NO_CLAIM);
    b.select(none, first, later)
}
