//! What the kernel runs for an opcode: a switch over the linked handlers, and a wrapper around each.
//!
//! A wrapper is run by all invocations of the workgroup. It looks whether the task binds what the handler needs, sets
//! the private stand-ins from the task's words, puts private variables back to their initial values, and calls the
//! handler's entry point. It does not synchronise: the kernel has a barrier before and after, by which all invocations
//! see the task's words and what the task's publisher wrote.

use rspirv::dr::Operand;
use rspirv::spirv::{FunctionControl, MemoryAccess, Op, SelectionControl, StorageClass};

use crate::protocol::binding::ENTRY_WORDS;
use crate::protocol::completion::fault::NOT_BOUND;
use crate::protocol::task;
use crate::spirv::Interface;

use super::super::module::{Function, Inst};
use super::LinkError;
use super::accept::{Stand, Vector};
use super::handler::Role;
use super::import::Import;
use super::merge::Merger;

/// A case of the switch: opcode and wrapper.
pub(super) type Case = (u32, u32);

/// Replaces the kernel's dispatch function by a switch over `cases`; other opcodes go on to the old one.
pub(super) fn switch(merger: &mut Merger, interface: Interface, cases: &[Case]) -> Result<(), LinkError> {
    let (void, word, old) = (merger.void(), merger.u32(), merger.fresh());
    let found = merger.module.functions.iter_mut().find(|function| function.def.id == Some(interface.dispatch));
    let Some(dispatch) = found else {
        return Err(LinkError::KernelKind { reason: "has no dispatch function" });
    };
    let [param] = &dispatch.params[..] else {
        return Err(LinkError::KernelKind { reason: "has a dispatch function without an opcode" });
    };
    if param.ty != Some(word) || dispatch.def.ty != Some(void) {
        return Err(LinkError::KernelKind { reason: "has a dispatch function of another type" });
    }
    let def = dispatch.def.clone();
    dispatch.def.id = Some(old);
    let fallback = std::mem::replace(dispatch, Function { def, params: Vec::new(), body: Vec::new() });

    let opcode = merger.fresh();
    let params = vec![Inst::new(Op::FunctionParameter, Some(word), Some(opcode), Vec::new())];
    let mut code = Code::new(merger);
    let (end, other) = (code.merger.fresh(), code.merger.fresh());
    let labels: Vec<u32> = cases.iter().map(|_| code.merger.fresh()).collect();
    code.merge(end);
    let mut operands = vec![Operand::IdRef(opcode), Operand::IdRef(other)];
    for ((case, _), label) in cases.iter().zip(&labels) {
        operands.extend([Operand::LiteralBit32(*case), Operand::IdRef(*label)]);
    }
    code.stmt(Op::Switch, operands);
    for ((_, wrapper), label) in cases.iter().zip(&labels) {
        code.label(*label);
        code.op(Op::FunctionCall, void, &[*wrapper]);
        code.branch(end);
    }
    code.label(other);
    code.op(Op::FunctionCall, void, &[old, opcode]);
    code.branch(end);
    code.label(end);
    code.stmt(Op::Return, Vec::new());
    let body = code.out;

    merger.module.functions.push(fallback);
    if let Some(dispatch) =
        merger.module.functions.iter_mut().find(|function| function.def.id == Some(interface.dispatch))
    {
        (dispatch.params, dispatch.body) = (params, body);
    }
    Ok(())
}

/// Writes the wrapper of a handler whose functions are in the kernel; gives its function.
pub(super) fn wrapper(import: &mut Import<'_>, interface: Interface) -> u32 {
    let handler = import.handler;
    let (void, ty, id) = (import.merger.void(), import.merger.procedure(), import.merger.fresh());
    import.merger.name(id, format!("h{}.task", handler.source.opcode));
    let entry = import.id(handler.entry);
    let prologue = Prologue::of(import);
    let mut code = Code::new(import.merger);
    let task = Task { interface };
    let end = code.merger.fresh();
    let entries: Vec<u32> = handler.slots.iter().map(|slot| slot.entry).collect();
    if !entries.is_empty() {
        let run = code.merger.fresh();
        let missing = code.merger.fresh();
        let bound = task.all_bound(&mut code, &entries);
        code.merge(end);
        code.choose(bound, run, missing);
        code.label(missing);
        task.fault(&mut code, NOT_BOUND);
        code.branch(end);
        code.label(run);
    }
    prologue.write(&mut code, task, handler.workgroup_size);
    code.op(Op::FunctionCall, void, &[entry]);
    if !entries.is_empty() {
        code.branch(end);
        code.label(end);
    }
    code.stmt(Op::Return, Vec::new());
    let body = code.out;
    let control = Operand::FunctionControl(FunctionControl::NONE);
    let def = Inst::new(Op::Function, Some(void), Some(id), vec![control, Operand::IdRef(ty)]);
    import.merger.module.functions.push(Function { def, params: Vec::new(), body });
    id
}

