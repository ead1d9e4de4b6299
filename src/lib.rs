//! A resident compute kernel on Vulkan.
