//! Runs a kernel on the CPU, one access to shared memory at a time.
//!
//! A [`Program`] is a module as a flat list of operations, a [`Workgroup`] is what one workgroup is doing. Its lanes advance
//! in lockstep: each has an operation that it comes to next, and those at the earliest one go on together. Blocks lie in
//! the list in program order, and a loop's next turn begins behind its body, so lanes that took different ways meet again
//! where the structure of the kernel says.
//!
//! Every access to memory that others see stops the workgroup: [`Workgroup::pending`] says what a lane wants, and whoever
//! drives the workgroup answers, from plain words ([`PlainMemory`]) or from a memory that is weaker than that. Lanes of one
//! subgroup that come to an access together make it one by one, in the order that the driver chooses. Workgroup memory
//! is a workgroup's own; it counts as shared only where a workgroup has several subgroups.
//!
//! A workgroup between two accesses is a value: it can be cloned, compared, and packed into few words
//! ([`Workgroup::pack`]), without what no lane reads any more.

mod evaluate;
mod live;
mod memory;
mod operation;
mod program;
mod workgroup;

pub use memory::{Kind, Memory, PlainMemory, Request, Target};
pub use program::{Options, Program};
pub use workgroup::{Launch, Pause, Workgroup};

use super::VerifyError;

/// Why a kernel can't be interpreted any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterpretError {
    /// The module isn't sound.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A workgroup of no lanes, or a subgroup of more than 64.
    #[error("workgroups of {width} lanes in subgroups of {subgroup}: use at least 1 lane, and subgroups of 1 to 64")]
    Shape {
        /// Lanes of a workgroup.
        width: u32,
        /// Lanes of a subgroup.
        subgroup: u32,
    },
    /// The launch has other parameters than the module declares.
    #[error("{given} launch parameters for a kernel that declares {declared}: give as many")]
    Params {
        /// Words given.
        given: usize,
        /// Words declared.
        declared: u32,
    },
    /// An access outside a buffer or an array.
    #[error("lane {lane} accesses word {index} of {place}, which has {words}")]
    OutOfBounds {
        /// Index of the lane in its workgroup.
        lane: u32,
        /// What was accessed.
        place: String,
        /// The word.
        index: u64,
        /// Words that there are.
        words: u64,
    },
    /// An access of four words that doesn't begin at a multiple of four, or an address that isn't a word's.
    #[error("lane {lane} accesses {words} words at {at:#x}: it must be a multiple of their size")]
    Misaligned {
        /// Index of the lane in its workgroup.
        lane: u32,
        /// Word index or address.
        at: u64,
        /// Words of the access.
        words: u32,
    },
    /// A barrier that some lanes come to and others don't.
    #[error(
        "a barrier that lanes {here:#b} of subgroup {subgroup} come to and others don't: move it out of the branch"
    )]
    DivergentBarrier {
        /// Index of the subgroup.
        subgroup: usize,
        /// Lanes that came.
        here: u64,
    },
    /// More operations than allowed.
    #[error("the kernel did not end within {0} operations: it may loop without end")]
    Budget(u64),
}
