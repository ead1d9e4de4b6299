//! Structural rules that every module must keep before anything else looks at it.
//!
//! Ids are defined once, below the bound, and before they are used; each operand that is an id names a thing of the
//! right kind; blocks begin with a label and end with one terminator; branches stay in their function; calls fit
//! their callee. This is what the linker relies on, not a whole validator: operand types of arithmetic are not looked
//! at.

use rspirv::dr::Operand;
use rspirv::spirv::Op;
use rustc_hash::FxHashMap;

use super::module::{Function, Inst, MAX_BOUND, Module, ModuleError, is_terminator};

/// What an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An extended instruction set.
    Import,
    /// A string or a decoration group.
    Debug,
    Type,
    /// A constant, or a module-scope undef.
    Constant,
    /// A module-scope variable.
    Variable,
    /// A result of a module-scope `OpExtInst`.
    Extended,
    Function,
    /// A value of one function.
    Local,
    /// A label of one function.
    Label,
}

#[derive(Clone, Copy)]
struct Def {
    kind: Kind,
    /// Result type.
    ty: Option<u32>,
    /// Function that it belongs to, for labels and locals.
    function: usize,
    /// Position among all definitions.
    order: usize,
}

/// Checks a module.
///
/// # Errors
/// The first fault found.
pub fn check(module: &Module) -> Result<(), ModuleError> {
    if module.bound == 0 || module.bound > MAX_BOUND {
        return Err(ModuleError::Syntax {
            at: 3,
            reason: format!("bound {} is not within 1 to {MAX_BOUND}", module.bound),
        });
    }
    let defs = Defs::collect(module)?;
    defs.header(module)?;
    defs.globals(module)?;
    for (index, function) in module.functions.iter().enumerate() {
        Checker { defs: &defs, function, index }.run()?;
    }
    Ok(())
}

fn fault<T>(inst: &Inst, reason: &'static str) -> Result<T, ModuleError> {
    Err(ModuleError::Structure { site: inst.site(), reason })
}

fn wrong_id<T>(inst: &Inst, id: u32, reason: &'static str) -> Result<T, ModuleError> {
    Err(ModuleError::Id { site: inst.site(), id, reason })
}

struct Defs<'a> {
    map: FxHashMap<u32, Def>,
    /// Operands of function types, by id: result type, then parameters.
    signatures: FxHashMap<u32, Vec<u32>>,
    functions: FxHashMap<u32, &'a Function>,
}

impl<'a> Defs<'a> {
    fn collect(module: &'a Module) -> Result<Self, ModuleError> {
        let mut defs =
            Self { map: FxHashMap::default(), signatures: FxHashMap::default(), functions: FxHashMap::default() };
        let bound = module.bound;
        for inst in &module.imports {
            defs.define(inst, Kind::Import, 0, bound)?;
        }
        for inst in module.sources.iter().chain(&module.annotations).filter(|inst| inst.id.is_some()) {
            defs.define(inst, Kind::Debug, 0, bound)?;
        }
        for inst in &module.globals {
            let kind = match inst.op {
                Op::Variable => Kind::Variable,
                Op::ExtInst => Kind::Extended,
                op if op.is_type() => Kind::Type,
                _ => Kind::Constant,
            };
            if inst.op == Op::TypeForwardPointer {
                continue;
            }
            defs.define(inst, kind, 0, bound)?;
            if let (Op::TypeFunction, Some(id)) = (inst.op, inst.id) {
                defs.signatures.insert(id, inst.ids().collect());
            }
        }
        for (index, function) in module.functions.iter().enumerate() {
            defs.define(&function.def, Kind::Function, index, bound)?;
            if let Some(id) = function.def.id {
                defs.functions.insert(id, function);
            }
            for inst in function.params.iter().chain(&function.body).filter(|inst| inst.id.is_some()) {
                let kind = if inst.op == Op::Label { Kind::Label } else { Kind::Local };
                defs.define(inst, kind, index, bound)?;
            }
        }
        Ok(defs)
    }

    fn define(&mut self, inst: &Inst, kind: Kind, function: usize, bound: u32) -> Result<(), ModuleError> {
        let Some(id) = inst.id else {
            return fault(inst, "has no result id");
        };
        if id == 0 || id >= bound {
            return wrong_id(inst, id, "is not below the module's bound");
        }
        let def = Def { kind, ty: inst.ty, function, order: self.map.len() };
        if self.map.insert(id, def).is_some() {
            return wrong_id(inst, id, "is defined twice");
        }
        Ok(())
    }

