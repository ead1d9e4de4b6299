//! Kernels grown from a list of choices: well-formed ones, and the same with something broken.
//!
//! Each decision takes the next choice, or 0 when all are used up, so a shorter list is a smaller kernel and a failing
//! one shrinks by itself.

use abide::ir::{
    Access, AtomicOp, BinaryOp, Block, Buffer, Builder, Input, MemoryClasses, Module, Node, Order, Place, Scope,
    Shared, SubgroupOp, Type, UnaryOp, Value, Var,
};
use abide::protocol::task;

const MAX_DEPTH: usize = 5;

/// Decisions, in the order in which they are made.
pub struct Choices<'a>(std::slice::Iter<'a, u32>);

impl<'a> Choices<'a> {
    /// Decides by this list.
    pub fn new(choices: &'a [u32]) -> Self {
        Self(choices.iter())
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.next().map_or(0, |choice| *choice as usize % bound.max(1))
    }

    /// One of these.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Whether all are used up.
    pub fn spent(&self) -> bool {
        self.0.len() == 0
    }
}

/// A kernel that is being grown.
struct Grower<'a, 'c> {
    choices: &'a mut Choices<'c>,
    values: Vec<(Value, Type)>,
    vars: Vec<(Var, Type)>,
    buffers: Vec<Buffer>,
    array: Shared,
    /// Loops around, each of which needs no further break.
    loops: usize,
}

/// Grows a well-formed kernel.
pub fn well_formed(choices: &mut Choices<'_>) -> Module {
    let mut b = Builder::new("random", 4);
    let buffers = [Access::Private, Access::Coherent, Access::Volatile]
        .into_iter()
        .zip(0..)
        .map(|(access, binding)| b.buffer(&format!("buffer{binding}"), binding, access))
        .collect();
    b.task("task", task::WORDS);
    let array = b.shared("array", 16);
    let mut grower = Grower { choices, values: Vec::new(), vars: Vec::new(), buffers, array, loops: 0 };
    let (word, truth) = (b.value(1u32), b.value(true));
    let vector = b.compose([word.into(); 4]);
    for value in [(word, Type::U32), (truth, Type::Bool), (vector, Type::Vec4)] {
        grower.values.push(value);
        grower.vars.push((b.var(value.0), value.1));
    }
    grower.nodes(&mut b, 0);
    b.finish()
}

impl Grower<'_, '_> {
    /// Appends nodes until the choices say otherwise.
    fn nodes(&mut self, b: &mut Builder, depth: usize) {
        while !self.choices.spent() && self.choices.below(24) != 0 {
            self.node(b, depth);
        }
    }

    /// A block: what it defines is forgotten at its end.
    fn block(&mut self, b: &mut Builder, depth: usize) {
        let (values, vars) = (self.values.len(), self.vars.len());
        self.nodes(b, depth + 1);
        if self.loops > 0 && self.choices.below(4) == 1 {
            self.choices.one(&[Builder::break_ as fn(&mut Builder), Builder::continue_])(b);
        }
        self.values.truncate(values);
        self.vars.truncate(vars);
    }

    fn any(&mut self, ty: Type) -> Value {
        let fitting: Vec<Value> = self.values.iter().filter(|value| value.1 == ty).map(|value| value.0).collect();
        self.choices.one(&fitting)
    }

    fn any_of(&mut self, types: &[Type]) -> (Value, Type) {
        let ty = self.choices.one(types);
        (self.any(ty), ty)
    }

    fn place(&mut self, b: &mut Builder, quad: bool) -> Place {
        let index = self.any(Type::U32);
        match self.choices.below(if quad { 2 } else { 3 }) {
            0 => {
                let buffer = self.choices.one(&self.buffers.clone());
                b.at(buffer, index)
            }
            1 => {
                let (low, high) = (self.any(Type::U32), self.any(Type::U32));
                b.address_at(low, high, index, Access::Coherent)
            }
            _ => b.shared_at(self.array, index),
        }
    }

    fn node(&mut self, b: &mut Builder, depth: usize) {
        match self.choices.below(16) {
            0..=5 => self.pure(b),
            6..=8 => self.memory(b),
            9 => self.atomic(b),
            10 => self.barrier(b),
            11 => self.subgroup(b),
            12 => {
                let opcode = self.any(Type::U32);
                b.call_handler(opcode);
            }
            _ if depth >= MAX_DEPTH => self.pure(b),
            13 => self.branch(b, depth),
            14 => {
                let bound = self.any(Type::U32);
                self.loops += 1;
                b.count(bound, |b, index| {
                    self.values.push((index, Type::U32));
                    self.block(b, depth);
                    self.values.retain(|value| value.0 != index);
                });
                self.loops -= 1;
            }
            _ => {
                let done = self.any(Type::Bool);
                self.loops += 1;
                b.repeat(|b| {
                    b.break_if(done);
                    self.block(b, depth);
                });
                self.loops -= 1;
            }
        }
    }

