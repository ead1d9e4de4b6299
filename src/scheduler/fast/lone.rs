//! What the poller does with what it found: it posts it for the workers, or takes a lone task itself.

use super::poller::Seen;
use super::track::{Next, Track};
use super::{Claimed, Fast, Lanes, claim_of};
use crate::ir::{AtomicOp, Builder, Operand, Order, Scope, SubgroupOp, UnaryOp, Value, Var};
use crate::protocol::{opcode, slot, state};
use crate::scheduler::Mutation;
use crate::scheduler::complete::{count_claims, report_at};
use crate::scheduler::intake::{self, report_taken};

/// 16-byte units of a slot.
const UNITS: u32 = slot::WORDS / 4;
/// Units of the kind and the tenant, and of the first payload word.
const KIND_UNIT: u32 = slot::KIND / 4;
const ECHO_UNIT: u32 = slot::PAYLOAD[0] / 4;
const _: () = assert!(slot::TENANT / 4 == KIND_UNIT);

/// Posts tasks, as many of each track's level as `posts` says: workers claim them from here on.
pub(super) fn post(b: &mut Builder, fast: &Fast, tracks: &[Track], posts: &[Value]) {
    let cx = &fast.cx;
    for (track, &tasks) in tracks.iter().zip(posts) {
        let some = b.ne(tasks, 0u32);
        let speaks = b.and(some, track.lead);
        let position = b.get(track.position);
        b.when(speaks, |b| track.update_tickets(b, fast, position));
        let quiet = b.get(track.quiet);
        let quiet = b.select(some, 0u32, quiet);
        b.set(track.quiet, quiet);
        track.advance(b, fast, tasks);
    }
    // Release: pairs with the acquire behind a worker's ticket: ticket word and bases are in place before the semaphore is.
    intake::fence(b, cx, Order::Release);
    for (track, &tasks) in tracks.iter().zip(posts) {
        let some = b.ne(tasks, 0u32);
        let speaks = b.and(some, track.lead);
        b.when(speaks, |b| {
            let semaphore = fast.apart(b, state::AVAILABLE, track.level);
            b.atomic(AtomicOp::Add, semaphore, tasks, Scope::Device, Order::Relaxed);
        });
    }
}

/// The most urgent task that a look found; the same for all lanes.
struct Lone {
    /// Whether there is one, and it has arrived whole.
    whole: Value,
    /// Whether it is a NOP of tenant 0 and of the level that it lies in.
    short: Value,
    /// Its first payload word.
    echo: Value,
    /// Whether other levels have tasks too.
    several: Value,
    next: Next,
}

impl Lone {
    fn find(b: &mut Builder, fast: &Fast, tracks: &[Track], seen: &[Seen]) -> Self {
        let found = match fast.shape {
            Lanes::Wide => find_whole(b, fast, seen),
            Lanes::Few => find_begun(b, fast, seen),
        };
        let some = b.ne(found, 0u32);
        let level = b.unary(UnaryOp::FindLsb, found);
        let level = b.select(some, level, 0u32);
        let level = if fast.shape == Lanes::Wide { b.shr(level, 2u32) } else { level };
        let next = Next::of(b, fast, tracks, level);
        let (unit, first) = match fast.shape {
            Lanes::Wide => (b.get(seen[0].unit), b.shl(level, 2u32)),
            Lanes::Few => (load_unit(b, fast, &next), b.value(0u32)),
        };
        let whole = match fast.shape {
            Lanes::Wide => some,
            Lanes::Few => is_whole(b, fast, unit, &next, some),
        };
        let kind = b.extract(unit, slot::KIND % 4);
        let kind = b.and(kind, slot::HANDLER_MASK | slot::LEVEL_MASK << slot::LEVEL_SHIFT);
        let expected = b.shl(level, slot::LEVEL_SHIFT);
        let expected = b.or(expected, opcode::NOP);
        let short = b.eq(kind, expected);
        let tenant = b.extract(unit, slot::TENANT % 4);
        let known = b.eq(tenant, 0u32);
        let short = b.and(short, known);
        let short = b.select(short, 1u32, 0u32);
        let lane = b.add(first, KIND_UNIT);
        let short = b.subgroup(SubgroupOp::Shuffle(short, lane));
        let short = b.ne(short, 0u32);
        let echo = b.extract(unit, slot::PAYLOAD[0] % 4);
        let lane = b.add(first, ECHO_UNIT);
        let echo = b.subgroup(SubgroupOp::Shuffle(echo, lane));
        let others = b.sub(found, 1u32);
        let others = b.and(others, found);
        let several = b.ne(others, 0u32);
        Self { whole, short, echo, several, next }
    }

    /// For each track 1 where the task is of its level, else 0.
    fn of_tracks(&self, b: &mut Builder, tracks: &[Track]) -> Vec<Value> {
        let of_track = |track: &Track| {
            let here = b.eq(track.level, self.next.level);
            b.select(here, 1u32, 0u32)
        };
        tracks.iter().map(of_track).collect()
    }
}

