//! A look at the slots where each level's next tasks are expected: what a pass costs then doesn't grow with the ring.
//!
//! A level's cursor says which slot comes next, and in which lap. Hosts publish in order, so work is nearly always there. It
//! is a hint and may be wrong in either direction: what it passes over is found when the scan's sweep comes round.

use super::Context;
use super::scan::{Found, LAST_RANK, load_slot, schedulable};
use crate::ir::{Builder, Value};
use crate::protocol::slot::state as slot_state;
use crate::protocol::state::{self, CURSOR_INDEX_BITS};

/// Bits of a lap that a cursor holds.
const LAP_MASK: u32 = (1 << (32 - CURSOR_INDEX_BITS)) - 1;

/// What stays the same for a launch.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Turns that a lane takes so that each level's head is looked at.
    turns: Value,
    /// Level of the lane in its first turn, and how far ahead of the cursor it looks.
    first: (Value, Value),
    /// What a turn adds to them.
    step: (Value, Value),
}

impl Heads {
    /// Reads what stays the same.
    pub fn new(b: &mut Builder, cx: &Context) -> Self {
        let turns = b.add(cx.width, cx.levels() - 1);
        let turns = b.div(turns, cx.width);
        let first = (b.rem(cx.lane, cx.levels()), b.div(cx.lane, cx.levels()));
        let step = (b.rem(cx.width, cx.levels()), b.div(cx.width, cx.levels()));
        Self { turns, first, step }
    }

    /// Looks at the heads: lanes are dealt out to the levels, and those of one level look at its next slots in order.
    pub fn look(&self, b: &mut Builder, cx: &Context, found: &Found) {
        let (at, beyond) = (b.var(self.first.0), b.var(self.first.1));
        b.count(self.turns, |b, _| {
            let (level, ahead) = (b.get(at), b.get(beyond));
            let next = b.add(level, self.step.0);
            let wraps = b.ge(next, cx.levels());
            let wrapped = b.sub(next, cx.levels());
            let next = b.select(wraps, wrapped, next);
            b.set(at, next);
            let next = b.add(ahead, self.step.1);
            let carry = b.select(wraps, 1u32, 0u32);
            let next = b.add(next, carry);
            b.set(beyond, next);
            let (begin, slots) = cx.partition(b, level);
            let cursor = Cursor::load(b, cx, level);
            let first = cursor.index(b);
            let index = b.add(first, ahead);
            let wraps = b.ge(index, slots);
            let wrapped = b.sub(index, slots);
            let index = b.select(wraps, wrapped, index);
            let in_level = b.lt(ahead, slots);
            let in_rank = b.lt(ahead, LAST_RANK);
            let valid = b.and(in_level, in_rank);
            b.when(valid, |b| {
                let slot = b.add(begin, index);
                let (generation, state) = load_slot(b, cx, slot);
                let next = cursor.next(b, slots);
                let front = b.eq(ahead, 0u32);
                let ready = schedulable(b, cx, generation, state);
                b.branch(
                    ready,
                    |b| {
                        let rank = b.add(ahead, 1u32);
                        let front = b.select(front, 1u32, 0u32);
                        found.offer(b, cx, (level, rank, slot), generation, (front, next));
                    },
                    |b| {
                        // Claimed in the cursor's own lap, or in a later one by a sweep: the level's next task is further on.
                        let last = b.shr(state, slot_state::BITS);
                        let last = b.sub(last, 1u32);
                        let last = b.and(last, LAP_MASK);
                        let lap = cursor.lap(b);
                        let laps = b.sub(last, lap);
                        let laps = b.and(laps, LAP_MASK);
                        let passed = b.lt(laps, LAP_MASK / 2);
                        let passed = b.and(passed, front);
                        b.when(passed, |b| store_cursor(b, cx, level, next));
                    },
                );
            });
        });
    }
}

/// A level's cursor, as its word says.
#[derive(Clone, Copy, Debug)]
pub struct Cursor(Value);

impl Cursor {
    /// Loads a level's cursor.
    pub fn load(b: &mut Builder, cx: &Context, level: Value) -> Self {
        let word = b.add(level, state::CURSORS);
        let place = b.at(cx.state, word);
        Self(b.load(place))
    }

    /// Index in its level of the slot that comes next.
    pub fn index(self, b: &mut Builder) -> Value {
        b.and(self.0, (1u32 << CURSOR_INDEX_BITS) - 1)
    }

    /// The lap's low bits.
    fn lap(self, b: &mut Builder) -> Value {
        b.shr(self.0, CURSOR_INDEX_BITS)
    }

    /// The cursor after this one: the next slot of the level, or its first one in the next lap.
    pub fn next(self, b: &mut Builder, slots: Value) -> Value {
        let next = b.add(self.0, 1u32);
        let index = b.and(next, (1u32 << CURSOR_INDEX_BITS) - 1);
        let wraps = b.ge(index, slots);
        let lap = self.lap(b);
        let lap = b.add(lap, 1u32);
        let first = b.shl(lap, CURSOR_INDEX_BITS);
        b.select(wraps, first, next)
    }
}

/// Moves a level's cursor.
pub fn store_cursor(b: &mut Builder, cx: &Context, level: Value, cursor: Value) {
    let word = b.add(level, state::CURSORS);
    let place = b.at(cx.state, word);
    b.store(place, cursor);
}
