//! Plans launches: how wide a workgroup is, how many slots a ring is padded to, and how many workers stay resident.
//!
//! Owns the limits of a device as far as a launch must respect them, the sizing policy and a cache of its answers.
//! Knows nothing of rings and of Vulkan: whoever asks brings the numbers.
//!
//! ```
//! use abide::planner::{GridLimits, GridPlan, GridRequest};
//!
//! let limits = GridLimits {
//!     max_workgroup_size_x: 1024,
//!     max_workgroups_per_dimension: 65_535,
//!     max_invocations_per_workgroup: 1024,
//! };
//! let plan = GridPlan::recommend(GridRequest { queue_length: 1000, worker_groups: 0 }, limits)?;
//! assert_eq!(plan.geometry.width, 64);
//! assert_eq!(plan.geometry.padded_slots, 1024);
//! assert_eq!(plan.geometry.dispatch, [16, 1, 1]);
//! # Ok::<(), abide::planner::PlanError>(())
//! ```

pub mod cache;
mod geometry;
mod limits;
mod request;
mod sizing;

pub use geometry::Geometry;
pub use limits::GridLimits;
pub use request::{GridPlan, GridRequest, PlanError};
pub use sizing::SizingPolicy;
