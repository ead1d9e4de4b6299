//! The sizing policy: how wide workgroups are, and how many of them stay resident.
//!
//! A resident worker takes a multiprocessor's share while it works, and a part of it while it polls. One on every
//! multiprocessor takes 9% of a GPU from short foreign workgroups even when idle, one on every fourth takes 2%, and
//! the trials' throughput was highest from 16 to 66 workers on 132 multiprocessors. So the standard policy leaves three
//! quarters of the multiprocessors to the embedder.

use super::cache;
use super::limits::GridLimits;
use super::request::{GridPlan, GridRequest, PlanError};

/// The most small workgroups that one multiprocessor runs at once on current GPUs: what divides a number of workgroups
/// seen at once into multiprocessors where the driver doesn't count them.
const GROUPS_A_CORE: u32 = 32;

/// How a launch is sized to a device.
///
/// ```
/// use abide::planner::{GridLimits, GridRequest, SizingPolicy};
///
/// let limits = GridLimits {
///     max_workgroup_size_x: 1024,
///     max_workgroups_per_dimension: 65_535,
///     max_invocations_per_workgroup: 1024,
/// };
/// let policy = SizingPolicy { subgroup: 32, cores: 132, workers_at_once: 4224, ..SizingPolicy::STANDARD };
/// let plan = policy.recommend(GridRequest { queue_length: 4096, worker_groups: 0 }, limits)?;
/// assert_eq!(plan.worker_groups, 33);
/// # Ok::<(), abide::planner::PlanError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SizingPolicy {
    /// Invocations of a subgroup; 0 counts as 1.
    pub subgroup: u32,
    /// Width that a workgroup should have; it is rounded up to whole subgroups and cut to the limits.
    pub width: u32,
    /// Multiprocessors of the device, or 0 where the driver doesn't say.
    pub cores: u32,
    /// Workgroups that the admission test saw run at once, or 0 where it wasn't run.
    pub workers_at_once: u32,
    /// Percentage of the multiprocessors that derived workers leave to the embedder.
    pub embedder_share: u32,
}

impl SizingPolicy {
    /// The standard policy, for a device of which nothing is known yet.
    ///
    /// 64 invocations are what most compute shaders ask for; 32 are the subgroup of most GPUs, and a multiple of the
    /// smaller ones of CPU drivers.
    pub const STANDARD: Self = Self { subgroup: 32, width: 64, cores: 0, workers_at_once: 0, embedder_share: 75 };

    /// Plans a launch: a legal one that has an invocation for every slot.
    ///
    /// Answers are kept for the thread, see [`cache`].
    ///
    /// # Errors
    /// A limit of 0, more slots than one launch covers, more workers than one dispatch has workgroups along x, or a
    /// share over 100 percent.
    pub fn recommend(&self, request: GridRequest, limits: GridLimits) -> Result<GridPlan, PlanError> {
        cache::plan(*self, request, limits, || self.derive(request, limits))
    }

    fn derive(&self, request: GridRequest, limits: GridLimits) -> Result<GridPlan, PlanError> {
        limits.check()?;
        let width = self.width_within(&limits);
        let geometry = cache::geometry(request.queue_length, width, limits)?;
        let worker_groups = self.worker_groups(request, &limits)?;
        Ok(GridPlan { geometry, worker_groups })
    }

    /// The wanted width in whole subgroups within the limits; where not even one subgroup fits, what fits.
    pub fn width_within(&self, limits: &GridLimits) -> u32 {
        let (subgroup, most) = (self.subgroup.max(1), limits.max_width());
        let whole = most / subgroup * subgroup;
        match self.width.max(1).checked_next_multiple_of(subgroup) {
            _ if whole == 0 => most,
            Some(wanted) => wanted.min(whole),
            None => whole,
        }
    }

    fn worker_groups(&self, request: GridRequest, limits: &GridLimits) -> Result<u32, PlanError> {
        if self.embedder_share > 100 {
            return Err(PlanError::Share { percent: self.embedder_share });
        }
        let limit = limits.max_workgroups_per_dimension;
        match request.worker_groups {
            0 => Ok(self.derived_workers().min(limit).min(request.queue_length.max(1))),
            asked if asked > limit => Err(PlanError::WorkerGroups { worker_groups: asked, limit }),
            asked => Ok(asked),
        }
    }

    /// The multiprocessors that the embedder doesn't keep, a worker each: at least one, and no more than run at once.
    fn derived_workers(&self) -> u32 {
        let cores = match self.cores {
            0 => self.workers_at_once.div_ceil(GROUPS_A_CORE),
            cores => cores,
        };
        let own = u64::from(cores) * u64::from(100 - self.embedder_share) / 100;
        let most = if self.workers_at_once == 0 { u32::MAX } else { self.workers_at_once };
        // At most `cores`, so it fits.
        (own as u32).clamp(1, most)
    }
}

impl Default for SizingPolicy {
    fn default() -> Self {
        Self::STANDARD
    }
}
