//! How a worker claims posted tasks: a semaphore that it takes from, and a ticket word that says which.
//!
//! Both are one atomic add that is never retried. Who takes more than there is gives it back; meanwhile the semaphore is below
//! 0 and others fail as well, which costs them a turn and nobody a task.

use super::{Claimed, Fast, is_positive, track};
use crate::ir::{AtomicOp, Builder, Order, Scope, SubgroupOp, UnaryOp, Value, Var};
use crate::protocol::{launch, state};
use crate::scheduler::{Mutation, guard, intake};

/// The longest rest, as a power of two of its shortest.
const LONGEST_REST: u32 = 8;
/// Turns of the shortest rest.
const SHORTEST_REST: u32 = 16;

/// What is posted and not claimed, as this lane sees it: a level in each round.
pub(super) struct Backlog(Vec<Var>);

impl Backlog {
    /// Loads the levels' semaphores.
    pub fn load(b: &mut Builder, fast: &Fast) -> Self {
        let words = (0..fast.rounds()).map(|_| b.var(0u32)).collect();
        let backlog = Self(words);
        backlog.reload(b, fast);
        backlog
    }

    /// Loads them again.
    pub fn reload(&self, b: &mut Builder, fast: &Fast) {
        for (round, &var) in self.0.iter().enumerate() {
            let ahead = b.mul(fast.lanes, round as u32);
            let level = b.add(fast.lane, ahead);
            let known = b.lt(level, fast.cx.levels());
            let level = b.select(known, level, 0u32);
            let word = fast.apart(b, state::AVAILABLE, level);
            let word = b.load(word);
            let word = b.select(known, word, 0u32);
            b.set(var, word);
        }
    }

    /// Whether any level has a backlog.
    pub fn any(&self, b: &mut Builder) -> Value {
        let mut any = b.value(false);
        for &var in &self.0 {
            let word = b.get(var);
            let some = is_positive(b, word);
            any = b.or(any, some);
        }
        b.subgroup(SubgroupOp::Any(any))
    }

    /// The levels that have a backlog, as bits.
    fn levels(&self, b: &mut Builder, fast: &Fast) -> Value {
        let mut levels = b.value(0u32);
        for (round, &var) in self.0.iter().enumerate() {
            let word = b.get(var);
            let some = is_positive(b, word);
            let here = fast.ballot(b, some);
            let here = fast.shift_round(b, here, round);
            levels = b.or(levels, here);
        }
        levels
    }

    /// How much a level has.
    fn of(&self, b: &mut Builder, fast: &Fast, level: Value) -> Value {
        let mut found = b.value(0u32);
        for (round, &var) in self.0.iter().enumerate() {
            let word = b.get(var);
            let ahead = b.mul(fast.lanes, round as u32);
            let lane = b.sub(level, ahead);
            let here = b.lt(lane, fast.lanes);
            let lane = b.select(here, lane, 0u32);
            let word = b.subgroup(SubgroupOp::Shuffle(word, lane));
            found = b.select(here, word, found);
        }
        found
    }
}

/// Why the launch was asked to end, or 0; the same for all lanes of the subgroup. Workers listen to the poller here: it alone
/// looks at the host's stop word.
pub(super) fn reason(b: &mut Builder, fast: &Fast) -> Value {
    let reason = crate::scheduler::worker::asked_to_leave(b, &fast.cx);
    fast.first_lane(b, reason)
}

/// Chooses among several levels that have a backlog, and how many tasks may be claimed at once: the starvation guard's part.
fn choose(b: &mut Builder, fast: &Fast, levels: Value) -> (Value, Value) {
    let cx = &fast.cx;
    let order = guard::work_out(b, cx);
    let (mut level, mut least) = (b.value(0u32), b.value(u32::MAX));
    for other in 0..cx.levels() {
        let here = b.and(levels, 1u32 << other);
        let here = b.ne(here, 0u32);
        let other = b.value(other);
        let (place, _) = guard::place(b, cx, order, other);
        let before = b.lt(place, least);
        let better = b.and(before, here);
        level = b.select(better, other, level);
        least = b.select(better, place, least);
    }
    (level, guard::allowance(b, cx, level, levels))
}

