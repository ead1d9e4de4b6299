//! What the linker's tests share: a kernel to link into, and WGSL shaders that cover what naga emits.

#[path = "../../shaders/compile.rs"]
pub mod compile;
pub mod kernel;
pub mod shaders;
pub mod tools;
