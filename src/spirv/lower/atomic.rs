//! Atomics and barriers: scopes and memory semantics.
//!
//! Each acquire makes visible and each release makes available, so that an order of the IR is one of the Vulkan memory
//! model with nothing left to add by the kernel.

use rspirv::spirv::{MemorySemantics, Op, Scope as SpirvScope, Word};

use super::memory::{Pointer, Rule, Span};
use super::{Emitter, LowerError};
use crate::ir::{Atomic, AtomicOp, MemoryClasses, Order, Scope};

impl Emitter<'_> {
    pub(super) fn atomic(&mut self, atomic: &Atomic) -> Result<(), LowerError> {
        let pointer = self.pointer(&atomic.place, Span::Word)?;
        let scope = self.scope(atomic.scope);
        let semantics = self.atomic_semantics(&pointer, atomic.order);
        let uint = self.globals.uint;
        let value = atomic.value.map(|value| self.id(value));
        let expected = atomic.expected.map(|value| self.id(value));
        let id = match (read_modify_write(atomic.op), value, expected) {
            (None, Some(value), None) => {
                return Ok(self.builder.atomic_store(pointer.id, scope, semantics, value)?);
            }
            (None, Some(value), Some(expected)) => {
                let unequal = self.atomic_semantics(&pointer, failure(atomic.order));
                self.builder
                    .atomic_compare_exchange(uint, None, pointer.id, scope, semantics, unequal, value, expected)?
            }
            (Some(op), Some(value), _) => self.op(op, uint, &[pointer.id, scope, semantics, value])?,
            (_, None, _) => self.builder.atomic_load(uint, None, pointer.id, scope, semantics)?,
        };
        if let Some(result) = atomic.result {
            self.define(result, id);
        }
        Ok(())
    }

    pub(super) fn memory_barrier(
        &mut self,
        scope: Scope,
        order: Order,
        classes: MemoryClasses,
    ) -> Result<(), LowerError> {
        let scope = self.scope(scope);
        let semantics = self.word(semantics(order, storage(classes)).bits());
        Ok(self.builder.memory_barrier(scope, semantics)?)
    }

    pub(super) fn control_barrier(&mut self, scope: Scope, classes: MemoryClasses) -> Result<(), LowerError> {
        let scope = self.scope(scope);
        let semantics = self.word(semantics(Order::AcquireRelease, storage(classes)).bits());
        Ok(self.builder.control_barrier(scope, scope, semantics)?)
    }

    fn scope(&mut self, scope: Scope) -> Word {
        self.word(match scope {
            Scope::Subgroup => SpirvScope::Subgroup,
            Scope::Workgroup => SpirvScope::Workgroup,
            Scope::Device => SpirvScope::Device,
        } as u32)
    }

    /// Semantics of an atomic. One on a workgroup array orders buffers as well: what it guards may lie in either.
    fn atomic_semantics(&mut self, pointer: &Pointer, order: Order) -> Word {
        let classes = match pointer.rule {
            Rule::Shared => MemoryClasses::ALL,
            Rule::Buffer(_) | Rule::Address(..) => MemoryClasses::BUFFERS,
        };
        let volatile = if pointer.rule.volatile() { MemorySemantics::VOLATILE } else { MemorySemantics::empty() };
        self.word((semantics(order, storage(classes)) | volatile).bits())
    }
}

/// The instruction of an operation that reads, changes and writes with one operand.
fn read_modify_write(op: AtomicOp) -> Option<Op> {
    Some(match op {
        AtomicOp::Load | AtomicOp::Store | AtomicOp::CompareExchange => return None,
        AtomicOp::Exchange => Op::AtomicExchange,
        AtomicOp::Add => Op::AtomicIAdd,
        AtomicOp::Min => Op::AtomicUMin,
        AtomicOp::Max => Op::AtomicUMax,
        AtomicOp::And => Op::AtomicAnd,
        AtomicOp::Or => Op::AtomicOr,
    })
}

/// Order of a compare-exchange that found something else: it has written nothing, so it can release nothing.
fn failure(order: Order) -> Order {
    match order {
        Order::Acquire | Order::AcquireRelease => Order::Acquire,
        Order::Release | Order::Relaxed => Order::Relaxed,
    }
}

fn storage(classes: MemoryClasses) -> MemorySemantics {
    let mut storage = MemorySemantics::empty();
    if classes.buffers {
        storage |= MemorySemantics::UNIFORM_MEMORY;
    }
    if classes.shared {
        storage |= MemorySemantics::WORKGROUP_MEMORY;
    }
    storage
}

fn semantics(order: Order, storage: MemorySemantics) -> MemorySemantics {
    storage
        | match order {
            Order::Relaxed => return MemorySemantics::empty(),
            Order::Acquire => MemorySemantics::ACQUIRE | MemorySemantics::MAKE_VISIBLE,
            Order::Release => MemorySemantics::RELEASE | MemorySemantics::MAKE_AVAILABLE,
            Order::AcquireRelease => {
                MemorySemantics::ACQUIRE_RELEASE | MemorySemantics::MAKE_AVAILABLE | MemorySemantics::MAKE_VISIBLE
            }
        }
}
