//! Where the poller's next slot of each level lies: kept in registers while it polls, in the state buffer otherwise.
//!
//! Positions count modulo 2^32 and levels have any number of slots, so index and lap go along. A claimer has a position alone:
//! index and lap of position 0 and of position 2^31 lie in the state buffer, each written when the poller goes over it.

use super::{Fast, Lanes};
use crate::ir::{AtomicOp, Builder, Order, Place, Scope, SubgroupOp, Value, Var};
use crate::protocol::{inlet, slot, state};

/// One level as one lane sees it. With [`Lanes::Wide`] four lanes see the same, each with its own part of the slot.
pub(super) struct Track {
    pub level: Value,
    /// Whether the lane has such a level, and the level slots; one lane a level.
    pub valid: Value,
    /// Whether the lane speaks for the level.
    pub lead: Value,
    /// 16-byte unit of the slot that the lane reads; 0 with [`Lanes::Few`].
    pub part: Value,
    begin: Value,
    size: Value,
    pub position: Var,
    index: Var,
    lap: Var,
    /// 1 where no ticket of the level is out: then a lone task may overtake the ticket word, which gets old.
    pub quiet: Var,
}

/// A level's next slot, as all lanes know it.
#[derive(Clone, Copy)]
pub(super) struct Next {
    pub level: Value,
    pub position: Value,
    pub slot: Value,
    pub index: Value,
    pub generation: Value,
    pub quiet: Value,
}

impl Track {
    /// The tracks of this lane, one for each round.
    pub fn all(b: &mut Builder, fast: &Fast) -> Vec<Self> {
        (0..fast.rounds()).map(|round| Self::new(b, fast, round)).collect()
    }

    fn new(b: &mut Builder, fast: &Fast, round: u32) -> Self {
        let cx = &fast.cx;
        let (level, part) = match fast.shape {
            Lanes::Wide => (b.shr(fast.lane, 2u32), b.and(fast.lane, 3u32)),
            Lanes::Few => {
                let ahead = b.mul(fast.lanes, round);
                (b.add(fast.lane, ahead), b.value(0u32))
            }
        };
        let known = b.lt(level, cx.levels());
        // Lanes beyond the levels read what the last level's do, for nothing.
        let level = b.min(level, cx.levels() - 1);
        let (begin, size) = cx.partition(b, level);
        let some = b.ne(size, 0u32);
        let begin = b.select(some, begin, 0u32);
        let valid = b.and(known, some);
        let first = b.eq(part, 0u32);
        let lead = b.and(valid, first);
        let [position, index, lap, quiet] = [(); 4].map(|()| b.var(0u32));
        Self { level, valid, lead, part, begin, size, position, index, lap, quiet }
    }

    /// Takes the level over from the poller before.
    pub fn enter(&self, b: &mut Builder, fast: &Fast) {
        let words = [(state::INTAKE, self.position), (state::INTAKE_INDEX, self.index), (state::INTAKE_LAP, self.lap)];
        for (first, var) in words {
            let word = b.add(self.level, first);
            let place = b.at(fast.cx.state, word);
            let value = b.load(place);
            b.set(var, value);
        }
        let position = b.get(self.position);
        let quiet = self.is_quiet(b, fast, position);
        b.set(self.quiet, quiet);
    }

    /// Leaves the level to the next poller.
    pub fn leave(&self, b: &mut Builder, fast: &Fast) {
        b.when(self.lead, |b| {
            let words =
                [(state::INTAKE, self.position), (state::INTAKE_INDEX, self.index), (state::INTAKE_LAP, self.lap)];
            for (first, var) in words {
                let word = b.add(self.level, first);
                let place = b.at(fast.cx.state, word);
                let value = b.get(var);
                b.store(place, value);
            }
            let position = b.get(self.position);
            self.update_tickets(b, fast, position);
        });
    }

    /// 1 where all tickets before a position have been taken.
    pub fn is_quiet(&self, b: &mut Builder, fast: &Fast, position: Value) -> Value {
        let tickets = fast.apart(b, state::TICKETS, self.level);
        let tickets = b.load(tickets);
        let same = b.eq(tickets, position);
        b.select(same, 1u32, 0u32)
    }

    /// Brings a quiet level's ticket word up to date: nobody else touches it before something is posted.
    pub fn update_tickets(&self, b: &mut Builder, fast: &Fast, position: Value) {
        let quiet = b.get(self.quiet);
        let quiet = b.ne(quiet, 0u32);
        b.when(quiet, |b| {
            let tickets = fast.apart(b, state::TICKETS, self.level);
            b.atomic(AtomicOp::Exchange, tickets, position, Scope::Device, Order::Relaxed);
        });
    }

