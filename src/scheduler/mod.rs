//! The claim policies and the worker's loop, as IR.
//!
//! [`levels`] splits a ring among priority levels, [`probe`] deals slots out to workers, [`Scan`] is the reference claim
//! policy, `quick` is what a worker does between two passes, and [`kernel`] puts them together with the built-in handlers.
//! [`fast`] is the other policy, with a kernel of its own.
//! Knows neither SPIR-V nor Vulkan.

mod builtin;
mod complete;
mod context;
pub mod fast;
mod guard;
mod heads;
mod intake;
pub mod levels;
mod mutation;
pub mod probe;
pub mod quick;
mod scan;
mod tenants;
mod worker;

pub use context::Context;
pub use levels::{PartitionError, PriorityOffsets};
pub use mutation::{Fences, Mutation};
pub use scan::{Claim, NO_CLAIM, Scan};
pub use worker::{VISIT_LAPS, kernel};
