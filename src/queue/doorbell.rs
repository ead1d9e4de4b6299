//! A level's doorbell: how far everything is published, so that the kernel takes a batch in at once.
//!
//! The doorbell must never pass a position that a producer has reserved and not published: the kernel would wait for the
//! slot, and can't tell a thread that is suspended from a store that is lost. So a producer *marks* what it has published, in
//! memory of the host, and whoever marks goes on over all marks that follow one another. Where there is one submission handle
//! alone, everything before the tail is published whenever it publishes, and nothing is marked.

use super::ring::Ring;
use super::sync::{AtomicU32, AtomicU64, Ordering, Padded, fence};

/// A doorbell is written again after so many positions at the latest: the kernel compares it by a signed distance.
const REFRESH: u64 = 1 << 30;

/// One level's doorbell.
#[derive(Debug)]
pub struct Doorbell {
    /// Positions before this one are published.
    published: Padded<AtomicU64>,
    /// The position that was last written for the kernel, as far as anyone remembers.
    rung: AtomicU64,
    /// For each slot the generation that was last published there, where several handles publish.
    marks: Box<[AtomicU32]>,
}

impl Doorbell {
    /// The doorbell of a level whose first position is `start`.
    pub fn new(ring: &Ring, start: u64) -> Self {
        let before = ring.lap_before(start);
        Self {
            published: Padded(AtomicU64::new(start)),
            rung: AtomicU64::new(start),
            marks: (0..ring.slots()).map(|_| AtomicU32::new(before)).collect(),
        }
    }

    /// Takes in that everything before `tail` is published; for the only handle.
    pub fn publish_all(&self, tail: u64) {
        // Release: pairs with the Acquire in `advance`, of handles that are made later.
        self.published.0.store(tail, Ordering::Release);
    }

    /// Marks positions `from` to `to` as published: their stores have left for the device.
    pub fn mark(&self, ring: &Ring, from: u64, to: u64) {
        let mut place = ring.place(from);
        for _ in from..to {
            // Release: pairs with the Acquire in `advance`: a doorbell beyond the mark is behind the slot's stores.
            self.marks[ring.index(place)].store(place.generation(), Ordering::Release);
            place = ring.next(place);
        }
    }

    /// Orders this thread's marks before its look at others' marks: of two producers that mark at once, one sees both.
    pub fn settle() {
        fence(Ordering::SeqCst);
    }

    /// Goes on over what is marked, up to `tail` at most, and gives the position before which everything is published.
    pub fn advance(&self, ring: &Ring, tail: u64) -> u64 {
        let start = self.published.0.load(Ordering::Acquire);
        let (mut position, mut place) = (start, ring.place(start));
        // A mark of a later lap ends the walk as well: then another producer has come further already.
        while position < tail && self.marks[ring.index(place)].load(Ordering::Acquire) == place.generation() {
            position += 1;
            place = ring.next(place);
        }
        // Release: hands the marks on to producers that read the position instead.
        position.max(self.published.0.fetch_max(position, Ordering::AcqRel))
    }

    /// How far everything is published, as others have found meanwhile.
    pub fn published(&self) -> u64 {
        self.published.0.load(Ordering::Acquire)
    }

    /// Whether the kernel should be told of `published`: it is worth a store where more than one task is `in_flight`, and due
    /// where the last one was long ago.
    pub fn is_due(&self, published: u64, in_flight: u64) -> bool {
        let rung = self.rung.load(Ordering::Relaxed);
        published > rung && (in_flight > 1 || published - rung >= REFRESH)
    }

    /// Remembers what the kernel is told.
    pub fn ring(&self, published: u64) {
        // Relaxed: it only decides whether another store is worth while.
        self.rung.store(published, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_stops_at_what_another_producer_has_not_published() {
        let ring = Ring::new(3, 4);
        let start = u64::from(u32::MAX) * 4 + 2;
        let bell = Doorbell::new(&ring, start);
        bell.mark(&ring, start + 1, start + 3);
        assert_eq!(bell.advance(&ring, start + 4), start);
        bell.mark(&ring, start, start + 1);
        assert_eq!(bell.advance(&ring, start + 4), start + 3);
        // The same slots a lap later are not published by the marks of this one.
        assert_eq!(bell.advance(&ring, start + 8), start + 3);
        bell.publish_all(start + 6);
        assert_eq!(bell.advance(&ring, start + 8), start + 6);
    }

    #[test]
    fn lone_tasks_ring_seldom() {
        let bell = Doorbell::new(&Ring::new(0, 4), 0);
        assert!(!bell.is_due(1, 1) && bell.is_due(1, 2) && bell.is_due(REFRESH, 1));
        bell.ring(REFRESH);
        assert!(!bell.is_due(REFRESH, 9) && !bell.is_due(REFRESH + 1, 1));
    }
}
