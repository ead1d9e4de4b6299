//! Builds a [`Module`] node by node.

use super::Module;
use super::node::*;

/// A value, or a constant that becomes one.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// A u32 constant.
    U32(u32),
    /// A bool constant.
    Bool(bool),
}

impl From<Value> for Operand {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl From<u32> for Operand {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<bool> for Operand {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl Builder {
    /// Word `index` of a buffer.
    pub fn at(&mut self, buffer: Buffer, index: impl Into<Operand>) -> Place {
        Place::Buffer { buffer, index: self.value(index) }
    }

    /// Word `index` of a workgroup array.
    pub fn shared_at(&mut self, shared: Shared, index: impl Into<Operand>) -> Place {
        Place::Shared { shared, index: self.value(index) }
    }

    /// Word `index` after the device address `{low, high}`.
    pub fn address_at(&mut self, low: Value, high: Value, index: impl Into<Operand>, access: Access) -> Place {
        Place::Address { low, high, index: self.value(index), access }
    }
}

/// Builds one kernel.
///
/// Every method that names a value appends one node to the open block. The builder takes what it is given: [`super::verify`]
/// says what is wrong with the result.
#[derive(Debug)]
pub struct Builder {
    module: Module,
    open: Vec<Block>,
}

impl Builder {
    /// Starts a kernel with `params` words of launch parameters.
    pub fn new(name: &str, params: u32) -> Self {
        let module = Module {
            name: name.to_owned(),
            buffers: Vec::new(),
            shared: Vec::new(),
            task: None,
            params,
            values: Vec::new(),
            vars: Vec::new(),
            names: Vec::new(),
            body: Block::default(),
        };
        Self { module, open: vec![Block::default()] }
    }

    /// Ends the kernel.
    pub fn finish(mut self) -> Module {
        self.module.body = self.open.pop().unwrap_or_default();
        self.module
    }

    /// Declares a buffer.
    pub fn buffer(&mut self, name: &str, binding: u32, access: Access) -> Buffer {
        self.module.buffers.push(BufferDecl { name: name.to_owned(), binding, access });
        Buffer(self.module.buffers.len() as u32 - 1)
    }

    /// Declares a workgroup array.
    pub fn shared(&mut self, name: &str, words: u32) -> Shared {
        self.module.shared.push(SharedDecl { name: name.to_owned(), words });
        Shared(self.module.shared.len() as u32 - 1)
    }

    /// Declares the workgroup array through which linked handlers meet the kernel.
    pub fn task(&mut self, name: &str, words: u32) -> Shared {
        let shared = self.shared(name, words);
        self.module.task = Some(shared);
        shared
    }

    fn push(&mut self, node: Node) {
        if let Some(block) = self.open.last_mut() {
            block.0.push(node);
        }
    }

    fn fresh(&mut self, ty: Type) -> Value {
        self.module.values.push(ty);
        Value(self.module.values.len() as u32 - 1)
    }

    fn type_of(&self, value: Value) -> Type {
        self.module.values.get(value.0 as usize).copied().unwrap_or(Type::U32)
    }

    /// A value for an operand: constants get a node of their own.
    pub fn value(&mut self, operand: impl Into<Operand>) -> Value {
        match operand.into() {
            Operand::Value(value) => value,
            Operand::U32(constant) => {
                let value = self.fresh(Type::U32);
                self.push(Node::ConstU32(value, constant));
                value
            }
            Operand::Bool(constant) => {
                let value = self.fresh(Type::Bool);
                self.push(Node::ConstBool(value, constant));
                value
            }
        }
    }

    /// A property of the invocation or the launch.
    pub fn input(&mut self, input: Input) -> Value {
        let value = self.fresh(Type::U32);
        self.push(Node::Input(value, input));
        value
    }

    /// A launch parameter.
    pub fn param(&mut self, word: u32) -> Value {
        self.input(Input::Param(word))
    }

    /// An operation on one value.
    pub fn unary(&mut self, op: UnaryOp, operand: impl Into<Operand>) -> Value {
        let operand = self.value(operand);
        let ty = if op == UnaryOp::Not { self.type_of(operand) } else { Type::U32 };
        let value = self.fresh(ty);
        self.push(Node::Unary(value, op, operand));
        value
    }

    /// An operation on two values.
    pub fn binary(&mut self, op: BinaryOp, left: impl Into<Operand>, right: impl Into<Operand>) -> Value {
        let (left, right) = (self.value(left), self.value(right));
        let ty = match op {
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => Type::Bool,
            _ => self.type_of(left),
        };
        let value = self.fresh(ty);
        self.push(Node::Binary(value, op, left, right));
        value
    }

