//! Kernels grown from a list of choices whose outcome depends on nothing but their inputs: every order in which a device may
//! run the lanes leaves the same memory.
//!
//! A lane writes its own words only, but for atomics whose operations commute, one kind to a word, and for workgroup
//! memory, which is written and read apart from each other by barriers. Several such programs make one kernel, each with
//! words of its own, since a pipeline takes a driver longer than a program.

use abide::ir::{
    Access, AtomicOp, BinaryOp, Buffer, Builder, Input, MemoryClasses, Module, Order, Place, Scope, Shared, SubgroupOp,
    Type, UnaryOp, Value, Var,
};

use super::random_kernel::Choices;

/// Words that a lane has of the output and of the addressed buffer, for each program.
pub const OWN: u32 = 32;
/// Words of the input.
pub const INPUTS: u32 = 256;
/// Words that all lanes share, for each program: one for each operation that commutes.
pub const TALLIES: u32 = 5;
/// Lanes of a workgroup, at most.
pub const MAX_WIDTH: u32 = 128;

const MAX_DEPTH: usize = 4;
const COMMUTING: [AtomicOp; TALLIES as usize] =
    [AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::And, AtomicOp::Or];

/// Grows a kernel of one program for each list of choices. Buffer 0 is the input, buffer 1 the output, buffer 2 the words that
/// lanes share; launch parameters 0 and 1 are the address of a buffer like the output.
pub fn settled(programs: &[Vec<u32>]) -> Module {
    let access = |number: usize| [Access::Private, Access::Coherent, Access::Volatile][(programs.len() + number) % 3];
    let mut b = Builder::new("settled", 4);
    let input = b.buffer("input", 0, access(0));
    let output = b.buffer("output", 1, access(1));
    let tallies = b.buffer("tallies", 2, Access::Volatile);
    let array = b.shared("array", MAX_WIDTH);
    let local = b.input(Input::LocalIndex);
    let width = b.input(Input::WorkgroupSize);
    let group = b.input(Input::WorkgroupIndex);
    let groups = b.input(Input::WorkgroupCount);
    let address = (b.param(0), b.param(1));
    let first = b.mul(group, width);
    let lane = b.add(first, local);
    let lanes = b.mul(width, groups);
    for (number, list) in (0..).zip(programs) {
        let ahead = b.mul(lanes, number * OWN);
        let own = b.mul(lane, OWN);
        let own = b.add(own, ahead);
        let mut choices = Choices::new(list);
        let access = choices.one(&[Access::Private, Access::Coherent, Access::Volatile]);
        let mut grower = Grower {
            choices: &mut choices,
            values: Vec::new(),
            vars: Vec::new(),
            loops: 0,
            places: Places {
                input,
                output,
                tallies,
                array,
                address,
                access,
                own,
                local,
                width,
                tally: number * TALLIES,
            },
        };
        // A block of its own, so that nothing of it is visible to the next.
        b.when(true, |b| grower.program(b));
    }
    b.finish()
}

#[derive(Clone, Copy)]
struct Places {
    input: Buffer,
    output: Buffer,
    tallies: Buffer,
    array: Shared,
    address: (Value, Value),
    access: Access,
    /// First word of the lane.
    own: Value,
    local: Value,
    width: Value,
    /// First of the program's shared words.
    tally: u32,
}

struct Grower<'a, 'c> {
    choices: &'a mut Choices<'c>,
    values: Vec<(Value, Type)>,
    vars: Vec<(Var, Type)>,
    loops: usize,
    places: Places,
}

impl Grower<'_, '_> {
    fn program(&mut self, b: &mut Builder) {
        let place = self.places.own_input(b);
        let word = b.load(place);
        let truth = b.lt(word, 0x8000_0000u32);
        let vector = b.compose([word, self.places.local, self.places.own, self.places.width].map(Into::into));
        let lane = b.input(Input::SubgroupLane);
        self.values.push((lane, Type::U32));
        for value in [(word, Type::U32), (truth, Type::Bool), (vector, Type::Vec4)] {
            self.values.push(value);
            self.vars.push((b.var(value.0), value.1));
        }
        self.nodes(b, 0);
        // What was computed and not stored shows in the last words.
        let words: Vec<Value> = self.values.iter().filter(|value| value.1 == Type::U32).map(|value| value.0).collect();
        let mut sum = b.value(0u32);
        for word in words {
            let product = b.mul(sum, 0x9e37_79b1u32);
            sum = b.xor(product, word);
        }
        let last = b.add(self.places.own, OWN - 1);
        let last = b.at(self.places.output, last);
        b.store(last, sum);
        for (number, (var, ty)) in (2..).zip(self.vars.clone()).take(8) {
            let value = b.get(var);
            let value = match ty {
                Type::Bool => b.select(value, 1u32, 0u32),
                Type::U32 => value,
                Type::Vec4 => b.extract(value, number % 4),
            };
            let at = b.add(self.places.own, OWN - number);
            let at = b.at(self.places.output, at);
            b.store(at, value);
        }
    }

