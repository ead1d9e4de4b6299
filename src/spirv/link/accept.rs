//! What a handler may consist of: one list for each kind of thing, and everything else is refused by name.

use rspirv::dr::Operand;
use rspirv::spirv::{AddressingModel, BuiltIn, Capability, Decoration, MemoryModel, Op, StorageClass};

use super::super::module::{Inst, Module};
use super::error::{Reason, Refusal};

/// The extended instruction set that handlers may use.
const GLSL: &str = "GLSL.std.450";
/// Instruction sets with this prefix carry no meaning: their instructions are dropped.
const NON_SEMANTIC: &str = "NonSemantic.";

/// Extensions that SPIR-V 1.5 contains, or that only allow what is dropped.
const CONTAINED: [&str; 12] = [
    "SPV_EXT_descriptor_indexing",
    "SPV_GOOGLE_decorate_string",
    "SPV_GOOGLE_hlsl_functionality1",
    "SPV_GOOGLE_user_type",
    "SPV_KHR_16bit_storage",
    "SPV_KHR_8bit_storage",
    "SPV_KHR_float_controls",
    "SPV_KHR_no_integer_wrap_decoration",
    "SPV_KHR_non_semantic_info",
    "SPV_KHR_storage_buffer_storage_class",
    "SPV_KHR_subgroup_vote",
    "SPV_KHR_variable_pointers",
];
/// Extensions that the kernel takes over.
const TAKEN: [&str; 2] = ["SPV_EXT_shader_atomic_float_add", "SPV_KHR_integer_dot_product"];

/// What to do with an extension.
pub(super) fn keeps_extension(inst: &Inst) -> Result<bool, Refusal> {
    let Some(Operand::LiteralString(name)) = inst.operands.first() else {
        return Err(Refusal::other(inst, "has no name"));
    };
    if CONTAINED.contains(&name.as_str()) {
        Ok(false)
    } else if TAKEN.contains(&name.as_str()) {
        Ok(true)
    } else {
        Err(Refusal::at(inst, Reason::Extension(name.clone())))
    }
}

/// Whether the instruction set is kept; otherwise its instructions mean nothing and are dropped.
pub(super) fn keeps_import(inst: &Inst) -> Result<bool, Refusal> {
    match inst.operands.first() {
        Some(Operand::LiteralString(name)) if name == GLSL => Ok(true),
        Some(Operand::LiteralString(name)) if name.starts_with(NON_SEMANTIC) => Ok(false),
        Some(Operand::LiteralString(name)) => Err(Refusal::at(inst, Reason::Import(name.clone()))),
        _ => Err(Refusal::other(inst, "has no name")),
    }
}

/// Checks everything that holds for a handler's whole module.
pub(super) fn module(module: &Module) -> Result<(), Refusal> {
    let (major, minor) = module.version;
    if (major, minor) > (1, 5) {
        return Err(Refusal::Version { major, minor });
    }
    for inst in &module.capabilities {
        match inst.operands.first() {
            Some(Operand::Capability(capability)) if hosts_capability(*capability) => {}
            Some(operand) => return Err(Refusal::at(inst, Reason::Capability(operand.to_string()))),
            None => return Err(Refusal::other(inst, "has no operand")),
        }
    }
    for inst in &module.extensions {
        keeps_extension(inst)?;
    }
    for inst in &module.imports {
        keeps_import(inst)?;
    }
    for inst in &module.memory_model {
        let model = [Operand::AddressingModel(AddressingModel::Logical), Operand::MemoryModel(MemoryModel::GLSL450)];
        if inst.operands != model {
            let found: Vec<_> = inst.operands.iter().map(ToString::to_string).collect();
            return Err(Refusal::at(inst, Reason::MemoryModel(format!("this one is {}", found.join(" ")))));
        }
    }
    Ok(())
}

