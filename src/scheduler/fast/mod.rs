//! The fast claim policy: an elected poller, and two atomic adds for a claim.
//!
//! One worker at a time holds the *poller's place*. It looks at the next slot of every level at once, with its positions in
//! registers, and runs a lone NOP on the spot. What it can't run so it *posts*: it adds to the level's semaphore,
//! and workers take from that and from a ticket word, neither ever retried (a broker queue: Kerbl et al. 2018). A level's
//! doorbell tells it how many to post at once. A lone task that is no NOP the poller takes with it when it gives its place up.
//!
//! Workers claim ranges of tickets, sized by what is there; plain NOPs of a range are run by a lane each, other
//! tasks one after another by the whole worker. A range of Done with result 0 is one completion.
//!
//! Generations and tags are the truth here too: semaphore and doorbell only say where to look.

mod claim;
mod lone;
mod poller;
mod range;
mod track;

use super::worker::{ask_to_leave, leave};
use super::{Claim, Context, Fences, Mutation, NO_CLAIM};
use crate::ir::{BinaryOp, Builder, Input, MemoryClasses, Module, Shared, SubgroupOp, Value, Var};
use crate::protocol::{launch, outlet, slot, state};

/// The most tasks of a range.
pub const MOST: u32 = 32;

/// Workers up to which each of them takes ranges between two looks, the poller too.
const FEW: u32 = 4;

/// Words of workgroup memory: what was decided, then the range's slots.
const EXIT: u32 = 0;
const LEVEL: u32 = 1;
const TICKET: u32 = 2;
const COUNT: u32 = 3;
const INDEX: u32 = 4;
const GENERATION: u32 = 5;
/// Bits of the range's tasks that no lane can run alone.
const OTHERS: u32 = 6;
/// Whether a plain task has a result other than 0.
const RESULTS: u32 = 7;
/// Ticket of the range's first entry in the completion queue.
const ENTRY: u32 = 8;
const SLOTS: u32 = 16;
const WORDS: u32 = SLOTS + MOST * slot::WORDS;

/// How the poller's lanes are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// Four lanes to a level, one for each 16 bytes of its next slot: a task is in registers when it is seen.
    Wide,
    /// One lane to a level or two, and a slot's content is read once its generation is there.
    Few,
}

impl Lanes {
    /// What suits a worker whose first subgroup has so many lanes; none where they are too few for the policy.
    ///
    /// ```
    /// use abide::scheduler::fast::Lanes;
    ///
    /// assert_eq!((Lanes::of(32, 8), Lanes::of(4, 1)), (Some(Lanes::Wide), Some(Lanes::Wide)));
    /// assert_eq!((Lanes::of(4, 8), Lanes::of(3, 1)), (Some(Lanes::Few), None));
    /// ```
    pub const fn of(lanes: u32, levels: u32) -> Option<Self> {
        match lanes {
            4.. if lanes / 4 >= levels => Some(Self::Wide),
            4.. if lanes * 2 >= levels => Some(Self::Few),
            _ => None,
        }
    }
}

/// What all parts of the kernel work on.
struct Fast {
    cx: Context,
    shape: Lanes,
    words: Shared,
    /// Index in the subgroup, and its lanes that are there.
    lane: Value,
    lanes: Value,
    /// What the poller's place holds while a worker of this launch has it.
    stamp: Value,
    /// Whether the workers are [`FEW`].
    few: Value,
}

/// What a worker has decided to run; vars of its first subgroup.
struct Claimed {
    level: Var,
    ticket: Var,
    count: Var,
    index: Var,
    generation: Var,
    /// Why the worker leaves; 0 while it stays.
    exit: Var,
    /// Turns of this worker and looks of it as poller, which the launch's budget bounds.
    passes: Var,
}

/// The kernel for a number of levels.
pub fn kernel(levels: u32, shape: Lanes, fences: Fences, mutation: Option<Mutation>) -> Module {
    let mut builder = Builder::new(&format!("abide fast, {levels} levels, {shape:?}"), launch::WORDS);
    let b = &mut builder;
    let cx = Context::new(b, levels, fences, mutation);
    let words = b.shared("range", WORDS);
    let fast = Fast::new(b, cx, shape, words);
    let cx = &fast.cx;
    let tracks = track::Track::all(b, &fast);
    let canary = b.param(launch::CANARY);
    let first = b.lt(cx.lane, fast.lanes);
    let claimed = Claimed::new(b);
    let nap = b.var(0u32);
    b.repeat(|b| {
        b.when(first, |b| decide(b, &fast, &tracks, &claimed, nap));
        cx.barrier(b, MemoryClasses::SHARED);
        let exit = fast.word(b, EXIT);
        b.set(claimed.exit, exit);
        let count = fast.word(b, COUNT);
        let some = b.ne(count, 0u32);
        b.when(some, |b| range::run(b, &fast, canary, claimed.exit));
        // All lanes have read what was decided before it is decided anew.
        cx.barrier(b, MemoryClasses::SHARED);
        let exit = b.get(claimed.exit);
        let leaves = b.ne(exit, 0u32);
        b.break_if(leaves);
    });
    leave(b, cx, None, claimed.exit);
    builder.finish()
}

