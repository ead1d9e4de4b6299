//! Rewrites a handler's functions: buffers become device addresses, memory accesses follow the Vulkan memory model.

use rspirv::dr::Operand;
use rspirv::spirv::{Capability, Decoration, MemorySemantics, Op, Scope, StorageClass};
use rustc_hash::FxHashMap;

use super::super::module::{Function, Inst};
use super::accept;
use super::error::{Reason, Refusal};
use super::handler::Role;
use super::import::Import;
use super::memory::{self, Access};
use super::pointer::{BASE_ALIGNMENT, Pointer};
use super::types::Shape;

/// Rewrites one function.
pub(super) fn rewrite(import: &mut Import<'_>, function: &Function) -> Result<Function, Refusal> {
    let mut body = Body { import, pointers: FxHashMap::default(), out: Vec::new() };
    let def = body.plain(&function.def);
    let mut params = Vec::new();
    for param in &function.params {
        params.push(body.param(param)?);
    }
    let split = function.body.iter().skip(1).take_while(|inst| inst.op == Op::Variable).count() + 1;
    let (head, rest) = function.body.split_at(split.min(function.body.len()));
    for inst in head {
        body.inst(inst)?;
    }
    body.point_at_buffers(rest);
    for inst in rest {
        body.inst(inst)?;
    }
    Ok(Function { def, params, body: body.out })
}

struct Body<'a, 'h> {
    import: &'a mut Import<'h>,
    /// Pointers of this function by the handler's ids.
    pointers: FxHashMap<u32, Pointer>,
    out: Vec<Inst>,
}

impl Body<'_, '_> {
    /// The instruction with the kernel's ids.
    fn plain(&mut self, inst: &Inst) -> Inst {
        let ty = inst.ty.map(|ty| self.import.id(ty));
        let id = inst.id.map(|id| self.import.id(id));
        Inst::new(inst.op, ty, id, self.import.operands(&inst.operands))
    }

    fn emit(&mut self, op: Op, ty: u32, operands: Vec<Operand>) -> u32 {
        let id = self.import.merger.fresh();
        self.out.push(Inst::new(op, Some(ty), Some(id), operands));
        id
    }

    fn param(&mut self, param: &Inst) -> Result<Inst, Refusal> {
        let new = self.plain(param);
        let (Some(ty), Some(id)) = (param.ty, param.id) else {
            return Ok(new);
        };
        if let Some((class, pointee)) = self.import.handler.types.pointer(ty) {
            let scalar = self.import.handler.types.get(pointee).map_or(1, |ty| ty.scalar);
            let mut pointer = Pointer::new(class, pointee, scalar, None);
            // Which buffer comes in is the caller's affair: take the strictest of all.
            pointer.coherent = self.any_buffer(|pointer| pointer.coherent);
            pointer.volatile = self.any_buffer(|pointer| pointer.volatile);
            if pointer.is_buffer() && !self.import.handler.types.marks(id).aliased {
                self.import.merger.decorate(new.id.unwrap_or(0), Decoration::Aliased, []);
            }
            self.pointers.insert(id, pointer);
        }
        Ok(new)
    }

    fn any_buffer(&self, holds: impl Fn(&Pointer) -> bool) -> bool {
        self.import.handler.variables.keys().filter_map(|id| self.global(*id)).any(|pointer| holds(&pointer))
    }

    /// The pointer that a module-scope variable is.
    fn global(&self, id: u32) -> Option<Pointer> {
        let handler = self.import.handler;
        let variable = handler.variables.get(&id)?;
        let class = match variable.role {
            Role::Buffer { uniform: true, .. } => StorageClass::Uniform,
            Role::Buffer { uniform: false, .. } => StorageClass::StorageBuffer,
            Role::Payload => StorageClass::PushConstant,
            Role::Stand(_) => StorageClass::Input,
            Role::Private { .. } => StorageClass::Private,
            Role::Workgroup => StorageClass::Workgroup,
        };
        let mut pointer = Pointer::new(class, variable.pointee, BASE_ALIGNMENT, Some(id));
        let marks = handler.types.marks(id);
        let members = match handler.types.shape(variable.pointee) {
            Shape::Struct(members) => members.len() as u32,
            _ => 0,
        };
        let any = |of: fn(super::types::MemberLayout) -> bool| {
            (0..members).any(|at| of(handler.types.member(variable.pointee, at)))
        };
        pointer.coherent = marks.coherent || any(|member| member.coherent);
        pointer.volatile = marks.volatile || any(|member| member.volatile);
        Some(pointer)
    }

