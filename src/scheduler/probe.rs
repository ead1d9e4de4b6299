//! How a level's slots are dealt out to the lanes of all workers: strided, each slot once per pass.

use super::Mutation;
use crate::ir::{Builder, Value};

/// Slots that a lane probes so that `width` lanes cover `slots`: the quotient, rounded up. A width of 0 counts as 1.
pub const fn probe_count(slots: u32, width: u32) -> u32 {
    slots.div_ceil(if width == 0 { 1 } else { width })
}

/// Lanes that have a slot to probe at all.
pub const fn active_lanes(slots: u32, width: u32) -> u32 {
    if slots < width { slots } else { width }
}

/// Probes of a whole pass, at most: lanes times probes, saturating.
pub const fn probe_budget(slots: u32, width: u32) -> u32 {
    active_lanes(slots, width).saturating_mul(probe_count(slots, width))
}

/// A lane's probe of one round in one level.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Slot to look at; some valid slot where `valid` is false.
    pub slot: Value,
    /// Whether this lane has a slot in this round.
    pub valid: Value,
}

/// Rounds of a pass over a level of `slots` slots by lanes `stride` apart.
pub fn rounds(b: &mut Builder, slots: Value, stride: Value, mutation: Option<Mutation>) -> Value {
    if mutation == Some(Mutation::OneProbe) {
        return b.value(1u32);
    }
    let up = b.sub(stride, 1u32);
    let sum = b.add(slots, up);
    b.div(sum, stride)
}

/// The slot that a lane looks at in one round: `lane + round * stride` within the level that begins at `begin`.
pub fn probe(
    b: &mut Builder,
    (begin, slots): (Value, Value),
    lane: Value,
    stride: Value,
    round: Value,
    mutation: Option<Mutation>,
) -> Probe {
    let ahead = b.mul(round, stride);
    let mut index = b.add(lane, ahead);
    if mutation == Some(Mutation::WrapProbes) {
        let least = b.max(slots, 1u32);
        index = b.rem(index, least);
    }
    let valid = b.lt(index, slots);
    let index = b.select(valid, index, 0u32);
    let slot = b.add(begin, index);
    Probe { slot, valid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts() {
        assert_eq!((probe_count(0, 8), probe_count(64, 8), probe_count(65, 8), probe_count(9, 0)), (0, 8, 9, 9));
        assert_eq!((active_lanes(3, 8), active_lanes(9, 8)), (3, 8));
        assert_eq!((probe_budget(64, 8), probe_budget(u32::MAX, u32::MAX - 1)), (64, u32::MAX));
    }

    proptest! {
        #[test]
        fn a_pass_covers_each_slot_once(slots in 0u32..5000, width in 1u32..3000) {
            let mut seen = vec![0; slots as usize];
            for lane in 0..width {
                for round in 0..probe_count(slots, width) {
                    if let Some(count) = seen.get_mut((lane + round * width) as usize) {
                        *count += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
            prop_assert!(u64::from(probe_budget(slots, width)) < u64::from(slots) + u64::from(width));
        }
    }
}
