//! A SPIR-V module as flat lists of instructions, one for each section of the logical layout.
//!
//! Reads through rspirv's binary parser with a consumer of its own: rspirv's `dr` loader rejects `LocalSizeId` and
//! `OpExtInst` outside functions. Each instruction keeps the word at which it stood, so that whoever refuses it can
//! say where. `OpNop` and line information are dropped.

use rspirv::binary::{Assemble, Consumer, ParseAction, parse_words};
use rspirv::dr::{self, Operand};
use rspirv::grammar::{INSTRUCTION_TABLE, OperandKind};
use rspirv::spirv::{MAGIC_NUMBER, Op};

/// Words of a module's header.
pub const HEADER_WORDS: u32 = 5;
/// The largest bound of ids that SPIR-V promises to accept.
pub const MAX_BOUND: u32 = 0x3f_ffff;

/// An instruction and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Opcode.
    pub op: Op,
    /// Word offset in the module.
    pub at: u32,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Op{:?} at word {}", self.op, self.at)
    }
}

/// Why words are not a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// The words don't follow SPIR-V's grammar.
    #[error("word {at}: {reason}; compile the shader again, or check that the whole file was read")]
    Syntax {
        /// Word offset.
        at: u32,
        /// What the parser says.
        reason: String,
    },
    /// An instruction breaks a rule of the module's structure.
    #[error("{site}: {reason}; spirv-val says more")]
    Structure {
        /// The instruction.
        site: Site,
        /// The rule.
        reason: &'static str,
    },
    /// An instruction names an id that it may not name there.
    #[error("{site}: id {id} {reason}; spirv-val says more")]
    Id {
        /// The instruction.
        site: Site,
        /// The id.
        id: u32,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inst {
    /// Opcode.
    pub op: Op,
    /// Result type.
    pub ty: Option<u32>,
    /// Result.
    pub id: Option<u32>,
    /// The other operands.
    pub operands: Vec<Operand>,
    /// Word offset in the module that it was read from; 0 for a new one.
    pub at: u32,
}

impl Inst {
    /// A new instruction.
    pub fn new(op: Op, ty: Option<u32>, id: Option<u32>, operands: Vec<Operand>) -> Self {
        Self { op, ty, id, operands, at: 0 }
    }

    /// The instruction's place.
    pub fn site(&self) -> Site {
        Site { op: self.op, at: self.at }
    }

    /// Ids among the operands, without result and result type.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.operands.iter().filter_map(Operand::id_ref_any)
    }

    /// The operand at `index`, if it is an id.
    pub fn id_at(&self, index: usize) -> Option<u32> {
        self.operands.get(index).and_then(Operand::id_ref_any)
    }

    /// The operand at `index`, if it is a literal of one word.
    pub fn literal_at(&self, index: usize) -> Option<u32> {
        match self.operands.get(index) {
            Some(Operand::LiteralBit32(value)) => Some(*value),
            _ => None,
        }
    }

    fn assemble_into(&self, words: &mut Vec<u32>) -> Result<(), ModuleError> {
        let start = words.len();
        words.push(0);
        words.extend(self.ty);
        words.extend(self.id);
        for operand in &self.operands {
            operand.assemble_into(words);
        }
        let Ok(count) = u16::try_from(words.len() - start) else {
            return Err(ModuleError::Structure { site: self.site(), reason: "has more than 65,535 words" });
        };
        words[start] = (u32::from(count) << 16) | self.op as u32;
        Ok(())
    }
}

/// Whether the instruction ends a block.
pub fn is_terminator(op: Op) -> bool {
    matches!(
        op,
        Op::Branch
            | Op::BranchConditional
            | Op::Switch
            | Op::Return
            | Op::ReturnValue
            | Op::Unreachable
            | Op::Kill
            | Op::TerminateInvocation
    )
}

/// A function with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// `OpFunction`.
    pub def: Inst,
    /// `OpFunctionParameter`s.
    pub params: Vec<Inst>,
    /// From the first label to the last terminator.
    pub body: Vec<Inst>,
}

impl Function {
    /// All instructions but `OpFunctionEnd`, in order.
    pub fn insts(&self) -> impl Iterator<Item = &Inst> {
        std::iter::once(&self.def).chain(&self.params).chain(&self.body)
    }
}

/// Sections of the logical layout, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Capabilities,
    Extensions,
    Imports,
    MemoryModel,
    EntryPoints,
    Modes,
    Sources,
    Names,
    Processed,
    Annotations,
    Globals,
    Functions,
}

impl Section {
    /// The section of an instruction outside functions.
    fn of(op: Op) -> Option<Self> {
        Some(match op {
            Op::Capability => Self::Capabilities,
            Op::Extension => Self::Extensions,
            Op::ExtInstImport => Self::Imports,
            Op::MemoryModel => Self::MemoryModel,
            Op::EntryPoint => Self::EntryPoints,
            Op::ExecutionMode | Op::ExecutionModeId => Self::Modes,
            Op::String | Op::Source | Op::SourceContinued | Op::SourceExtension => Self::Sources,
            Op::Name | Op::MemberName => Self::Names,
            Op::ModuleProcessed => Self::Processed,
            Op::Function => Self::Functions,
            Op::Variable | Op::Undef | Op::ExtInst => Self::Globals,
            op if op.is_annotation() => Self::Annotations,
            op if op.is_type() || op.is_constant() => Self::Globals,
            _ => return None,
        })
    }
}

