//! The kernel as it grows: new ids, and types and constants shared by what they are.

use rspirv::dr::Operand;
use rspirv::spirv::{AddressingModel, Capability, Decoration, MemoryModel, Op, StorageClass};
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::module::{Inst, Module};
use super::LinkError;

/// What makes two types or constants the same: instruction, operands, decorations.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    ty: Option<u32>,
    operands: Vec<Operand>,
    /// Decorations without their target, in the order of their words.
    decorations: Vec<(Op, Vec<Operand>)>,
}

/// The kernel's module with what has been added to it.
pub(super) struct Merger {
    pub module: Module,
    next: u32,
    keys: FxHashMap<Key, u32>,
    /// Module-scope variables that the entry point's interface lacks.
    interface: Vec<u32>,
    /// Capabilities that the kernel had.
    own: FxHashSet<Capability>,
    added: Vec<Capability>,
}

impl Merger {
    pub(super) fn new(module: Module) -> Result<Self, LinkError> {
        let kind = |reason| Err(LinkError::KernelKind { reason });
        if module.version != (1, 5) {
            return kind("is not SPIR-V 1.5");
        }
        let model = module.memory_model.first().map(|inst| inst.operands.clone()).unwrap_or_default();
        if model.get(1) != Some(&Operand::MemoryModel(MemoryModel::Vulkan)) {
            return kind("does not use the Vulkan memory model");
        }
        if module.entry_points.len() != 1 {
            return kind("has not exactly one entry point");
        }
        let mut keys = FxHashMap::default();
        let mut decorations: FxHashMap<u32, Vec<(Op, Vec<Operand>)>> = FxHashMap::default();
        for inst in &module.annotations {
            if let Some(target) = inst.id_at(0) {
                decorations.entry(target).or_default().push((inst.op, inst.operands[1..].to_vec()));
            }
        }
        for inst in module.globals.iter().filter(|inst| is_shared(inst.op)) {
            if let Some(id) = inst.id {
                let decorations = sorted(decorations.get(&id).cloned().unwrap_or_default());
                let key = Key { op: inst.op, ty: inst.ty, operands: inst.operands.clone(), decorations };
                keys.entry(key).or_insert(id);
            }
        }
        let own = module.capabilities.iter().filter_map(capability).collect();
        let next = module.bound;
        Ok(Self { module, next, keys, interface: Vec::new(), own, added: Vec::new() })
    }

    /// A new id.
    pub(super) fn fresh(&mut self) -> u32 {
        let id = self.next;
        self.next = self.next.saturating_add(1);
        id
    }

    /// A type or constant without decorations.
    pub(super) fn shared(&mut self, op: Op, ty: Option<u32>, operands: Vec<Operand>) -> u32 {
        self.shared_with(op, ty, operands, Vec::new()).0
    }

    /// A type or constant with these decorations (without their target), and whether it is new.
    pub(super) fn shared_with(
        &mut self,
        op: Op,
        ty: Option<u32>,
        operands: Vec<Operand>,
        decorations: Vec<(Op, Vec<Operand>)>,
    ) -> (u32, bool) {
        let key = Key { op, ty, operands, decorations: sorted(decorations) };
        if let Some(id) = self.keys.get(&key) {
            return (*id, false);
        }
        let id = self.fresh();
        self.module.globals.push(Inst::new(op, ty, Some(id), key.operands.clone()));
        for (op, rest) in &key.decorations {
            let operands = [Operand::IdRef(id)].into_iter().chain(rest.iter().cloned()).collect();
            self.module.annotations.push(Inst::new(*op, None, None, operands));
        }
        self.keys.insert(key, id);
        (id, true)
    }

    pub(super) fn void(&mut self) -> u32 {
        self.shared(Op::TypeVoid, None, Vec::new())
    }

    pub(super) fn bool(&mut self) -> u32 {
        self.shared(Op::TypeBool, None, Vec::new())
    }

    pub(super) fn u32(&mut self) -> u32 {
        self.shared(Op::TypeInt, None, vec![Operand::LiteralBit32(32), Operand::LiteralBit32(0)])
    }

    /// A vector of u32.
    pub(super) fn vector(&mut self, count: u32) -> u32 {
        let word = self.u32();
        self.shared(Op::TypeVector, None, vec![Operand::IdRef(word), Operand::LiteralBit32(count)])
    }

    pub(super) fn pointer(&mut self, class: StorageClass, to: u32) -> u32 {
        self.shared(Op::TypePointer, None, vec![Operand::StorageClass(class), Operand::IdRef(to)])
    }

    /// The type of functions without parameters and result.
    pub(super) fn procedure(&mut self) -> u32 {
        let void = self.void();
        self.shared(Op::TypeFunction, None, vec![Operand::IdRef(void)])
    }

    /// A u32 constant.
    pub(super) fn word(&mut self, value: u32) -> u32 {
        let word = self.u32();
        self.shared(Op::Constant, Some(word), vec![Operand::LiteralBit32(value)])
    }

    /// A module-scope variable.
    pub(super) fn variable(&mut self, class: StorageClass, to: u32) -> u32 {
        let (ty, id) = (self.pointer(class, to), self.fresh());
        self.module.globals.push(Inst::new(Op::Variable, Some(ty), Some(id), vec![Operand::StorageClass(class)]));
        self.interface.push(id);
        id
    }

