//! A module as a flat list of operations.

use rustc_hash::FxHashMap;

use super::InterpretError;
use super::live::{Live, allocate};
use super::operation::{ABSENT, Across, At, Op, Source};
use crate::ir::{
    Atomic, BinaryOp, Block, Module, Node, Place, SharedDecl, SubgroupOp, Type, UnaryOp, Value, Var, verify,
};
use crate::protocol::completion::fault;
use crate::protocol::task;

/// How a module becomes a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Loops of at least so many turns, by a constant bound, whose index isn't used, never run out of turns: they stand
    /// for a wait that is longer than what is waited for. None takes all bounds as they are.
    pub unbounded_from: Option<u32>,
}

/// A kernel, ready to be interpreted.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) code: Vec<Op>,
    pub(super) constants: Vec<u32>,
    pub(super) registers: u32,
    pub(super) live: Live,
    /// First word and words of each workgroup array.
    pub(super) arrays: Vec<(u32, u32)>,
    pub(super) params: u32,
    shared: Vec<SharedDecl>,
    names: Vec<(String, u32)>,
}

impl Program {
    /// Flattens a module.
    ///
    /// # Errors
    /// [`InterpretError::Verify`] where the module isn't sound.
    pub fn new(module: &Module, options: &Options) -> Result<Self, InterpretError> {
        verify(module)?;
        let mut flat = Flat {
            module,
            options,
            code: Vec::new(),
            constants: Vec::new(),
            numbers: FxHashMap::default(),
            registers: 0,
            values: vec![[Source(ABSENT); 4]; module.values.len()],
            vars: vec![[ABSENT; 4]; module.vars.len()],
            loops: Vec::new(),
        };
        for (var, &ty) in module.vars.iter().enumerate() {
            flat.vars[var] = flat.fresh(ty);
        }
        flat.block(&module.body);
        flat.code.push(Op::End);
        let Flat { mut code, constants, registers, vars, .. } = flat;
        let (registers, live, names) = allocate(&mut code, registers);
        let mut first = 0;
        let arrays = module.shared.iter().map(|array| {
            let here = (first, array.words);
            first += array.words;
            here
        });
        let arrays = arrays.collect();
        let named = module.names.iter().map(|(var, name)| (name.clone(), vars[var.0 as usize][0]));
        let names = named.map(|(name, register)| (name, names[register as usize])).collect();
        let (shared, params) = (module.shared.clone(), module.params);
        Ok(Self { code, constants, registers, live, arrays, params, shared, names })
    }

    /// Name of a workgroup array.
    pub(super) fn array_name(&self, array: u32) -> &str {
        self.shared.get(array as usize).map_or("?", |array| &array.name)
    }

    /// Where a variable that has a name is kept; none where there is no such variable or nothing reads it.
    pub(super) fn register_of(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|named| named.0 == name).map(|named| named.1).filter(|&register| register != ABSENT)
    }

    /// Words that a lane keeps, at most.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Operations of the program.
    pub fn operations(&self) -> usize {
        self.code.len()
    }
}

/// Jumps of a loop that are still without a target.
#[derive(Default)]
struct Loop {
    breaks: Vec<usize>,
    continues: Vec<usize>,
}

struct Flat<'m> {
    module: &'m Module,
    options: &'m Options,
    code: Vec<Op>,
    constants: Vec<u32>,
    numbers: FxHashMap<u32, u32>,
    registers: u32,
    /// Where the words of each value are. Single assignment, so that parts of a vector need no place of their own.
    values: Vec<[Source; 4]>,
    vars: Vec<[u32; 4]>,
    loops: Vec<Loop>,
}

