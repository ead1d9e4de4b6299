//! One level's ring on the host: which positions may be pushed now, and which slots they lie in.
//!
//! Positions count on for ever; position p lies in slot p mod n of the level's n, in lap p / n. A position may be
//! reserved once the slot's task of the lap before has been taken in, while the window has room, and while no task
//! is so old that the low 32 bits of its position would come again.

use super::doorbell::Doorbell;
use super::sync::{AtomicU64, Ordering, Padded};
use super::table::Table;
use super::ticket::POSITION_LIMIT;
use super::words::Words;
use crate::protocol::{inlet, outlet, slot};

/// Taken words that are looked at beyond those needed, so that the next pushes find room without looking.
const LOOK_AHEAD: u64 = 64;

/// A completion names its task by this many positions' low bits.
const ALIAS: u64 = 1 << 32;

/// Where a level's partition lies, and how positions map to its slots.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    first: u32,
    slots: u32,
    /// 2^64 / slots, rounded down: dividing a 64-bit position would cost more than the rest of a push.
    reciprocal: u64,
}

/// A position's place: its slot in the whole ring, and its lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the slot in the ring of all levels.
    pub slot: u32,
    /// How often the level's ring had gone round before.
    pub lap: u64,
}

impl Place {
    /// Generation that the slot carries in this lap.
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.lap as u32).wrapping_add(1)
    }
}

impl Ring {
    /// The partition of `slots` slots that starts at slot `first`.
    pub fn new(first: u32, slots: u32) -> Self {
        Self { first, slots, reciprocal: u64::MAX.checked_div(u64::from(slots)).unwrap_or(0) }
    }

    /// Number of slots.
    #[inline]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Index of a place's slot among the ring's own.
    #[inline]
    pub const fn index(&self, place: Place) -> usize {
        (place.slot - self.first) as usize
    }

    /// Low 32 bits of the lap before the one that a position lies in, plus one: no generation of that lap.
    pub fn lap_before(&self, position: u64) -> u32 {
        position.checked_div(u64::from(self.slots)).unwrap_or(0) as u32
    }

    /// The place of a position under 2^61; the ring must have slots.
    #[inline]
    pub const fn place(&self, position: u64) -> Place {
        let slots = self.slots as u64;
        // The estimate is low by one at most: the reciprocal is short of 2^64 / n by less than 2, and times a position
        // under 2^61 that makes less than a quarter.
        let mut lap = ((position as u128 * self.reciprocal as u128) >> 64) as u64;
        let mut index = position - lap * slots;
        if index >= slots {
            lap += 1;
            index -= slots;
        }
        Place { slot: self.first + index as u32, lap }
    }

    /// The place of the position after the one at `place`.
    #[inline]
    pub const fn next(&self, place: Place) -> Place {
        if place.slot + 1 == self.first + self.slots {
            Place { slot: self.first, lap: place.lap + 1 }
        } else {
            Place { slot: place.slot + 1, lap: place.lap }
        }
    }
}

/// What a push reads and writes.
#[derive(Debug)]
struct Front {
    /// The next position to reserve.
    tail: AtomicU64,
    /// Positions before this one may be reserved: a lower bound, brought up to date when the tail reaches it.
    room: AtomicU64,
}

/// What is read and written when the front's room has run out.
#[derive(Debug)]
struct Back {
    /// Positions before this one are known to have been taken in.
    taken: AtomicU64,
    /// Positions before this one can't be mistaken for a task that is still unfinished.
    horizon: AtomicU64,
}

/// The host's view of one level.
#[derive(Debug)]
pub struct Level {
    front: Padded<Front>,
    back: Padded<Back>,
    /// Tasks whose completions have been both consumed and delivered; written by the completion queue alone.
    finished: Padded<AtomicU64>,
    pub ring: Ring,
    pub table: Table,
    pub doorbell: Doorbell,
    window: u32,
    start: u64,
}

