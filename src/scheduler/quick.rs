//! The short way for lone tasks: what a worker does between two passes where a pass is long.
//!
//! A driver that runs both sides of every branch pays a whole pass for each look at the ring. So the lanes of a worker that
//! is one subgroup look at the levels' heads alone, some turns long, and run what is least work, a NOP that has arrived
//! whole, on the spot. All else is left to the pass that follows, and so is everything that is not at a head: a pass
//! comes after a bounded number of turns whatever is found here.

use super::complete::{count_claim, report};
use super::heads::{Cursor, store_cursor};
use super::intake::take;
use super::scan::{Claim, NO_CLAIM, load_state, schedulable, try_claim};
use super::worker::reason_to_leave;
use super::{Context, Mutation};
use crate::ir::{Builder, Input, Place, SubgroupOp, UnaryOp, Value, Var};
use crate::protocol::{launch, opcode, slot};

/// Turns that a task counts for: what runs here must not keep a pass away for long.
const TASK_TURNS: u32 = 32;

/// 16-byte units of a slot: one lane reads each.
const UNITS: u32 = slot::WORDS / 4;

/// Lane that reads the unit of a slot's kind, and the one that reads the first payload word's.
const KIND_LANE: u32 = slot::KIND / 4;
const ECHO_LANE: u32 = slot::PAYLOAD[0] / 4;
/// Where in their units these words lie.
const KIND_PART: u32 = slot::KIND % 4;
const ECHO_PART: u32 = slot::PAYLOAD[0] % 4;
/// The tenant's word, in the unit of the kind.
const TENANT_PART: u32 = slot::TENANT % 4;
const _: () = assert!(slot::TENANT / 4 == KIND_LANE);

/// The fewest lanes that can go the short way.
pub const fn least_width(levels: u32) -> u32 {
    let half = levels.div_ceil(2);
    if half > UNITS { half } else { UNITS }
}

/// A level whose head a lane looks at.
#[derive(Clone, Copy, Debug)]
struct Watch {
    level: Value,
    /// First slot and number of slots of the level.
    partition: (Value, Value),
    /// Whether there is such a level, and slots in it.
    valid: Value,
}

/// The head of a level, as its cursor has it.
#[derive(Clone, Copy, Debug)]
struct Head {
    slot: Value,
    cursor: Cursor,
    generation: Place,
    state: Value,
}

impl Watch {
    fn new(b: &mut Builder, cx: &Context, level: Value) -> Self {
        let (begin, slots) = cx.partition(b, level);
        let known = b.lt(level, cx.levels());
        let some = b.ne(slots, 0u32);
        let valid = b.and(known, some);
        // What isn't there is looked at as well, for nothing, and must lie inside the ring.
        let level = b.select(valid, level, 0u32);
        let begin = b.select(valid, begin, 0u32);
        Self { level, partition: (begin, slots), valid }
    }

    /// Where the level's next task is expected. A slot in another worker's hands is schedulable by no generation.
    fn head(&self, b: &mut Builder, cx: &Context) -> Head {
        let cursor = Cursor::load(b, cx, self.level);
        let index = cursor.index(b);
        let index = b.select(self.valid, index, 0u32);
        let slot = b.add(self.partition.0, index);
        let generation = cx.slot_word(b, slot, slot::GENERATION);
        let state = load_state(b, cx, slot);
        Head { slot, cursor, generation, state }
    }

    fn ready(&self, b: &mut Builder, cx: &Context, head: &Head) -> (Value, Value) {
        let generation = b.load(head.generation);
        let ready = schedulable(b, cx, generation, head.state);
        (b.and(ready, self.valid), generation)
    }
}

/// What stays the same for a launch.
#[derive(Clone, Debug)]
pub(super) struct Quick {
    /// Whether this worker goes the short way at all.
    on: Value,
    /// Turns from one pass to the next.
    limit: Value,
    lane: Value,
    /// The level of the lane's number: its tasks can be run here.
    near: Watch,
    /// The level a width further on, where the lanes are fewer than the levels: seen here and run by the pass.
    far: Watch,
}

impl Quick {
    /// Reads what stays the same.
    pub fn new(b: &mut Builder, cx: &Context) -> Self {
        let limit = b.param(launch::LOOKS);
        let asked = b.ne(limit, 0u32);
        let enough = b.ge(cx.width, least_width(cx.levels()));
        let on = b.and(asked, enough);
        let on = b.and(on, cx.single);
        let lane = b.input(Input::SubgroupLane);
        let near = Watch::new(b, cx, lane);
        let further = b.add(lane, cx.width);
        let far = Watch::new(b, cx, further);
        Self { on, limit, lane, near, far }
    }

    /// Looks and runs until the turns are used up or something is there for the pass. All lanes take part. Gives whether the
    /// turns were used up: then the heads have nothing that a pass would be late for.
    pub fn run(&self, b: &mut Builder, cx: &Context) -> Value {
        let used_up = b.var(false);
        b.when(self.on, |b| {
            // Who was told to leave starts nothing more; the lanes may have looked at different moments.
            let reason = reason_to_leave(b, cx);
            let told = b.ne(reason, 0u32);
            let told = b.subgroup(SubgroupOp::Any(told));
            let stays = b.eq(told, false);
            b.when(stays, |b| self.turns(b, cx, used_up));
        });
        b.get(used_up)
    }

