//! One handler, read and understood: its entry point, what that reaches, and what each variable becomes in a task.

use std::collections::BTreeMap;

use rspirv::dr::Operand;
use rspirv::spirv::{BuiltIn, ExecutionMode, ExecutionModel, Op, StorageClass};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::protocol::binding::ENTRIES;

use super::super::module::{Inst, Module};
use super::HandlerModule;
use super::accept::{self, Stand};
use super::error::{Reason, Refusal};
use super::types::{Shape, Types};

/// What a module-scope variable of a handler becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Entry of the task's binding table; read-only where it is a uniform buffer.
    Buffer { entry: u32, uniform: bool },
    /// The task's payload.
    Payload,
    /// A built-in's stand-in.
    Stand(Stand),
    /// A private variable that the wrapper sets to its initial value before each task.
    Private { initial: Option<u32> },
    /// Workgroup memory.
    Workgroup,
}

/// A module-scope variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variable {
    pub role: Role,
    /// Type of what it holds.
    pub pointee: u32,
}

/// A buffer by its names in the shader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub set: u32,
    pub binding: u32,
    pub entry: u32,
}

/// A handler's module with what the linker knows about it.
pub(super) struct Handler<'a> {
    pub source: HandlerModule<'a>,
    pub module: Module,
    pub types: Types,
    /// The entry point's function.
    pub entry: u32,
    /// Functions that the entry point reaches, as indices into the module's.
    pub functions: Vec<usize>,
    /// Ids of types, constants, variables and imports that these use.
    pub used: FxHashSet<u32>,
    /// Instruction sets without meaning.
    pub dropped: FxHashSet<u32>,
    pub variables: FxHashMap<u32, Variable>,
    pub workgroup_size: [u32; 3],
    pub slots: Vec<Slot>,
    pub payload_words: u32,
    pub workgroup_bytes: u64,
}

impl<'a> Handler<'a> {
    pub(super) fn read(source: HandlerModule<'a>) -> Result<Self, Refusal> {
        let module = Module::parse(source.words)?;
        accept::module(&module)?;
        let entry = entry_point(&module, source.entry)?;
        let types = Types::of(&module);
        let workgroup_size = workgroup_size(&module, &types, entry)?;
        let dropped = dropped_imports(&module)?;
        let functions = reachable(&module, entry)?;
        let mut handler = Self {
            source,
            module,
            types,
            entry,
            functions,
            used: FxHashSet::default(),
            dropped,
            variables: FxHashMap::default(),
            workgroup_size,
            slots: Vec::new(),
            payload_words: 0,
            workgroup_bytes: 0,
        };
        handler.used = handler.uses();
        handler.annotations()?;
        handler.slots = handler.number_slots()?;
        handler.classify()?;
        Ok(handler)
    }

    /// Invocations of a workgroup.
    pub(super) fn invocations(&self) -> u32 {
        self.workgroup_size.iter().product()
    }

    /// Ids outside functions that the reachable functions use, and what those are made of.
    fn uses(&self) -> FxHashSet<u32> {
        let globals: FxHashMap<u32, &Inst> =
            self.module.globals.iter().chain(&self.module.imports).filter_map(|inst| Some((inst.id?, inst))).collect();
        let mut used = FxHashSet::default();
        let mut open = Vec::new();
        for inst in self.functions.iter().flat_map(|index| self.module.functions[*index].insts()) {
            if !self.is_dropped(inst) {
                open.extend(inst.ty.into_iter().chain(inst.ids()));
            }
        }
        while let Some(id) = open.pop() {
            let Some(inst) = globals.get(&id).filter(|_| used.insert(id)) else {
                continue;
            };
            // Pointers to buffers and inputs are made anew; what they point to is needed.
            let pointer = inst.ty.and_then(|ty| self.types.pointer(ty));
            match (inst.op, pointer) {
                (Op::Variable, Some((class, pointee))) if accept::storage(class) != Some(class) => open.push(pointee),
                _ => open.extend(inst.ty.into_iter().chain(inst.ids())),
            }
        }
        used
    }