/// Runs the most urgent task that was found on the spot, if it is a NOP that is here whole, no ticket of its level is known to
/// be out, no other level has a task and nothing else is to be done first (`held`). Gives whether it ran; the same for all lanes.
pub(super) fn run_short(b: &mut Builder, fast: &Fast, tracks: &[Track], seen: &[Seen], held: Value) -> Value {
    let lone = Lone::find(b, fast, tracks, seen);
    let quiet = b.ne(lone.next.quiet, 0u32);
    let held = b.or(held, lone.several);
    let free = b.eq(held, false);
    let runs = b.and(lone.whole, lone.short);
    let runs = b.and(runs, quiet);
    let runs = b.and(runs, free);
    b.when(runs, |b| {
        b.when(fast.cx.leader, |b| run(b, fast, &lone.next, lone.echo));
        for (track, tasks) in tracks.iter().zip(lone.of_tracks(b, tracks)) {
            track.advance(b, fast, tasks);
        }
    });
    runs
}

/// Takes the most urgent task that has arrived whole and was not run on the spot: it becomes the worker's, for which the poller
/// gives its place up, unless tickets of its level are out. Gives whether there was one; the same for all lanes.
pub(super) fn take(
    b: &mut Builder,
    fast: &Fast,
    tracks: &[Track],
    seen: &[Seen],
    claimed: &Claimed,
    done: Var,
) -> Value {
    let lone = Lone::find(b, fast, tracks, seen);
    b.when(lone.whole, |b| {
        let quiet = settle(b, fast, tracks, &lone.next);
        let loud = b.eq(quiet, false);
        let long = b.eq(lone.short, false);
        let tasks = lone.of_tracks(b, tracks);
        b.branch(
            loud,
            |b| {
                // Tickets of the level are out: the task takes its turn behind them.
                post(b, fast, tracks, &tasks);
                b.set(done, fast.few);
            },
            |b| {
                // A NOP is run by the next look, which finds it again.
                b.when(long, |b| {
                    hand_on(b, claimed, &lone.next);
                    b.set(done, true);
                    for (track, &tasks) in tracks.iter().zip(&tasks) {
                        track.advance(b, fast, tasks);
                    }
                });
            },
        );
    });
    lone.whole
}

/// Bits, four apart, of the levels whose next slot has arrived with all its tags.
fn find_whole(b: &mut Builder, fast: &Fast, seen: &[Seen]) -> Value {
    let ready = b.get(seen[0].ready);
    let tags = fast.ballot(b, ready);
    let next = b.shr(tags, 1u32);
    let tags = b.and(tags, next);
    let next = b.shr(tags, 2u32);
    let tags = b.and(tags, next);
    b.and(tags, 0x1111_1111u32)
}

/// Bits of the levels whose next slot has its generation.
fn find_begun(b: &mut Builder, fast: &Fast, seen: &[Seen]) -> Value {
    let mut bits = b.value(0u32);
    for (round, seen) in seen.iter().enumerate() {
        let ready = b.get(seen.ready);
        let here = fast.ballot(b, ready);
        let here = fast.shift_round(b, here, round);
        bits = b.or(bits, here);
    }
    bits
}

/// The lane's unit of the next slot; lanes beyond the units read the last one as well.
fn load_unit(b: &mut Builder, fast: &Fast, next: &Next) -> Value {
    let unit = b.min(fast.lane, UNITS - 1);
    let word = b.shl(unit, 2u32);
    let place = fast.cx.slot_word(b, next.slot, word);
    b.load4(place)
}

fn is_whole(b: &mut Builder, fast: &Fast, unit: Value, next: &Next, some: Value) -> Value {
    let tag = b.extract(unit, 0);
    let arrived = b.eq(tag, next.generation);
    let spare = b.ge(fast.lane, UNITS);
    let arrived = b.or(arrived, spare);
    let whole = b.subgroup(SubgroupOp::All(arrived));
    b.and(whole, some)
}

/// Whether no ticket of the level is out. Where that isn't known, it looks.
fn settle(b: &mut Builder, fast: &Fast, tracks: &[Track], next: &Next) -> Value {
    let quiet = b.var(next.quiet);
    let unknown = b.eq(next.quiet, 0u32);
    b.when(unknown, |b| {
        let tickets = fast.apart(b, state::TICKETS, next.level);
        let tickets = b.load(tickets);
        let tickets = fast.first_lane(b, tickets);
        let all = b.eq(tickets, next.position);
        let all = b.select(all, 1u32, 0u32);
        b.set(quiet, all);
        for track in tracks {
            let here = b.eq(track.level, next.level);
            let before = b.get(track.quiet);
            let now = b.select(here, all, before);
            b.set(track.quiet, now);
        }
    });
    let quiet = b.get(quiet);
    b.ne(quiet, 0u32)
}

/// Completes a NOP. For the leader alone.
fn run(b: &mut Builder, fast: &Fast, next: &Next, echo: Value) {
    let cx = &fast.cx;
    let claim = claim_of(b, next.slot, next.generation, next.level);
    report_taken(b, cx, claim.slot, claim.generation);
    let mut result = echo;
    if cx.mutation == Some(Mutation::TakenEarly) {
        let word = cx.slot_word(b, claim.slot, slot::PAYLOAD[0]);
        result = b.load(word);
    }
    let none = b.value(0u32);
    report_at(b, cx, &claim, next.position, (result, none, none));
    count_claims(b, cx, claim.level, 1u32);
}

/// Makes the lone task the worker's: no ticket is taken, since none is out.
fn hand_on(b: &mut Builder, claimed: &Claimed, next: &Next) {
    let one = b.value(Operand::U32(1));
    let words = [
        (claimed.level, next.level),
        (claimed.ticket, next.position),
        (claimed.count, one),
        (claimed.index, next.index),
        (claimed.generation, next.generation),
    ];
    for (var, value) in words {
        b.set(var, value);
    }
}
