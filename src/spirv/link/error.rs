//! Why handlers can't be linked: which one, what about it, where it stands, and how to mend it.

use super::super::module::{Inst, ModuleError, Site};

/// Why a link failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The kernel calls no handlers.
    #[error("the kernel has no place for handlers: its IR needs a task array and a CallHandler node")]
    NoInterface,
    /// The kernel's words are not a module that the linker can extend.
    #[error("the kernel is not a module: {0}")]
    Kernel(#[source] ModuleError),
    /// The kernel is a module, but not of the kind that the lowering makes.
    #[error("the kernel {reason}; link into the words that spirv::lower gave, unchanged")]
    KernelKind {
        /// What it lacks.
        reason: &'static str,
    },
    /// Two handlers have one opcode.
    #[error("handlers `{first}` and `{second}` both have opcode {opcode}; give each its own")]
    OpcodeTwice {
        /// The opcode.
        opcode: u32,
        /// Entry point of the handler that has it.
        first: String,
        /// Entry point of the handler that wants it.
        second: String,
    },
    /// Two handlers have workgroups of different sizes.
    #[error(
        "workgroups of handler `{first}` (opcode {first_opcode}) have {first_invocations} invocations, those of \
         `{second}` (opcode {second_opcode}) have {second_invocations}; a kernel has one size: link them into two"
    )]
    WorkgroupSizes {
        /// Entry point of the first handler.
        first: String,
        /// Its opcode.
        first_opcode: u32,
        /// Invocations of its workgroup.
        first_invocations: u32,
        /// Entry point of the handler that differs.
        second: String,
        /// Its opcode.
        second_opcode: u32,
        /// Invocations of its workgroup.
        second_invocations: u32,
    },
    /// The handlers' workgroup memory and the kernel's don't fit.
    #[error(
        "workgroup memory: the kernel's {kernel} bytes and the handlers' {handlers} are more than the limit of {limit}; \
         link fewer handlers into one kernel, or let them use less"
    )]
    WorkgroupMemory {
        /// Bytes of the kernel's own.
        kernel: u64,
        /// Bytes of all handlers together.
        handlers: u64,
        /// The most that the caller allows.
        limit: u32,
    },
    /// The result would be no module: it is too large, or a handler broke a rule that shows only now.
    #[error("the linked kernel would be no valid module ({0}); link fewer handlers into it, and run spirv-val on each")]
    Unsound(#[source] ModuleError),
    /// A handler can't be hosted.
    #[error("handler `{entry}` (opcode {opcode}): {refusal}")]
    Handler {
        /// Entry point.
        entry: String,
        /// Opcode.
        opcode: u32,
        /// Why.
        #[source]
        refusal: Refusal,
    },
}

/// Why one handler can't be hosted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its words are not a module.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// Its module has no compute entry point of that name.
    #[error("no compute entry point of that name; the module has {found:?}")]
    NoEntryPoint {
        /// Names of the compute entry points.
        found: Vec<String>,
    },
    /// Its module is of a later version than the kernel.
    #[error("SPIR-V {major}.{minor} is later than the kernel's 1.5; compile it for 1.3 to 1.5")]
    Version {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// An instruction is none that the linker hosts.
    #[error("{site}: {reason}")]
    Instruction {
        /// The instruction and where it stands in the handler's words.
        site: Site,
        /// Why it is refused.
        reason: Reason,
    },
    /// The module never says how large the entry point's workgroup is.
    #[error("the entry point has no LocalSize, LocalSizeId or WorkgroupSize")]
    NoLocalSize,
    /// The module names more buffers than a binding table has entries.
    #[error("{count} buffers, or set 0 binding {highest}, do not fit a binding table of {entries} entries")]
    Bindings {
        /// Distinct pairs of set and binding.
        count: usize,
        /// The highest binding.
        highest: u32,
        /// Entries of a table.
        entries: u32,
    },
}

/// Why an instruction is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The linker knows no meaning for the opcode in a handler.
    #[error("handlers can't use this instruction")]
    Opcode,
    /// The capability is none that a kernel takes over.
    #[error("capability {0} is not one that handlers may use")]
    Capability(String),
    /// The extension is unknown.
    #[error("extension {0} is not known to the linker")]
    Extension(String),
    /// The instruction set is unknown.
    #[error("instruction set {0} is not known to the linker; handlers may use GLSL.std.450")]
    Import(String),
    /// The memory model differs.
    #[error("handlers are Logical GLSL450 modules; {0}")]
    MemoryModel(String),
    /// The execution mode would change the kernel.
    #[error("execution mode {0} would hold for the whole kernel")]
    Mode(String),
    /// The storage class is none that tasks have.
    #[error(
        "storage class {0} has no counterpart in a task; handlers take buffers, push constants and workgroup memory"
    )]
    Storage(String),
    /// The decoration has no meaning in a kernel.
    #[error("decoration {0} has no meaning for a handler")]
    Decoration(String),
    /// The built-in has no meaning in a task.
    #[error("built-in {0} has no counterpart in a task")]
    BuiltIn(String),
    /// A pointer is used in a way that the linker doesn't follow.
    #[error("pointers may be indexed, loaded, stored, used atomically and passed to functions, nothing else")]
    Pointer,
    /// A type is not laid out as a buffer must be.
    #[error("a type in a buffer lacks {0}")]
    Layout(&'static str),
    /// Something else, in words.
    #[error("{0}")]
    Other(&'static str),
}

impl Refusal {
    /// Refuses an instruction.
    pub(super) fn at(inst: &Inst, reason: Reason) -> Self {
        Self::Instruction { site: inst.site(), reason }
    }

    /// Refuses an instruction for a reason in words.
    pub(super) fn other(inst: &Inst, reason: &'static str) -> Self {
        Self::at(inst, Reason::Other(reason))
    }
}
