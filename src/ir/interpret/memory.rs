//! What lanes ask of memory, and a memory that answers in order.

use super::InterpretError;
use crate::ir::{AtomicOp, MemoryClasses, Order, Scope};

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Word `index` of the buffer with this number in the module.
    Buffer {
        /// Number of the buffer.
        buffer: u32,
        /// Word.
        index: u32,
    },
    /// A device address, in bytes.
    Address(u64),
    /// No place: a barrier.
    None,
}

/// What is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Loads so many words, 1 or 4; the first first.
    Load(u32),
    /// Stores a word.
    Store(u32),
    /// Stores four words, the last one last.
    Store4([u32; 4]),
    /// An atomic access: the word before is the answer.
    Atomic {
        /// The operation.
        op: AtomicOp,
        /// Its operand; 0 for a load.
        value: u32,
        /// What a compare-exchange expects; else 0.
        expected: u32,
        /// Who is ordered.
        scope: Scope,
        /// How.
        order: Order,
    },
    /// Orders the lane's accesses.
    Fence(Scope, Order, MemoryClasses),
    /// The lane's subgroup, or its workgroup, has met at a control barrier that orders buffers.
    Barrier(Scope),
}

/// One access of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Index of the lane in its workgroup.
    pub lane: u32,
    /// Where.
    pub target: Target,
    /// What.
    pub kind: Kind,
}

/// Answers accesses.
pub trait Memory {
    /// Makes an access, and gives the words that it loads: the first of four where it loads one, none that matter where it
    /// loads nothing.
    ///
    /// # Errors
    /// Why the access can't be made.
    fn access(&mut self, request: &Request) -> Result<[u32; 4], InterpretError>;
}

/// What an atomic operation leaves in a word that held `before`.
pub const fn after(op: AtomicOp, before: u32, value: u32, expected: u32) -> u32 {
    match op {
        AtomicOp::Load => before,
        AtomicOp::Store | AtomicOp::Exchange => value,
        AtomicOp::Add => before.wrapping_add(value),
        AtomicOp::Min => {
            if before < value {
                before
            } else {
                value
            }
        }
        AtomicOp::Max => {
            if before > value {
                before
            } else {
                value
            }
        }
        AtomicOp::And => before & value,
        AtomicOp::Or => before | value,
        AtomicOp::CompareExchange => {
            if before == expected {
                value
            } else {
                before
            }
        }
    }
}

impl Kind {
    /// What an atomic access leaves in a word that held `before`; none for other accesses.
    pub const fn after(&self, before: u32) -> Option<u32> {
        match *self {
            Self::Atomic { op, value, expected, .. } => Some(after(op, before, value, expected)),
            _ => None,
        }
    }
}

/// Buffers of plain words, each access at once and in order. Buffers can have an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainMemory {
    /// Words of each buffer, by its number in the module; those that only have an address come after.
    pub buffers: Vec<Vec<u32>>,
    /// Address, in bytes, and number of each buffer that has one.
    pub addresses: Vec<(u64, usize)>,
}

impl PlainMemory {
    fn find(&self, request: &Request) -> Result<(usize, usize), InterpretError> {
        let lane = request.lane;
        let words = match request.kind {
            Kind::Load(words) => words,
            Kind::Store4(_) => 4,
            _ => 1,
        };
        let (buffer, index) = match request.target {
            Target::Buffer { buffer, index } => (buffer as usize, u64::from(index)),
            Target::Address(address) => {
                let here = |&&(base, buffer): &&(u64, usize)| {
                    address >= base && address - base < self.buffers[buffer].len() as u64 * 4
                };
                let Some(&(base, buffer)) = self.addresses.iter().find(here) else {
                    let place = "the memory behind addresses".to_owned();
                    return Err(InterpretError::OutOfBounds { lane, place, index: address / 4, words: 0 });
                };
                if !address.is_multiple_of(4) {
                    return Err(InterpretError::Misaligned { lane, at: address, words });
                }
                (buffer, (address - base) / 4)
            }
            Target::None => (0, 0),
        };
        if !index.is_multiple_of(u64::from(words)) {
            return Err(InterpretError::Misaligned { lane, at: index, words });
        }
        let there = self.buffers.get(buffer).map_or(0, |buffer| buffer.len() as u64);
        if index + u64::from(words) > there {
            let place = format!("buffer {buffer}");
            return Err(InterpretError::OutOfBounds { lane, place, index, words: there });
        }
        Ok((buffer, index as usize))
    }
}

impl Memory for PlainMemory {
    fn access(&mut self, request: &Request) -> Result<[u32; 4], InterpretError> {
        if matches!(request.kind, Kind::Fence(..) | Kind::Barrier(_)) {
            return Ok([0; 4]);
        }
        let (buffer, index) = self.find(request)?;
        let words = &mut self.buffers[buffer][index..];
        let mut loaded = [0; 4];
        match request.kind {
            Kind::Load(count) => loaded[..count as usize].copy_from_slice(&words[..count as usize]),
            Kind::Store(value) => words[0] = value,
            Kind::Store4(values) => words[..4].copy_from_slice(&values),
            kind => {
                loaded[0] = words[0];
                words[0] = kind.after(words[0]).unwrap_or(words[0]);
            }
        }
        Ok(loaded)
    }
}
