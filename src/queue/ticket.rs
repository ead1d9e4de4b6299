//! Tickets: the names that pushed tasks go by.

use std::fmt;

/// Bits of a ticket that hold the position.
pub(super) const POSITION_BITS: u32 = 61;

/// Positions end before this one: 73 years at a thousand million tasks a second.
pub(super) const POSITION_LIMIT: u64 = (1 << POSITION_BITS) - 1;

/// Names one pushed task of one pair of queues: its level, and its position there, which never comes again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    #[inline]
    pub(super) const fn new(level: u32, position: u64) -> Self {
        Self(((level as u64) << POSITION_BITS) | position)
    }

    /// The level that the task was pushed to.
    #[inline]
    pub const fn level(self) -> u32 {
        (self.0 >> POSITION_BITS) as u32
    }

    /// How many tasks were pushed to the level before this one, counted from lap 0 of its ring.
    #[inline]
    pub const fn position(self) -> u64 {
        self.0 & ((1 << POSITION_BITS) - 1)
    }

    /// The ticket as one number: the level in the top 3 bits, the position below.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The ticket with these bits; one that was never issued is an error when it is waited for.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Ticket({}:{})", self.level(), self.position())
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "level {}, position {}", self.level(), self.position())
    }
}

/// The tickets of a batch, in the order of its tasks.
#[derive(Clone, Debug)]
pub struct Tickets {
    pub(super) level: u32,
    pub(super) positions: std::ops::Range<u64>,
}

impl Iterator for Tickets {
    type Item = Ticket;

    fn next(&mut self) -> Option<Ticket> {
        self.positions.next().map(|position| Ticket::new(self.level, position))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.positions.size_hint()
    }
}

impl DoubleEndedIterator for Tickets {
    fn next_back(&mut self) -> Option<Ticket> {
        self.positions.next_back().map(|position| Ticket::new(self.level, position))
    }
}

impl ExactSizeIterator for Tickets {
    fn len(&self) -> usize {
        (self.positions.end - self.positions.start) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_and_position_come_back() {
        let ticket = Ticket::new(7, POSITION_LIMIT - 1);
        assert_eq!((ticket.level(), ticket.position()), (7, POSITION_LIMIT - 1));
        assert_eq!(Ticket::from_bits(ticket.to_bits()), ticket);
        assert_eq!(format!("{}, {:?}", Ticket::new(2, 9), Ticket::new(2, 9)), "level 2, position 9, Ticket(2:9)");
    }
}