    /// Checks the decorations of what is used: other entry points of the module have other ones.
    fn annotations(&self) -> Result<(), Refusal> {
        let insts = self.functions.iter().flat_map(|index| self.module.functions[*index].insts());
        let local: FxHashSet<u32> = insts.filter_map(|inst| inst.id).collect();
        let used = |inst: &&Inst| inst.id_at(0).is_some_and(|id| self.used.contains(&id) || local.contains(&id));
        // Groups of decorations hide what they are for.
        let group = |inst: &Inst| matches!(inst.op, Op::DecorationGroup | Op::GroupDecorate | Op::GroupMemberDecorate);
        let mut annotations = self.module.annotations.iter();
        annotations.try_for_each(|inst| if group(inst) || used(&inst) { accept::annotation(inst) } else { Ok(()) })
    }

    /// Whether it is an extended instruction that means nothing.
    pub(super) fn is_dropped(&self, inst: &Inst) -> bool {
        inst.op == Op::ExtInst && inst.id_at(0).is_some_and(|set| self.dropped.contains(&set))
    }

    /// Used module-scope variables with class and pointee.
    fn used_variables(&self) -> impl Iterator<Item = (&Inst, u32, StorageClass, u32)> {
        self.module.globals.iter().filter(|inst| inst.op == Op::Variable).filter_map(|inst| {
            let id = inst.id.filter(|id| self.used.contains(id))?;
            let (class, pointee) = self.types.pointer(inst.ty?)?;
            Some((inst, id, class, pointee))
        })
    }

    /// Gives each buffer its entry: binding b of set 0 gets entry b; with other sets, or bindings beyond the table,
    /// the pairs of set and binding are numbered in order.
    fn number_slots(&self) -> Result<Vec<Slot>, Refusal> {
        let mut pairs = BTreeMap::new();
        for (inst, id, class, _) in self.used_variables() {
            if matches!(class, StorageClass::StorageBuffer | StorageClass::Uniform) {
                let marks = self.types.marks(id);
                let (Some(set), Some(binding)) = (marks.set, marks.binding) else {
                    return Err(Refusal::other(inst, "is a buffer without set and binding"));
                };
                pairs.insert((set, binding), inst);
            }
        }
        let direct = pairs.keys().all(|(set, binding)| *set == 0 && *binding < ENTRIES);
        if !direct && pairs.len() > ENTRIES as usize {
            let highest = pairs.keys().map(|(_, binding)| *binding).max().unwrap_or(0);
            return Err(Refusal::Bindings { count: pairs.len(), highest, entries: ENTRIES });
        }
        let slot = |(index, (set, binding)): (usize, (u32, u32))| Slot {
            set,
            binding,
            entry: if direct { binding } else { index as u32 },
        };
        Ok(pairs.into_keys().enumerate().map(slot).collect())
    }

    fn classify(&mut self) -> Result<(), Refusal> {
        let mut variables = FxHashMap::default();
        let (mut payload_words, mut workgroup_bytes) = (0, 0_u64);
        for (inst, id, class, pointee) in self.used_variables() {
            let role = match class {
                StorageClass::StorageBuffer | StorageClass::Uniform => self.buffer(inst, id, class, pointee)?,
                StorageClass::PushConstant => {
                    if payload_words > 0 {
                        return Err(Refusal::other(inst, "is a second block of push constants"));
                    }
                    payload_words = self.payload(inst, pointee)?;
                    Role::Payload
                }
                StorageClass::Input => Role::Stand(self.stand(inst, id, pointee)?),
                StorageClass::Private => Role::Private { initial: inst.id_at(1) },
                StorageClass::Workgroup => {
                    if inst.id_at(1).is_some() {
                        return Err(Refusal::other(inst, "is workgroup memory with an initial value"));
                    }
                    workgroup_bytes = workgroup_bytes.saturating_add(footprint(&self.types, pointee));
                    Role::Workgroup
                }
                _ => return Err(Refusal::at(inst, Reason::Storage(format!("{class:?}")))),
            };
            variables.insert(id, Variable { role, pointee });
        }
        self.variables = variables;
        self.payload_words = payload_words;
        self.workgroup_bytes = workgroup_bytes;
        Ok(())
    }