    fn pointer(&self, id: u32) -> Option<Pointer> {
        self.pointers.get(&id).copied().or_else(|| self.global(id))
    }

    /// Makes a pointer from the device address of each buffer that the function uses.
    fn point_at_buffers(&mut self, insts: &[Inst]) {
        let mut seen = Vec::new();
        for inst in insts.iter().filter(|inst| inst.op != Op::ArrayLength) {
            for id in inst.ids() {
                let Some(variable) = self.import.handler.variables.get(&id).filter(|_| !seen.contains(&id)) else {
                    continue;
                };
                let Import { merger, pool, .. } = &mut *self.import;
                let address = match variable.role {
                    Role::Buffer { entry, .. } => pool.address(merger, entry),
                    Role::Payload => pool.payload(merger),
                    _ => continue,
                };
                merger.address_buffers();
                let pair = merger.vector(2);
                let pointee = self.import.id(variable.pointee);
                let ty = self.import.merger.pointer(StorageClass::PhysicalStorageBuffer, pointee);
                let words = self.emit(Op::Load, pair, vec![Operand::IdRef(address)]);
                let pointer = self.emit(Op::Bitcast, ty, vec![Operand::IdRef(words)]);
                self.import.bind(id, pointer);
                seen.push(id);
            }
        }
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), Refusal> {
        match inst.op {
            Op::Variable => self.variable(inst),
            Op::AccessChain | Op::InBoundsAccessChain => self.access_chain(inst),
            Op::Load | Op::Store => self.access(inst),
            Op::ArrayLength => self.array_length(inst),
            Op::FunctionCall => self.call(inst),
            Op::ControlBarrier | Op::MemoryBarrier => self.barrier(inst),
            _ if is_atomic(inst.op) => self.atomic(inst),
            _ if accept::hosts_plain(inst.op) => self.value(inst),
            _ => Err(Refusal::at(inst, Reason::Opcode)),
        }
    }

    fn variable(&mut self, inst: &Inst) -> Result<(), Refusal> {
        let Some((StorageClass::Function, pointee)) = inst.ty.and_then(|ty| self.import.handler.types.pointer(ty))
        else {
            return Err(Refusal::other(inst, "is a variable in a function, of another storage class"));
        };
        if inst.operands.first() != Some(&Operand::StorageClass(StorageClass::Function)) {
            return Err(Refusal::other(inst, "has another storage class than its type"));
        }
        if let Some(id) = inst.id {
            self.pointers.insert(id, Pointer::new(StorageClass::Function, pointee, BASE_ALIGNMENT, None));
        }
        let new = self.plain(inst);
        self.out.push(new);
        Ok(())
    }

    fn base(&self, inst: &Inst) -> Result<Pointer, Refusal> {
        let pointer = inst.id_at(0).and_then(|id| self.pointer(id));
        pointer.ok_or_else(|| Refusal::other(inst, "takes a pointer that is none"))
    }

    fn access_chain(&mut self, inst: &Inst) -> Result<(), Refusal> {
        let types = &self.import.handler.types;
        let indices: Vec<u32> = inst.ids().skip(1).collect();
        let base = self.base(inst)?;
        let pointer = base.chain(types, inst, &indices)?;
        if inst.ty.and_then(|ty| types.pointer(ty)).map(|(_, pointee)| pointee) != Some(pointer.pointee) {
            return Err(Refusal::other(inst, "has another result type than the part that it points to"));
        }
        if inst.ty.and_then(|ty| types.pointer(ty)).and_then(|(class, _)| accept::storage(class))
            != accept::storage(base.class)
        {
            return Err(Refusal::other(inst, "points into another storage class than its base"));
        }
        for index in &indices {
            self.refuse_pointer(inst, *index)?;
        }
        if let Some(id) = inst.id {
            self.pointers.insert(id, pointer);
        }
        let new = self.plain(inst);
        self.out.push(new);
        Ok(())
    }

