//! Takes over what stands outside a handler's functions: types, constants, variables, names and decorations.

use std::collections::{BTreeMap, BTreeSet};

use rspirv::dr::Operand;
use rspirv::spirv::{Decoration, Op, StorageClass};
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::module::Inst;
use super::accept::{self, Stand, decoration, drops_decoration};
use super::error::{Reason, Refusal};
use super::handler::{Handler, Role};
use super::merge::Merger;
use super::types::Shape;

/// Private variables that all handlers of a kernel share, since each wrapper sets what its handler needs.
#[derive(Default)]
pub(super) struct Pool {
    /// Device address of each entry of the binding table, as two words.
    addresses: BTreeMap<u32, u32>,
    /// Length in bytes of each entry, at most `u32::MAX`.
    lengths: BTreeMap<u32, u32>,
    /// Device address of the payload, as two words.
    payload: Option<u32>,
    /// Stand-ins of built-ins, by type.
    stands: BTreeMap<(Stand, u32), u32>,
}

impl Pool {
    pub(super) fn address(&mut self, merger: &mut Merger, entry: u32) -> u32 {
        *self.addresses.entry(entry).or_insert_with(|| address(merger, format!("address.{entry}")))
    }

    pub(super) fn payload(&mut self, merger: &mut Merger) -> u32 {
        *self.payload.get_or_insert_with(|| address(merger, "address.payload".to_owned()))
    }

    pub(super) fn length(&mut self, merger: &mut Merger, entry: u32) -> u32 {
        *self.lengths.entry(entry).or_insert_with(|| {
            let ty = merger.u32();
            let id = merger.variable(StorageClass::Private, ty);
            merger.name(id, format!("length.{entry}"));
            id
        })
    }

    /// The variable that stands for a built-in; `ty` is what it holds, as the kernel's id.
    fn stand(&mut self, merger: &mut Merger, stand: Stand, ty: u32) -> u32 {
        if let Some(id) = self.stands.get(&(stand, ty)) {
            return *id;
        }
        let id = match stand {
            Stand::Input(subgroup) => input(merger, subgroup.built_in(), ty),
            _ => {
                let id = merger.variable(StorageClass::Private, ty);
                merger.name(id, format!("{stand:?}"));
                id
            }
        };
        self.stands.insert((stand, ty), id);
        id
    }
}

fn address(merger: &mut Merger, name: String) -> u32 {
    let ty = merger.vector(2);
    let id = merger.variable(StorageClass::Private, ty);
    merger.name(id, name);
    id
}

/// The kernel's own input of that built-in and type, or a new one.
fn input(merger: &mut Merger, built_in: rspirv::spirv::BuiltIn, ty: u32) -> u32 {
    let pointer = merger.pointer(StorageClass::Input, ty);
    let decorated = |inst: &&Inst| inst.op == Op::Decorate && inst.operands.get(2) == Some(&Operand::BuiltIn(built_in));
    let own = merger.module.annotations.iter().find(decorated).and_then(|inst| inst.id_at(0));
    let same = |id: &u32| merger.module.globals.iter().any(|inst| inst.id == Some(*id) && inst.ty == Some(pointer));
    if let Some(id) = own.filter(same) {
        return id;
    }
    let id = merger.variable(StorageClass::Input, ty);
    merger.decorate(id, Decoration::BuiltIn, [Operand::BuiltIn(built_in)]);
    id
}

/// A handler on its way into the kernel.
pub(super) struct Import<'a> {
    pub handler: &'a Handler<'a>,
    pub merger: &'a mut Merger,
    pub pool: &'a mut Pool,
    /// Ids of the kernel by those of the handler.
    ids: FxHashMap<u32, u32>,
    /// Handler's ids whose types and constants the kernel had already.
    found: FxHashSet<u32>,
    /// Buffers that the handler writes.
    pub written: FxHashSet<u32>,
    /// Entries whose length the handler asks for.
    pub measured: BTreeSet<u32>,
}

impl<'a> Import<'a> {
    pub(super) fn new(handler: &'a Handler<'a>, merger: &'a mut Merger, pool: &'a mut Pool) -> Self {
        let (ids, found, written) = (FxHashMap::default(), FxHashSet::default(), FxHashSet::default());
        Self { handler, merger, pool, ids, found, written, measured: BTreeSet::new() }
    }

    /// The kernel's id for one of the handler's; a new one at first sight.
    pub(super) fn id(&mut self, id: u32) -> u32 {
        let merger = &mut *self.merger;
        *self.ids.entry(id).or_insert_with(|| merger.fresh())
    }

    /// Lets an id of the handler stand for one of the kernel.
    pub(super) fn bind(&mut self, id: u32, kernel: u32) {
        self.ids.insert(id, kernel);
    }

    /// Operands with the kernel's ids.
    pub(super) fn operands(&mut self, operands: &[Operand]) -> Vec<Operand> {
        let mut operands = operands.to_vec();
        for id in operands.iter_mut().filter_map(Operand::id_ref_any_mut) {
            *id = self.id(*id);
        }
        operands
    }

