//! IR to SPIR-V through rspirv, and the linker that merges handlers into a kernel.
//!
//! Knows nothing of Vulkan objects: words in, words out.

mod check;
pub mod link;
mod lower;
mod module;

pub use lower::{Interface, LowerError, Lowered, WORKGROUP_SIZE, WORKGROUP_SIZE_SPEC_ID, lower};
pub use module::{ModuleError, Site};