/// A module, section by section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Major and minor version.
    pub version: (u8, u8),
    /// The tool that made it.
    pub generator: u32,
    /// All ids are below it.
    pub bound: u32,
    /// `OpCapability`.
    pub capabilities: Vec<Inst>,
    /// `OpExtension`.
    pub extensions: Vec<Inst>,
    /// `OpExtInstImport`.
    pub imports: Vec<Inst>,
    /// `OpMemoryModel`.
    pub memory_model: Vec<Inst>,
    /// `OpEntryPoint`.
    pub entry_points: Vec<Inst>,
    /// `OpExecutionMode` and `OpExecutionModeId`.
    pub modes: Vec<Inst>,
    /// Strings and sources.
    pub sources: Vec<Inst>,
    /// `OpName` and `OpMemberName`.
    pub names: Vec<Inst>,
    /// `OpModuleProcessed`.
    pub processed: Vec<Inst>,
    /// Decorations.
    pub annotations: Vec<Inst>,
    /// Types, constants and variables.
    pub globals: Vec<Inst>,
    /// Functions.
    pub functions: Vec<Function>,
}

impl Module {
    /// Reads a module and checks its structure.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(words: &[u32]) -> Result<Self, ModuleError> {
        scan(words)?;
        let mut reader =
            Reader { words, at: HEADER_WORDS, module: Self::default(), section: None, open: None, fault: None };
        if let Err(state) = parse_words(words, &mut reader) {
            let at = reader.at;
            return Err(reader.fault.unwrap_or_else(|| ModuleError::Syntax { at, reason: state.to_string() }));
        }
        if let Some(function) = reader.open {
            return Err(ModuleError::Structure { site: function.def.site(), reason: "has no end" });
        }
        super::check::check(&reader.module)?;
        Ok(reader.module)
    }

    /// The module as words.
    ///
    /// # Errors
    /// An instruction became too long for SPIR-V.
    pub fn assemble(&self) -> Result<Vec<u32>, ModuleError> {
        let (major, minor) = self.version;
        let mut words =
            vec![MAGIC_NUMBER, (u32::from(major) << 16) | (u32::from(minor) << 8), self.generator, self.bound, 0];
        for inst in self.header_sections().into_iter().flatten().chain(&self.annotations).chain(&self.globals) {
            inst.assemble_into(&mut words)?;
        }
        let end = Inst::new(Op::FunctionEnd, None, None, Vec::new());
        for function in &self.functions {
            for inst in function.insts().chain([&end]) {
                inst.assemble_into(&mut words)?;
            }
        }
        Ok(words)
    }

    /// The sections before annotations, in order.
    fn header_sections(&self) -> [&Vec<Inst>; 9] {
        [
            &self.capabilities,
            &self.extensions,
            &self.imports,
            &self.memory_model,
            &self.entry_points,
            &self.modes,
            &self.sources,
            &self.names,
            &self.processed,
        ]
    }

    fn list(&mut self, section: Section) -> Option<&mut Vec<Inst>> {
        Some(match section {
            Section::Capabilities => &mut self.capabilities,
            Section::Extensions => &mut self.extensions,
            Section::Imports => &mut self.imports,
            Section::MemoryModel => &mut self.memory_model,
            Section::EntryPoints => &mut self.entry_points,
            Section::Modes => &mut self.modes,
            Section::Sources => &mut self.sources,
            Section::Names => &mut self.names,
            Section::Processed => &mut self.processed,
            Section::Annotations => &mut self.annotations,
            Section::Globals => &mut self.globals,
            Section::Functions => return None,
        })
    }
}

/// Checks the lengths of all instructions, and what rspirv's parser panics on.
fn scan(words: &[u32]) -> Result<(), ModuleError> {
    let syntax = |at: usize, reason: &str| ModuleError::Syntax { at: at as u32, reason: reason.to_owned() };
    if words.len() > u32::MAX as usize / 4 {
        return Err(syntax(0, "the module is too long"));
    }
    let mut at = HEADER_WORDS as usize;
    while at < words.len() {
        let count = (words[at] >> 16) as usize;
        if count == 0 || at + count > words.len() {
            return Err(syntax(at, "an instruction's length is zero or runs past the end"));
        }
        if words[at] & 0xffff == Op::SpecConstantOp as u32 {
            let inner = words[at..at + count].get(3).and_then(|&op| INSTRUCTION_TABLE.lookup_opcode(op));
            let readable = |kind| {
                !matches!(
                    kind,
                    OperandKind::LiteralContextDependentNumber
                        | OperandKind::LiteralSpecConstantOpInteger
                        | OperandKind::PairLiteralIntegerIdRef
                )
            };
            if !inner.is_some_and(|inner| inner.operands.iter().all(|operand| readable(operand.kind))) {
                return Err(syntax(at, "OpSpecConstantOp with an operation that SPIR-V does not allow there"));
            }
        }
        at += count;
    }
    Ok(())
}