    /// `yes` where `condition` holds, else `no`.
    pub fn select(&mut self, condition: impl Into<Operand>, yes: impl Into<Operand>, no: impl Into<Operand>) -> Value {
        let (condition, yes, no) = (self.value(condition), self.value(yes), self.value(no));
        let value = self.fresh(self.type_of(yes));
        self.push(Node::Select(value, condition, yes, no));
        value
    }

    /// Four words as a Vec4.
    pub fn compose(&mut self, words: [Operand; 4]) -> Value {
        let words = words.map(|word| self.value(word));
        let value = self.fresh(Type::Vec4);
        self.push(Node::Compose(value, words));
        value
    }

    /// Word `index` of a Vec4.
    pub fn extract(&mut self, vector: Value, index: u32) -> Value {
        let value = self.fresh(Type::U32);
        self.push(Node::Extract(value, vector, index));
        value
    }

    /// Declares a variable and sets it.
    pub fn var(&mut self, initial: impl Into<Operand>) -> Var {
        let initial = self.value(initial);
        self.module.vars.push(self.type_of(initial));
        let var = Var(self.module.vars.len() as u32 - 1);
        self.push(Node::Set(var, initial));
        var
    }

    /// Declares a variable that can be found by its name.
    pub fn named_var(&mut self, name: &str, initial: impl Into<Operand>) -> Var {
        let var = self.var(initial);
        self.module.names.push((var, name.to_owned()));
        var
    }

    /// Reads a variable.
    pub fn get(&mut self, var: Var) -> Value {
        let ty = self.module.vars.get(var.0 as usize).copied().unwrap_or(Type::U32);
        let value = self.fresh(ty);
        self.push(Node::Get(value, var));
        value
    }

    /// Writes a variable.
    pub fn set(&mut self, var: Var, value: impl Into<Operand>) {
        let value = self.value(value);
        self.push(Node::Set(var, value));
    }

    /// Loads a word.
    pub fn load(&mut self, place: Place) -> Value {
        let value = self.fresh(Type::U32);
        self.push(Node::Load(value, place));
        value
    }

    /// Stores a word.
    pub fn store(&mut self, place: Place, value: impl Into<Operand>) {
        let value = self.value(value);
        self.push(Node::Store(place, value));
    }

    /// Loads four words as one access.
    pub fn load4(&mut self, place: Place) -> Value {
        let value = self.fresh(Type::Vec4);
        self.push(Node::Load4(value, place));
        value
    }

    /// Stores four words as one access.
    pub fn store4(&mut self, place: Place, value: Value) {
        self.push(Node::Store4(place, value));
    }

    /// Atomic load.
    pub fn atomic_load(&mut self, place: Place, scope: Scope, order: Order) -> Value {
        let result = self.fresh(Type::U32);
        let atomic =
            Atomic { result: Some(result), op: AtomicOp::Load, place, value: None, expected: None, scope, order };
        self.push(Node::Atomic(atomic));
        result
    }

    /// Atomic store.
    pub fn atomic_store(&mut self, place: Place, value: impl Into<Operand>, scope: Scope, order: Order) {
        let value = Some(self.value(value));
        self.push(Node::Atomic(Atomic {
            result: None,
            op: AtomicOp::Store,
            place,
            value,
            expected: None,
            scope,
            order,
        }));
    }

    /// Atomic read-modify-write; gives the value before.
    pub fn atomic(
        &mut self,
        op: AtomicOp,
        place: Place,
        value: impl Into<Operand>,
        scope: Scope,
        order: Order,
    ) -> Value {
        let value = Some(self.value(value));
        let result = self.fresh(Type::U32);
        self.push(Node::Atomic(Atomic { result: Some(result), op, place, value, expected: None, scope, order }));
        result
    }

    /// Writes `value` where `expected` was; gives what was there. `order` is for success; failure orders as Acquire does
    /// where `order` acquires, else not at all.
    pub fn compare_exchange(
        &mut self,
        place: Place,
        expected: impl Into<Operand>,
        value: impl Into<Operand>,
        scope: Scope,
        order: Order,
    ) -> Value {
        let (expected, value) = (Some(self.value(expected)), Some(self.value(value)));
        let result = self.fresh(Type::U32);
        let op = AtomicOp::CompareExchange;
        self.push(Node::Atomic(Atomic { result: Some(result), op, place, value, expected, scope, order }));
        result
    }

