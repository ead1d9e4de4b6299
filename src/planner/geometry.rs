//! The shape of a launch: workgroups that together have an invocation for every slot.

use super::limits::GridLimits;
use super::request::PlanError;

/// The shape of a launch over a number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup.
    pub width: u32,
    /// Slots, rounded up to whole workgroups.
    pub padded_slots: u32,
    /// Workgroups along x, y and z; together at least `padded_slots / width`, and at least one.
    pub dispatch: [u32; 3],
}

impl Geometry {
    /// The shape of `slots` slots by workgroups of `width`, spread over as few dimensions as the limit allows.
    ///
    /// # Errors
    /// [`PlanError::Width`] for a width of 0 or over the limits, and [`PlanError::Slots`] for more slots than 32 bits or
    /// the three dimensions can count.
    pub fn new(slots: u32, width: u32, limits: &GridLimits) -> Result<Self, PlanError> {
        limits.check()?;
        if width == 0 || width > limits.max_width() {
            return Err(PlanError::Width { width, limit: limits.max_width() });
        }
        let groups = slots.div_ceil(width).max(1);
        let dispatch = spread(groups, limits.max_workgroups_per_dimension);
        let covered = slots.div_ceil(width).checked_mul(width);
        match (covered, dispatch) {
            (Some(padded_slots), Some(dispatch)) => Ok(Self { width, padded_slots, dispatch }),
            _ => Err(PlanError::Slots { slots, limit: most_slots(width, limits) }),
        }
    }

    /// Invocations of the whole launch.
    pub fn invocations(&self) -> u128 {
        self.dispatch.into_iter().map(u128::from).product::<u128>() * u128::from(self.width)
    }
}

/// The most slots that workgroups of `width` cover.
fn most_slots(width: u32, limits: &GridLimits) -> u32 {
    let whole = u32::MAX / width * width;
    let launch = u128::from(limits.max_workgroups_per_dimension).pow(3) * u128::from(width);
    u32::try_from(launch).unwrap_or(u32::MAX).min(whole)
}

/// Spreads workgroups over dimensions of at most `most`: z is as small as it can be, then y, then x.
fn spread(groups: u32, most: u32) -> Option<[u32; 3]> {
    let (groups, most) = (u64::from(groups), u64::from(most));
    // Each quotient rounds up, so the product is never less than `groups`; each is at most `most` where z is.
    let z = groups.div_ceil(most * most);
    let y = groups.div_ceil(z * most);
    let x = groups.div_ceil(z * y);
    let dispatch = [x, y, z].map(|count| u32::try_from(count).ok());
    match dispatch {
        [Some(x), Some(y), Some(z)] if u64::from(z) <= most => Some([x, y, z]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workgroups_use_as_few_dimensions_as_they_can() {
        assert_eq!(spread(1, 4), Some([1, 1, 1]));
        assert_eq!(spread(4, 4), Some([4, 1, 1]));
        assert_eq!(spread(5, 4), Some([3, 2, 1]));
        assert_eq!(spread(16, 4), Some([4, 4, 1]));
        assert_eq!(spread(17, 4), Some([3, 3, 2]));
        assert_eq!(spread(64, 4), Some([4, 4, 4]));
        assert_eq!(spread(65, 4), None);
        assert_eq!(spread(u32::MAX, u32::MAX), Some([u32::MAX, 1, 1]));
    }

    #[test]
    fn the_most_slots_are_really_the_most() {
        let limits =
            GridLimits { max_workgroup_size_x: 8, max_workgroups_per_dimension: 3, max_invocations_per_workgroup: 8 };
        let most = most_slots(8, &limits);
        assert_eq!(most, 3 * 3 * 3 * 8);
        assert!(Geometry::new(most, 8, &limits).is_ok());
        assert_eq!(Geometry::new(most + 1, 8, &limits), Err(PlanError::Slots { slots: most + 1, limit: most }));
    }
}