    fn access(&mut self, inst: &Inst) -> Result<(), Refusal> {
        let pointer = self.base(inst)?;
        let (values, pointee) = if inst.op == Op::Load { (1, inst.ty) } else { (2, Some(pointer.pointee)) };
        if pointee != Some(pointer.pointee) {
            return Err(Refusal::other(inst, "loads another type than the pointer's"));
        }
        if inst.op == Op::Store {
            self.mark_written(inst, pointer)?;
        }
        if let Some(value) = inst.id_at(1).filter(|_| inst.op == Op::Store) {
            self.refuse_pointer(inst, value)?;
        }
        let mut access = Access::parse(inst, inst.operands.get(values..).unwrap_or_default())?;
        if pointer.is_buffer() {
            let align = pointer.alignment(&self.import.handler.types, inst)?;
            access = access.shared(pointer.coherent, pointer.volatile).aligned(align);
        } else if pointer.class == StorageClass::Workgroup {
            access = access.shared(false, pointer.volatile);
        }
        let device = if access.is_coherent() { self.device_scope() } else { 0 };
        let mut new = self.plain(inst);
        new.operands.truncate(values);
        new.operands.extend(access.operands(inst.op, device));
        self.out.push(new);
        Ok(())
    }

    fn device_scope(&mut self) -> u32 {
        self.import.merger.need(Capability::VulkanMemoryModelDeviceScope);
        self.import.merger.word(Scope::Device as u32)
    }

    fn mark_written(&mut self, inst: &Inst, pointer: Pointer) -> Result<(), Refusal> {
        if matches!(pointer.class, StorageClass::Uniform | StorageClass::PushConstant | StorageClass::Input) {
            return Err(Refusal::other(inst, "writes what is read-only"));
        }
        self.import.written.extend(pointer.root);
        Ok(())
    }

    /// The length of a run-time array: what remains of the entry's length behind the array's offset, in strides.
    fn array_length(&mut self, inst: &Inst) -> Result<(), Refusal> {
        let handler = self.import.handler;
        let variable = inst.id_at(0).and_then(|id| handler.variables.get(&id));
        let (Some(variable), Some(number)) = (variable, inst.literal_at(1)) else {
            return Err(Refusal::other(inst, "asks for the length of what is no buffer of the task"));
        };
        let (Role::Buffer { entry, .. }, Shape::Struct(members)) =
            (variable.role, handler.types.shape(variable.pointee))
        else {
            return Err(Refusal::other(inst, "asks for the length of what is no buffer of the task"));
        };
        let array =
            members.get(number as usize).filter(|array| matches!(handler.types.shape(**array), Shape::RuntimeArray(_)));
        let stride = array.and_then(|array| handler.types.marks(*array).array_stride).filter(|stride| *stride > 0);
        let (Some(stride), Some(offset)) = (stride, handler.types.member(variable.pointee, number).offset) else {
            return Err(Refusal::other(inst, "asks for the length of what is no run-time array"));
        };
        let Import { merger, pool, measured, .. } = &mut *self.import;
        measured.insert(entry);
        let (word, bool, length) = (merger.u32(), merger.bool(), pool.length(merger, entry));
        let [offset, zero, stride] = [offset, 0, stride].map(|value| Operand::IdRef(merger.word(value)));
        if inst.ty.map(|ty| self.import.id(ty)) != Some(word) {
            return Err(Refusal::other(inst, "gives a length that is no u32"));
        }
        let bytes = Operand::IdRef(self.emit(Op::Load, word, vec![Operand::IdRef(length)]));
        let reaches = Operand::IdRef(self.emit(Op::UGreaterThan, bool, vec![bytes.clone(), offset.clone()]));
        let rest = Operand::IdRef(self.emit(Op::ISub, word, vec![bytes, offset]));
        let rest = Operand::IdRef(self.emit(Op::Select, word, vec![reaches, rest, zero]));
        let id = inst.id.map(|id| self.import.id(id));
        self.out.push(Inst::new(Op::UDiv, Some(word), id, vec![rest, stride]));
        Ok(())
    }

    fn call(&mut self, inst: &Inst) -> Result<(), Refusal> {
        for id in inst.ids().skip(1) {
            match self.pointer(id) {
                Some(pointer) if matches!(pointer.class, StorageClass::Input) => {
                    return Err(Refusal::other(inst, "passes a pointer to a built-in"));
                }
                Some(pointer) => self.import.written.extend(pointer.root),
                None => {}
            }
        }
        let new = self.plain(inst);
        self.out.push(new);
        Ok(())
    }

