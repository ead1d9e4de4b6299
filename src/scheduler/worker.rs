//! A worker's life: scan, run, report, and leave when told to, when idle for long or when its budget is used up.

use super::quick::Quick;
use super::scan::{Claim, NO_CLAIM, Scan};
use super::tenants::Tenants;
use super::{Context, Fences, Mutation, builtin, complete, guard, intake};
use crate::ir::{AtomicOp, Builder, MemoryClasses, Module, Operand, Order, Place, Scope, Value, Var};
use crate::protocol::completion::fault;
use crate::protocol::{inlet, launch, opcode, outlet, state, task};

/// Laps of a worker's scan of which one goes over another worker's part of the ring: a power of two.
pub const VISIT_LAPS: u32 = 8;

/// Whether the launch was told to end, as the leader saw it: one word for even and one for odd passes.
const TOLD: u32 = task::KERNEL + 5;
const _: () = assert!(TOLD + 2 <= task::WORDS);

/// The kernel for a number of levels.
pub fn kernel(levels: u32, fences: Fences, mutation: Option<Mutation>) -> Module {
    let mut builder = Builder::new(&format!("abide scan, {levels} levels"), launch::WORDS);
    let b = &mut builder;
    let cx = Context::new(b, levels, fences, mutation);
    let budget = b.param(launch::BUDGET);
    let canary = b.param(launch::CANARY);
    let stride = b.mul(cx.workers, cx.width);
    let scan = Scan::new(b, &cx, stride);
    let quick = Quick::new(b, &cx);
    let passes = b.var(0u32);
    let part = Part { lap: b.var(0u32), part: b.var(cx.worker), visit: b.var(cx.worker) };
    let rest = Rest { idle: b.var(0u32), claims: b.var(0u32) };
    let exit = b.var(0u32);
    cx.barrier(b, MemoryClasses::SHARED);
    b.repeat(|b| {
        let idle = quick.run(b, &cx);
        let pass = b.get(passes);
        let told = listen(b, &cx, pass, &rest);
        let lap = scan.laps(b);
        let part = part.of_lap(b, &cx, lap);
        let first = b.mul(part, cx.width);
        let lane = b.add(first, cx.lane);
        let claim = scan.pass(b, &cx, lane, (pass, idle));
        let told = b.load(told);
        b.set(exit, told);
        let some = b.ne(claim.slot, NO_CLAIM);
        b.branch(
            some,
            |b| {
                b.set(rest.idle, 0u32);
                let task = take(b, &cx, scan.tenants(), &claim);
                let wait = b.get(task.waits);
                b.branch(
                    wait,
                    |b| {
                        if cx.mutation != Some(Mutation::ParkForgets) {
                            scan.tenants().park(b, &cx, &claim);
                        }
                    },
                    |b| {
                        let code = b.get(task.code);
                        run(b, &cx, code, canary, exit);
                        let (slot, generation) = (b.get(task.slot), b.get(task.generation));
                        let claim = Claim { slot, generation, ..claim };
                        b.when(cx.leader, |b| complete::complete(b, &cx, &claim));
                    },
                );
            },
            |b| {
                b.when(cx.leader, |b| {
                    scan.tenants().let_go(b, &cx);
                    rest.pass(b, &cx);
                });
            },
        );
        let next = b.add(pass, 1u32);
        b.set(passes, next);
        let spent = b.eq(next, budget);
        let spent = b.and(spent, cx.leader);
        b.when(spent, |b| ask_to_leave(b, &cx, outlet::exit::BUDGET));
        let exit = b.get(exit);
        let leave = b.ne(exit, 0u32);
        b.break_if(leave);
    });
    leave(b, &cx, Some(scan.tenants()), exit);
    builder.finish()
}

/// A task that a worker has taken.
struct Taken {
    slot: Var,
    generation: Var,
    code: Var,
    /// Whether it moves to its tenant's queue.
    waits: Var,
}

/// Takes in what was claimed, from the ring or from a tenant's queue, and decides whether it runs now.
fn take(b: &mut Builder, cx: &Context, tenants: &Tenants, claim: &Claim) -> Taken {
    let task =
        Taken { slot: b.var(claim.slot), generation: b.var(claim.generation), code: b.var(0u32), waits: b.var(false) };
    let parked = tenants.is_parked(b, cx, claim);
    b.when(cx.leader, |b| {
        b.when(parked, |b| tenants.take_out(b, cx, claim));
        tenants.let_go(b, cx);
    });
    b.branch(
        parked,
        |b| {
            let resumed = tenants.resume(b, cx);
            b.set(task.slot, resumed.slot);
            b.set(task.generation, resumed.generation);
            b.set(task.code, resumed.code);
        },
        |b| {
            b.when(cx.leader, |b| complete::count_claim(b, cx, claim));
            let code = intake::take_in(b, cx, claim);
            b.set(task.code, code);
            let waits = tenants.must_wait(b, cx);
            b.set(task.waits, waits);
        },
    );
    task
}

