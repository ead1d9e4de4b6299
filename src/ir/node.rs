//! What a kernel is made of.

/// Type of a value or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// Truth value.
    Bool,
    /// 32-bit unsigned integer; arithmetic wraps.
    U32,
    /// Four 32-bit words.
    Vec4,
}

/// A value: the result of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A variable of one invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

/// A buffer, counted in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(pub u32);

/// An array of words in workgroup memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shared(pub u32);

/// How the loads and stores of a buffer that aren't atomic behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Seen by this invocation alone, until a release and an acquire order it.
    Private,
    /// Available to and visible from the whole device at each access.
    Coherent,
    /// Coherent, and never merged, dropped or repeated: for words that the other side of a bus changes.
    Volatile,
}

/// A buffer's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferDecl {
    /// Name, for disassembly and traces.
    pub name: String,
    /// Binding in descriptor set 0.
    pub binding: u32,
    /// Access class of its plain loads and stores.
    pub access: Access,
}

/// A workgroup array's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDecl {
    /// Name, for disassembly and traces.
    pub name: String,
    /// Length in words.
    pub words: u32,
}

/// Which invocations an atomic or a barrier orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The subgroup.
    Subgroup,
    /// The workgroup.
    Workgroup,
    /// All workgroups of all queues of the device.
    Device,
}

/// What an atomic or a barrier orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// Atomicity alone.
    Relaxed,
    /// Later accesses stay behind, and see what the partner released.
    Acquire,
    /// Earlier accesses stay before, and are available to the partner.
    Release,
    /// Both.
    AcquireRelease,
}

/// Which memory a barrier orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryClasses {
    /// Buffers, by descriptor and by address.
    pub buffers: bool,
    /// Workgroup memory.
    pub shared: bool,
}

impl MemoryClasses {
    /// Buffers alone.
    pub const BUFFERS: Self = Self { buffers: true, shared: false };
    /// Workgroup memory alone.
    pub const SHARED: Self = Self { buffers: false, shared: true };
    /// Both.
    pub const ALL: Self = Self { buffers: true, shared: true };
}

/// Where a word lies. An index has to be inside the buffer or array: nothing checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Word `index` of a buffer.
    Buffer {
        /// The buffer.
        buffer: Buffer,
        /// Word index.
        index: Value,
    },
    /// Word `index` of a workgroup array.
    Shared {
        /// The array.
        shared: Shared,
        /// Word index.
        index: Value,
    },
    /// Word `index` after a device address, which is a multiple of 16.
    Address {
        /// Low word of the address.
        low: Value,
        /// High word of the address.
        high: Value,
        /// Word index.
        index: Value,
        /// How loads and stores that aren't atomic behave.
        access: Access,
    },
}

/// Atomic read-modify-write operations, and the atomic load and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AtomicOp {
    /// Reads.
    Load,
    /// Writes; gives no value.
    Store,
    /// Writes and gives what was there.
    Exchange,
    /// Adds.
    Add,
    /// Unsigned minimum.
    Min,
    /// Unsigned maximum.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Writes `value` where `expected` was; gives what was there.
    CompareExchange,
}

/// An atomic access.
///
/// Unless its order is relaxed, one on a buffer or behind an address orders accesses to buffers; one on a workgroup array
/// orders those to workgroup memory as well. Where a compare-exchange finds something else, it acquires as its order says
/// and releases nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// The value before (for a load, the value), or none for a store.
    pub result: Option<Value>,
    /// The operation.
    pub op: AtomicOp,
    /// Where.
    pub place: Place,
    /// Operand; none for a load.
    pub value: Option<Value>,
    /// Expected value of a compare-exchange; none otherwise.
    pub expected: Option<Value>,
    /// Who is ordered.
    pub scope: Scope,
    /// How.
    pub order: Order,
}