    /// Orders this invocation's accesses.
    pub fn memory_barrier(&mut self, scope: Scope, order: Order, classes: MemoryClasses) {
        self.push(Node::MemoryBarrier(scope, order, classes));
    }

    /// Waits for the workgroup.
    pub fn control_barrier(&mut self, classes: MemoryClasses) {
        self.push(Node::ControlBarrier(Scope::Workgroup, classes));
    }

    /// Waits for the subgroup.
    pub fn subgroup_barrier(&mut self, classes: MemoryClasses) {
        self.push(Node::ControlBarrier(Scope::Subgroup, classes));
    }

    /// An operation across the subgroup.
    pub fn subgroup(&mut self, op: SubgroupOp) -> Value {
        let ty = match op {
            SubgroupOp::Any(_) | SubgroupOp::All(_) | SubgroupOp::Elect => Type::Bool,
            SubgroupOp::Ballot(_) => Type::Vec4,
            SubgroupOp::Shuffle(value, _) | SubgroupOp::BroadcastFirst(value) => self.type_of(value),
            SubgroupOp::Add(_) => Type::U32,
        };
        let value = self.fresh(ty);
        self.push(Node::Subgroup(value, op));
        value
    }

    fn block(&mut self, build: impl FnOnce(&mut Self)) -> Block {
        self.open.push(Block::default());
        build(self);
        self.open.pop().unwrap_or_default()
    }

    /// Runs the block where the condition holds.
    pub fn when(&mut self, condition: impl Into<Operand>, then: impl FnOnce(&mut Self)) {
        self.branch(condition, then, |_| {});
    }

    /// Runs one block or the other.
    pub fn branch(
        &mut self,
        condition: impl Into<Operand>,
        then: impl FnOnce(&mut Self),
        otherwise: impl FnOnce(&mut Self),
    ) {
        let condition = self.value(condition);
        let (then, otherwise) = (self.block(then), self.block(otherwise));
        self.push(Node::If(condition, then, otherwise));
    }

    /// Runs the block until a break.
    pub fn repeat(&mut self, body: impl FnOnce(&mut Self)) {
        let body = self.block(body);
        self.push(Node::Loop(body));
    }

    /// Runs the block `bound` times with the turn's index.
    pub fn count(&mut self, bound: impl Into<Operand>, body: impl FnOnce(&mut Self, Value)) {
        let bound = self.value(bound);
        let index = self.fresh(Type::U32);
        let body = self.block(|b| body(b, index));
        self.push(Node::For(index, bound, body));
    }

    /// Leaves the innermost loop.
    pub fn break_(&mut self) {
        self.push(Node::Break);
    }

    /// Leaves the innermost loop where the condition holds.
    pub fn break_if(&mut self, condition: impl Into<Operand>) {
        self.when(condition, Self::break_);
    }

    /// Goes on with the innermost loop's next turn.
    pub fn continue_(&mut self) {
        self.push(Node::Continue);
    }

    /// Runs the linked handler with this opcode.
    pub fn call_handler(&mut self, opcode: impl Into<Operand>) {
        let opcode = self.value(opcode);
        self.push(Node::CallHandler(opcode));
    }
}

/// One method an operation, so that kernels read as arithmetic does.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $op:ident),* $(,)?) => {
        impl Builder {
            $($(#[$doc])*
            pub fn $name(&mut self, left: impl Into<Operand>, right: impl Into<Operand>) -> Value {
                self.binary(BinaryOp::$op, left, right)
            })*
        }
    };
}

binary! {
    /// Wrapping sum.
    add Add,
    /// Wrapping difference.
    sub Sub,
    /// Wrapping product.
    mul Mul,
    /// Unsigned quotient.
    div Div,
    /// Unsigned remainder.
    rem Rem,
    /// Bitwise or logical and.
    and And,
    /// Bitwise or logical or.
    or Or,
    /// Bitwise exclusive or.
    xor Xor,
    /// Shift left.
    shl Shl,
    /// Shift right.
    shr Shr,
    /// Unsigned minimum.
    min Min,
    /// Unsigned maximum.
    max Max,
    /// Equal.
    eq Eq,
    /// Not equal.
    ne Ne,
    /// Less.
    lt Lt,
    /// Less or equal.
    le Le,
    /// Greater.
    gt Gt,
    /// Greater or equal.
    ge Ge,
}