    fn buffer(&self, inst: &Inst, id: u32, class: StorageClass, pointee: u32) -> Result<Role, Refusal> {
        let (marks, block) = (self.types.marks(id), self.types.marks(pointee));
        if !matches!(self.types.shape(pointee), Shape::Struct(_)) || !(block.block || block.buffer_block) {
            return Err(Refusal::other(inst, "is a buffer that is no Block: arrays of buffers are not hosted"));
        }
        if self.types.laid_out_size(pointee).is_none() {
            return Err(Refusal::at(inst, Reason::Layout("offsets or strides")));
        }
        let slot = self.slots.iter().find(|slot| Some(slot.set) == marks.set && Some(slot.binding) == marks.binding);
        let Some(slot) = slot else {
            return Err(Refusal::other(inst, "is a buffer without set and binding"));
        };
        Ok(Role::Buffer { entry: slot.entry, uniform: class == StorageClass::Uniform && !block.buffer_block })
    }

    /// Words of a block of push constants.
    fn payload(&self, inst: &Inst, pointee: u32) -> Result<u32, Refusal> {
        if !matches!(self.types.shape(pointee), Shape::Struct(_)) {
            return Err(Refusal::other(inst, "is a block of push constants that is no struct"));
        }
        let Some(bytes) = self.types.laid_out_size(pointee).filter(|bytes| *bytes > 0) else {
            return Err(Refusal::at(inst, Reason::Layout("offsets or strides")));
        };
        u32::try_from(bytes.div_ceil(4)).map_err(|_| Refusal::other(inst, "is a block of push constants over 16 GiB"))
    }

    fn stand(&self, inst: &Inst, id: u32, pointee: u32) -> Result<Stand, Refusal> {
        let Some(built_in) = self.types.marks(id).built_in else {
            return Err(Refusal::other(inst, "is an input that is no built-in"));
        };
        let Some(stand) = accept::stand(built_in) else {
            return Err(Refusal::at(inst, Reason::BuiltIn(format!("{built_in:?}"))));
        };
        let is_word = |ty| matches!(self.types.shape(ty), Shape::Int(4, _));
        let fits = match (stand, self.types.shape(pointee)) {
            (Stand::Vector(_), Shape::Vector(component, 3)) => is_word(*component),
            (Stand::Vector(_), _) => false,
            (Stand::LocalIndex | Stand::Input(_), _) => is_word(pointee),
        };
        if fits { Ok(stand) } else { Err(Refusal::other(inst, "is a built-in of another type than SPIR-V gives it")) }
    }
}

/// Bytes that a workgroup variable takes at most, wherever the driver puts it.
fn footprint(types: &Types, pointee: u32) -> u64 {
    types.get(pointee).map_or(0, |ty| ty.size.saturating_add(15) / 16 * 16)
}

/// Bytes of workgroup memory of a whole module.
pub(super) fn workgroup_bytes(module: &Module) -> u64 {
    let types = Types::of(module);
    let pointers =
        module.globals.iter().filter(|inst| inst.op == Op::Variable).filter_map(|inst| types.pointer(inst.ty?));
    let workgroup = pointers.filter(|(class, _)| *class == StorageClass::Workgroup);
    workgroup.fold(0, |sum, (_, pointee)| sum.saturating_add(footprint(&types, pointee)))
}

fn entry_point(module: &Module, name: &str) -> Result<u32, Refusal> {
    let mut found = Vec::new();
    for inst in &module.entry_points {
        if let [
            Operand::ExecutionModel(ExecutionModel::GLCompute),
            Operand::IdRef(id),
            Operand::LiteralString(own),
            ..,
        ] = inst.operands.as_slice()
        {
            if own == name {
                return Ok(*id);
            }
            found.push(own.clone());
        }
    }
    Err(Refusal::NoEntryPoint { found })
}