    fn branch(&mut self, b: &mut Builder, depth: usize) {
        let condition = self.any(Type::Bool);
        // Only one arm may leave: what follows has to be reachable.
        let leaver = self.choices.below(2);
        let loops = self.loops;
        let grower = std::cell::RefCell::new(self);
        let arm = |b: &mut Builder, index: usize| {
            let mut grower = grower.borrow_mut();
            grower.loops = if leaver == index { loops } else { 0 };
            grower.block(b, depth);
            grower.loops = loops;
        };
        b.branch(condition, |b| arm(b, 0), |b| arm(b, 1));
    }

    fn pure(&mut self, b: &mut Builder) {
        use BinaryOp::*;
        let (value, ty) = match self.choices.below(11) {
            0 => (b.value(self.choices.below(100) as u32), Type::U32),
            1 => (b.value(self.choices.below(2) == 1), Type::Bool),
            2 => {
                let inputs = [
                    Input::LocalIndex,
                    Input::WorkgroupSize,
                    Input::WorkgroupIndex,
                    Input::WorkgroupCount,
                    Input::SubgroupLane,
                    Input::SubgroupSize,
                    Input::Param(3),
                ];
                (b.input(self.choices.one(&inputs)), Type::U32)
            }
            3 => {
                let (operand, ty) = self.any_of(&[Type::U32, Type::Bool]);
                (b.unary(UnaryOp::Not, operand), ty)
            }
            4 => {
                let op = self.choices.one(&[UnaryOp::FindLsb, UnaryOp::CountOnes]);
                (b.unary(op, self.any(Type::U32)), Type::U32)
            }
            5 => {
                let op = self.choices.one(&[Add, Sub, Mul, Div, Rem, And, Or, Xor, Shl, Shr, Min, Max]);
                (b.binary(op, self.any(Type::U32), self.any(Type::U32)), Type::U32)
            }
            6 => {
                let op = self.choices.one(&[Eq, Ne, Lt, Le, Gt, Ge]);
                (b.binary(op, self.any(Type::U32), self.any(Type::U32)), Type::Bool)
            }
            7 => {
                let op = self.choices.one(&[And, Or, Xor, Eq, Ne]);
                (b.binary(op, self.any(Type::Bool), self.any(Type::Bool)), Type::Bool)
            }
            8 => {
                let (yes, ty) = self.any_of(&[Type::U32, Type::Bool, Type::Vec4]);
                (b.select(self.any(Type::Bool), yes, self.any(ty)), ty)
            }
            9 => {
                let words = [(); 4].map(|()| self.any(Type::U32).into());
                (b.compose(words), Type::Vec4)
            }
            _ => {
                let vector = self.any(Type::Vec4);
                (b.extract(vector, self.choices.below(4) as u32), Type::U32)
            }
        };
        self.values.push((value, ty));
    }

    fn memory(&mut self, b: &mut Builder) {
        let place = self.place(b, false);
        match self.choices.below(7) {
            0 => self.values.push((b.load(place), Type::U32)),
            1 => b.store(place, self.any(Type::U32)),
            2 => {
                let place = self.place(b, true);
                self.values.push((b.load4(place), Type::Vec4));
            }
            3 => {
                let place = self.place(b, true);
                b.store4(place, self.any(Type::Vec4));
            }
            4 => {
                let (initial, ty) = self.any_of(&[Type::U32, Type::Bool, Type::Vec4]);
                self.vars.push((b.var(initial), ty));
            }
            5 => {
                let (var, ty) = self.choices.one(&self.vars.clone());
                b.set(var, self.any(ty));
            }
            _ => {
                let (var, ty) = self.choices.one(&self.vars.clone());
                self.values.push((b.get(var), ty));
            }
        }
    }

    fn atomic(&mut self, b: &mut Builder) {
        use AtomicOp::*;
        let place = self.place(b, false);
        let scope = self.choices.one(&[Scope::Workgroup, Scope::Device]);
        let order = self.choices.one(&[Order::Relaxed, Order::Acquire, Order::Release, Order::AcquireRelease]);
        let value = match self.choices.below(8) {
            0 => b.atomic_load(place, scope, self.choices.one(&[Order::Relaxed, Order::Acquire])),
            1 => {
                let order = self.choices.one(&[Order::Relaxed, Order::Release]);
                return b.atomic_store(place, self.any(Type::U32), scope, order);
            }
            2 => b.compare_exchange(place, self.any(Type::U32), self.any(Type::U32), scope, order),
            _ => {
                let op = self.choices.one(&[Exchange, Add, Min, Max, And, Or]);
                b.atomic(op, place, self.any(Type::U32), scope, order)
            }
        };
        self.values.push((value, Type::U32));
    }

