//! Loads and stores that aren't atomic: pointers, and the memory operands that each access class asks for.

use rspirv::dr::Operand;
use rspirv::spirv::{self, MemoryAccess, StorageClass, Word};

use super::{Emitter, LowerError};
use crate::ir::{Access, Place, Value};

/// How much one access moves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// One word.
    Word,
    /// Four words at an index that is a multiple of four.
    Quad,
}

/// A pointer, and what an access through it has to say.
pub struct Pointer {
    pub id: Word,
    pub rule: Rule,
}

/// What an access has to say of itself.
#[derive(Clone, Copy)]
pub enum Rule {
    /// A buffer of an access class.
    Buffer(Access),
    /// Workgroup memory: ordered by barriers and atomics, so never private.
    Shared,
    /// Memory behind a device address, aligned to so many bytes.
    Address(u32, Access),
}

impl Rule {
    /// Whether each access is volatile, atomics too.
    pub fn volatile(self) -> bool {
        matches!(self, Self::Buffer(Access::Volatile) | Self::Address(_, Access::Volatile))
    }

    /// Bits of the memory operands, without those that differ between loads and stores, and whether the access is
    /// coherent.
    fn access(self) -> (MemoryAccess, bool) {
        let of = |access| match access {
            Access::Private => (MemoryAccess::NONE, false),
            Access::Coherent => (MemoryAccess::NON_PRIVATE_POINTER, true),
            Access::Volatile => (MemoryAccess::NON_PRIVATE_POINTER | MemoryAccess::VOLATILE, true),
        };
        match self {
            Self::Buffer(access) => of(access),
            Self::Shared => (MemoryAccess::NON_PRIVATE_POINTER, false),
            Self::Address(_, access) => {
                let (bits, coherent) = of(access);
                (bits | MemoryAccess::ALIGNED, coherent)
            }
        }
    }
}

impl Emitter<'_> {
    /// Points at a place.
    pub(super) fn pointer(&mut self, place: &Place, span: Span) -> Result<Pointer, LowerError> {
        match *place {
            Place::Buffer { buffer, index } => {
                let (vars, access) =
                    (&self.globals.buffers[buffer.0 as usize], self.module.buffers[buffer.0 as usize].access);
                let variable = match span {
                    Span::Word => vars.words,
                    Span::Quad => vars.quads.unwrap_or(vars.words),
                };
                let id = self.element(StorageClass::StorageBuffer, variable, index, span)?;
                Ok(Pointer { id, rule: Rule::Buffer(access) })
            }
            Place::Shared { shared, index } => {
                let (variable, index) = (self.globals.shared[shared.0 as usize], self.id(index));
                let id = self.task_word(variable, index)?;
                Ok(Pointer { id, rule: Rule::Shared })
            }
            Place::Address { low, high, index, access } => {
                let (class, uint) = (StorageClass::PhysicalStorageBuffer, self.globals.uint);
                let block = if span == Span::Word { self.globals.words } else { self.globals.quads };
                let pair = self.builder.type_vector(uint, 2);
                let pointer = self.builder.type_pointer(None, class, block);
                let pair = self.op(spirv::Op::CompositeConstruct, pair, &[self.id(low), self.id(high)])?;
                let base = self.builder.bitcast(pointer, None, pair)?;
                let id = self.element(class, base, index, span)?;
                Ok(Pointer { id, rule: Rule::Address(if span == Span::Word { 4 } else { 16 }, access) })
            }
        }
    }

    /// Points at one element of the array that a block holds.
    fn element(&mut self, class: StorageClass, base: Word, index: Value, span: Span) -> Result<Word, LowerError> {
        let (zero, index) = (self.word(0), self.id(index));
        let (ty, index) = match span {
            Span::Word => (self.globals.uint, index),
            Span::Quad => {
                let two = self.word(2);
                (self.globals.uvec4, self.op(spirv::Op::ShiftRightLogical, self.globals.uint, &[index, two])?)
            }
        };
        let pointer = self.builder.type_pointer(None, class, ty);
        Ok(self.builder.access_chain(pointer, None, base, [zero, index])?)
    }

    /// Points at a word of a workgroup array.
    pub(super) fn task_word(&mut self, variable: Word, index: Word) -> Result<Word, LowerError> {
        let pointer = self.builder.type_pointer(None, StorageClass::Workgroup, self.globals.uint);
        Ok(self.builder.access_chain(pointer, None, variable, [index])?)
    }

    /// Memory operands of an access; `coherence` is what makes it coherent.
    pub(super) fn memory_operands(
        &mut self,
        rule: Rule,
        coherence: MemoryAccess,
    ) -> (Option<MemoryAccess>, Vec<Operand>) {
        let (mut access, coherent) = rule.access();
        let mut operands = Vec::new();
        if let Rule::Address(bytes, _) = rule {
            operands.push(Operand::LiteralBit32(bytes));
        }
        if coherent {
            access |= coherence;
            operands.push(Operand::IdScope(self.word(spirv::Scope::Device as u32)));
        }
        ((access != MemoryAccess::NONE).then_some(access), operands)
    }

    pub(super) fn load(&mut self, result: Value, place: &Place, span: Span) -> Result<(), LowerError> {
        let pointer = self.pointer(place, span)?;
        let (access, operands) = self.memory_operands(pointer.rule, MemoryAccess::MAKE_POINTER_VISIBLE);
        let ty = self.type_id(self.type_of(result));
        let id = self.builder.load(ty, None, pointer.id, access, operands)?;
        self.define(result, id);
        Ok(())
    }

    pub(super) fn store(&mut self, place: &Place, value: Value, span: Span) -> Result<(), LowerError> {
        let pointer = self.pointer(place, span)?;
        let (access, operands) = self.memory_operands(pointer.rule, MemoryAccess::MAKE_POINTER_AVAILABLE);
        let value = self.id(value);
        Ok(self.builder.store(pointer.id, value, access, operands)?)
    }
}