/// What an invocation can ask about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Input {
    /// Index in the workgroup.
    LocalIndex,
    /// Invocations of the workgroup.
    WorkgroupSize,
    /// Index of the workgroup.
    WorkgroupIndex,
    /// Workgroups of the launch.
    WorkgroupCount,
    /// Index in the subgroup.
    SubgroupLane,
    /// Invocations of a subgroup.
    SubgroupSize,
    /// Subgroups of the workgroup.
    SubgroupCount,
    /// A launch parameter, by word.
    Param(u32),
}

/// Operations on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnaryOp {
    /// Bitwise not of a u32, negation of a bool.
    Not,
    /// Index of the lowest set bit; u32::MAX for 0.
    FindLsb,
    /// Number of set bits.
    CountOnes,
}

/// Operations on two values. Comparisons are unsigned and give a bool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BinaryOp {
    /// Wrapping sum.
    Add,
    /// Wrapping difference.
    Sub,
    /// Wrapping product.
    Mul,
    /// Unsigned quotient; by 0 the result is undefined.
    Div,
    /// Unsigned remainder; by 0 the result is undefined.
    Rem,
    /// Bitwise or logical and.
    And,
    /// Bitwise or logical or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Shift left; by 32 or more the result is undefined.
    Shl,
    /// Shift right; by 32 or more the result is undefined.
    Shr,
    /// Unsigned minimum.
    Min,
    /// Unsigned maximum.
    Max,
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// Operations across a subgroup. All invocations of the subgroup that are active take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubgroupOp {
    /// Whether the bool holds for any.
    Any(Value),
    /// Whether the bool holds for all.
    All(Value),
    /// Bits of the invocations for which the bool holds, as a Vec4.
    Ballot(Value),
    /// The value (u32 or Vec4) of the given lane.
    Shuffle(Value, Value),
    /// The value (u32 or Vec4) of the first active lane.
    BroadcastFirst(Value),
    /// Sum over the subgroup.
    Add(Value),
    /// Whether this is the first active lane.
    Elect,
}

/// A run of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block(pub Vec<Node>);

/// One step of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A u32 constant.
    ConstU32(Value, u32),
    /// A bool constant.
    ConstBool(Value, bool),
    /// A property of the invocation or the launch.
    Input(Value, Input),
    /// An operation on one value.
    Unary(Value, UnaryOp, Value),
    /// An operation on two values of one type.
    Binary(Value, BinaryOp, Value, Value),
    /// The second value where the first is true, else the third.
    Select(Value, Value, Value, Value),
    /// A Vec4 of four words.
    Compose(Value, [Value; 4]),
    /// One word, by index 0 to 3, of a Vec4.
    Extract(Value, Value, u32),
    /// Reads a variable, which this block or one around it has set before.
    Get(Value, Var),
    /// Writes a variable.
    Set(Var, Value),
    /// Loads a word.
    Load(Value, Place),
    /// Stores a word.
    Store(Place, Value),
    /// Loads four words as one access; the index is a multiple of four.
    Load4(Value, Place),
    /// Stores four words as one access, the last one last; the index is a multiple of four.
    Store4(Place, Value),
    /// An atomic access.
    Atomic(Atomic),
    /// Orders this invocation's accesses to memory; has an order other than relaxed, and at least one class.
    MemoryBarrier(Scope, Order, MemoryClasses),
    /// Waits for all invocations of the workgroup, or of the subgroup, and orders their accesses among them. Either all of
    /// them come to it or none.
    ControlBarrier(Scope, MemoryClasses),
    /// An operation across the subgroup.
    Subgroup(Value, SubgroupOp),
    /// Runs one block or the other.
    If(Value, Block, Block),
    /// Runs a block again and again until a break.
    Loop(Block),
    /// Runs a block with the value counting from 0 up to, and without, the bound, which is read once.
    For(Value, Value, Block),
    /// Leaves the innermost loop.
    Break,
    /// Goes on with the innermost loop's next turn.
    Continue,
    /// Runs the linked handler with this opcode; all invocations of the workgroup take part. Without a linked handler
    /// of that opcode invocation 0 stores fault NO_HANDLER in the task's words. The kernel's own control barriers,
    /// before and after, carry the task's words to the handler and back.
    CallHandler(Value),
}