/// Sorts instructions into their sections as the parser hands them over.
struct Reader<'a> {
    words: &'a [u32],
    /// Word offset of the next instruction.
    at: u32,
    module: Module,
    section: Option<Section>,
    open: Option<Function>,
    fault: Option<ModuleError>,
}

impl Reader<'_> {
    fn take(&mut self, inst: Inst) -> Result<(), ModuleError> {
        let fault = |reason| Err(ModuleError::Structure { site: inst.site(), reason });
        if matches!(inst.op, Op::Nop | Op::Line | Op::NoLine) {
            return Ok(());
        }
        if let Some(function) = &mut self.open {
            match inst.op {
                Op::Function => return fault("stands inside a function"),
                Op::FunctionEnd => self.module.functions.extend(self.open.take()),
                Op::FunctionParameter if function.body.is_empty() => function.params.push(inst),
                _ => function.body.push(inst),
            }
            return Ok(());
        }
        let Some(section) = Section::of(inst.op) else {
            return fault("stands outside a function");
        };
        if self.section > Some(section) {
            return fault("stands after a later section of the module");
        }
        self.section = Some(section);
        match self.module.list(section) {
            Some(list) => list.push(inst),
            None => self.open = Some(Function { def: inst, params: Vec::new(), body: Vec::new() }),
        }
        Ok(())
    }
}

impl Consumer for Reader<'_> {
    fn initialize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn finalize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn consume_header(&mut self, header: dr::ModuleHeader) -> ParseAction {
        self.module.version = header.version();
        self.module.bound = header.bound;
        // rspirv's header names rspirv itself.
        self.module.generator = self.words.get(2).copied().unwrap_or(0);
        ParseAction::Continue
    }

    fn consume_instruction(&mut self, inst: dr::Instruction) -> ParseAction {
        let at = self.at;
        self.at += self.words.get(at as usize).map_or(0, |word| word >> 16);
        let inst =
            Inst { op: inst.class.opcode, ty: inst.result_type, id: inst.result_id, operands: inst.operands, at };
        match self.take(inst) {
            Ok(()) => ParseAction::Continue,
            Err(fault) => {
                self.fault = Some(fault);
                ParseAction::Stop
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u32; 5] = [MAGIC_NUMBER, 0x1_0300, 0, 10, 0];

    fn parse(instructions: &[&[u32]]) -> Result<Module, ModuleError> {
        let mut words = HEADER.to_vec();
        for inst in instructions {
            words.push(((inst.len() as u32) << 16) | inst[0]);
            words.extend(&inst[1..]);
        }
        Module::parse(&words)
    }

    /// Void, a function type, and a function that returns.
    const SMALL: [&[u32]; 6] = [&[19, 1], &[33, 2, 1], &[54, 1, 3, 0, 2], &[248, 4], &[253], &[56]];

    #[test]
    fn a_module_comes_out_as_it_went_in() {
        let module = parse(&SMALL).expect("it is a module");
        assert_eq!((module.globals.len(), module.functions.len(), module.functions[0].body.len()), (2, 1, 2));
        let words = module.assemble().expect("it is small");
        assert_eq!(Module::parse(&words), Ok(module));
    }

    #[test]
    fn faults_name_the_word() {
        let at = |fault: ModuleError| match fault {
            ModuleError::Syntax { at, .. } => at,
            ModuleError::Structure { site, .. } | ModuleError::Id { site, .. } => site.at,
        };
        let fault = |instructions: &[&[u32]]| at(parse(instructions).expect_err("it has a fault"));
        assert_eq!(fault(&[SMALL[0], SMALL[0]]), 7, "an id twice");
        assert_eq!(fault(&[SMALL[0], SMALL[1], SMALL[2], SMALL[3], SMALL[5]]), 15, "no terminator");
        assert_eq!(fault(&SMALL[..5]), 10, "no end");
        assert_eq!(fault(&[SMALL[0], SMALL[1], &[17, 1]]), 10, "a capability behind types");
        assert_eq!(fault(&[&[33, 2, 1], SMALL[0]]), 5, "used before it is defined");
        assert_eq!(fault(&[SMALL[0], &[0xffff]]), 7, "no such opcode");
        assert_eq!(fault(&[SMALL[0], &[52, 1, 2, 52, 0]]), 7, "what rspirv's parser panics on");
        assert_eq!(at(Module::parse(&HEADER[..3]).expect_err("no header")), 5);
        let cut = [HEADER.as_slice(), &[0x5_0013, 1]].concat();
        assert_eq!(at(Module::parse(&cut).expect_err("a length past the end")), 5);
    }
}