    /// Takes over capabilities, extensions, instruction sets, types, constants and variables.
    pub(super) fn globals(&mut self) -> Result<(), Refusal> {
        let handler = self.handler;
        for inst in &handler.module.capabilities {
            if let Some(Operand::Capability(capability)) = inst.operands.first() {
                self.merger.need(*capability);
            }
        }
        for inst in &handler.module.extensions {
            if accept::keeps_extension(inst)? {
                self.merger.extend(inst);
            }
        }
        for inst in &handler.module.imports {
            if let Some(id) = inst.id.filter(|id| handler.used.contains(id)) {
                let kernel = self.merger.import(inst);
                self.bind(id, kernel);
            }
        }
        let mut decorations = self.decorations();
        for inst in &handler.module.globals {
            let Some(id) = inst.id.filter(|id| handler.used.contains(id)) else {
                continue;
            };
            if !accept::hosts_global(inst.op) || inst.op == Op::ExtInst {
                return Err(Refusal::at(inst, Reason::Opcode));
            }
            if inst.op == Op::Variable {
                self.variable(id);
            } else {
                self.shared(inst, id, decorations.remove(&id).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// Decorations that are kept, by target and without it.
    fn decorations(&self) -> FxHashMap<u32, Vec<(Op, Vec<Operand>)>> {
        let mut decorations: FxHashMap<u32, Vec<_>> = FxHashMap::default();
        for inst in &self.handler.module.annotations {
            if let (Some(target), Some(rest)) = (inst.id_at(0), kept(inst)) {
                decorations.entry(target).or_default().push((inst.op, rest));
            }
        }
        decorations
    }

    fn shared(&mut self, inst: &Inst, id: u32, decorations: Vec<(Op, Vec<Operand>)>) -> Result<(), Refusal> {
        let types = &self.handler.types;
        let holds_pointer = |ty: u32| types.get(ty).is_some_and(|ty| ty.has_pointer);
        let ty = inst.ty.map(|ty| self.id(ty));
        let mut operands = self.operands(&inst.operands);
        match inst.op {
            Op::TypePointer => {
                let class = types.pointer(id).map_or(StorageClass::Generic, |(class, _)| class);
                if inst.id_at(1).is_some_and(holds_pointer) {
                    return Err(Refusal::at(inst, Reason::Pointer));
                }
                let Some(class) = accept::storage(class) else {
                    return Err(Refusal::at(inst, Reason::Storage(format!("{class:?}"))));
                };
                operands[0] = Operand::StorageClass(class);
            }
            Op::TypeStruct | Op::TypeArray | Op::TypeRuntimeArray if holds_pointer(id) => {
                return Err(Refusal::at(inst, Reason::Pointer));
            }
            Op::TypeFunction if inst.id_at(0).is_some_and(holds_pointer) => {
                return Err(Refusal::at(inst, Reason::Pointer));
            }
            Op::TypeArray if matches!(types.shape(id), Shape::Array(_, 0)) => {
                return Err(Refusal::other(inst, "has no length, or one that is no 32-bit constant"));
            }
            _ => {}
        }
        let op = match inst.op {
            Op::SpecConstant => Op::Constant,
            Op::SpecConstantTrue => Op::ConstantTrue,
            Op::SpecConstantFalse => Op::ConstantFalse,
            Op::SpecConstantComposite => Op::ConstantComposite,
            op => op,
        };
        let (kernel, new) = self.merger.shared_with(op, ty, operands, decorations);
        if !new {
            self.found.insert(id);
        }
        self.bind(id, kernel);
        Ok(())
    }

    fn variable(&mut self, id: u32) {
        let Some(variable) = self.handler.variables.get(&id) else {
            return;
        };
        let pointee = self.id(variable.pointee);
        let kernel = match variable.role {
            Role::Private { .. } => self.merger.variable(StorageClass::Private, pointee),
            Role::Workgroup => self.merger.variable(StorageClass::Workgroup, pointee),
            Role::Stand(stand) => self.pool.stand(self.merger, stand, pointee),
            // Each function that uses a buffer makes a pointer of its own: see the module `body`.
            Role::Buffer { .. } | Role::Payload => return,
        };
        self.bind(id, kernel);
    }

    /// Takes over the names and decorations of what is the handler's own. Comes last, when all ids are known.
    pub(super) fn annotate(&mut self) {
        let handler = self.handler;
        let prefix = format!("h{}.", handler.source.opcode);
        for inst in &handler.module.names {
            if let Some(target) = inst.id_at(0).filter(|id| self.is_own(*id)).and_then(|id| self.ids.get(&id)) {
                let mut operands = inst.operands.clone();
                operands[0] = Operand::IdRef(*target);
                if let (Op::Name, Some(Operand::LiteralString(name))) = (inst.op, operands.get_mut(1)) {
                    name.insert_str(0, &prefix);
                }
                self.merger.module.names.push(Inst::new(inst.op, None, None, operands));
            }
        }
        for inst in &handler.module.annotations {
            // Types and constants got theirs when they were made.
            let own = |id: &u32| self.is_own(*id) && (!handler.used.contains(id) || handler.variables.contains_key(id));
            let target = inst.id_at(0).filter(own).and_then(|id| self.ids.get(&id));
            if let (Some(target), Some(rest)) = (target, kept(inst)) {
                let operands = [Operand::IdRef(*target)].into_iter().chain(rest).collect();
                self.merger.module.annotations.push(Inst::new(inst.op, None, None, operands));
            }
        }
    }

    /// Whether the id was made for this handler.
    fn is_own(&self, id: u32) -> bool {
        let borrowed = match self.handler.variables.get(&id) {
            Some(variable) => matches!(variable.role, Role::Stand(_) | Role::Buffer { .. } | Role::Payload),
            None => self.found.contains(&id),
        };
        !borrowed
    }
}

/// A decoration without its target, unless it is dropped. `BufferBlock` is `Block` since SPIR-V 1.3.
fn kept(inst: &Inst) -> Option<Vec<Operand>> {
    if !matches!(inst.op, Op::Decorate | Op::MemberDecorate) {
        return None;
    }
    let decoration = decoration(inst).filter(|decoration| !drops_decoration(*decoration))?;
    let mut rest = inst.operands.get(1..)?.to_vec();
    if decoration == Decoration::BufferBlock {
        rest = vec![Operand::Decoration(Decoration::Block)];
    }
    Some(rest)
}