fn hosts_capability(capability: Capability) -> bool {
    use Capability as C;
    matches!(
        capability,
        C::Matrix
            | C::Shader
            | C::Int8
            | C::Int16
            | C::Int64
            | C::Float16
            | C::Float64
            | C::Int64Atomics
            | C::AtomicFloat32AddEXT
            | C::StorageBuffer8BitAccess
            | C::UniformAndStorageBuffer8BitAccess
            | C::StorageBuffer16BitAccess
            | C::UniformAndStorageBuffer16BitAccess
            | C::StoragePushConstant8
            | C::StoragePushConstant16
            | C::DotProduct
            | C::DotProductInputAll
            | C::DotProductInput4x8Bit
            | C::DotProductInput4x8BitPacked
            | C::GroupNonUniform
            | C::GroupNonUniformVote
            | C::GroupNonUniformArithmetic
            | C::GroupNonUniformBallot
            | C::GroupNonUniformShuffle
            | C::GroupNonUniformShuffleRelative
            | C::GroupNonUniformClustered
            | C::GroupNonUniformQuad
    )
}

/// Checks a decoration of something that the handler uses.
pub(super) fn annotation(inst: &Inst) -> Result<(), Refusal> {
    match inst.op {
        Op::Decorate | Op::MemberDecorate => match decoration(inst) {
            Some(decoration) if hosts_decoration(decoration) => Ok(()),
            Some(decoration) => Err(Refusal::at(inst, Reason::Decoration(format!("{decoration:?}")))),
            None => Err(Refusal::other(inst, "has no decoration")),
        },
        // Strings for tools: semantics and user types.
        Op::DecorateString | Op::MemberDecorateString => Ok(()),
        _ => Err(Refusal::at(inst, Reason::Opcode)),
    }
}

/// The decoration that an `OpDecorate` or `OpMemberDecorate` gives.
pub(super) fn decoration(inst: &Inst) -> Option<Decoration> {
    inst.operands.iter().take(3).find_map(|operand| match operand {
        Operand::Decoration(decoration) => Some(*decoration),
        _ => None,
    })
}

fn hosts_decoration(decoration: Decoration) -> bool {
    use Decoration as D;
    matches!(
        decoration,
        D::RelaxedPrecision
            | D::SpecId
            | D::Block
            | D::BufferBlock
            | D::RowMajor
            | D::ColMajor
            | D::ArrayStride
            | D::MatrixStride
            | D::BuiltIn
            | D::Restrict
            | D::Aliased
            | D::Volatile
            | D::Coherent
            | D::NonWritable
            | D::NonReadable
            | D::Binding
            | D::DescriptorSet
            | D::Offset
            | D::FPRoundingMode
            | D::FPFastMathMode
            | D::NoContraction
            | D::NoSignedWrap
            | D::NoUnsignedWrap
    )
}

/// Whether the decoration is dropped: what it says holds no longer, or goes elsewhere.
///
/// `NonWritable` goes because a resident kernel reads what others write between two tasks: drivers serve read-only
/// memory from caches that nothing makes visible. Coherence goes into the accesses, the binding into the table.
pub(super) fn drops_decoration(decoration: Decoration) -> bool {
    use Decoration as D;
    matches!(
        decoration,
        D::SpecId
            | D::BuiltIn
            | D::Volatile
            | D::Coherent
            | D::NonWritable
            | D::NonReadable
            | D::Binding
            | D::DescriptorSet
    )
}

/// Storage class that pointers of a handler get in the kernel.
///
/// Buffers and push constants become device addresses, built-in inputs become private copies.
pub(super) fn storage(class: StorageClass) -> Option<StorageClass> {
    use StorageClass as S;
    match class {
        S::StorageBuffer | S::Uniform | S::PushConstant => Some(S::PhysicalStorageBuffer),
        S::Input => Some(S::Private),
        S::Private | S::Function | S::Workgroup => Some(class),
        _ => None,
    }
}

/// What becomes of a built-in input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stand {
    /// A private variable of three components that the wrapper sets.
    Vector(Vector),
    /// A private variable with the index in the workgroup.
    LocalIndex,
    /// The input itself: subgroups are the same in a task.
    Input(Subgroup),
}

/// Built-ins of three components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Vector {
    WorkgroupId,
    NumWorkgroups,
    LocalInvocationId,
    GlobalInvocationId,
}

/// Built-ins that keep their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subgroup {
    Size,
    LocalInvocationId,
    Id,
    Count,
}