/// A turn of a worker's first subgroup: takes the poller's place if it is free, else claims a range, else naps.
fn decide(b: &mut Builder, fast: &Fast, tracks: &[track::Track], claimed: &Claimed, nap: Var) {
    let cx = &fast.cx;
    b.set(claimed.count, 0u32);
    let backlog = claim::Backlog::load(b, fast);
    let place = b.at(cx.state, state::PLACE);
    let place = b.load(place);
    let place = fast.first_lane(b, place);
    let reason = claim::reason(b, fast);
    b.set(claimed.exit, reason);
    let stays = b.eq(reason, 0u32);
    let free = b.ne(place, fast.stamp);
    let tries = b.and(stays, free);
    let polled = b.var(false);
    b.when(tries, |b| {
        let got = poller::take_place(b, fast, place);
        b.when(got, |b| {
            b.set(polled, true);
            let hurried = backlog.any(b);
            let hurried = b.and(hurried, fast.few);
            poller::poll(b, fast, tracks, claimed, hurried);
            backlog.reload(b, fast);
        });
    });
    let idle = claimed.is_idle(b);
    let some = backlog.any(b);
    let takes = b.and(idle, some);
    b.when(takes, |b| claim::take_range(b, fast, &backlog, claimed));
    let passes = b.get(claimed.passes);
    let passes = b.add(passes, 1u32);
    b.set(claimed.passes, passes);
    let spent = claimed.is_spent(b);
    let spent = b.and(spent, cx.leader);
    b.when(spent, |b| ask_to_leave(b, cx, outlet::exit::BUDGET));
    b.when(cx.leader, |b| claimed.publish(b, fast));
    let idle = claimed.is_idle(b);
    let polled = b.get(polled);
    let rests = b.eq(polled, false);
    let rests = b.and(rests, idle);
    claim::rest(b, fast, nap, rests);
}

impl Claimed {
    fn new(b: &mut Builder) -> Self {
        Self {
            level: b.var(0u32),
            ticket: b.var(0u32),
            count: b.var(0u32),
            index: b.var(0u32),
            generation: b.var(0u32),
            exit: b.var(0u32),
            passes: b.var(0u32),
        }
    }

    /// Whether the worker stays and has nothing to run.
    fn is_idle(&self, b: &mut Builder) -> Value {
        let (count, exit) = (b.get(self.count), b.get(self.exit));
        let either = b.or(count, exit);
        b.eq(either, 0u32)
    }

    /// Whether the launch's budget of passes is used up.
    fn is_spent(&self, b: &mut Builder) -> Value {
        let budget = b.param(launch::BUDGET);
        let bounded = b.ne(budget, 0u32);
        let passes = b.get(self.passes);
        let spent = b.ge(passes, budget);
        b.and(spent, bounded)
    }

    /// Tells the worker's lanes what was decided, and counts the claims. For the leader alone.
    fn publish(&self, b: &mut Builder, fast: &Fast) {
        let words = [
            (EXIT, self.exit),
            (LEVEL, self.level),
            (TICKET, self.ticket),
            (COUNT, self.count),
            (INDEX, self.index),
            (GENERATION, self.generation),
        ];
        for (word, var) in words {
            let value = b.get(var);
            fast.set_word(b, word, value);
        }
        fast.set_word(b, OTHERS, 0u32);
        fast.set_word(b, RESULTS, 0u32);
        let count = b.get(self.count);
        let some = b.ne(count, 0u32);
        b.when(some, |b| {
            let level = b.get(self.level);
            super::complete::count_claims(b, &fast.cx, level, count);
        });
    }
}

impl Fast {
    fn new(b: &mut Builder, cx: Context, shape: Lanes, words: Shared) -> Self {
        let lane = b.input(Input::SubgroupLane);
        let size = b.input(Input::SubgroupSize);
        let lanes = b.min(size, cx.width);
        let number = b.param(launch::LAUNCH);
        let stamp = b.shl(number, 1u32);
        let stamp = b.or(stamp, 1u32);
        let few = b.le(cx.workers, FEW);
        Self { cx, shape, words, lane, lanes, stamp, few }
    }

    /// Rounds in which one lane a level covers all levels.
    fn rounds(&self) -> u32 {
        if self.shape == Lanes::Wide || self.cx.levels() <= 4 { 1 } else { 2 }
    }

    /// Bits of a round's lanes as bits of their levels.
    fn shift_round(&self, b: &mut Builder, lanes: Value, round: usize) -> Value {
        if round == 0 {
            return lanes;
        }
        let ahead = b.mul(self.lanes, round as u32);
        // No level of a later round is beyond bit 7.
        let ahead = b.min(ahead, 31u32);
        b.shl(lanes, ahead)
    }

    fn word(&self, b: &mut Builder, word: u32) -> Value {
        let place = b.shared_at(self.words, word);
        b.load(place)
    }

    fn set_word(&self, b: &mut Builder, word: u32, value: impl Into<crate::ir::Operand>) {
        let place = b.shared_at(self.words, word);
        b.store(place, value);
    }

    /// The subgroup's first lane's value: what lanes loaded apart may differ.
    fn first_lane(&self, b: &mut Builder, value: Value) -> Value {
        b.subgroup(SubgroupOp::BroadcastFirst(value))
    }

    /// A level's word of those that lie apart.
    fn apart(&self, b: &mut Builder, first: u32, level: Value) -> crate::ir::Place {
        let ahead = b.mul(level, state::APART);
        let word = b.add(ahead, first);
        b.at(self.cx.state, word)
    }

    /// The bits of lanes for which something holds: the lowest 32 lanes.
    fn ballot(&self, b: &mut Builder, holds: Value) -> Value {
        let lanes = b.subgroup(SubgroupOp::Ballot(holds));
        b.extract(lanes, 0)
    }
}

/// Whether a word is above 0 as a signed number.
fn is_positive(b: &mut Builder, word: Value) -> Value {
    let below = b.sub(word, 1u32);
    b.binary(BinaryOp::Lt, below, i32::MAX as u32)
}

/// A claim as the parts of the kernel that serve both policies know it.
fn claim_of(b: &mut Builder, slot: Value, generation: Value, level: Value) -> Claim {
    Claim { slot, generation, level, tenant: b.value(NO_CLAIM), seen: b.value(0u32) }
}
