//! From the GLSL450 memory model to the Vulkan one: semantics of atomics and barriers, operands of loads and stores.

use rspirv::dr::Operand;
use rspirv::spirv::{MemoryAccess, MemorySemantics, Op, Scope};

use super::super::module::Inst;
use super::error::Refusal;

/// What a semantics operand belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// `OpMemoryBarrier`, `OpControlBarrier`, or an atomic that reads and writes.
    Both,
    /// `OpAtomicLoad`, or a compare-exchange that doesn't exchange.
    Load,
    /// `OpAtomicStore`.
    Store,
}

/// Semantics under the Vulkan memory model.
///
/// There is no sequential consistency: it becomes acquire and release, which is what drivers made of it. What the
/// GLSL450 model leaves to coherent memory is said: a release makes available, an acquire makes visible. Order that
/// names no memory of a shader's orders none.
///
/// # Errors
/// What is wrong with them.
pub(super) fn raise(semantics: u32, role: Role, volatile: bool) -> Result<MemorySemantics, &'static str> {
    use MemorySemantics as S;
    let Some(semantics) = S::from_bits(semantics) else {
        return Err("has semantics that SPIR-V does not know");
    };
    let order = semantics & (S::ACQUIRE | S::RELEASE | S::ACQUIRE_RELEASE | S::SEQUENTIALLY_CONSISTENT);
    let order = match order {
        o if o.is_empty() => o,
        o if o == S::SEQUENTIALLY_CONSISTENT => match role {
            Role::Both => S::ACQUIRE_RELEASE,
            Role::Load => S::ACQUIRE,
            Role::Store => S::RELEASE,
        },
        o if o == S::ACQUIRE || o == S::RELEASE || o == S::ACQUIRE_RELEASE => o,
        _ => return Err("has more than one memory order"),
    };
    let (acquires, releases) =
        (order.intersects(S::ACQUIRE | S::ACQUIRE_RELEASE), order.intersects(S::RELEASE | S::ACQUIRE_RELEASE));
    if (role == Role::Load && releases) || (role == Role::Store && acquires) {
        return Err("has a memory order that does not go with the access");
    }
    let mut memory = semantics & (S::UNIFORM_MEMORY | S::WORKGROUP_MEMORY | S::IMAGE_MEMORY);
    if semantics.intersects(S::SUBGROUP_MEMORY | S::CROSS_WORKGROUP_MEMORY) {
        // Shaders have no such memory: WGSL's subgroupBarrier means all that the subgroup shares.
        memory |= S::UNIFORM_MEMORY | S::WORKGROUP_MEMORY;
    }
    let mut raised = S::empty();
    if !order.is_empty() && !memory.is_empty() {
        raised = order | memory;
        raised.set(S::MAKE_AVAILABLE, releases);
        raised.set(S::MAKE_VISIBLE, acquires);
    }
    raised.set(S::VOLATILE, volatile);
    Ok(raised)
}

/// Memory operands of a load or store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    mask: MemoryAccess,
    aligned: Option<u32>,
    /// Whether the accesses of others, at the scope of the device, are to be seen.
    coherent: bool,
}

impl Access {
    /// Reads the operands behind a pointer or an object.
    pub(super) fn parse(inst: &Inst, operands: &[Operand]) -> Result<Self, Refusal> {
        let mask = match operands {
            [] => MemoryAccess::NONE,
            [Operand::MemoryAccess(mask), ..] => *mask,
            _ => return Err(Refusal::other(inst, "has memory operands that the linker does not know")),
        };
        let known = MemoryAccess::VOLATILE | MemoryAccess::ALIGNED | MemoryAccess::NONTEMPORAL;
        let literals = usize::from(mask.contains(MemoryAccess::ALIGNED));
        if !(mask - known).is_empty() || operands.len() > 1 + literals {
            return Err(Refusal::other(inst, "has memory operands of the Vulkan memory model in a GLSL450 module"));
        }
        let aligned = match operands.get(1) {
            Some(Operand::LiteralBit32(bytes)) => Some(*bytes),
            _ => None,
        };
        Ok(Self { mask, aligned, coherent: false })
    }

