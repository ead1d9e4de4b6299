//! A small structured IR for kernels: u32 and bool values, shared memory with explicit ordering, structured control flow.
//!
//! A [`Module`] is one kernel: its buffers, its workgroup memory and one body. Every access to memory that other
//! invocations or the host can see is a [`Node`] of its own, in program order, so that a lowering, a verifier and an
//! interpreter agree on what happens when. Values are single-assignment and visible in the block that defines them and
//! the blocks inside it; [`Var`]s are an invocation's own mutable words.
//!
//! Knows neither SPIR-V nor Vulkan.

mod builder;
pub mod interpret;
mod node;
mod verify;

pub use builder::{Builder, Operand};
pub use node::{
    Access, Atomic, AtomicOp, BinaryOp, Block, Buffer, BufferDecl, Input, MemoryClasses, Node, Order, Place, Scope,
    Shared, SharedDecl, SubgroupOp, Type, UnaryOp, Value, Var,
};
pub use verify::{AtomicOperand, Fault, MAX_DEPTH, MAX_PARAMS, MAX_SHARED_BYTES, Types, VerifyError, verify};

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Name of the kernel; its entry point in SPIR-V is always `main`.
    pub name: String,
    /// Buffers, by [`Buffer`].
    pub buffers: Vec<BufferDecl>,
    /// Workgroup arrays, by [`Shared`].
    pub shared: Vec<SharedDecl>,
    /// The workgroup array through which a linked handler meets the kernel; needed by [`Node::CallHandler`].
    pub task: Option<Shared>,
    /// 32-bit words of launch parameters (push constants).
    pub params: u32,
    /// Type of each value, by [`Value`].
    pub values: Vec<Type>,
    /// Type of each variable, by [`Var`].
    pub vars: Vec<Type>,
    /// Names of variables, for who watches them from outside; nothing is lowered from them.
    pub names: Vec<(Var, String)>,
    /// The kernel's body, run by every invocation.
    pub body: Block,
}