    /// The next slot.
    fn slot(&self, b: &mut Builder) -> Value {
        let index = b.get(self.index);
        b.add(self.begin, index)
    }

    /// Generation of the next slot's task.
    pub fn generation(&self, b: &mut Builder) -> Value {
        let lap = b.get(self.lap);
        b.add(lap, 1u32)
    }

    /// Where this lane's part of the next slot lies.
    pub fn unit(&self, b: &mut Builder, fast: &Fast) -> Place {
        let slot = self.slot(b);
        let word = b.shl(self.part, 2u32);
        fast.cx.slot_word(b, slot, word)
    }

    /// What the lane reads beside its unit with [`Lanes::Wide`]: the stop word, or its level's doorbell.
    pub fn control(&self, b: &mut Builder, fast: &Fast) -> Place {
        let bell = b.add(self.level, inlet::DOORBELLS);
        let second = self.listens(b);
        let word = b.select(second, inlet::STOP, bell);
        b.at(fast.cx.inlet, word)
    }

    /// Whether the lane's control word is the stop word.
    pub fn listens(&self, b: &mut Builder) -> Value {
        b.eq(self.part, 1u32)
    }

    /// Goes on by `tasks`, fewer than the level has slots or as many.
    pub fn advance(&self, b: &mut Builder, fast: &Fast, tasks: Value) {
        let (position, index, lap) = (b.get(self.position), b.get(self.index), b.get(self.lap));
        let end = b.add(position, tasks);
        let changed = b.xor(position, end);
        let crosses = b.ge(changed, 1u32 << 31);
        let crosses = b.and(crosses, self.lead);
        b.when(crosses, |b| {
            let half = b.and(end, 1u32 << 31);
            let ahead = b.sub(half, position);
            let index = b.add(index, ahead);
            let (index, lap) = self.wrap(b, index, lap);
            let base = self.base(b, end);
            let place = b.at(fast.cx.state, base);
            b.store(place, index);
            let base = b.add(base, 1u32);
            let place = b.at(fast.cx.state, base);
            b.store(place, lap);
        });
        let index = b.add(index, tasks);
        let (index, lap) = self.wrap(b, index, lap);
        b.set(self.position, end);
        b.set(self.index, index);
        b.set(self.lap, lap);
    }

    fn wrap(&self, b: &mut Builder, index: Value, lap: Value) -> (Value, Value) {
        let wraps = b.ge(index, self.size);
        let wrapped = b.sub(index, self.size);
        let next = b.add(lap, 1u32);
        (b.select(wraps, wrapped, index), b.select(wraps, next, lap))
    }

    /// Word of the base of the half that a position lies in.
    fn base(&self, b: &mut Builder, position: Value) -> Value {
        base_of(b, self.level, position)
    }
}

/// Word of the base of the half that a level's position lies in: an index, and a lap behind it.
pub(super) fn base_of(b: &mut Builder, level: Value, position: Value) -> Value {
    let first = b.mul(level, state::BASE_WORDS);
    let half = b.shr(position, 31u32);
    let half = b.shl(half, 1u32);
    let word = b.add(first, half);
    b.add(word, state::BASES)
}

impl Next {
    /// Tells all lanes where the next slot of `level` lies, which the lanes' tracks know.
    pub fn of(b: &mut Builder, fast: &Fast, tracks: &[Track], level: Value) -> Self {
        let mut values = [(); 5].map(|()| None);
        for (round, track) in tracks.iter().enumerate() {
            let (slot, generation) = (track.slot(b), track.generation(b));
            let (position, index, quiet) = (b.get(track.position), b.get(track.index), b.get(track.quiet));
            let ahead = b.mul(fast.lanes, round as u32);
            let lane = match fast.shape {
                Lanes::Wide => b.shl(level, 2u32),
                Lanes::Few => b.sub(level, ahead),
            };
            // A level of another round has no lane here.
            let here = b.lt(lane, fast.lanes);
            let lane = b.select(here, lane, 0u32);
            for (value, mine) in values.iter_mut().zip([position, slot, index, generation, quiet]) {
                let seen = b.subgroup(SubgroupOp::Shuffle(mine, lane));
                *value = Some(value.map_or(seen, |before| b.select(here, seen, before)));
            }
        }
        let [position, slot, index, generation, quiet] = values.map(|value| value.unwrap_or(level));
        Self { level, position, slot, index, generation, quiet }
    }
}

const _: () = assert!(slot::GENERATION == 0 && state::BASE_WORDS == 4);