/// The part of the ring that a worker goes over: nearly always its own, since workers that share slots are in each other's
/// way (measured: a thirtieth of the throughput), but now and then another's, so that a busy worker strands no slot.
struct Part {
    /// Lap that the part is for.
    lap: Var,
    part: Var,
    /// The last part that was another's.
    visit: Var,
}

impl Part {
    fn of_lap(&self, b: &mut Builder, cx: &Context, lap: Value) -> Value {
        let before = b.get(self.lap);
        let new = b.ne(lap, before);
        b.when(new, |b| {
            b.set(self.lap, lap);
            b.set(self.part, cx.worker);
            let turn = b.and(lap, VISIT_LAPS - 1);
            let visits = b.eq(turn, VISIT_LAPS - 1);
            b.when(visits, |b| {
                let next = b.get(self.visit);
                let next = b.add(next, 1u32);
                let wraps = b.ge(next, cx.workers);
                let next = b.select(wraps, 0u32, next);
                b.set(self.visit, next);
                b.set(self.part, next);
            });
        });
        b.get(self.part)
    }
}

/// Asks all workers of the launch to leave, so that a launch ends as a whole: a crew that shrank would be slow, and the host
/// could not replace it.
pub fn ask_to_leave(b: &mut Builder, cx: &Context, reason: impl Into<Operand>) {
    let reason = b.value(reason);
    let request = b.param(launch::LAUNCH);
    let request = b.shl(request, state::LEAVE_REASON_BITS);
    let request = b.or(request, reason);
    let word = b.at(cx.state, state::LEAVE);
    // Nothing else rides on this word.
    b.atomic_store(word, request, Scope::Device, Order::Relaxed);
}

/// Looks at the words that end a launch: gives the reason, or 0.
pub fn reason_to_leave(b: &mut Builder, cx: &Context) -> Value {
    let stop = b.at(cx.inlet, inlet::STOP);
    let stop = b.load(stop);
    let reason = asked_to_leave(b, cx);
    let stopped = b.ne(stop, 0u32);
    b.select(stopped, outlet::exit::STOP, reason)
}

/// The reason for which a worker has asked the launch's others to leave, or 0.
pub(super) fn asked_to_leave(b: &mut Builder, cx: &Context) -> Value {
    let request = b.at(cx.state, state::LEAVE);
    let request = b.load(request);
    let launch = b.param(launch::LAUNCH);
    let launch = b.shl(launch, state::LEAVE_REASON_BITS);
    let reason = b.xor(request, launch);
    let asked = b.lt(reason, 1u32 << state::LEAVE_REASON_BITS);
    b.select(asked, reason, 0u32)
}

/// The leader looks at the words that end a launch, and shows from time to time that it lives. Gives the place that tells
/// all lanes, after the scan's barriers, what it saw.
fn listen(b: &mut Builder, cx: &Context, pass: Value, rest: &Rest) -> Place {
    let parity = b.and(pass, 1u32);
    let told = b.add(parity, TOLD);
    let told = b.shared_at(cx.task, told);
    b.when(cx.leader, |b| {
        rest.look(b, cx);
        guard::look(b, cx, pass);
        let reason = reason_to_leave(b, cx);
        b.store(told, reason);
        let since = b.and(pass, (1u32 << outlet::BEAT_SHIFT) - 1);
        let due = b.eq(since, 0u32);
        b.when(due, |b| beat(b, cx, pass));
    });
    told
}

/// Shows that the launch lives.
pub(super) fn beat(b: &mut Builder, cx: &Context, pass: Value) {
    let launch = b.param(launch::LAUNCH);
    let launch = b.shl(launch, outlet::BEAT_BITS);
    let beats = b.shr(pass, outlet::BEAT_SHIFT);
    let beats = b.and(beats, (1u32 << outlet::BEAT_BITS) - 1);
    let value = b.or(launch, beats);
    let heartbeat = b.at(cx.outlet, outlet::HEARTBEAT);
    b.store(heartbeat, value);
}

/// What the leader keeps of passes that found nothing.
struct Rest {
    /// Passes in a row in which the whole crew was idle.
    idle: Var,
    /// Claims of the crew, as last seen.
    claims: Var,
}

impl Rest {
    /// Loads the crew's counters, and starts again where it was busy.
    fn look(&self, b: &mut Builder, cx: &Context) {
        let claims = b.at(cx.state, state::CLAIM_COUNT);
        let claims = b.load(claims);
        let dones = b.at(cx.state, state::DONE_COUNT);
        let dones = b.load(dones);
        let before = b.get(self.claims);
        let new = b.ne(claims, before);
        let parked = b.at(cx.state, state::PARKED_COUNT);
        let parked = b.load(parked);
        let rest = b.add(dones, parked);
        let busy = b.ne(claims, rest);
        let active = b.or(new, busy);
        b.when(active, |b| b.set(self.idle, 0u32));
        b.set(self.claims, claims);
    }