impl Level {
    pub fn new(ring: Ring, window: u32, first_lap: u64) -> Self {
        let start = first_lap * u64::from(ring.slots());
        let at_start = || AtomicU64::new(start);
        Self {
            front: Padded(Front { tail: at_start(), room: at_start() }),
            back: Padded(Back { taken: at_start(), horizon: AtomicU64::new((start + ALIAS).min(POSITION_LIMIT)) }),
            finished: Padded(at_start()),
            ring,
            table: Table::new(window, ring.slots()),
            doorbell: Doorbell::new(&ring, start),
            window,
            start,
        }
    }

    /// The most tasks that can be in flight at once.
    #[inline]
    pub fn capacity(&self) -> u32 {
        // A task whose slot was taken in needs no slot, so a window may be wider than the ring; a batch may not.
        self.window.min(self.ring.slots())
    }

    /// The first position that this pair of queues may issue.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The next position to be reserved.
    #[inline]
    pub fn tail(&self) -> u64 {
        // Acquire costs nothing here and lets the caller reason about what was reserved before what it has read.
        self.front.0.tail.load(Ordering::Acquire)
    }

    /// Tasks that were pushed and are not finished, as the host knows.
    pub fn in_flight(&self) -> u64 {
        // Finished first: the difference must not fall below zero when both move meanwhile.
        let finished = self.finished.0.load(Ordering::Acquire);
        self.tail() - finished
    }

    /// A position before which every task has ended, and whose tasks' completions have been taken.
    pub fn finished_before<W: Words>(&self, outlet: &W) -> u64 {
        // Tasks before `taken` are in the table, since their slots were published; others may not have got there yet.
        let taken = self.walk_taken(self.tail(), outlet);
        self.table.oldest().unwrap_or(taken).min(taken)
    }

    /// Reports that `finished` tasks have ended since the start; called by the completion queue alone.
    #[inline]
    pub fn finish(&self, finished: u64) {
        // Release: pairs with the Acquire in `make_room`: who pushes into the room sees the table entry free.
        self.finished.0.store(self.start + finished, Ordering::Release);
    }

    /// Reserves `count` positions in a row and returns the first, or None where there is no room for all.
    ///
    /// `alone` says that no other thread can reserve meanwhile. A store is enough then: a locked swap makes a push a
    /// quarter slower, and drains the write-combining buffers that still hold the push before.
    #[inline]
    pub fn reserve<W: Words>(&self, count: u64, alone: bool, outlet: &W) -> Option<u64> {
        let front = &self.front.0;
        let mut tail = front.tail.load(Ordering::Relaxed);
        // Ends: a failed swap means that another producer moved the tail towards the room's end.
        loop {
            let end = tail + count;
            // Acquire: pairs with the Release in `make_room` of whichever producer looked.
            if end > front.room.load(Ordering::Acquire) && !self.make_room(end, outlet) {
                return None;
            }
            // Relaxed, here and below: the tail guards numbers only; tasks are handed over by the slot's generation.
            if alone {
                front.tail.store(end, Ordering::Relaxed);
                return Some(tail);
            }
            match front.tail.compare_exchange_weak(tail, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(tail),
                Err(now) => tail = now,
            }
        }
    }

    /// Looks how far the kernel and the completion queue have come; true where positions up to `end` may be reserved.
    #[cold]
    fn make_room<W: Words>(&self, end: u64, outlet: &W) -> bool {
        let slots = u64::from(self.ring.slots());
        let taken = self.walk_taken(end.saturating_sub(slots), outlet);
        // Acquire: pairs with the Release in `finish`.
        let finished = self.finished.0.load(Ordering::Acquire);
        let horizon = self.look_out(end, taken);
        let room = (taken + slots).min(finished + u64::from(self.window)).min(horizon);
        // Release: hands on what was acquired above. All three bounds only grow, so the larger value is the newer.
        let before = self.front.0.room.fetch_max(room, Ordering::AcqRel);
        end <= room.max(before)
    }