/// The variables that a wrapper sets.
struct Prologue {
    /// Variable and entry.
    addresses: Vec<(u32, u32)>,
    /// Variable and entry.
    lengths: Vec<(u32, u32)>,
    payload: Option<u32>,
    /// Variable, what it stands for, and the type that it holds.
    stands: Vec<(u32, Stand, u32)>,
    /// Variable and initial value.
    initials: Vec<(u32, u32)>,
}

impl Prologue {
    fn of(import: &mut Import<'_>) -> Self {
        let handler = import.handler;
        let mut prologue = Self {
            addresses: Vec::new(),
            lengths: Vec::new(),
            payload: None,
            stands: Vec::new(),
            initials: Vec::new(),
        };
        for slot in &handler.slots {
            prologue.addresses.push((import.pool.address(import.merger, slot.entry), slot.entry));
        }
        for entry in import.measured.clone() {
            prologue.lengths.push((import.pool.length(import.merger, entry), entry));
        }
        for id in handler.module.globals.iter().filter_map(|inst| inst.id) {
            let Some(variable) = handler.variables.get(&id) else {
                continue;
            };
            match variable.role {
                Role::Payload => prologue.payload = Some(import.pool.payload(import.merger)),
                Role::Stand(stand) => prologue.stands.push((import.id(id), stand, import.id(variable.pointee))),
                Role::Private { initial: Some(initial) } => prologue.initials.push((import.id(id), import.id(initial))),
                Role::Private { initial: None } | Role::Buffer { .. } | Role::Workgroup => {}
            }
        }
        prologue
    }

    fn write(&self, code: &mut Code<'_>, task: Task, size: [u32; 3]) {
        for (variable, entry) in &self.addresses {
            let address = task.pair(code, task::BINDINGS + entry * ENTRY_WORDS);
            code.store(*variable, address);
        }
        for (variable, entry) in &self.lengths {
            let length = task.length(code, *entry);
            code.store(*variable, length);
        }
        if let Some(variable) = self.payload {
            let address = task.pair(code, task::PAYLOAD_LOW);
            code.store(variable, address);
        }
        for (variable, stand, ty) in &self.stands {
            let (value, own) = match stand {
                Stand::Vector(vector) => (task.vector(code, *vector, size), code.merger.vector(3)),
                Stand::LocalIndex => (task.local_index(code), code.merger.u32()),
                Stand::Input(_) => continue,
            };
            let value = if *ty == own { value } else { code.op(Op::Bitcast, *ty, &[value]) };
            code.store(*variable, value);
        }
        for (variable, initial) in &self.initials {
            code.store(*variable, *initial);
        }
    }
}

/// Reads the task's words.
#[derive(Clone, Copy)]
struct Task {
    interface: Interface,
}

impl Task {
    fn place(self, code: &mut Code<'_>, word: u32) -> u32 {
        let ty = code.merger.u32();
        let (pointer, index) = (code.merger.pointer(StorageClass::Workgroup, ty), code.merger.word(word));
        code.op(Op::AccessChain, pointer, &[self.interface.task, index])
    }

    fn word(self, code: &mut Code<'_>, word: u32) -> u32 {
        let (place, ty) = (self.place(code, word), code.merger.u32());
        let shared = Operand::MemoryAccess(MemoryAccess::NON_PRIVATE_POINTER);
        code.emit(Op::Load, ty, vec![Operand::IdRef(place), shared])
    }

    fn pair(self, code: &mut Code<'_>, low: u32) -> u32 {
        let words = [self.word(code, low), self.word(code, low + 1)];
        let pair = code.merger.vector(2);
        code.op(Op::CompositeConstruct, pair, &words)
    }

    /// Length of an entry, cut to what a word holds: no descriptor could name more.
    fn length(self, code: &mut Code<'_>, entry: u32) -> u32 {
        let at = task::BINDINGS + entry * ENTRY_WORDS + 2;
        let (low, high) = (self.word(code, at), self.word(code, at + 1));
        let (word, bool, zero, most) =
            (code.merger.u32(), code.merger.bool(), code.merger.word(0), code.merger.word(u32::MAX));
        let fits = code.op(Op::IEqual, bool, &[high, zero]);
        code.op(Op::Select, word, &[fits, low, most])
    }

    /// Whether all entries have a length.
    fn all_bound(self, code: &mut Code<'_>, entries: &[u32]) -> u32 {
        let (bool, zero) = (code.merger.bool(), code.merger.word(0));
        let mut all = None;
        for entry in entries {
            let length = self.length(code, *entry);
            let bound = code.op(Op::INotEqual, bool, &[length, zero]);
            all = Some(match all {
                Some(before) => code.op(Op::LogicalAnd, bool, &[before, bound]),
                None => bound,
            });
        }
        all.unwrap_or_else(|| code.merger.shared(Op::ConstantTrue, Some(bool), Vec::new()))
    }