    pub(super) fn decorate(&mut self, id: u32, decoration: Decoration, rest: impl IntoIterator<Item = Operand>) {
        let operands = [Operand::IdRef(id), Operand::Decoration(decoration)].into_iter().chain(rest).collect();
        self.module.annotations.push(Inst::new(Op::Decorate, None, None, operands));
    }

    pub(super) fn name(&mut self, id: u32, name: String) {
        let operands = vec![Operand::IdRef(id), Operand::LiteralString(name)];
        self.module.names.push(Inst::new(Op::Name, None, None, operands));
    }

    /// Declares a capability, if it isn't yet.
    pub(super) fn need(&mut self, capability: Capability) {
        if !self.own.contains(&capability) && !self.added.contains(&capability) {
            self.added.push(capability);
            self.module.capabilities.push(Inst::new(Op::Capability, None, None, vec![Operand::Capability(capability)]));
        }
    }

    /// Declares an extension, if it isn't yet.
    pub(super) fn extend(&mut self, inst: &Inst) {
        if !self.module.extensions.iter().any(|own| own.operands == inst.operands) {
            self.module.extensions.push(Inst::new(Op::Extension, None, None, inst.operands.clone()));
        }
    }

    /// Imports an instruction set, if it isn't yet.
    pub(super) fn import(&mut self, inst: &Inst) -> u32 {
        if let Some(id) = self.module.imports.iter().find(|own| own.operands == inst.operands).and_then(|own| own.id) {
            return id;
        }
        let id = self.fresh();
        self.module.imports.push(Inst::new(Op::ExtInstImport, None, Some(id), inst.operands.clone()));
        id
    }

    /// Declares device addresses of buffers.
    pub(super) fn address_buffers(&mut self) {
        self.need(Capability::PhysicalStorageBufferAddresses);
        if let Some(model) = self.module.memory_model.first_mut().and_then(|inst| inst.operands.first_mut()) {
            *model = Operand::AddressingModel(AddressingModel::PhysicalStorageBuffer64);
        }
    }

    /// The module with its bound and its entry point's interface complete, and the capabilities that it gained.
    pub(super) fn finish(mut self) -> (Module, Vec<Capability>) {
        if let Some(entry) = self.module.entry_points.first_mut() {
            entry.operands.extend(self.interface.into_iter().map(Operand::IdRef));
        }
        self.module.bound = self.next;
        (self.module, self.added)
    }
}

/// Whether two of these that are alike are one. Specialization constants of the kernel never are.
fn is_shared(op: Op) -> bool {
    op.is_type()
        || matches!(
            op,
            Op::ConstantTrue | Op::ConstantFalse | Op::Constant | Op::ConstantComposite | Op::ConstantNull | Op::Undef
        )
}

fn capability(inst: &Inst) -> Option<Capability> {
    match inst.operands.first() {
        Some(Operand::Capability(capability)) => Some(*capability),
        _ => None,
    }
}

/// Decorations in the order of their words, which is the same for equal sets.
fn sorted(mut decorations: Vec<(Op, Vec<Operand>)>) -> Vec<(Op, Vec<Operand>)> {
    use rspirv::binary::Assemble;
    decorations.sort_by_cached_key(|(op, operands)| {
        let mut words = vec![*op as u32];
        operands.iter().for_each(|operand| operand.assemble_into(&mut words));
        words
    });
    decorations.dedup();
    decorations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merger() -> Merger {
        let operand = |operand| Inst::new(Op::MemoryModel, None, None, operand);
        let model = [Operand::AddressingModel(AddressingModel::Logical), Operand::MemoryModel(MemoryModel::Vulkan)];
        let entry = Inst::new(Op::EntryPoint, None, None, Vec::new());
        Merger::new(Module {
            version: (1, 5),
            bound: 1,
            memory_model: vec![operand(model.to_vec())],
            entry_points: vec![entry],
            ..Module::default()
        })
        .expect("it is a kernel's frame")
    }

    #[test]
    fn equal_types_are_one_and_decorated_ones_others() {
        let mut merger = merger();
        let word = merger.u32();
        assert_eq!(merger.u32(), word);
        let stride =
            |bytes| (Op::Decorate, vec![Operand::Decoration(Decoration::ArrayStride), Operand::LiteralBit32(bytes)]);
        let mut array =
            |decorations| merger.shared_with(Op::TypeRuntimeArray, None, vec![Operand::IdRef(word)], decorations);
        let (plain, four, eight) = (array(Vec::new()), array(vec![stride(4)]), array(vec![stride(8)]));
        assert!(plain.1 && four.1 && eight.1, "three types");
        assert_eq!(array(vec![stride(4)]), (four.0, false));
        assert_eq!(array(Vec::new()), (plain.0, false));
    }

    #[test]
    fn capabilities_are_added_once() {
        let mut merger = merger();
        merger.need(Capability::Int64);
        merger.need(Capability::Int64);
        merger.address_buffers();
        let (module, added) = merger.finish();
        assert_eq!(added, [Capability::Int64, Capability::PhysicalStorageBufferAddresses]);
        assert_eq!(module.capabilities.len(), 2);
    }
}