    fn constant(&self, inst: &Inst, index: usize) -> Result<u32, Refusal> {
        let value = inst.id_at(index).and_then(|id| self.import.handler.types.constant(id));
        value.ok_or_else(|| Refusal::other(inst, "has a scope or semantics that is no constant"))
    }

    fn scope(&mut self, inst: &Inst, index: usize) -> Result<Operand, Refusal> {
        let scope = self.constant(inst, index)?;
        if !memory::hosts_scope(scope) {
            return Err(Refusal::other(inst, "has a scope that kernels don't have"));
        }
        if scope == Scope::Device as u32 {
            return Ok(Operand::IdScope(self.device_scope()));
        }
        Ok(Operand::IdScope(self.import.merger.word(scope)))
    }

    fn semantics(
        &self,
        inst: &Inst,
        index: usize,
        role: memory::Role,
        volatile: bool,
    ) -> Result<MemorySemantics, Refusal> {
        let semantics = self.constant(inst, index)?;
        memory::raise(semantics, role, volatile).map_err(|reason| Refusal::other(inst, reason))
    }

    fn barrier(&mut self, inst: &Inst) -> Result<(), Refusal> {
        let at = inst.operands.len().saturating_sub(1);
        let semantics = self.semantics(inst, at, memory::Role::Both, false)?;
        if semantics.is_empty() && inst.op == Op::MemoryBarrier {
            return Ok(());
        }
        let mut operands = Vec::new();
        for index in 0..at {
            operands.push(self.scope(inst, index)?);
        }
        operands.push(Operand::IdMemorySemantics(self.import.merger.word(semantics.bits())));
        self.out.push(Inst::new(inst.op, None, None, operands));
        Ok(())
    }

    fn atomic(&mut self, inst: &Inst) -> Result<(), Refusal> {
        let pointer = self.base(inst)?;
        if !pointer.is_buffer() && pointer.class != StorageClass::Workgroup {
            return Err(Refusal::other(inst, "is an atomic on memory of one invocation"));
        }
        if inst.op != Op::AtomicLoad {
            self.mark_written(inst, pointer)?;
        }
        let role = match inst.op {
            Op::AtomicLoad => memory::Role::Load,
            Op::AtomicStore => memory::Role::Store,
            _ => memory::Role::Both,
        };
        let volatile = pointer.volatile;
        let scope = self.scope(inst, 1)?;
        let semantics = self.semantics(inst, 2, role, volatile)?;
        let mut new = self.plain(inst);
        new.operands[1] = scope;
        new.operands[2] = Operand::IdMemorySemantics(self.import.merger.word(semantics.bits()));
        let mut values = 3;
        if inst.op == Op::AtomicCompareExchange {
            let unequal = self.semantics(inst, 3, memory::Role::Load, volatile)?;
            new.operands[3] = Operand::IdMemorySemantics(self.import.merger.word(unequal.bits()));
            values = 4;
        }
        for value in inst.ids().skip(values) {
            self.refuse_pointer(inst, value)?;
        }
        self.out.push(new);
        Ok(())
    }

    /// An instruction whose operands are values.
    fn value(&mut self, inst: &Inst) -> Result<(), Refusal> {
        if self.import.handler.is_dropped(inst) {
            return Ok(());
        }
        if inst.ty.and_then(|ty| self.import.handler.types.get(ty)).is_some_and(|ty| ty.has_pointer) {
            return Err(Refusal::at(inst, Reason::Pointer));
        }
        for id in inst.ids() {
            self.refuse_pointer(inst, id)?;
        }
        let new = self.plain(inst);
        self.out.push(new);
        Ok(())
    }

    fn refuse_pointer(&self, inst: &Inst, id: u32) -> Result<(), Refusal> {
        if self.pointer(id).is_some() { Err(Refusal::at(inst, Reason::Pointer)) } else { Ok(()) }
    }
}

fn is_atomic(op: Op) -> bool {
    matches!(
        op,
        Op::AtomicLoad
            | Op::AtomicStore
            | Op::AtomicExchange
            | Op::AtomicCompareExchange
            | Op::AtomicIIncrement
            | Op::AtomicIDecrement
            | Op::AtomicIAdd
            | Op::AtomicISub
            | Op::AtomicSMin
            | Op::AtomicUMin
            | Op::AtomicSMax
            | Op::AtomicUMax
            | Op::AtomicAnd
            | Op::AtomicOr
            | Op::AtomicXor
            | Op::AtomicFAddEXT
    )
}
