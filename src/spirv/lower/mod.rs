//! Lowers IR to SPIR-V 1.5 with the Vulkan memory model declared and used.
//!
//! One file per family of instructions: values, plain memory accesses, atomics and barriers, subgroup operations and
//! control flow. `needs` walks the kernel once before anything is written, `globals` declares what it found, and the
//! rest appends instructions to one function. Equal modules give equal words: ids are given in program order, and what
//! has no order of its own is sorted.
//!
//! Rspirv's builder neither shares constants nor checks operands, so both are done here: constants through
//! [`Emitter::word`], and operands by [`crate::ir::verify`], which runs before the first instruction.

mod atomic;
mod dispatch;
mod flow;
mod globals;
mod memory;
mod needs;
mod subgroup;
mod value;

use rspirv::binary::Assemble;
use rspirv::dr::{self, Builder, InsertPoint, Instruction, Operand};
use rspirv::spirv::{self, Word};
use rustc_hash::FxHashMap;

use crate::ir::{self, Module, VerifyError};
use globals::Globals;
use needs::Needs;

/// Specialization constant that sets the workgroup's width (x; y and z are 1).
pub const WORKGROUP_SIZE_SPEC_ID: u32 = 0;

/// Width of a workgroup whose specialization constant is left alone.
pub const WORKGROUP_SIZE: u32 = 32;

/// Header word that names the tool: rspirv's number, so that words don't change with its version.
const GENERATOR: u32 = 0x000f_0000;

/// Ids in a lowered kernel by which the linker attaches handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Function `void (u32 opcode)` that `CallHandler` calls. As lowered, it stores fault NO_HANDLER for every opcode.
    pub dispatch: u32,
    /// Workgroup variable of the task's words: `array<u32, N>` with N at least `protocol::task::WORDS`.
    pub task: u32,
    /// Input variable LocalInvocationIndex: u32.
    pub local_index: u32,
}

/// A kernel as SPIR-V.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// The module.
    pub words: Vec<u32>,
    /// Where handlers attach; none where the module calls none.
    pub interface: Option<Interface>,
}

/// Why a module can't be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// The module is not well-formed.
    #[error("the kernel is not well-formed: {0}")]
    Verify(#[from] VerifyError),
    /// The lowering put instructions where SPIR-V has no place for them.
    #[error("the lowering broke SPIR-V's structure ({0}): a fault in abide, please report it with the kernel")]
    Structure(String),
}

impl From<dr::Error> for LowerError {
    fn from(error: dr::Error) -> Self {
        Self::Structure(error.to_string())
    }
}

/// Lowers a module that [`crate::ir::verify`] accepts.
///
/// # Errors
/// What the verifier found.
///
/// # Examples
/// ```
/// use abide::ir::{Access, Builder, Input};
///
/// let mut b = Builder::new("answer", 0);
/// let out = b.buffer("out", 0, Access::Private);
/// let group = b.input(Input::WorkgroupIndex);
/// let place = b.at(out, group);
/// b.store(place, 42);
/// let lowered = abide::spirv::lower(&b.finish())?;
/// assert_eq!(lowered.words[0], 0x0723_0203);
/// # Ok::<(), abide::spirv::LowerError>(())
/// ```
pub fn lower(module: &Module) -> Result<Lowered, LowerError> {
    ir::verify(module)?;
    let needs = Needs::of(module);
    let mut builder = Builder::new();
    builder.set_version(1, 5);
    needs.declare(&mut builder);
    let mut constants = Constants::default();
    let globals = Globals::declare(&mut builder, &mut constants, module, &needs);
    let mut emitter = Emitter {
        module,
        builder,
        constants,
        globals,
        values: vec![0; module.values.len()],
        vars: Vec::with_capacity(module.vars.len()),
        loops: Vec::new(),
        dispatch: None,
    };
    let interface = emitter.dispatch_function(needs.calls)?;
    emitter.entry_point()?;
    Ok(Lowered { words: finish(emitter.builder), interface })
}

/// Sorts what SPIR-V leaves unordered and assembles the module.
fn finish(builder: Builder) -> Vec<u32> {
    let mut module = builder.module();
    module.debug_names.sort_by_key(target);
    module.annotations.sort_by_key(target);
    if let Some(header) = &mut module.header {
        header.generator = GENERATOR;
    }
    module.assemble()
}

/// The id that a name or a decoration is about.
fn target(instruction: &Instruction) -> Option<Word> {
    instruction.operands.first().and_then(Operand::id_ref_any)
}

/// Constants, each declared once.
#[derive(Default)]
struct Constants {
    words: FxHashMap<u32, Word>,
    truths: FxHashMap<bool, Word>,
}

impl Constants {
    fn word(&mut self, builder: &mut Builder, value: u32) -> Word {
        let uint = builder.type_int(32, 0);
        *self.words.entry(value).or_insert_with(|| builder.constant_bit32(uint, value))
    }

    fn truth(&mut self, builder: &mut Builder, value: bool) -> Word {
        let bool = builder.type_bool();
        *self.truths.entry(value).or_insert_with(|| match value {
            true => builder.constant_true(bool),
            false => builder.constant_false(bool),
        })
    }
}

/// Where `Break` and `Continue` go.
#[derive(Clone, Copy)]
struct Targets {
    merge: Word,
    next: Word,
}

/// The function that is being written.
struct Emitter<'m> {
    module: &'m Module,
    builder: Builder,
    constants: Constants,
    globals: Globals,
    /// Id of each value; 0 until it is defined.
    values: Vec<Word>,
    vars: Vec<Word>,
    loops: Vec<Targets>,
    /// The function that `CallHandler` calls.
    dispatch: Option<Word>,
}

impl Emitter<'_> {
    /// Id of a u32 constant.
    fn word(&mut self, value: u32) -> Word {
        self.constants.word(&mut self.builder, value)
    }

    /// Id of a value.
    fn id(&self, value: ir::Value) -> Word {
        self.values[value.0 as usize]
    }

    /// Says which id holds a value.
    fn define(&mut self, value: ir::Value, id: Word) {
        self.values[value.0 as usize] = id;
    }

    fn type_of(&self, value: ir::Value) -> ir::Type {
        self.module.values[value.0 as usize]
    }

    /// Id of a type.
    fn type_id(&self, ty: ir::Type) -> Word {
        match ty {
            ir::Type::Bool => self.globals.bool,
            ir::Type::U32 => self.globals.uint,
            ir::Type::Vec4 => self.globals.uvec4,
        }
    }

    /// Appends an instruction whose operands are ids, and gives its result.
    fn op(&mut self, op: spirv::Op, ty: Word, operands: &[Word]) -> Result<Word, LowerError> {
        let id = self.builder.id();
        let operands = operands.iter().map(|&operand| Operand::IdRef(operand)).collect();
        self.builder.insert_into_block(InsertPoint::End, Instruction::new(op, Some(ty), Some(id), operands))?;
        Ok(id)
    }
}
