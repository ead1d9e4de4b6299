//! Signs of life of a launch, as the host sees them from time to time, and what they say of its pace.

use std::time::{Duration, Instant};

use crate::protocol::outlet;

/// What is known of the kernel's pulse.
#[derive(Debug)]
pub(super) struct Pulse {
    /// None until the launch has shown that it has begun.
    last: Option<Sign>,
    /// Passes that the crew does in a microsecond, as last measured.
    pace: f64,
}

#[derive(Clone, Copy, Debug)]
struct Sign {
    heartbeat: u32,
    /// When the heartbeat was first seen.
    beat: Instant,
    claims: u32,
    /// When either was first seen.
    seen: Instant,
}

impl Pulse {
    /// A pulse that is known by a guess at its pace alone, in passes a microsecond.
    pub fn new(pace: f64) -> Self {
        Self { last: None, pace }
    }

    /// Passes that the crew does in a microsecond, as last measured.
    pub fn pace(&self) -> f64 {
        self.pace
    }

    /// When the latest sign was first seen; None until the launch has shown that it has begun.
    pub fn seen(&self) -> Option<Instant> {
        self.last.map(|last| last.seen)
    }

    /// Forgets the signs of the launch before; the pace stays.
    pub fn reset(&mut self) {
        self.last = None;
    }

    /// Takes in a heartbeat and a count of claims that were read just `now`, and gives how long both have been the same.
    ///
    /// The claims count because between two tasks there need not be as many passes as from one beat to the next.
    pub fn feel(&mut self, heartbeat: u32, claims: u32, now: Instant) -> Duration {
        let last = self.last.get_or_insert(Sign { heartbeat, beat: now, claims, seen: now });
        if heartbeat != last.heartbeat {
            let beats = heartbeat.wrapping_sub(last.heartbeat) & ((1 << outlet::BEAT_BITS) - 1);
            let elapsed = (now - last.beat).as_secs_f64() * 1e6;
            // Beats of different workers are a few apart: only many of them say something of the pace.
            if (16..1 << (outlet::BEAT_BITS - 1)).contains(&beats) && elapsed > 0.0 {
                self.pace = f64::from(beats << outlet::BEAT_SHIFT) / elapsed;
            }
            *last = Sign { heartbeat, beat: now, claims, seen: now };
        } else if claims != last.claims {
            (last.claims, last.seen) = (claims, now);
        }
        now - last.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_beat_and_a_claim_are_signs_of_life() {
        let (mut pulse, start) = (Pulse::new(1.0), Instant::now());
        assert_eq!(pulse.seen(), None);
        assert_eq!(pulse.feel(5, 0, start), Duration::ZERO);
        assert_eq!(pulse.feel(5, 0, start + 3 * MS), 3 * MS);
        assert_eq!(pulse.feel(6, 0, start + 4 * MS), Duration::ZERO);
        assert_eq!(pulse.feel(6, 1, start + 9 * MS), Duration::ZERO);
        assert_eq!(pulse.feel(6, 1, start + 11 * MS), 2 * MS);
        assert_eq!(pulse.seen(), Some(start + 9 * MS));
        pulse.reset();
        assert_eq!(pulse.seen(), None);
    }

    #[test]
    fn many_beats_say_the_pace_and_claims_between_them_do_not_matter() {
        let (mut pulse, start) = (Pulse::new(7.0), Instant::now());
        pulse.feel(0, 0, start);
        pulse.feel(8, 0, start + MS);
        assert_eq!(pulse.pace(), 7.0, "too few to say");
        pulse.feel(8, 1, start + 10 * MS);
        pulse.feel(108, 1, start + 11 * MS);
        assert_eq!(pulse.pace(), 100.0 * f64::from(1 << outlet::BEAT_SHIFT) / 10_000.0);
        // Another worker's beat may be behind.
        pulse.feel(107, 1, start + 12 * MS);
        assert_eq!(pulse.pace(), 100.0 * f64::from(1 << outlet::BEAT_SHIFT) / 10_000.0);
    }
}