    fn barrier(&mut self, b: &mut Builder) {
        let classes = self.choices.one(&[MemoryClasses::BUFFERS, MemoryClasses::SHARED, MemoryClasses::ALL]);
        if self.choices.below(2) == 0 {
            return b.control_barrier(classes);
        }
        let scope = self.choices.one(&[Scope::Workgroup, Scope::Device]);
        b.memory_barrier(scope, self.choices.one(&[Order::Acquire, Order::Release, Order::AcquireRelease]), classes);
    }

    fn subgroup(&mut self, b: &mut Builder) {
        let (value, ty) = match self.choices.below(7) {
            0 => (b.subgroup(SubgroupOp::Any(self.any(Type::Bool))), Type::Bool),
            1 => (b.subgroup(SubgroupOp::All(self.any(Type::Bool))), Type::Bool),
            2 => (b.subgroup(SubgroupOp::Ballot(self.any(Type::Bool))), Type::Vec4),
            3 => {
                let (value, ty) = self.any_of(&[Type::U32, Type::Vec4]);
                (b.subgroup(SubgroupOp::Shuffle(value, self.any(Type::U32))), ty)
            }
            4 => {
                let (value, ty) = self.any_of(&[Type::U32, Type::Vec4]);
                (b.subgroup(SubgroupOp::BroadcastFirst(value)), ty)
            }
            5 => (b.subgroup(SubgroupOp::Add(self.any(Type::U32))), Type::U32),
            _ => (b.subgroup(SubgroupOp::Elect), Type::Bool),
        };
        self.values.push((value, ty));
    }
}

/// Breaks something in a module; what comes out may still be sound by luck.
pub fn breakage(module: &mut Module, choices: &mut Choices<'_>) {
    let any = Value(choices.below(module.values.len() + 2) as u32);
    match choices.below(6) {
        0 => {
            let index = choices.below(module.values.len());
            module.values[index] = choices.one(&[Type::Bool, Type::U32, Type::Vec4]);
        }
        1 => {
            let index = choices.below(module.vars.len());
            module.vars[index] = choices.one(&[Type::Bool, Type::U32, Type::Vec4]);
        }
        2 => match choices.below(5) {
            0 => module.values.truncate(any.0 as usize),
            1 => module.vars.truncate(choices.below(module.vars.len())),
            2 => module.buffers.truncate(choices.below(3)),
            3 => module.shared.truncate(choices.below(2)),
            _ => module.task = None,
        },
        _ => {
            let block = pick(&mut module.body, choices);
            let index = choices.below(block.0.len());
            if block.0.is_empty() {
                return;
            }
            match choices.below(6) {
                0 => drop(block.0.remove(index)),
                1 => block.0.insert(index, block.0[index].clone()),
                2 => {
                    let other = choices.below(block.0.len());
                    block.0.swap(index, other);
                }
                3 => block.0.insert(index, choices.one(&[Node::Break, Node::Continue].each_ref()).clone()),
                _ => replace(&mut block.0[index], any),
            }
        }
    }
}

/// Some block of a module.
fn pick<'m>(block: &'m mut Block, choices: &mut Choices<'_>) -> &'m mut Block {
    let inner: Vec<usize> = (0..block.0.len())
        .filter(|&index| matches!(block.0[index], Node::If(..) | Node::Loop(_) | Node::For(..)))
        .collect();
    if inner.is_empty() || choices.below(3) == 0 {
        return block;
    }
    match &mut block.0[choices.one(&inner)] {
        Node::If(_, then, otherwise) => pick(if choices.below(2) == 0 { then } else { otherwise }, choices),
        Node::Loop(body) | Node::For(_, _, body) => pick(body, choices),
        _ => unreachable!("only nodes with blocks were collected"),
    }
}

/// Puts another value in a node's first operand.
fn replace(node: &mut Node, other: Value) {
    match node {
        Node::Unary(_, _, operand)
        | Node::Binary(_, _, operand, _)
        | Node::Select(_, operand, ..)
        | Node::Compose(_, [operand, ..])
        | Node::Extract(_, operand, _)
        | Node::Set(_, operand)
        | Node::Store(_, operand)
        | Node::Store4(_, operand)
        | Node::If(operand, ..)
        | Node::For(_, operand, _)
        | Node::CallHandler(operand)
        | Node::Get(operand, _)
        | Node::Load(operand, _)
        | Node::Load4(operand, _)
        | Node::Input(operand, _)
        | Node::ConstU32(operand, _)
        | Node::ConstBool(operand, _)
        | Node::Subgroup(operand, _) => *operand = other,
        Node::Atomic(atomic) => atomic.value = Some(other),
        Node::MemoryBarrier(..) | Node::ControlBarrier(..) | Node::Loop(_) | Node::Break | Node::Continue => {}
    }
}
