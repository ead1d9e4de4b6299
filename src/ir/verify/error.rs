//! What can be wrong with a module.

use std::fmt;

use crate::ir::{AtomicOp, Buffer, Order, Shared, Type, Value, Var};

/// What is wrong with a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A node is not well-formed.
    #[error("{node} at {path}: {fault}")]
    Node {
        /// Way to the node: `body[3].loop[0].if.then[2]` is node 2 of the `then` block of the If that is node 0 of the
        /// Loop that is node 3 of the body.
        path: String,
        /// The node's kind, as [`crate::ir::Node`] spells it.
        node: &'static str,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Two buffers have one binding.
    #[error("buffers {first:?} and {second:?} both have binding {binding}: give each its own")]
    SharedBinding {
        /// Name of the first.
        first: String,
        /// Name of the second.
        second: String,
        /// The binding.
        binding: u32,
    },
    /// A workgroup array has no words.
    #[error("workgroup array {name:?} has no words: drop it, or give it a length")]
    EmptyShared {
        /// Its name.
        name: String,
    },
    /// The workgroup arrays are larger than every Vulkan device allows.
    #[error("the workgroup arrays take {bytes} bytes, and Vulkan promises {limit}: shorten them")]
    SharedTooLarge {
        /// Bytes of all arrays.
        bytes: u64,
        /// Bytes that every device has.
        limit: u64,
    },
    /// The launch parameters are larger than every Vulkan device allows.
    #[error("the launch parameters take {words} words, and Vulkan promises {limit}: pass the rest in a buffer")]
    ParamsTooLarge {
        /// Words of the parameters.
        words: u32,
        /// Words that every device has.
        limit: u32,
    },
    /// The task's array is none of the declared ones.
    #[error("the task is workgroup array {}, and {declared} are declared: declare it with Builder::task", .task.0)]
    UnknownTask {
        /// The array that is named.
        task: Shared,
        /// Arrays that are declared.
        declared: usize,
    },
    /// The task's array is too short for the words that handlers expect.
    #[error("the task's array {name:?} has {words} words, and handlers expect {needed}: use protocol::task::WORDS")]
    TaskTooSmall {
        /// Its name.
        name: String,
        /// Its length.
        words: u32,
        /// Length that handlers expect.
        needed: u32,
    },
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A value's id is beyond the module's list of types.
    #[error("value {} has no type: the module lists {declared} values", .value.0)]
    UnknownValue {
        /// The value.
        value: Value,
        /// Values that the module lists.
        declared: usize,
    },
    /// A value is used before the node that defines it.
    #[error("value {} is used before it is defined", .0.0)]
    UsedBeforeDefinition(Value),
    /// A value is used outside the block that defines it.
    #[error("value {} is out of scope: it was defined in a block that has ended; carry it out in a variable", .0.0)]
    OutOfScope(Value),
    /// A value is defined twice.
    #[error("value {} is defined a second time: values are single-assignment, use a variable", .0.0)]
    Redefined(Value),
    /// A value has the wrong type.
    #[error("value {} is {found}, and has to be {expected}", .value.0)]
    Type {
        /// The value.
        value: Value,
        /// Its type.
        found: Type,
        /// Types that would do.
        expected: Types,
    },
    /// A buffer is not declared.
    #[error("buffer {} is not declared: the module has {declared}", .buffer.0)]
    UnknownBuffer {
        /// The buffer.
        buffer: Buffer,
        /// Buffers that are declared.
        declared: usize,
    },
    /// A workgroup array is not declared.
    #[error("workgroup array {} is not declared: the module has {declared}", .shared.0)]
    UnknownShared {
        /// The array.
        shared: Shared,
        /// Arrays that are declared.
        declared: usize,
    },
    /// A variable is not declared.
    #[error("variable {} is not declared: the module has {declared}", .var.0)]
    UnknownVar {
        /// The variable.
        var: Var,
        /// Variables that are declared.
        declared: usize,
    },
    /// A variable may be read before it is written.
    #[error("variable {} may be unset here: set it in this block or one around it first", .0.0)]
    UnsetVar(Var),
    /// A launch parameter is not declared.
    #[error("launch parameter {word} is not declared: the module has {declared} words")]
    UnknownParam {
        /// The parameter's word.
        word: u32,
        /// Words of parameters.
        declared: u32,
    },
    /// A break or a continue stands outside every loop.
    #[error("there is no loop around it")]
    OutsideLoop,
    /// A node can't be reached.
    #[error("it can't be reached: the node before it always leaves the block")]
    Unreachable,
    /// A loop has no break.
    #[error("it never ends: no Break leaves it")]
    EndlessLoop,
    /// Blocks are nested too deeply.
    #[error("blocks are nested more than {limit} deep: build the inner part flatter")]
    TooDeep {
        /// Blocks that may lie within each other.
        limit: usize,
    },
    /// A Vec4 has no word of this index.
    #[error("a Vec4 has words 0 to 3, and none of index {0}")]
    ExtractIndex(u32),
    /// Four words of workgroup memory are accessed at once.
    #[error("workgroup array {} is accessed four words at once: only single words can be", .0.0)]
    QuadInShared(Shared),
    /// A handler is called by a kernel without a task.
    #[error("the kernel has no task through which it could meet a handler: declare it with Builder::task")]
    NoTask,
    /// An atomic lacks an operand.
    #[error("atomic {op:?} needs its {operand}")]
    MissingOperand {
        /// The operation.
        op: AtomicOp,
        /// The operand.
        operand: AtomicOperand,
    },
    /// An atomic has an operand that it can't use.
    #[error("atomic {op:?} takes no {operand}")]
    ExtraOperand {
        /// The operation.
        op: AtomicOp,
        /// The operand.
        operand: AtomicOperand,
    },
    /// An atomic can't have this order.
    #[error("atomic {op:?} can't be {order:?}: a load can only acquire, a store only release")]
    IllegalOrder {
        /// The operation.
        op: AtomicOp,
        /// The order.
        order: Order,
    },
    /// A control barrier over the whole device.
    #[error("no invocation can wait for the whole device: wait for the subgroup or the workgroup")]
    ControlScope,
    /// A barrier orders no memory.
    #[error("it orders nothing: name an order other than Relaxed, and at least one class of memory")]
    OrdersNothing,
}

/// A part of an atomic that some operations have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AtomicOperand {
    /// The value that is read.
    Result,
    /// The operand.
    Value,
    /// The expected value of a compare-exchange.
    Expected,
}

impl fmt::Display for AtomicOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Result => "result",
            Self::Value => "value",
            Self::Expected => "expected value",
        })
    }
}

/// The types that would do in some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Types(pub &'static [Type]);

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ty) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" or ")?;
            }
            write!(f, "{ty}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::U32 => "u32",
            Self::Vec4 => "Vec4",
        })
    }
}
