//! The tasks of one level that are in flight, with the user data that their completions bring back.
//!
//! Every task has a *home* entry, its position modulo the number of homes. A task whose home is still held by an older
//! one goes to the *overflow*, which has room for a whole window, so a task that runs for long never stops its level
//! and an entry never moves. Producers fill entries, the completion queue alone frees them.
//!
//! Why filling a home needs no swap: there are at least as many homes as slots in the level's ring, so the last
//! position with the same home was published, hence in the table, before the slot of the new one became free.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// Key of an entry: 0 where it is free, else the position plus one, and flags.
type Key = u64;

/// Flag of a key: the completion has been consumed and waits to be delivered.
pub const READY: Key = 1 << 63;
/// Flag of a key: the completion was delivered before its entry came through the completion queue.
pub const EARLY: Key = 1 << 62;
/// Flag of a key: a producer has claimed the entry and is filling it.
const CLAIMED: Key = 1 << 61;

const FREE: Key = 0;
const FLAGS: Key = READY | EARLY | CLAIMED;

const _: () = assert!(super::ticket::POSITION_LIMIT < CLAIMED);

#[derive(Debug)]
struct Entry {
    key: AtomicU64,
    user_data: AtomicU64,
}

/// What the table knows of a task in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Index of the entry in the table.
    pub index: u32,
    /// Position of the task.
    pub position: u64,
    /// [`READY`], [`EARLY`] or 0.
    pub flags: u64,
}

/// The tasks of one level that are in flight.
#[derive(Debug)]
pub struct Table {
    /// Homes first, then the overflow.
    entries: Box<[Entry]>,
    homes: u32,
    overflow: u32,
    /// The most overflow entries that any task was away from where its search starts, plus one.
    reach: AtomicU32,
}

impl Table {
    /// A table for at most `window` tasks at once, of a ring of `slots` slots.
    pub fn new(window: u32, slots: u32) -> Self {
        let homes = window.max(slots).max(1).next_power_of_two();
        let overflow = window.max(1).next_power_of_two();
        let entry = |_| Entry { key: AtomicU64::new(FREE), user_data: AtomicU64::new(0) };
        Self { entries: (0..homes + overflow).map(entry).collect(), homes, overflow, reach: AtomicU32::new(0) }
    }

    /// Number of entries.
    pub fn len(&self) -> u32 {
        self.homes + self.overflow
    }

    #[inline]
    fn home(&self, name: u32) -> u32 {
        name & (self.homes - 1)
    }

    /// Overflow entry where the search for a task starts: spread by a multiplication, since tasks that run for long
    /// displace neighbours.
    fn detour(&self, name: u32, step: u32) -> u32 {
        let start = name.wrapping_mul(0x9e37_79b9) >> 7;
        self.homes + (start.wrapping_add(step) & (self.overflow - 1))
    }

    /// Enters the task at `position`, which the caller has reserved and not yet published.
    #[inline]
    pub fn insert(&self, position: u64, user_data: u64) {
        let entry = &self.entries[self.home(position as u32) as usize];
        // Acquire: pairs with the Release in `free`.
        if entry.key.load(Ordering::Acquire) == FREE {
            entry.fill(position, user_data);
        } else {
            self.insert_displaced(position, user_data);
        }
    }

    #[cold]
    fn insert_displaced(&self, position: u64, user_data: u64) {
        let mut step = 0;
        // Ends: the window counts this task already, so at most overflow - 1 others are in the overflow, and an entry
        // that is lost to another producer is another task's progress.
        loop {
            let entry = &self.entries[self.detour(position as u32, step) as usize];
            // Acquire: pairs with the Release in `free`. The flag keeps the entry from being found half filled.
            let claim = entry.key.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
            if claim.is_ok() {
                self.reach.fetch_max((step & (self.overflow - 1)) + 1, Ordering::Release);
                entry.fill(position, user_data);
                return;
            }
            step = step.wrapping_add(1);
        }
    }