impl Subgroup {
    /// The built-in as SPIR-V names it.
    pub(super) fn built_in(self) -> BuiltIn {
        match self {
            Self::Size => BuiltIn::SubgroupSize,
            Self::LocalInvocationId => BuiltIn::SubgroupLocalInvocationId,
            Self::Id => BuiltIn::SubgroupId,
            Self::Count => BuiltIn::NumSubgroups,
        }
    }
}

/// What becomes of a built-in, if it has a counterpart in a task.
pub(super) fn stand(built_in: BuiltIn) -> Option<Stand> {
    Some(match built_in {
        BuiltIn::WorkgroupId => Stand::Vector(Vector::WorkgroupId),
        BuiltIn::NumWorkgroups => Stand::Vector(Vector::NumWorkgroups),
        BuiltIn::LocalInvocationId => Stand::Vector(Vector::LocalInvocationId),
        BuiltIn::GlobalInvocationId => Stand::Vector(Vector::GlobalInvocationId),
        BuiltIn::LocalInvocationIndex => Stand::LocalIndex,
        BuiltIn::SubgroupSize => Stand::Input(Subgroup::Size),
        BuiltIn::SubgroupLocalInvocationId => Stand::Input(Subgroup::LocalInvocationId),
        BuiltIn::SubgroupId => Stand::Input(Subgroup::Id),
        BuiltIn::NumSubgroups => Stand::Input(Subgroup::Count),
        _ => return None,
    })
}

/// Types, constants and the like that may stand outside functions. Specialization constants keep their defaults.
pub(super) fn hosts_global(op: Op) -> bool {
    matches!(
        op,
        Op::TypeVoid
            | Op::TypeBool
            | Op::TypeInt
            | Op::TypeFloat
            | Op::TypeVector
            | Op::TypeMatrix
            | Op::TypeArray
            | Op::TypeRuntimeArray
            | Op::TypeStruct
            | Op::TypePointer
            | Op::TypeFunction
            | Op::ConstantTrue
            | Op::ConstantFalse
            | Op::Constant
            | Op::ConstantComposite
            | Op::ConstantNull
            | Op::SpecConstantTrue
            | Op::SpecConstantFalse
            | Op::SpecConstant
            | Op::SpecConstantComposite
            | Op::Undef
            | Op::Variable
            | Op::ExtInst
    )
}

/// Instructions in functions whose operands are values alone: ids change and nothing else.
pub(super) fn hosts_plain(op: Op) -> bool {
    use Op as O;
    let control = matches!(
        op,
        O::Label
            | O::Phi
            | O::SelectionMerge
            | O::LoopMerge
            | O::Branch
            | O::BranchConditional
            | O::Switch
            | O::Return
            | O::ReturnValue
            | O::Unreachable
            | O::Undef
            | O::ExtInst
            | O::Select
            | O::CopyObject
    );
    let composite = matches!(
        op,
        O::VectorExtractDynamic
            | O::VectorInsertDynamic
            | O::VectorShuffle
            | O::CompositeConstruct
            | O::CompositeExtract
            | O::CompositeInsert
            | O::CopyLogical
            | O::Transpose
    );
    control || composite || hosts_arithmetic(op) || hosts_subgroup(op)
}

fn hosts_arithmetic(op: Op) -> bool {
    use Op as O;
    // Opcodes of these families are numbered without gaps.
    let conversions = O::ConvertFToU as u32..=O::UConvert as u32;
    let arithmetic = O::SNegate as u32..=O::SMulExtended as u32;
    let relations = O::Any as u32..=O::IsInf as u32;
    let logic = O::LogicalEqual as u32..=O::FUnordGreaterThanEqual as u32;
    let bits = O::ShiftRightLogical as u32..=O::BitCount as u32;
    let dots = O::SDot as u32..=O::SUDotAccSat as u32;
    [conversions, arithmetic, relations, logic, bits, dots].iter().any(|family| family.contains(&(op as u32)))
        || matches!(op, O::SConvert | O::FConvert | O::QuantizeToF16 | O::Bitcast)
}

fn hosts_subgroup(op: Op) -> bool {
    (Op::GroupNonUniformElect as u32..=Op::GroupNonUniformQuadSwap as u32).contains(&(op as u32))
}