/// Claims tasks of the most urgent level that has a backlog, or of one that was passed over too often, unless others were
/// quicker.
pub(super) fn take_range(b: &mut Builder, fast: &Fast, backlog: &Backlog, claimed: &Claimed) {
    let cx = &fast.cx;
    let levels = backlog.levels(b, fast);
    let first = b.unary(UnaryOp::FindLsb, levels);
    let (chosen, allowed) = (b.var(first), b.var(u32::MAX));
    let rest = b.sub(levels, 1u32);
    let rest = b.and(levels, rest);
    let several = b.ne(rest, 0u32);
    b.when(several, |b| {
        let (level, most) = choose(b, fast, levels);
        // The counts move: the lanes may have seen different ones.
        let (level, most) = (fast.first_lane(b, level), fast.first_lane(b, most));
        b.set(chosen, level);
        b.set(allowed, most);
    });
    let level = b.get(chosen);
    let there = backlog.of(b, fast, level);
    let (least, most) = (b.param(launch::RANGE_LEAST), b.param(launch::RANGE_MOST));
    let share = b.div(there, cx.workers);
    let count = b.max(share, least);
    let count = b.min(count, most);
    let allowed = b.get(allowed);
    let count = b.min(count, allowed);
    let overrun = cx.mutation == Some(Mutation::RangeOverrun);
    let count = if overrun { b.max(count, 2u32) } else { b.min(count, there) };
    b.set(claimed.level, level);
    b.when(cx.leader, |b| {
        let semaphore = fast.apart(b, state::AVAILABLE, level);
        let less = b.sub(0u32, count);
        // Relaxed, and the ticket too: it is taken only where the semaphore says so, and what both are about is acquired below.
        let before = b.atomic(AtomicOp::Add, semaphore, less, Scope::Device, Order::Relaxed);
        let left = b.sub(before, count);
        let enough = if overrun { b.value(true) } else { b.lt(left, 1u32 << 31) };
        b.branch(
            enough,
            |b| {
                let tickets = fast.apart(b, state::TICKETS, level);
                let ticket = b.atomic(AtomicOp::Add, tickets, count, Scope::Device, Order::Relaxed);
                if cx.mutation != Some(Mutation::TicketUnacquired) {
                    // Acquire: pairs with the poller's release before it raised the semaphore: the level's bases.
                    intake::fence(b, cx, Order::Acquire);
                }
                let (index, generation) = locate(b, fast, level, ticket);
                b.set(claimed.ticket, ticket);
                b.set(claimed.index, index);
                b.set(claimed.generation, generation);
                b.set(claimed.count, count);
                guard::count_claims(b, cx, level, levels, count);
            },
            |b| {
                b.atomic(AtomicOp::Add, semaphore, count, Scope::Device, Order::Relaxed);
            },
        );
    });
    let count = b.get(claimed.count);
    let count = fast.first_lane(b, count);
    b.set(claimed.count, count);
}

/// Index in its level, and generation, of a ticket's position.
fn locate(b: &mut Builder, fast: &Fast, level: Value, ticket: Value) -> (Value, Value) {
    let (_, size) = fast.cx.partition(b, level);
    // Lanes that don't take part must not divide by 0 either.
    let size = b.max(size, 1u32);
    let base = track::base_of(b, level, ticket);
    let place = b.at(fast.cx.state, base);
    let index = b.load(place);
    let base = b.add(base, 1u32);
    let place = b.at(fast.cx.state, base);
    let lap = b.load(place);
    let ahead = b.and(ticket, i32::MAX as u32);
    let ahead = b.add(index, ahead);
    let laps = b.div(ahead, size);
    let whole = b.mul(laps, size);
    let index = b.sub(ahead, whole);
    let lap = b.add(lap, laps);
    (index, b.add(lap, 1u32))
}

/// Rests where `rests` holds, for longer the longer there was nothing: idle workers must not wear the poller's memory out.
pub(super) fn rest(b: &mut Builder, fast: &Fast, nap: Var, rests: Value) {
    let before = b.get(nap);
    let next = b.add(before, 1u32);
    let next = b.min(next, LONGEST_REST);
    let next = b.select(rests, next, 0u32);
    b.set(nap, next);
    let turns = b.shl(SHORTEST_REST, before);
    let turns = b.select(rests, turns, 0u32);
    let word = b.var(fast.lane);
    b.count(turns, |b, turn| {
        let value = b.get(word);
        let value = b.mul(value, 1_664_525u32);
        let value = b.add(value, turn);
        b.set(word, value);
    });
    // A loop whose value nobody uses is left out.
    let value = b.get(word);
    let used = b.eq(value, 0x9e37_79b9u32);
    let used = b.and(used, rests);
    b.when(used, |b| {
        let sink = b.at(fast.cx.state, state::SINK);
        b.store(sink, value);
    });
}