    /// Makes it an access to memory that other invocations see.
    pub(super) fn shared(mut self, coherent: bool, volatile: bool) -> Self {
        self.mask |= MemoryAccess::NON_PRIVATE_POINTER;
        self.mask.set(MemoryAccess::VOLATILE, volatile || self.mask.contains(MemoryAccess::VOLATILE));
        // GLSL's volatile is coherent, too.
        self.coherent = coherent || volatile;
        self
    }

    /// States the alignment in bytes, as device addresses must.
    pub(super) fn aligned(mut self, bytes: u32) -> Self {
        self.mask |= MemoryAccess::ALIGNED;
        self.aligned = Some(bytes);
        self
    }

    /// Whether [`Access::operands`] needs the device scope.
    pub(super) fn is_coherent(&self) -> bool {
        self.coherent
    }

    /// The operands for a load or a store; `device` is the constant of the device scope.
    pub(super) fn operands(&self, op: Op, device: u32) -> Vec<Operand> {
        let mut mask = self.mask;
        let visible =
            if op == Op::Load { MemoryAccess::MAKE_POINTER_VISIBLE } else { MemoryAccess::MAKE_POINTER_AVAILABLE };
        mask.set(visible, self.coherent);
        if mask.is_empty() {
            return Vec::new();
        }
        let aligned = self.aligned.filter(|_| mask.contains(MemoryAccess::ALIGNED)).map(Operand::LiteralBit32);
        let scope = self.coherent.then_some(Operand::IdScope(device));
        [Operand::MemoryAccess(mask)].into_iter().chain(aligned).chain(scope).collect()
    }
}

/// Whether atomics and barriers may have this scope under the Vulkan memory model.
pub(super) fn hosts_scope(scope: u32) -> bool {
    [Scope::Device, Scope::Workgroup, Scope::Subgroup, Scope::QueueFamily, Scope::Invocation]
        .iter()
        .any(|known| *known as u32 == scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_become_those_of_the_vulkan_model() {
        // Acquire 2, release 4, both 8, sequentially consistent 16; buffers 64, workgroup 256; make available 0x2000,
        // make visible 0x4000, volatile 0x8000.
        let cases = [
            (0, Role::Both, false, Ok(0)),
            (0, Role::Both, true, Ok(0x8000)),
            (64, Role::Both, false, Ok(0)),
            (8, Role::Both, false, Ok(0)),
            (2 | 64, Role::Load, false, Ok(0x4000 | 2 | 64)),
            (4 | 64, Role::Store, false, Ok(0x2000 | 4 | 64)),
            (8 | 64 | 256, Role::Both, false, Ok(0x6000 | 8 | 64 | 256)),
            (16 | 256, Role::Both, false, Ok(0x6000 | 8 | 256)),
            (16 | 256, Role::Load, false, Ok(0x4000 | 2 | 256)),
            (16 | 256, Role::Store, true, Ok(0x2000 | 4 | 256 | 0x8000)),
            // WGSL's subgroupBarrier, as naga writes it.
            (8 | 128, Role::Both, false, Ok(0x6000 | 8 | 64 | 256)),
        ];
        for (semantics, role, volatile, expected) in cases {
            let raised = raise(semantics, role, volatile).map(|raised| raised.bits());
            assert_eq!(raised, expected, "{semantics:#x} {role:?} {volatile}");
        }
        for (semantics, role) in
            [(2 | 4, Role::Both), (4 | 64, Role::Load), (2 | 64, Role::Store), (1 << 20, Role::Both)]
        {
            assert!(raise(semantics, role, false).is_err(), "{semantics:#x} {role:?}");
        }
    }

    #[test]
    fn access_operands_stand_in_the_order_of_their_bits() {
        let load = Inst::new(Op::Load, Some(1), Some(2), Vec::new());
        let access = Access::parse(&load, &[]).expect("no operands are fine").shared(true, false).aligned(8);
        let mask = MemoryAccess::ALIGNED | MemoryAccess::MAKE_POINTER_VISIBLE | MemoryAccess::NON_PRIVATE_POINTER;
        let expected = [Operand::MemoryAccess(mask), Operand::LiteralBit32(8), Operand::IdScope(7)];
        assert_eq!(access.operands(Op::Load, 7), expected);
        let vulkan = [Operand::MemoryAccess(MemoryAccess::NON_PRIVATE_POINTER)];
        assert!(Access::parse(&load, &vulkan).is_err(), "a GLSL450 module has no such access");
    }
}
