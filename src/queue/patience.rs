//! How a wait passes its time: it spins briefly, then lets other threads run, and now and then looks after the kernel.

use std::time::{Duration, Instant};

/// Spins between two looks at the clock, which costs as much as a poll.
const ROUNDS: u32 = 16;
/// How long a wait keeps its core: a round trip takes about two microseconds on a GPU.
const SPIN: Duration = Duration::from_micros(50);
/// How often a wait looks after the kernel, and the most that it lets that take.
const TURN: Duration = Duration::from_millis(1);

/// What a wait does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look for the completion again.
    Look,
    /// Look after the launch, for this long at most.
    Turn(Duration),
    /// Give up, after this time.
    Over(Duration),
}

/// A wait that has begun.
#[derive(Debug)]
pub struct Patience {
    start: Instant,
    deadline: Duration,
    turned: Duration,
    rounds: u32,
    spinning: bool,
}

impl Patience {
    /// Begins a wait of `deadline` at most.
    pub fn new(deadline: Duration) -> Self {
        Self { start: Instant::now(), deadline, turned: Duration::ZERO, rounds: 0, spinning: true }
    }

    /// Lets a little time pass and says what to do next; `left` says that the kernel has left.
    pub fn next(&mut self, left: bool) -> Next {
        if self.deadline.is_zero() {
            return Next::Over(Duration::ZERO);
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.spinning && !left && !self.rounds.is_multiple_of(ROUNDS) {
            std::hint::spin_loop();
            return Next::Look;
        }
        let waited = self.start.elapsed();
        if waited >= self.deadline {
            return Next::Over(waited);
        }
        if left || waited - self.turned >= TURN {
            self.turned = waited;
            return Next::Turn(TURN.min(self.deadline - waited));
        }
        if waited >= SPIN {
            // CPU drivers run the kernel on the cores that this thread would keep busy.
            self.spinning = false;
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        Next::Look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_turns_and_ends() {
        let mut patience = Patience::new(Duration::from_millis(5));
        let mut turns: u128 = 0;
        let waited = loop {
            match patience.next(false) {
                Next::Look => {}
                Next::Turn(time) => {
                    assert!(time <= TURN);
                    turns += 1;
                }
                Next::Over(waited) => break waited,
            }
        };
        assert!(waited >= Duration::from_millis(5));
        // How many there were is the machine's affair, but they are a millisecond apart.
        assert!(turns <= waited.as_millis(), "{turns} turns in {waited:?}");
    }

    #[test]
    fn a_kernel_that_has_left_is_looked_after_at_once() {
        let mut patience = Patience::new(Duration::from_secs(60));
        assert_eq!(patience.next(true), Next::Turn(TURN));
    }
}