/// Functions that the entry point reaches, in the module's order.
fn reachable(module: &Module, entry: u32) -> Result<Vec<usize>, Refusal> {
    let index: FxHashMap<u32, usize> =
        module.functions.iter().enumerate().filter_map(|(at, function)| Some((function.def.id?, at))).collect();
    let calls = |at: usize| -> Vec<usize> {
        let body = module.functions[at].body.iter();
        let callees = body.filter(|inst| inst.op == Op::FunctionCall).filter_map(|inst| inst.id_at(0));
        callees.filter_map(|id| index.get(&id).copied()).collect()
    };
    let Some(&root) = index.get(&entry) else {
        return Ok(Vec::new());
    };
    if let Some(param) = module.functions[root].params.first() {
        return Err(Refusal::other(param, "belongs to an entry point, which takes none"));
    }
    // Depth first with the callees still to visit: one on the path again is a recursion.
    let mut path = vec![(root, calls(root))];
    let (mut seen, mut on_path) = (FxHashSet::from_iter([root]), FxHashSet::from_iter([root]));
    while let Some((at, open)) = path.last_mut() {
        let at = *at;
        let Some(callee) = open.pop() else {
            on_path.remove(&at);
            path.pop();
            continue;
        };
        if on_path.contains(&callee) {
            return Err(Refusal::other(&module.functions[callee].def, "calls itself, by itself or through others"));
        }
        if seen.insert(callee) {
            on_path.insert(callee);
            path.push((callee, calls(callee)));
        }
    }
    let mut functions: Vec<_> = seen.into_iter().collect();
    functions.sort_unstable();
    Ok(functions)
}

fn dropped_imports(module: &Module) -> Result<FxHashSet<u32>, Refusal> {
    let mut dropped = FxHashSet::default();
    for inst in &module.imports {
        if !accept::keeps_import(inst)? {
            dropped.extend(inst.id);
        }
    }
    Ok(dropped)
}

/// The workgroup's size: the WorkgroupSize constant rules over the execution mode.
fn workgroup_size(module: &Module, types: &Types, entry: u32) -> Result<[u32; 3], Refusal> {
    let mut size = None;
    for inst in module.modes.iter().filter(|inst| inst.id_at(0) == Some(entry)) {
        let Some(Operand::ExecutionMode(mode)) = inst.operands.get(1) else {
            return Err(Refusal::other(inst, "has no mode"));
        };
        let dimension = |at: usize| match mode {
            ExecutionMode::LocalSize => inst.literal_at(at),
            _ => inst.id_at(at).and_then(|id| types.constant(id)),
        };
        size = match (mode, dimension(2), dimension(3), dimension(4)) {
            (ExecutionMode::LocalSize | ExecutionMode::LocalSizeId, Some(x), Some(y), Some(z)) => {
                Some((inst, [x, y, z]))
            }
            _ => return Err(Refusal::at(inst, Reason::Mode(format!("{mode:?}")))),
        };
    }
    let mut constants = module
        .globals
        .iter()
        .filter(|inst| inst.id.is_some_and(|id| types.marks(id).built_in == Some(BuiltIn::WorkgroupSize)));
    if let Some(inst) = constants.next() {
        if let Some(second) = constants.next() {
            return Err(Refusal::other(second, "is a second WorkgroupSize"));
        }
        let parts: Vec<_> = inst.ids().filter_map(|id| types.constant(id)).collect();
        let [x, y, z] = parts[..] else {
            return Err(Refusal::other(inst, "is a WorkgroupSize that is not made of three constants"));
        };
        size = Some((inst, [x, y, z]));
    }
    let (inst, size) = size.ok_or(Refusal::NoLocalSize)?;
    let invocations = size.iter().try_fold(1_u32, |total, side| total.checked_mul(*side));
    match invocations {
        Some(1..) => Ok(size),
        _ => Err(Refusal::other(inst, "gives a workgroup no invocations, or more than 4 billion")),
    }
}
