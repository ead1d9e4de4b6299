//! The limits of a device that a launch must keep to.

use super::request::PlanError;

/// What a device allows of a compute dispatch, in `VkPhysicalDeviceLimits`' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GridLimits {
    /// Invocations of a workgroup along x: `maxComputeWorkGroupSize[0]`.
    pub max_workgroup_size_x: u32,
    /// Workgroups of a dispatch along each dimension: the least of `maxComputeWorkGroupCount`.
    pub max_workgroups_per_dimension: u32,
    /// Invocations of a workgroup in all: `maxComputeWorkGroupInvocations`.
    pub max_invocations_per_workgroup: u32,
}

impl GridLimits {
    /// Checks that every limit allows something.
    ///
    /// # Errors
    /// [`PlanError::ZeroLimit`] with the name of the first limit that is 0.
    pub fn check(&self) -> Result<(), PlanError> {
        let limits = [
            ("max_workgroup_size_x", self.max_workgroup_size_x),
            ("max_workgroups_per_dimension", self.max_workgroups_per_dimension),
            ("max_invocations_per_workgroup", self.max_invocations_per_workgroup),
        ];
        match limits.into_iter().find(|&(_, value)| value == 0) {
            Some((limit, _)) => Err(PlanError::ZeroLimit { limit }),
            None => Ok(()),
        }
    }

    /// The most invocations that a one-dimensional workgroup may have.
    pub fn max_width(&self) -> u32 {
        self.max_workgroup_size_x.min(self.max_invocations_per_workgroup)
    }
}