impl Flat<'_> {
    fn words(ty: Type) -> usize {
        if ty == Type::Vec4 { 4 } else { 1 }
    }

    fn fresh(&mut self, ty: Type) -> [u32; 4] {
        let mut registers = [ABSENT; 4];
        for register in &mut registers[..Self::words(ty)] {
            *register = self.registers;
            self.registers += 1;
        }
        registers
    }

    /// New registers for a value.
    fn define(&mut self, value: Value) -> [u32; 4] {
        let registers = self.fresh(self.module.values[value.0 as usize]);
        self.values[value.0 as usize] = registers.map(Source);
        registers
    }

    fn all(&self, value: Value) -> [Source; 4] {
        self.values[value.0 as usize]
    }

    fn one(&self, value: Value) -> Source {
        self.values[value.0 as usize][0]
    }

    fn constant(&mut self, word: u32) -> Source {
        let number = *self.numbers.entry(word).or_insert_with(|| {
            self.constants.push(word);
            self.constants.len() as u32 - 1
        });
        Source::constant(number)
    }

    fn at(&self, place: &Place) -> At {
        match *place {
            Place::Buffer { buffer, index } => At::Buffer(buffer.0, self.one(index)),
            Place::Shared { shared, index } => At::Shared(shared.0, self.one(index)),
            Place::Address { low, high, index, .. } => At::Address([low, high, index].map(|value| self.one(value))),
        }
    }

    fn block(&mut self, block: &Block) {
        block.0.iter().for_each(|node| self.node(node));
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::ConstU32(value, word) => {
                let word = self.constant(*word);
                self.values[value.0 as usize] = [word, Source(ABSENT), Source(ABSENT), Source(ABSENT)];
            }
            Node::ConstBool(value, truth) => {
                let word = self.constant(u32::from(*truth));
                self.values[value.0 as usize] = [word, Source(ABSENT), Source(ABSENT), Source(ABSENT)];
            }
            Node::Input(value, input) => {
                let to = self.define(*value)[0];
                self.code.push(Op::Input(to, *input));
            }
            Node::Unary(value, op, operand) => {
                let truth = *op == UnaryOp::Not && self.module.values[operand.0 as usize] == Type::Bool;
                let operand = self.one(*operand);
                let to = self.define(*value)[0];
                self.code.push(Op::Unary(to, *op, operand, truth));
            }
            Node::Binary(value, op, left, right) => {
                let (left, right) = (self.one(*left), self.one(*right));
                let to = self.define(*value)[0];
                self.code.push(Op::Binary(to, *op, left, right));
            }
            Node::Select(value, condition, yes, no) => {
                let (condition, yes, no) = (self.one(*condition), self.all(*yes), self.all(*no));
                let to = self.define(*value);
                for part in 0..Self::words(self.module.values[value.0 as usize]) {
                    self.code.push(Op::Select(to[part], [condition, yes[part], no[part]]));
                }
            }
            Node::Compose(value, words) => self.values[value.0 as usize] = words.map(|word| self.one(word)),
            Node::Extract(value, vector, index) => {
                self.values[value.0 as usize][0] = self.all(*vector)[*index as usize];
            }
            Node::Get(value, var) => {
                let from = self.vars[var.0 as usize];
                let to = self.define(*value);
                self.copy(to, from.map(Source));
            }
            Node::Set(Var(var), value) => self.copy(self.vars[*var as usize], self.all(*value)),
            Node::Load(value, place) | Node::Load4(value, place) => {
                let at = self.at(place);
                let to = self.define(*value);
                self.code.push(Op::Load(to, at));
            }
            Node::Store(place, value) => self.code.push(Op::Store(self.at(place), self.one(*value))),
            Node::Store4(place, value) => self.code.push(Op::Store4(self.at(place), self.all(*value))),
            Node::Atomic(atomic) => self.atomic(atomic),
            Node::MemoryBarrier(scope, order, classes) => self.code.push(Op::Fence(*scope, *order, *classes)),
            Node::ControlBarrier(scope, classes) => self.code.push(Op::Barrier(*scope, *classes)),
            Node::Subgroup(value, op) => self.subgroup(*value, op),
            Node::If(condition, then, otherwise) => self.branch(*condition, then, otherwise),
            Node::Loop(body) => self.repeat(body),
            Node::For(index, bound, body) => self.count(*index, *bound, body),
            Node::Break => self.leave(|around| &mut around.breaks),
            Node::Continue => self.leave(|around| &mut around.continues),
            Node::CallHandler(_) => {
                let array = self.module.task.map_or(0, |task| task.0);
                self.code.push(Op::Handler { array, word: task::FAULT, fault: fault::NO_HANDLER });
            }
        }
    }

    fn copy(&mut self, to: [u32; 4], from: [Source; 4]) {
        for (to, from) in to.into_iter().zip(from).filter(|(to, _)| *to != ABSENT) {
            self.code.push(Op::Copy(to, from));
        }
    }

    fn atomic(&mut self, atomic: &Atomic) {
        let zero = self.constant(0);
        let operand = |value: Option<Value>| value.map_or(zero, |value| self.one(value));
        let (value, expected) = (operand(atomic.value), operand(atomic.expected));
        let at = self.at(&atomic.place);
        let result = atomic.result.map_or(ABSENT, |result| self.define(result)[0]);
        let Atomic { op, scope, order, .. } = *atomic;
        self.code.push(Op::Atomic { result, op, at, value, expected, scope, order });
    }

    fn subgroup(&mut self, result: Value, op: &SubgroupOp) {
        let zero = self.constant(0);
        let (across, values, lane) = match *op {
            SubgroupOp::Any(value) => (Across::Any, self.all(value), zero),
            SubgroupOp::All(value) => (Across::All, self.all(value), zero),
            SubgroupOp::Ballot(value) => (Across::Ballot, self.all(value), zero),
            SubgroupOp::Shuffle(value, lane) => (Across::Shuffle, self.all(value), self.one(lane)),
            SubgroupOp::BroadcastFirst(value) => (Across::BroadcastFirst, self.all(value), zero),
            SubgroupOp::Add(value) => (Across::Add, self.all(value), zero),
            SubgroupOp::Elect => (Across::Elect, [zero; 4], zero),
        };
        let values = values.map(|value| if value.0 == ABSENT { zero } else { value });
        let to = self.define(result);
        self.code.push(Op::Across(to, across, values, lane));
    }

    /// Number of the next operation.
    fn here(&self) -> u32 {
        self.code.len() as u32
    }

    fn branch(&mut self, condition: Value, then: &Block, otherwise: &Block) {
        let condition = self.one(condition);
        let branch = self.code.len();
        self.code.push(Op::Branch(condition, 0));
        self.block(then);
        let leave = self.code.len();
        if !otherwise.0.is_empty() {
            self.code.push(Op::Jump(0));
        }
        self.code[branch] = Op::Branch(condition, self.here());
        if !otherwise.0.is_empty() {
            self.block(otherwise);
            self.code[leave] = Op::Jump(self.here());
        }
    }

    /// Leaves the block by a jump whose target is set at the loop's end.
    fn leave(&mut self, which: impl FnOnce(&mut Loop) -> &mut Vec<usize>) {
        let at = self.code.len();
        if let Some(around) = self.loops.last_mut() {
            which(around).push(at);
        }
        self.code.push(Op::Jump(0));
    }

    fn repeat(&mut self, body: &Block) {
        let head = self.here();
        self.loops.push(Loop::default());
        self.block(body);
        let turn = self.here();
        self.end_loop(head, turn);
    }

    fn count(&mut self, index: Value, bound: Value, body: &Block) {
        let bound = self.one(bound);
        let (zero, one) = (self.constant(0), self.constant(1));
        let counter = self.define(index)[0];
        self.code.push(Op::Copy(counter, zero));
        let head = self.here();
        let inside = self.fresh(Type::Bool)[0];
        self.code.push(Op::Binary(inside, BinaryOp::Lt, Source(counter), bound));
        self.loops.push(Loop { breaks: vec![self.code.len()], continues: Vec::new() });
        self.code.push(Op::Branch(Source(inside), 0));
        let first = self.code.len();
        self.block(body);
        let turn = self.here();
        let endless = self.is_long(bound) && !self.uses(first, counter);
        self.code.push(if endless {
            Op::Copy(counter, zero)
        } else {
            Op::Binary(counter, BinaryOp::Add, Source(counter), one)
        });
        self.end_loop(head, turn);
    }

    /// Whether a bound counts as one that is never come to.
    fn is_long(&self, bound: Source) -> bool {
        let bound = bound.as_constant().map(|number| self.constants[number as usize]);
        self.options.unbounded_from.zip(bound).is_some_and(|(least, bound)| bound >= least)
    }

    /// Whether the operations from `first` on use a register.
    fn uses(&mut self, first: usize, register: u32) -> bool {
        self.code[first..].iter_mut().any(|op| op.registers().1.into_iter().any(|source| source.0 == register))
    }

    /// Ends the innermost loop, whose turn begins at `head` and whose continues lead to `turn`.
    fn end_loop(&mut self, head: u32, turn: u32) {
        let around = self.loops.pop().unwrap_or_default();
        self.code.push(Op::Turn(head, self.loops.is_empty()));
        let end = self.here();
        for (jumps, target) in [(around.breaks, end), (around.continues, turn)] {
            for jump in jumps {
                match &mut self.code[jump] {
                    Op::Jump(to) | Op::Branch(_, to) => *to = target,
                    _ => {}
                }
            }
        }
    }
}