    /// Finds the task in flight whose position has these low 32 bits; the ring sees to it that there is one at most.
    #[inline]
    pub fn find(&self, name: u32) -> Option<Found> {
        self.look(self.home(name), name).or_else(|| {
            // Acquire: pairs with the Release in `insert_displaced`; the completion that made the caller look says
            // that the insertion came before.
            let reach = self.reach.load(Ordering::Acquire);
            (0..reach).find_map(|step| self.look(self.detour(name, step), name))
        })
    }

    #[inline]
    fn look(&self, index: u32, name: u32) -> Option<Found> {
        self.read(index).filter(|found| found.position as u32 == name)
    }

    /// The task in flight at entry `index`.
    #[inline]
    pub fn read(&self, index: u32) -> Option<Found> {
        // Acquire: pairs with the Release in `fill`.
        let key = self.entries[index as usize].key.load(Ordering::Acquire);
        let position = (key & !FLAGS).checked_sub(1)?;
        Some(Found { index, position, flags: key & FLAGS })
    }

    /// User data of a task that was found.
    #[inline]
    pub fn user_data(&self, found: Found) -> u64 {
        // Relaxed: finding the entry acquired it.
        self.entries[found.index as usize].user_data.load(Ordering::Relaxed)
    }

    /// Sets the flag of a task that was found; called by the completion queue alone.
    pub fn mark(&self, found: Found, flag: u64) {
        // Relaxed: producers ask only whether the entry is free.
        self.entries[found.index as usize].key.store((found.position + 1) | flag, Ordering::Relaxed);
    }

    /// Frees the entry of a task that was found; called by the completion queue alone.
    #[inline]
    pub fn free(&self, found: Found) {
        // Release: pairs with the Acquire in `insert`: the next task's data is not read as this one's.
        self.entries[found.index as usize].key.store(FREE, Ordering::Release);
    }

    /// The tasks in flight, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Found> + '_ {
        (0..self.len()).filter_map(|index| self.read(index))
    }

    /// Position of the oldest task in flight.
    pub fn oldest(&self) -> Option<u64> {
        self.iter().map(|found| found.position).min()
    }
}

impl Entry {
    #[inline]
    fn fill(&self, position: u64, user_data: u64) {
        self.user_data.store(user_data, Ordering::Relaxed);
        // Release: pairs with the Acquire in `read`: who finds the task reads its data.
        self.key.store(position + 1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_task_whose_home_is_held_goes_to_the_overflow() {
        let table = Table::new(4, 4);
        table.insert(1, 10);
        table.insert(5, 50);
        table.insert(9, 90);
        for (position, user_data) in [(1, 10), (5, 50), (9, 90)] {
            let found = table.find(position as u32).expect("it is in flight");
            assert_eq!((found.position, found.flags, table.user_data(found)), (position, 0, user_data));
        }
        assert_eq!(table.oldest(), Some(1));
        let first = table.find(1).expect("it is in flight");
        table.free(first);
        assert_eq!(table.find(1), None);
        assert!(table.find(9).is_some(), "entries before it in the overflow may come free");
        assert_eq!(table.oldest(), Some(5));
    }

    #[test]
    fn the_overflow_holds_a_whole_window() {
        let table = Table::new(8, 1);
        // Positions with one home: the first takes it, and a window's rest is displaced.
        for lap in 0..8 {
            table.insert(lap * 8, lap);
        }
        for lap in 0..8 {
            let found = table.find(lap as u32 * 8).expect("it is in flight");
            assert_eq!(table.user_data(found), lap);
        }
    }

    #[test]
    fn names_survive_the_32_bit_wrap() {
        let table = Table::new(2, 2);
        let (before, after) = (u64::from(u32::MAX), 1 << 32);
        table.insert(before, 1);
        table.insert(after, 2);
        assert_eq!(table.find(u32::MAX).map(|found| found.position), Some(before));
        assert_eq!(table.find(0).map(|found| found.position), Some(after));
    }

    #[test]
    fn flags_stay_with_the_entry() {
        let table = Table::new(2, 2);
        table.insert(0, 1);
        let found = table.find(0).expect("it is in flight");
        table.mark(found, EARLY);
        let found = table.find(0).expect("it is in flight");
        assert_eq!((found.position, found.flags), (0, EARLY));
    }
}
