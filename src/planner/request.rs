//! What a launch is asked for, what comes out, and what can be wrong.

use super::geometry::Geometry;
use super::limits::GridLimits;
use super::sizing::SizingPolicy;

/// What a launch is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GridRequest {
    /// Slots that the ring must have at least.
    pub queue_length: u32,
    /// Resident workgroups, or 0 to derive their number from the device.
    pub worker_groups: u32,
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GridPlan {
    /// Width, padded slots, and a dispatch that covers each slot once.
    pub geometry: Geometry,
    /// Workgroups that stay resident: each is one worker of the scheduler.
    pub worker_groups: u32,
}

impl GridPlan {
    /// Plans a launch by the standard sizing policy, for a device of which nothing but the limits is known.
    ///
    /// # Errors
    /// As [`SizingPolicy::recommend`].
    pub fn recommend(request: GridRequest, limits: GridLimits) -> Result<Self, PlanError> {
        SizingPolicy::STANDARD.recommend(request, limits)
    }
}

/// Why no launch can be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A limit is 0, which no device reports.
    #[error("{limit} is 0: fill it in from VkPhysicalDeviceLimits, whose least value is 1 or more")]
    ZeroLimit {
        /// Name of the limit.
        limit: &'static str,
    },
    /// A workgroup can't have this width.
    #[error("a width of {width} is not within 1 and {limit}: use a width that the device allows")]
    Width {
        /// The width.
        width: u32,
        /// The widest that the limits allow.
        limit: u32,
    },
    /// No launch covers so many slots.
    #[error("{slots} slots are more than one launch covers, {limit}: use a shorter queue, or wider workgroups")]
    Slots {
        /// Slots asked for.
        slots: u32,
        /// The most slots.
        limit: u32,
    },
    /// More workers were asked for than one dispatch has workgroups along x.
    #[error("{worker_groups} worker groups are over the limit of {limit}: ask for fewer, or for 0 to derive them")]
    WorkerGroups {
        /// Workgroups asked for.
        worker_groups: u32,
        /// The most workgroups.
        limit: u32,
    },
    /// The share that the embedder asks for is more than the whole.
    #[error("an embedder's share of {percent} percent: it is 0 to 100")]
    Share {
        /// The share.
        percent: u32,
    },
}
