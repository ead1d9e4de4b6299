//! The shaders that the binary ships, compiled by the build script: handlers of its demo, and what it dispatches
//! plainly to compare with.

/// A compute shader.
#[derive(Clone, Copy, Debug)]
pub struct Shader {
    /// Name of the file in the folder `shaders`, without its ending.
    pub name: &'static str,
    /// Entry point.
    pub entry: &'static str,
    /// Sides of a workgroup.
    pub workgroup_size: [u32; 3],
    /// The SPIR-V module, whole: it links as a handler, and vkCmdDispatch runs it as it is.
    pub words: &'static [u32],
}

/// All shaders, by file and entry point.
pub static SHADERS: &[Shader] = &include!(concat!(env!("OUT_DIR"), "/shaders.rs"));
