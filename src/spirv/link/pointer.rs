//! Pointers into memory that tasks share: alignment and coherence along access chains.

use rspirv::spirv::StorageClass;

use super::super::module::Inst;
use super::error::{Reason, Refusal};
use super::types::{MemberLayout, Shape, Types};

/// What is known about a pointer of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// Class in the handler's own module.
    pub class: StorageClass,
    /// Type that it points to.
    pub pointee: u32,
    /// Bytes that its address is certainly a multiple of; counts for buffers alone.
    pub align: u32,
    pub coherent: bool,
    pub volatile: bool,
    /// Module-scope variable that it points into.
    pub root: Option<u32>,
    /// Layout of the struct member that it points into, which says how matrices lie.
    member: MemberLayout,
}

/// Alignment that the start of every bound buffer, and of the payload, has.
pub(super) const BASE_ALIGNMENT: u32 = 16;

impl Pointer {
    pub(super) fn new(class: StorageClass, pointee: u32, align: u32, root: Option<u32>) -> Self {
        Self { class, pointee, align, coherent: false, volatile: false, root, member: MemberLayout::default() }
    }

    /// Whether it points into a buffer or push constants.
    pub(super) fn is_buffer(&self) -> bool {
        matches!(self.class, StorageClass::StorageBuffer | StorageClass::Uniform | StorageClass::PushConstant)
    }

    /// The pointer that an access chain over `indices` makes; `inst` is the chain.
    pub(super) fn chain(mut self, types: &Types, inst: &Inst, indices: &[u32]) -> Result<Self, Refusal> {
        for index in indices {
            self = self.step(types, inst, *index)?;
        }
        Ok(self)
    }

    fn step(mut self, types: &Types, inst: &Inst, index: u32) -> Result<Self, Refusal> {
        let constant = types.constant(index);
        let bad = |reason| Err(Refusal::other(inst, reason));
        let scalar = types.get(self.pointee).map_or(1, |ty| ty.scalar);
        let (inner, stride) = match types.shape(self.pointee) {
            Shape::Struct(members) => {
                let Some((number, member)) = constant.and_then(|at| Some((at, *members.get(at as usize)?))) else {
                    return bad("takes a member that the struct doesn't have");
                };
                self.member = types.member(self.pointee, number);
                self.coherent |= self.member.coherent;
                self.volatile |= self.member.volatile;
                if self.is_buffer() {
                    let Some(offset) = self.member.offset else {
                        return Err(Refusal::at(inst, Reason::Layout("an offset")));
                    };
                    self.align = common(self.align, offset);
                }
                self.pointee = member;
                return Ok(self);
            }
            Shape::Array(element, _) | Shape::RuntimeArray(element) => {
                (*element, types.marks(self.pointee).array_stride)
            }
            Shape::Matrix(column, _) if self.member.row_major => (*column, Some(scalar)),
            Shape::Matrix(column, _) => (*column, self.member.matrix_stride),
            Shape::Vector(component, _) if self.member.row_major => {
                (*component, self.member.matrix_stride.or(Some(scalar)))
            }
            Shape::Vector(component, _) => (*component, Some(scalar)),
            _ => return bad("takes a part of what has none"),
        };
        if self.is_buffer() {
            let Some(stride) = stride else {
                return Err(Refusal::at(inst, Reason::Layout("a stride")));
            };
            self.align = common(self.align, stride.wrapping_mul(constant.unwrap_or(1)));
        }
        self.pointee = inner;
        Ok(self)
    }

    /// The alignment to state for an access to all that it points to.
    ///
    /// Vectors may be fetched whole where their layout allows it; the parts of a row-major matrix never lie together.
    pub(super) fn alignment(&self, types: &Types, inst: &Inst) -> Result<u32, Refusal> {
        let Some(ty) = types.get(self.pointee) else {
            return Err(Refusal::other(inst, "accesses a value of no type"));
        };
        let most = if self.member.row_major { ty.scalar } else { ty.natural };
        let align = self.align.min(most);
        if align < ty.scalar || !align.is_power_of_two() {
            return Err(Refusal::at(inst, Reason::Layout("the alignment that its scalars need")));
        }
        Ok(align)
    }
}

/// The largest power of two that divides both.
fn common(align: u32, offset: u32) -> u32 {
    if offset == 0 { align } else { align.min(1 << offset.trailing_zeros()) }
}

#[cfg(test)]
mod tests {
    use super::common;

    #[test]
    fn an_offset_keeps_what_it_is_a_multiple_of() {
        assert_eq!([0, 4, 8, 12, 16, 48].map(|offset| common(16, offset)), [16, 4, 8, 4, 16, 16]);
    }
}
