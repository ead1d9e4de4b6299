//! A module's types with their sizes and layouts, and the values of its constants.

use rspirv::dr::Operand;
use rspirv::spirv::{Decoration, Op, StorageClass};
use rustc_hash::FxHashMap;

use super::super::module::{Inst, Module};
use super::accept::decoration;

/// What a type is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Void, functions, and what values are not made of.
    Other,
    Bool,
    /// Bytes, and whether signed.
    Int(u32, bool),
    /// Bytes.
    Float(u32),
    /// Component type and count.
    Vector(u32, u32),
    /// Column type and count.
    Matrix(u32, u32),
    /// Element type and length.
    Array(u32, u32),
    RuntimeArray(u32),
    Struct(Vec<u32>),
    /// Class and pointee.
    Pointer(StorageClass, u32),
}

/// A type and its sizes.
#[derive(Clone, Debug)]
pub(super) struct Type {
    pub shape: Shape,
    /// Size of the largest scalar in it, in bytes.
    pub scalar: u32,
    /// Alignment of its largest vector, at most 16, in bytes.
    pub natural: u32,
    /// Size in workgroup memory, by the rules of std430, in bytes.
    pub size: u64,
    /// Whether it holds a pointer.
    pub has_pointer: bool,
}

/// Layout of a struct's member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberLayout {
    pub offset: Option<u32>,
    pub matrix_stride: Option<u32>,
    pub row_major: bool,
    pub coherent: bool,
    pub volatile: bool,
    pub non_writable: bool,
}

/// Decorations of a type or variable that the linker reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub array_stride: Option<u32>,
    pub block: bool,
    pub buffer_block: bool,
    pub coherent: bool,
    pub volatile: bool,
    pub non_writable: bool,
    pub aliased: bool,
    pub set: Option<u32>,
    pub binding: Option<u32>,
    pub built_in: Option<rspirv::spirv::BuiltIn>,
}

/// Types, layouts and constants of a module, by id.
#[derive(Debug, Default)]
pub(super) struct Types {
    types: FxHashMap<u32, Type>,
    constants: FxHashMap<u32, u32>,
    members: FxHashMap<(u32, u32), MemberLayout>,
    marks: FxHashMap<u32, Marks>,
}

impl Types {
    pub(super) fn of(module: &Module) -> Self {
        let mut types = Self::default();
        for inst in &module.annotations {
            types.annotate(inst);
        }
        for inst in &module.globals {
            types.define(inst);
        }
        types
    }

    pub(super) fn get(&self, id: u32) -> Option<&Type> {
        self.types.get(&id)
    }

    pub(super) fn shape(&self, id: u32) -> &Shape {
        self.types.get(&id).map_or(&Shape::Other, |ty| &ty.shape)
    }

    /// Class and pointee of a pointer type.
    pub(super) fn pointer(&self, id: u32) -> Option<(StorageClass, u32)> {
        match self.shape(id) {
            Shape::Pointer(class, pointee) => Some((*class, *pointee)),
            _ => None,
        }
    }

    /// Value of an integer constant of 32 bits or less; specialization constants have their default.
    pub(super) fn constant(&self, id: u32) -> Option<u32> {
        self.constants.get(&id).copied()
    }

    pub(super) fn member(&self, ty: u32, member: u32) -> MemberLayout {
        self.members.get(&(ty, member)).copied().unwrap_or_default()
    }

    pub(super) fn marks(&self, id: u32) -> Marks {
        self.marks.get(&id).copied().unwrap_or_default()
    }

    /// End of a laid out value in bytes, if all of it has layout decorations; a run-time array counts as empty.
    pub(super) fn laid_out_size(&self, id: u32) -> Option<u64> {
        self.size_in_member(id, MemberLayout::default(), 0)
    }

    fn size_in_member(&self, id: u32, layout: MemberLayout, depth: u32) -> Option<u64> {
        // Types nest as deep as a module likes; a real one stays far below this.
        if depth > 64 {
            return None;
        }
        let ty = self.types.get(&id)?;
        match &ty.shape {
            Shape::Array(of, length) => {
                let stride = u64::from(self.marks(id).array_stride?);
                self.size_in_member(*of, layout, depth + 1)?;
                Some(stride * u64::from(*length))
            }
            Shape::RuntimeArray(of) => {
                self.marks(id).array_stride?;
                self.size_in_member(*of, layout, depth + 1)?;
                Some(0)
            }
            Shape::Struct(members) => {
                let mut end = 0;
                for (index, member) in members.iter().enumerate() {
                    let layout = self.member(id, index as u32);
                    let size = self.size_in_member(*member, layout, depth + 1)?;
                    end = end.max(u64::from(layout.offset?) + size);
                }
                Some(end)
            }
            Shape::Matrix(column, count) => {
                let rows = match self.shape(*column) {
                    Shape::Vector(_, rows) => *rows,
                    _ => return None,
                };
                let vectors = if layout.row_major { rows } else { *count };
                Some(u64::from(layout.matrix_stride?) * u64::from(vectors))
            }
            Shape::Int(..) | Shape::Float(_) | Shape::Vector(..) => Some(ty.size),
            Shape::Bool | Shape::Other | Shape::Pointer(..) => None,
        }
    }

