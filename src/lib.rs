//! A resident compute kernel on Vulkan, fed with tasks through memory.

pub mod baked;
pub mod device;
pub mod ir;
pub mod planner;
pub mod protocol;
pub mod queue;
pub mod runtime;
pub mod scheduler;
pub mod spirv;