    fn nodes(&mut self, b: &mut Builder, depth: usize) {
        while !self.choices.spent() && self.choices.below(20) != 0 {
            self.node(b, depth);
        }
    }

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
        // The latest values more often, so that what is computed matters.
        let from = if self.choices.below(2) == 0 { fitting.len().saturating_sub(4) } else { 0 };
        self.choices.one(&fitting[from..])
    }

    fn any_of(&mut self, types: &[Type]) -> (Value, Type) {
        let ty = self.choices.one(types);
        (self.any(ty), ty)
    }

    fn node(&mut self, b: &mut Builder, depth: usize) {
        match self.choices.below(18) {
            0..=5 => self.pure(b),
            6..=8 => self.memory(b),
            9 => self.variable(b),
            10 => self.tally(b),
            11 => self.atomic(b),
            12 => self.subgroup(b),
            13 if depth == 0 => self.exchange(b),
            14 => {
                let scope = self.choices.one(&[Scope::Workgroup, Scope::Device]);
                let order = self.choices.one(&[Order::Acquire, Order::Release, Order::AcquireRelease]);
                b.memory_barrier(scope, order, MemoryClasses::ALL);
            }
            _ if depth >= MAX_DEPTH => self.pure(b),
            15 => self.branch(b, depth),
            16 => {
                let bound = self.any(Type::U32);
                let bound = b.and(bound, 3u32);
                self.loops += 1;
                b.count(bound, |b, index| {
                    self.values.push((index, Type::U32));
                    self.block(b, depth);
                    self.values.retain(|value| value.0 != index);
                });
                self.loops -= 1;
            }
            _ => {
                let bound = self.any(Type::U32);
                let bound = b.and(bound, 3u32);
                let turns = b.var(0u32);
                self.loops += 1;
                b.repeat(|b| {
                    let turn = b.get(turns);
                    let next = b.add(turn, 1u32);
                    b.set(turns, next);
                    let done = b.ge(turn, bound);
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
            0 => (b.value((self.choices.below(1 << 20) as u32).wrapping_mul(0x1001)), Type::U32),
            1 => (b.value(self.choices.below(2) == 1), Type::Bool),
            2 => {
                let inputs = [Input::WorkgroupCount, Input::SubgroupSize, Input::SubgroupCount, Input::Param(3)];
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
                let (left, mut right) = (self.any(Type::U32), self.any(Type::U32));
                // What the IR leaves undefined is not asked for.
                match op {
                    Div | Rem => right = b.or(right, 1u32),
                    Shl | Shr => right = b.and(right, 31u32),
                    _ => {}
                }
                (b.binary(op, left, right), Type::U32)
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
        let index = self.any(Type::U32);
        match self.choices.below(6) {
            0 => {
                let index = b.and(index, INPUTS - 1);
                let place = b.at(self.places.input, index);
                self.values.push((b.load(place), Type::U32));
            }
            1 => {
                let index = b.and(index, INPUTS - 4);
                let place = b.at(self.places.input, index);
                self.values.push((b.load4(place), Type::Vec4));
            }
            2 => {
                let place = self.own(b, index, 1);
                self.values.push((b.load(place), Type::U32));
            }
            3 => {
                let place = self.own(b, index, 1);
                b.store(place, self.any(Type::U32));
            }
            4 => {
                let place = self.own(b, index, 4);
                self.values.push((b.load4(place), Type::Vec4));
            }
            _ => {
                let place = self.own(b, index, 4);
                b.store4(place, self.any(Type::Vec4));
            }
        }
    }

    /// One of the lane's own words, or four of them.
    fn own(&mut self, b: &mut Builder, index: Value, words: u32) -> Place {
        let index = b.and(index, OWN / 2 - words);
        let index = b.add(self.places.own, index);
        let Places { output, address: (low, high), access, .. } = self.places;
        match self.choices.below(2) {
            0 => b.at(output, index),
            _ => b.address_at(low, high, index, access),
        }
    }

    fn variable(&mut self, b: &mut Builder) {
        match self.choices.below(3) {
            0 => {
                let (initial, ty) = self.any_of(&[Type::U32, Type::Bool, Type::Vec4]);
                self.vars.push((b.var(initial), ty));
            }
            1 => {
                let (var, ty) = self.choices.one(&self.vars.clone());
                b.set(var, self.any(ty));
            }
            _ => {
                let (var, ty) = self.choices.one(&self.vars.clone());
                self.values.push((b.get(var), ty));
            }
        }
    }

    /// Something that commutes, on a word that all lanes share; what was there before depends on the order, and is dropped.
    fn tally(&mut self, b: &mut Builder) {
        let which = self.choices.below(COMMUTING.len());
        let place = b.at(self.places.tallies, self.places.tally + which as u32);
        let scope = self.choices.one(&[Scope::Workgroup, Scope::Device]);
        let order = self.choices.one(&[Order::Relaxed, Order::AcquireRelease]);
        b.atomic(COMMUTING[which], place, self.any(Type::U32), scope, order);
    }

    /// Any atomic on a word of the lane's own.
    fn atomic(&mut self, b: &mut Builder) {
        let index = self.any(Type::U32);
        let place = self.own(b, index, 1);
        let scope = self.choices.one(&[Scope::Workgroup, Scope::Device]);
        let order = self.choices.one(&[Order::Relaxed, Order::Acquire, Order::Release, Order::AcquireRelease]);
        let value = match self.choices.below(5) {
            0 => b.atomic_load(place, scope, self.choices.one(&[Order::Relaxed, Order::Acquire])),
            1 => {
                let order = self.choices.one(&[Order::Relaxed, Order::Release]);
                return b.atomic_store(place, self.any(Type::U32), scope, order);
            }
            2 => b.compare_exchange(place, self.any(Type::U32), self.any(Type::U32), scope, order),
            3 => b.atomic(AtomicOp::Exchange, place, self.any(Type::U32), scope, order),
            _ => b.atomic(self.choices.one(&COMMUTING), place, self.any(Type::U32), scope, order),
        };
        self.values.push((value, Type::U32));
    }

    /// Words handed over through workgroup memory; all lanes come here.
    fn exchange(&mut self, b: &mut Builder) {
        let Places { array, local, width, .. } = self.places;
        let mine = b.shared_at(array, local);
        b.store(mine, self.any(Type::U32));
        if self.choices.below(3) == 0 {
            let op = self.choices.one(&COMMUTING);
            let value = b.atomic(op, mine, self.any(Type::U32), Scope::Workgroup, Order::Relaxed);
            self.values.push((value, Type::U32));
        }
        let classes = self.choices.one(&[MemoryClasses::SHARED, MemoryClasses::ALL]);
        b.control_barrier(classes);
        let other = self.any(Type::U32);
        let other = b.rem(other, width);
        let other = b.shared_at(array, other);
        self.values.push((b.load(other), Type::U32));
        b.control_barrier(classes);
    }

    fn subgroup(&mut self, b: &mut Builder) {
        let (value, ty) = match self.choices.below(7) {
            0 => (b.subgroup(SubgroupOp::Any(self.any(Type::Bool))), Type::Bool),
            1 => (b.subgroup(SubgroupOp::All(self.any(Type::Bool))), Type::Bool),
            2 => (b.subgroup(SubgroupOp::Ballot(self.any(Type::Bool))), Type::Vec4),
            3 => {
                // Of a lane that takes part, whatever the others do: the first one.
                let all = b.value(true);
                let active = b.subgroup(SubgroupOp::Ballot(all));
                let active = b.extract(active, 0);
                let first = b.unary(UnaryOp::FindLsb, active);
                let (value, ty) = self.any_of(&[Type::U32, Type::Vec4]);
                (b.subgroup(SubgroupOp::Shuffle(value, first)), ty)
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

impl Places {
    /// A word of the input for this lane.
    fn own_input(&self, b: &mut Builder) -> Place {
        let index = b.mul(self.own, 37u32);
        let index = b.shr(index, 3u32);
        let index = b.and(index, INPUTS - 1);
        b.at(self.input, index)
    }
}