    fn annotate(&mut self, inst: &Inst) {
        let (Some(target), Some(decoration)) = (inst.id_at(0), decoration(inst)) else {
            return;
        };
        let literal = inst.operands.last().and_then(|operand| match operand {
            Operand::LiteralBit32(value) => Some(*value),
            _ => None,
        });
        if inst.op == Op::MemberDecorate {
            let Some(member) = inst.literal_at(1) else {
                return;
            };
            let layout = self.members.entry((target, member)).or_default();
            match decoration {
                Decoration::Offset => layout.offset = literal,
                Decoration::MatrixStride => layout.matrix_stride = literal,
                Decoration::RowMajor => layout.row_major = true,
                Decoration::Coherent => layout.coherent = true,
                Decoration::Volatile => layout.volatile = true,
                Decoration::NonWritable => layout.non_writable = true,
                _ => {}
            }
        } else if inst.op == Op::Decorate {
            let marks = self.marks.entry(target).or_default();
            match decoration {
                Decoration::ArrayStride => marks.array_stride = literal,
                Decoration::Block => marks.block = true,
                Decoration::BufferBlock => marks.buffer_block = true,
                Decoration::Coherent => marks.coherent = true,
                Decoration::Volatile => marks.volatile = true,
                Decoration::NonWritable => marks.non_writable = true,
                Decoration::Aliased | Decoration::Restrict => marks.aliased = true,
                Decoration::DescriptorSet => marks.set = literal,
                Decoration::Binding => marks.binding = literal,
                Decoration::BuiltIn => {
                    marks.built_in = inst.operands.iter().find_map(|operand| match operand {
                        Operand::BuiltIn(built_in) => Some(*built_in),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
    }

    fn define(&mut self, inst: &Inst) {
        let Some(id) = inst.id else {
            return;
        };
        if let (Op::Constant | Op::SpecConstant, Some(ty), Some(value)) = (inst.op, inst.ty, inst.literal_at(0)) {
            if matches!(self.shape(ty), Shape::Int(..)) {
                self.constants.insert(id, value);
            }
        } else if let (Op::ConstantNull, Some(ty)) = (inst.op, inst.ty) {
            if matches!(self.shape(ty), Shape::Int(..)) {
                self.constants.insert(id, 0);
            }
        } else if inst.op.is_type() {
            let ty = self.measure(inst);
            self.types.insert(id, ty);
        }
    }

    fn measure(&self, inst: &Inst) -> Type {
        let leaf =
            |shape, bytes: u32| Type { shape, scalar: bytes, natural: bytes, size: bytes.into(), has_pointer: false };
        let operand = |index| inst.id_at(index).unwrap_or(0);
        let of = |id: u32| self.types.get(&id).cloned().unwrap_or_else(|| leaf(Shape::Other, 0));
        let bytes = inst.literal_at(0).unwrap_or(0) / 8;
        match inst.op {
            Op::TypeBool => leaf(Shape::Bool, 4),
            Op::TypeInt => leaf(Shape::Int(bytes, inst.literal_at(1) == Some(1)), bytes),
            Op::TypeFloat => leaf(Shape::Float(bytes), bytes),
            Op::TypeVector => {
                let (component, count) = (of(operand(0)), inst.literal_at(1).unwrap_or(0));
                let natural = (u64::from(component.scalar) * u64::from(count)).next_power_of_two().min(16) as u32;
                let size = component.size.saturating_mul(count.into());
                Type { shape: Shape::Vector(operand(0), count), natural, size, ..component }
            }
            Op::TypeMatrix => {
                let (column, count) = (of(operand(0)), inst.literal_at(1).unwrap_or(0));
                let size = round_up(column.size, column.natural).saturating_mul(count.into());
                Type { shape: Shape::Matrix(operand(0), count), size, ..column }
            }
            Op::TypeArray => {
                let (element, length) = (of(operand(0)), self.constant(operand(1)).unwrap_or(0));
                let size = round_up(element.size, element.natural).saturating_mul(length.into());
                Type { shape: Shape::Array(operand(0), length), size, ..element }
            }
            Op::TypeRuntimeArray => Type { shape: Shape::RuntimeArray(operand(0)), size: 0, ..of(operand(0)) },
            Op::TypeStruct => {
                let members: Vec<u32> = inst.ids().collect();
                let mut whole = leaf(Shape::Other, 0);
                for member in members.iter().map(|id| of(*id)) {
                    whole.scalar = whole.scalar.max(member.scalar);
                    whole.natural = whole.natural.max(member.natural);
                    whole.size = round_up(whole.size, member.natural).saturating_add(member.size);
                    whole.has_pointer |= member.has_pointer;
                }
                Type { shape: Shape::Struct(members), size: round_up(whole.size, whole.natural), ..whole }
            }
            Op::TypePointer => {
                let class = match inst.operands.first() {
                    Some(Operand::StorageClass(class)) => *class,
                    _ => StorageClass::Generic,
                };
                Type { has_pointer: true, ..leaf(Shape::Pointer(class, operand(1)), 8) }
            }
            _ => leaf(Shape::Other, 0),
        }
    }
}

fn round_up(size: u64, to: u32) -> u64 {
    // Alignments of garbage types may be 0.
    size.checked_next_multiple_of(u64::from(to.max(1))).unwrap_or(u64::MAX)
}