    /// Moves the taken position on, in order, until it reaches `needed` or a slot that has not been taken in.
    fn walk_taken<W: Words>(&self, needed: u64, outlet: &W) -> u64 {
        let start = self.back.0.taken.load(Ordering::Acquire);
        let stop = needed.max(start) + LOOK_AHEAD.min(u64::from(self.ring.slots()));
        let (mut position, mut place) = (start, self.ring.place(start));
        // A word of a later lap ends the walk as well: then another producer has come further already.
        while position < stop && outlet.load(outlet::taken_at(place.slot)) == place.generation() {
            position += 1;
            place = self.ring.next(place);
        }
        // Release: hands the taken words on to producers that read the position instead.
        let before = self.back.0.taken.fetch_max(position, Ordering::AcqRel);
        position.max(before)
    }

    /// True where a task is published and not taken in: what a launch is worth starting for. Positions that a producer has
    /// reserved and not filled yet don't count.
    pub fn has_waiting<W: Words>(&self, inlet: &W, outlet: &W) -> bool {
        let tail = self.tail();
        let taken = self.walk_taken(tail, outlet);
        let waits = |position: u64| {
            let place = self.ring.place(position);
            // In this order: a slot that is taken in between the two loads counts as waiting, which does no harm.
            outlet.load(outlet::taken_at(place.slot)) != place.generation()
                && inlet.load(inlet::slot_at(place.slot) + slot::GENERATION) == place.generation()
        };
        (taken..tail).any(waits)
    }

    /// Returns the position before which no low 32 bits come again, looked up anew when `end` has passed it.
    fn look_out(&self, end: u64, taken: u64) -> u64 {
        let horizon = self.back.0.horizon.load(Ordering::Relaxed);
        if end <= horizon {
            return horizon;
        }
        // Tasks before `taken` are in the table, since their slots were published; later ones are young.
        let oldest = self.table.oldest().unwrap_or(taken).min(taken);
        let moved = (oldest + ALIAS).min(POSITION_LIMIT);
        moved.max(self.back.0.horizon.fetch_max(moved, Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::queue::words::HeapWords;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_are_quotient_and_remainder(first in 0u32..1000, slots in 1u32..=(1 << 24), position in 0..POSITION_LIMIT) {
            let ring = Ring::new(first, slots);
            let place = ring.place(position);
            let expected = (first + (position % u64::from(slots)) as u32, position / u64::from(slots));
            prop_assert_eq!((place.slot, place.lap), expected);
            prop_assert_eq!(ring.next(place), ring.place(position + 1));
        }
    }

    #[test]
    fn places_at_the_edges() {
        for slots in [1, 2, 3, 51, 1 << 24] {
            let ring = Ring::new(5, slots);
            for position in [0, u64::from(slots) - 1, u64::from(slots), u64::from(u32::MAX), POSITION_LIMIT - 1] {
                let expected = (5 + (position % u64::from(slots)) as u32, position / u64::from(slots));
                let place = ring.place(position);
                assert_eq!((place.slot, place.lap), expected, "{slots} slots, position {position}");
            }
        }
    }

    #[test]
    fn a_task_older_than_all_names_holds_the_level_up() {
        // A window wider than the ring; the first task stays unfinished while the others come and go.
        let ring = Ring::new(0, 4);
        let outlet = HeapWords::new(outlet::words(4, 8));
        let level = Level::new(ring, 8, 0);
        let old = level.reserve(1, true, &outlet).expect("the ring is empty");
        level.table.insert(old, 0);
        outlet.store(outlet::taken_at(0), 1);
        // As after nearly 2^32 further tasks, all taken in and finished but the first.
        let late = ALIAS - 2;
        level.front.0.tail.store(late, Ordering::Relaxed);
        level.front.0.room.store(late, Ordering::Relaxed);
        level.back.0.taken.store(late, Ordering::Relaxed);
        level.finish(late - 1);
        assert_eq!(level.reserve(2, false, &outlet), Some(late));
        assert_eq!(level.reserve(1, true, &outlet), None, "its name would be the first task's");
        let entry = level.table.find(0).expect("the first task is in flight");
        level.table.free(entry);
        level.finish(late);
        assert_eq!(level.reserve(1, true, &outlet), Some(ALIAS));
    }
}