    fn get(&self, inst: &Inst, id: u32) -> Result<Def, ModuleError> {
        match self.map.get(&id) {
            Some(def) => Ok(*def),
            None => wrong_id(inst, id, "is not defined"),
        }
    }

    fn expect(&self, inst: &Inst, id: u32, kinds: &[Kind], reason: &'static str) -> Result<Def, ModuleError> {
        let def = self.get(inst, id)?;
        if kinds.contains(&def.kind) { Ok(def) } else { wrong_id(inst, id, reason) }
    }

    /// Entry points, modes, names and decorations name things that exist.
    fn header(&self, module: &Module) -> Result<(), ModuleError> {
        for inst in &module.entry_points {
            for (index, id) in inst.ids().enumerate() {
                if index == 0 {
                    self.expect(inst, id, &[Kind::Function], "is not a function")?;
                } else {
                    self.expect(inst, id, &[Kind::Variable], "is not a module-scope variable")?;
                }
            }
        }
        for inst in &module.modes {
            for (index, id) in inst.ids().enumerate() {
                let kind = if index == 0 { Kind::Function } else { Kind::Constant };
                self.expect(inst, id, &[kind], "is not what an execution mode takes")?;
            }
        }
        for inst in module.names.iter().chain(&module.annotations) {
            for id in inst.ids() {
                self.get(inst, id)?;
            }
        }
        Ok(())
    }

    /// Types, constants and variables are defined before they are used.
    fn globals(&self, module: &Module) -> Result<(), ModuleError> {
        for inst in &module.globals {
            if inst.op == Op::TypeForwardPointer {
                continue;
            }
            let own = inst.id.and_then(|id| self.map.get(&id)).map_or(0, |def| def.order);
            if let Some(ty) = inst.ty {
                let def = self.expect(inst, ty, &[Kind::Type], "is not a type")?;
                if def.order >= own {
                    return wrong_id(inst, ty, "is used before it is defined");
                }
            }
            for (index, id) in inst.ids().enumerate() {
                let kinds: &[Kind] = match inst.op {
                    Op::TypeArray if index == 1 => &[Kind::Constant],
                    Op::Variable => &[Kind::Constant, Kind::Variable],
                    Op::ExtInst => &[
                        Kind::Import,
                        Kind::Debug,
                        Kind::Type,
                        Kind::Constant,
                        Kind::Variable,
                        Kind::Extended,
                        Kind::Function,
                    ],
                    op if op.is_type() => &[Kind::Type],
                    _ => &[Kind::Constant, Kind::Variable],
                };
                let def = self.expect(inst, id, kinds, "is not what this instruction takes")?;
                if def.order >= own && def.kind != Kind::Function && !self.forward(module, inst, id) {
                    return wrong_id(inst, id, "is used before it is defined");
                }
            }
        }
        Ok(())
    }

    fn forward(&self, module: &Module, inst: &Inst, id: u32) -> bool {
        inst.op == Op::TypeStruct
            && module.globals.iter().any(|other| other.op == Op::TypeForwardPointer && other.id_at(0) == Some(id))
    }
}

/// Checks one function.
struct Checker<'a> {
    defs: &'a Defs<'a>,
    function: &'a Function,
    index: usize,
}

