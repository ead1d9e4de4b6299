//! Operations across the subgroup.

use rspirv::dr::{InsertPoint, Instruction, Operand};
use rspirv::spirv::{GroupOperation, Op, Scope};

use super::{Emitter, LowerError};
use crate::ir::{SubgroupOp, Value};

impl Emitter<'_> {
    pub(super) fn subgroup(&mut self, result: Value, op: &SubgroupOp) -> Result<(), LowerError> {
        let scope = self.word(Scope::Subgroup as u32);
        let (op, values) = match *op {
            SubgroupOp::Any(value) => (Op::GroupNonUniformAny, vec![value]),
            SubgroupOp::All(value) => (Op::GroupNonUniformAll, vec![value]),
            SubgroupOp::Ballot(value) => (Op::GroupNonUniformBallot, vec![value]),
            SubgroupOp::Shuffle(value, lane) => (Op::GroupNonUniformShuffle, vec![value, lane]),
            SubgroupOp::BroadcastFirst(value) => (Op::GroupNonUniformBroadcastFirst, vec![value]),
            SubgroupOp::Add(value) => (Op::GroupNonUniformIAdd, vec![value]),
            SubgroupOp::Elect => (Op::GroupNonUniformElect, Vec::new()),
        };
        let mut operands = vec![Operand::IdScope(scope)];
        if op == Op::GroupNonUniformIAdd {
            operands.push(Operand::GroupOperation(GroupOperation::Reduce));
        }
        operands.extend(values.iter().map(|&value| Operand::IdRef(self.id(value))));
        let (ty, id) = (self.type_id(self.type_of(result)), self.builder.id());
        self.builder.insert_into_block(InsertPoint::End, Instruction::new(op, Some(ty), Some(id), operands))?;
        self.define(result, id);
        Ok(())
    }
}