    /// A pass without a claim: ends the launch when nothing came for long enough.
    fn pass(&self, b: &mut Builder, cx: &Context) {
        let idle = b.get(self.idle);
        let idle = b.add(idle, 1u32);
        b.set(self.idle, idle);
        let limit = b.param(launch::IDLE_LIMIT);
        let enough = b.eq(idle, limit);
        let target = b.param(launch::TARGET);
        let claims = b.get(self.claims);
        let some = b.ne(target, 0u32);
        let all = b.eq(claims, target);
        let all = b.and(all, some);
        let mut enough = b.or(enough, all);
        if cx.mutation == Some(Mutation::LeaveAtOnce) {
            enough = b.value(true);
        }
        b.when(enough, |b| ask_to_leave(b, cx, outlet::exit::IDLE));
        if cx.mutation == Some(Mutation::IdleAtomics) {
            let place = b.at(cx.state, state::DONE_COUNT);
            b.atomic(AtomicOp::Add, place, 0u32, Scope::Device, Order::Relaxed);
        }
    }
}

/// Runs the task that was taken in, and makes what it wrote available before its completion is.
pub(super) fn run(b: &mut Builder, cx: &Context, code: Value, canary: Value, exit: Var) {
    let nop = b.eq(code, opcode::NOP);
    b.branch(
        nop,
        |b| {
            b.when(cx.leader, |b| {
                let echo = cx.load_task(b, task::SLOT + crate::protocol::slot::PAYLOAD[0]);
                cx.store_task(b, task::RESULT, echo);
            });
        },
        |b| {
            // Acquire for every lane: pairs with the host's fence before it published, and with the release below of
            // tasks whose completion the publisher has seen.
            intake::fence(b, cx, Order::Acquire);
            intake::copy_bindings(b, cx);
            intake::describe(b, cx);
            cx.barrier(b, MemoryClasses::ALL);
            let broken = cx.load_task(b, task::FAULT);
            // A quick lane may store a fault of its own below: the others must have read this one by then.
            cx.barrier(b, MemoryClasses::SHARED);
            let whole = b.eq(broken, 0u32);
            b.when(whole, |b| {
                let handler = b.ge(code, opcode::FIRST_HANDLER);
                b.branch(handler, |b| call(b, cx, code, canary, exit), |b| builtin::run(b, cx, code));
            });
            // Release of every lane, then all lanes before the leader's completion: pairs with the acquire above
            // of a task that the host publishes once it has seen this one's completion.
            intake::fence(b, cx, Order::Release);
            cx.barrier(b, MemoryClasses::ALL);
        },
    );
}

/// Calls a linked handler. Where the driver cuts loops short, a canary loop shows whether the handler's were.
fn call(b: &mut Builder, cx: &Context, code: Value, canary: Value, exit: Var) {
    b.call_handler(code);
    let turns = b.var(0u32);
    b.count(canary, |b, turn| {
        let turn = b.add(turn, 1u32);
        b.set(turns, turn);
    });
    let turns = b.get(turns);
    let cut = b.ne(turns, canary);
    b.when(cut, |b| cx.store_task(b, task::FAULT, fault::LOOP_LIMIT));
    let limited = b.ne(canary, 0u32);
    b.when(limited, |b| b.set(exit, outlet::exit::ONE_TASK));
}

/// The last worker to leave tells the host why; its reason stands for all.
pub(super) fn leave(b: &mut Builder, cx: &Context, tenants: Option<&Tenants>, exit: Var) {
    b.when(cx.leader, |b| {
        let left = b.at(cx.state, state::LEFT);
        // Pairs with itself: the last worker's stores come after all that the others did.
        let order = cx.order(Order::AcquireRelease);
        let before = b.atomic(AtomicOp::Add, left, 1u32, Scope::Device, order);
        let before = b.add(before, 1u32);
        let last = b.eq(before, cx.workers);
        b.when(last, |b| {
            b.atomic_store(left, 0u32, Scope::Device, Order::Relaxed);
            let reason = b.get(exit);
            let place = b.at(cx.outlet, outlet::EXIT);
            b.store(place, reason);
            if let Some(tenants) = tenants {
                tenants.leave(b, cx);
            }
            let launch = b.param(launch::LAUNCH);
            let ended = b.at(cx.outlet, outlet::ENDED);
            // Release: pairs with the host's acquire of ENDED.
            let order = cx.order(Order::Release);
            b.atomic_store(ended, launch, Scope::Device, order);
        });
    });
}