impl Checker<'_> {
    fn run(&self) -> Result<(), ModuleError> {
        self.signature()?;
        self.blocks()?;
        // Orders of definitions grow along the body: what is defined later is not yet there.
        let order = |inst: &Inst| inst.id.and_then(|id| self.defs.map.get(&id)).map(|def| def.order);
        let mut next = self.function.params.iter().chain([&self.function.def]).filter_map(order).max().unwrap_or(0) + 1;
        for inst in &self.function.body {
            self.operands(inst, next)?;
            next = order(inst).map_or(next, |own| own + 1);
        }
        Ok(())
    }

    fn signature(&self) -> Result<(), ModuleError> {
        let def = &self.function.def;
        let signature = def.id_at(1).or_else(|| def.id_at(0)).and_then(|ty| self.defs.signatures.get(&ty));
        let Some((result, params)) = signature.and_then(|types| types.split_first()) else {
            return fault(def, "has no function type");
        };
        if def.ty != Some(*result) {
            return fault(def, "has another result type than its function type");
        }
        if params.len() != self.function.params.len()
            || self.function.params.iter().zip(params).any(|(param, ty)| param.ty != Some(*ty))
        {
            return fault(def, "has other parameters than its function type");
        }
        Ok(())
    }

    /// Blocks run from a label to a terminator; variables stand first in the first block, phis first in theirs.
    fn blocks(&self) -> Result<(), ModuleError> {
        let body = &self.function.body;
        let Some(last) = body.last() else {
            return fault(&self.function.def, "has no body");
        };
        if !is_terminator(last.op) {
            return fault(last, "is the last of a function but ends no block");
        }
        let (mut open, mut first_block, mut prefix) = (false, true, true);
        for (at, inst) in body.iter().enumerate() {
            match inst.op {
                Op::Label if open => return fault(inst, "stands inside a block"),
                Op::Label => {
                    first_block = at == 0;
                    (open, prefix) = (true, true);
                    continue;
                }
                _ if !open => return fault(inst, "stands outside a block"),
                Op::Variable if !(first_block && prefix) => return fault(inst, "is not at the start of its function"),
                Op::Phi if first_block || !prefix => return fault(inst, "is not at the start of a later block"),
                Op::SelectionMerge | Op::LoopMerge if !body.get(at + 1).is_some_and(|next| is_terminator(next.op)) => {
                    return fault(inst, "is not followed by a branch");
                }
                op if is_terminator(op) => open = false,
                _ => {}
            }
            prefix &= matches!(inst.op, Op::Variable | Op::Phi);
        }
        Ok(())
    }

    fn operands(&self, inst: &Inst, next: usize) -> Result<(), ModuleError> {
        if let Some(ty) = inst.ty {
            self.defs.expect(inst, ty, &[Kind::Type], "is not a type")?;
        }
        for (index, id) in
            inst.operands.iter().enumerate().filter_map(|(at, operand)| Some((at, operand.id_ref_any()?)))
        {
            if is_label(inst, index) {
                self.label(inst, id)?;
                continue;
            }
            let def = match (inst.op, index) {
                (Op::FunctionCall, 0) => self.callee(inst, id)?,
                (Op::ExtInst, 0) => self.defs.expect(inst, id, &[Kind::Import], "is not an instruction set")?,
                // A debug instruction may name anything.
                (Op::ExtInst, _) => self.defs.get(inst, id)?,
                _ => self.defs.expect(inst, id, &[Kind::Local, Kind::Constant, Kind::Variable], "is not a value")?,
            };
            if def.kind == Kind::Local {
                if def.function != self.index {
                    return wrong_id(inst, id, "belongs to another function");
                }
                if inst.op != Op::Phi && def.order >= next {
                    return wrong_id(inst, id, "is used before it is defined");
                }
            }
        }
        Ok(())
    }

    fn label(&self, inst: &Inst, id: u32) -> Result<(), ModuleError> {
        let def = self.defs.expect(inst, id, &[Kind::Label], "is not a label")?;
        if def.function != self.index {
            return wrong_id(inst, id, "is a label of another function");
        }
        if inst.op != Op::Phi && self.function.body.first().and_then(|first| first.id) == Some(id) {
            return wrong_id(inst, id, "is the function's first block, to which nothing may branch");
        }
        Ok(())
    }

    /// A call's arguments fit the callee.
    fn callee(&self, inst: &Inst, id: u32) -> Result<Def, ModuleError> {
        let def = self.defs.expect(inst, id, &[Kind::Function], "is not a function")?;
        let Some(callee) = self.defs.functions.get(&id) else {
            return wrong_id(inst, id, "is not a function");
        };
        let types = |id| self.defs.map.get(&id).and_then(|def: &Def| def.ty);
        let args: Vec<_> = inst.ids().skip(1).map(types).collect();
        let params: Vec<_> = callee.params.iter().map(|param| param.ty).collect();
        if inst.ty != callee.def.ty || args != params {
            return fault(inst, "does not fit the function that it calls");
        }
        Ok(def)
    }
}

/// Whether the operand at `index` names a label.
pub fn is_label(inst: &Inst, index: usize) -> bool {
    let id = matches!(inst.operands.get(index), Some(Operand::IdRef(_)));
    id && match inst.op {
        Op::Branch | Op::SelectionMerge | Op::LoopMerge => true,
        Op::BranchConditional | Op::Switch => index > 0,
        Op::Phi => index % 2 == 1,
        _ => false,
    }
}
