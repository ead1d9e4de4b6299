//! Operations of a program: nodes without their structure, over registers.

use crate::ir::{AtomicOp, BinaryOp, Input, MemoryClasses, Order, Scope, UnaryOp};

/// A register of a lane, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(pub u32);

/// Bit of a [`Source`] that is the number of a constant.
const CONSTANT: u32 = 1 << 31;

/// A register that isn't needed: results of less than four words.
pub const ABSENT: u32 = u32::MAX;

impl Source {
    /// The constant with this number.
    pub const fn constant(number: u32) -> Self {
        Self(number | CONSTANT)
    }

    /// The number of the constant, if it is one.
    pub const fn as_constant(self) -> Option<u32> {
        if self.0 & CONSTANT == 0 { None } else { Some(self.0 & !CONSTANT) }
    }
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A word of a buffer.
    Buffer(u32, Source),
    /// A word of workgroup memory: number of the array, and the index in it.
    Shared(u32, Source),
    /// An address, low and high word, and a word index.
    Address([Source; 3]),
}

/// Operations across a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    Any,
    All,
    Ballot,
    /// Of the lane that the last source names.
    Shuffle,
    BroadcastFirst,
    Add,
    Elect,
}

/// One operation. What it defines comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Input(u32, Input),
    /// The flag says that the operand is a bool.
    Unary(u32, UnaryOp, Source, bool),
    Binary(u32, BinaryOp, Source, Source),
    Select(u32, [Source; 3]),
    Copy(u32, Source),
    Load([u32; 4], At),
    Store(At, Source),
    Store4(At, [Source; 4]),
    Atomic {
        result: u32,
        op: AtomicOp,
        at: At,
        value: Source,
        expected: Source,
        scope: Scope,
        order: Order,
    },
    Fence(Scope, Order, MemoryClasses),
    Barrier(Scope, MemoryClasses),
    Across([u32; 4], Across, [Source; 4], Source),
    Jump(u32),
    /// Goes on where the condition holds, else goes to the operation with this number.
    Branch(Source, u32),
    /// Begins the next turn of a loop; the flag says that no other loop is around it.
    Turn(u32, bool),
    /// Runs a handler, of which there is none: lane 0 stores the fault in this word of the array.
    Handler {
        array: u32,
        word: u32,
        fault: u32,
    },
    End,
}

impl Op {
    /// The registers that it defines, and those and the constants that it uses.
    pub fn registers(&mut self) -> (Vec<&mut u32>, Vec<&mut Source>) {
        match self {
            Self::Input(to, _) => (vec![to], vec![]),
            Self::Unary(to, _, a, _) | Self::Copy(to, a) => (vec![to], vec![a]),
            Self::Binary(to, _, a, b) => (vec![to], vec![a, b]),
            Self::Select(to, from) => (vec![to], from.iter_mut().collect()),
            Self::Load(to, at) => (present(to), at.sources()),
            Self::Store(at, value) => (vec![], at.sources().into_iter().chain([value]).collect()),
            Self::Store4(at, values) => (vec![], at.sources().into_iter().chain(values).collect()),
            Self::Atomic { result, at, value, expected, .. } => {
                let defined = if *result == ABSENT { vec![] } else { vec![result] };
                (defined, at.sources().into_iter().chain([value, expected]).collect())
            }
            Self::Across(to, _, values, lane) => (present(to), values.iter_mut().chain([lane]).collect()),
            Self::Branch(condition, _) => (vec![], vec![condition]),
            Self::Fence(..) | Self::Barrier(..) | Self::Jump(_) | Self::Turn(..) | Self::Handler { .. } | Self::End => {
                (vec![], vec![])
            }
        }
    }

    /// The operations that may come after the one with number `at`.
    pub fn successors(&self, at: usize) -> [Option<usize>; 2] {
        match *self {
            Self::Jump(to) | Self::Turn(to, _) => [Some(to as usize), None],
            Self::Branch(_, to) => [Some(at + 1), Some(to as usize)],
            Self::End => [None, None],
            _ => [Some(at + 1), None],
        }
    }
}

impl At {
    fn sources(&mut self) -> Vec<&mut Source> {
        match self {
            Self::Buffer(_, index) | Self::Shared(_, index) => vec![index],
            Self::Address(words) => words.iter_mut().collect(),
        }
    }
}

fn present(registers: &mut [u32; 4]) -> Vec<&mut u32> {
    registers.iter_mut().filter(|register| **register != ABSENT).collect()
}