    /// The first invocation stores a fault.
    fn fault(self, code: &mut Code<'_>, fault: u32) {
        let (bool, zero, fault) = (code.merger.bool(), code.merger.word(0), code.merger.word(fault));
        let (then, end) = (code.merger.fresh(), code.merger.fresh());
        let lane = self.local_index(code);
        let first = code.op(Op::IEqual, bool, &[lane, zero]);
        code.merge(end);
        code.choose(first, then, end);
        code.label(then);
        let place = self.place(code, task::FAULT);
        let shared = Operand::MemoryAccess(MemoryAccess::NON_PRIVATE_POINTER);
        code.stmt(Op::Store, vec![Operand::IdRef(place), Operand::IdRef(fault), shared]);
        code.branch(end);
        code.label(end);
    }

    fn local_index(self, code: &mut Code<'_>) -> u32 {
        let ty = code.merger.u32();
        code.op(Op::Load, ty, &[self.interface.local_index])
    }

    fn vector(self, code: &mut Code<'_>, vector: Vector, size: [u32; 3]) -> u32 {
        let parts = match vector {
            Vector::WorkgroupId => [0, 1, 2].map(|axis| self.word(code, task::GROUP + axis)),
            Vector::NumWorkgroups => [0, 1, 2].map(|axis| self.word(code, task::GRID + axis)),
            Vector::LocalInvocationId => self.local_id(code, size),
            Vector::GlobalInvocationId => {
                let (word, local) = (code.merger.u32(), self.local_id(code, size));
                let mut parts = [0; 3];
                for (axis, part) in parts.iter_mut().enumerate() {
                    let group = self.word(code, task::GROUP + axis as u32);
                    let side = code.merger.word(size[axis]);
                    let start = code.op(Op::IMul, word, &[group, side]);
                    *part = code.op(Op::IAdd, word, &[start, local[axis]]);
                }
                parts
            }
        };
        let ty = code.merger.vector(3);
        code.op(Op::CompositeConstruct, ty, &parts)
    }

    /// The handler's own local id, from the index in the kernel's workgroup, which is one row.
    fn local_id(self, code: &mut Code<'_>, size: [u32; 3]) -> [u32; 3] {
        let (word, zero) = (code.merger.u32(), code.merger.word(0));
        let mut rest = self.local_index(code);
        let mut parts = [zero; 3];
        for (axis, part) in parts.iter_mut().enumerate() {
            // Where all further sides are 1, what is left is this side's.
            if size[axis + 1..].iter().all(|side| *side == 1) {
                *part = rest;
                break;
            }
            let side = code.merger.word(size[axis]);
            *part = code.op(Op::UMod, word, &[rest, side]);
            rest = code.op(Op::UDiv, word, &[rest, side]);
        }
        parts
    }
}

/// Code being written, block after block.
struct Code<'a> {
    merger: &'a mut Merger,
    out: Vec<Inst>,
}

impl<'a> Code<'a> {
    /// Starts a function's first block.
    fn new(merger: &'a mut Merger) -> Self {
        let label = merger.fresh();
        let mut code = Self { merger, out: Vec::new() };
        code.label(label);
        code
    }

    fn emit(&mut self, op: Op, ty: u32, operands: Vec<Operand>) -> u32 {
        let id = self.merger.fresh();
        self.out.push(Inst::new(op, Some(ty), Some(id), operands));
        id
    }

    fn op(&mut self, op: Op, ty: u32, ids: &[u32]) -> u32 {
        self.emit(op, ty, ids.iter().map(|id| Operand::IdRef(*id)).collect())
    }

    /// An instruction without result.
    fn stmt(&mut self, op: Op, operands: Vec<Operand>) {
        self.out.push(Inst::new(op, None, None, operands));
    }

    fn store(&mut self, variable: u32, value: u32) {
        self.stmt(Op::Store, vec![Operand::IdRef(variable), Operand::IdRef(value)]);
    }

    fn label(&mut self, label: u32) {
        self.out.push(Inst::new(Op::Label, None, Some(label), Vec::new()));
    }

    fn merge(&mut self, end: u32) {
        let control = Operand::SelectionControl(SelectionControl::NONE);
        self.stmt(Op::SelectionMerge, vec![Operand::IdRef(end), control]);
    }

    fn branch(&mut self, to: u32) {
        self.stmt(Op::Branch, vec![Operand::IdRef(to)]);
    }

    fn choose(&mut self, condition: u32, then: u32, otherwise: u32) {
        self.stmt(Op::BranchConditional, [condition, then, otherwise].map(Operand::IdRef).to_vec());
    }
}