    fn turns(&self, b: &mut Builder, cx: &Context, used_up: Var) {
        let far = self.far.head(b, cx);
        let turn = b.var(0u32);
        // Ends: each turn counts.
        b.repeat(|b| {
            let near = self.near.head(b, cx);
            let (found, seen, further) = (b.var(false), b.var(0u32), b.var(false));
            // Ends: as above.
            b.repeat(|b| {
                let (ready, generation) = self.near.ready(b, cx, &near);
                b.set(found, ready);
                b.set(seen, generation);
                let (beyond, _) = self.far.ready(b, cx, &far);
                b.set(further, beyond);
                let next = b.get(turn);
                let next = b.add(next, 1u32);
                b.set(turn, next);
                let spent = b.ge(next, self.limit);
                let any = b.or(ready, beyond);
                let any = b.or(any, spent);
                let any = b.subgroup(SubgroupOp::Any(any));
                b.break_if(any);
            });
            let (found, seen, further) = (b.get(found), b.get(seen), b.get(further));
            let further = b.subgroup(SubgroupOp::Any(further));
            let alone = b.eq(further, false);
            let ran = self.run_lone(b, cx, &near, (found, seen), alone);
            let ran = b.subgroup(SubgroupOp::Any(ran));
            let cost = b.select(ran, TASK_TURNS, 0u32);
            let next = b.get(turn);
            let next = b.add(next, cost);
            b.set(turn, next);
            let spent = b.ge(next, self.limit);
            b.set(used_up, spent);
            let none = b.eq(ran, false);
            let leave = b.or(none, spent);
            b.break_if(leave);
        });
    }

    /// Runs the head that was found, if it is the only one and a NOP of tenant 0 that is here whole: among several a pass decides, which
    /// counts levels that are passed over. `alone` says that no other levels' heads were found. Gives whether this lane ran it.
    fn run_lone(
        &self,
        b: &mut Builder,
        cx: &Context,
        near: &Head,
        (found, seen): (Value, Value),
        alone: Value,
    ) -> Value {
        let heads = b.subgroup(SubgroupOp::Ballot(found));
        let heads = b.extract(heads, 0);
        let some = b.ne(heads, 0u32);
        let less = b.sub(heads, 1u32);
        let others = b.and(heads, less);
        let single = b.eq(others, 0u32);
        let alone = b.and(alone, single);
        let winner = b.unary(UnaryOp::FindLsb, heads);
        let winner = b.select(some, winner, 0u32);
        let at = b.subgroup(SubgroupOp::Shuffle(near.slot, winner));
        let generation = b.subgroup(SubgroupOp::Shuffle(seen, winner));
        // The slot's content is looked at before the claim: its tags say whether it is this generation's, and nobody but
        // the claimer frees the slot for another.
        let unit = self.unit(b, cx, at);
        let tag = b.extract(unit, 0);
        let whole = b.eq(tag, generation);
        let spare = b.ge(self.lane, UNITS);
        let whole = b.or(whole, spare);
        let whole = b.subgroup(SubgroupOp::All(whole));
        let kind = b.extract(unit, KIND_PART);
        let lane = b.value(KIND_LANE);
        let kind = b.subgroup(SubgroupOp::Shuffle(kind, lane));
        let kind = b.and(kind, slot::HANDLER_MASK | slot::LEVEL_MASK << slot::LEVEL_SHIFT);
        let tenant = b.extract(unit, TENANT_PART);
        let lane = b.value(KIND_LANE);
        let tenant = b.subgroup(SubgroupOp::Shuffle(tenant, lane));
        let free = b.eq(tenant, 0u32);
        // Lanes are numbered as the levels are.
        let expected = b.shl(winner, slot::LEVEL_SHIFT);
        let expected = b.or(expected, opcode::NOP);
        let lone = b.eq(kind, expected);
        let lone = b.and(lone, whole);
        let lone = b.and(lone, some);
        let lone = b.and(lone, alone);
        let lone = b.and(lone, free);
        let mine = b.eq(self.lane, winner);
        let mine = b.and(mine, lone);
        let echo = b.extract(unit, ECHO_PART);
        let lane = b.value(ECHO_LANE);
        let echo = b.subgroup(SubgroupOp::Shuffle(echo, lane));
        let ran = b.var(false);
        b.when(mine, |b| {
            let won = try_claim(b, cx, near.slot, seen);
            b.set(ran, won);
            b.when(won, |b| {
                let claim = Claim {
                    slot: near.slot,
                    generation: seen,
                    level: self.near.level,
                    tenant: b.value(NO_CLAIM),
                    seen: b.value(0u32),
                };
                let cursor = near.cursor.next(b, self.near.partition.1);
                store_cursor(b, cx, claim.level, cursor);
                take(b, cx, &claim);
                let mut result = echo;
                if cx.mutation == Some(Mutation::TakenEarly) {
                    let word = cx.slot_word(b, claim.slot, slot::PAYLOAD[0]);
                    result = b.load(word);
                }
                let zero = b.value(0u32);
                report(b, cx, &claim, self.near.partition, (result, zero, zero));
                count_claim(b, cx, &claim);
            });
        });
        b.get(ran)
    }

    /// The lane's 16-byte unit of a slot; lanes beyond the units read the last one as well.
    fn unit(&self, b: &mut Builder, cx: &Context, at: Value) -> Value {
        let unit = b.min(self.lane, UNITS - 1);
        let word = b.shl(unit, 2u32);
        let place = cx.slot_word(b, at, word);
        b.load4(place)
    }
}
