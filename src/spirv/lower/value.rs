//! Constants, inputs, arithmetic, selection and variables: what touches no shared memory.

use rspirv::dr::Operand;
use rspirv::spirv::{GlslStd450Op, Op, Word};

use super::{Emitter, LowerError};
use crate::ir::{BinaryOp, Input, Type, UnaryOp, Value, Var};

impl Emitter<'_> {
    pub(super) fn const_u32(&mut self, result: Value, value: u32) {
        let id = self.word(value);
        self.define(result, id);
    }

    pub(super) fn const_bool(&mut self, result: Value, value: bool) {
        let id = self.constants.truth(&mut self.builder, value);
        self.define(result, id);
    }

    pub(super) fn input(&mut self, result: Value, input: Input) -> Result<(), LowerError> {
        let uint = self.globals.uint;
        let id = match input {
            Input::WorkgroupSize => self.globals.width,
            Input::Param(word) => {
                let (zero, word) = (self.word(0), self.word(word));
                let pointer = self.builder.type_pointer(None, rspirv::spirv::StorageClass::PushConstant, uint);
                let params = self.globals.params.ok_or_else(|| missing("the launch parameters"))?;
                let at = self.builder.access_chain(pointer, None, params, [zero, word])?;
                self.builder.load(uint, None, at, None, [])?
            }
            Input::LocalIndex | Input::SubgroupLane | Input::SubgroupSize | Input::SubgroupCount => {
                let variable = self.input_variable(input)?;
                self.builder.load(uint, None, variable, None, [])?
            }
            Input::WorkgroupIndex | Input::WorkgroupCount => {
                let variable = self.input_variable(input)?;
                let uvec3 = self.builder.type_vector(uint, 3);
                let all = self.builder.load(uvec3, None, variable, None, [])?;
                self.builder.composite_extract(uint, None, all, [0])?
            }
        };
        self.define(result, id);
        Ok(())
    }

    pub(super) fn input_variable(&self, input: Input) -> Result<Word, LowerError> {
        self.globals.inputs.get(&input).copied().ok_or_else(|| missing("a built-in input"))
    }

    pub(super) fn unary(&mut self, result: Value, op: UnaryOp, operand: Value) -> Result<(), LowerError> {
        let (ty, operand_id) = (self.type_id(self.type_of(result)), self.id(operand));
        let id = match (op, self.type_of(operand)) {
            (UnaryOp::Not, Type::Bool) => self.op(Op::LogicalNot, ty, &[operand_id])?,
            (UnaryOp::Not, _) => self.op(Op::Not, ty, &[operand_id])?,
            (UnaryOp::FindLsb, _) => self.glsl(GlslStd450Op::FindILsb, ty, &[operand_id])?,
            (UnaryOp::CountOnes, _) => self.op(Op::BitCount, ty, &[operand_id])?,
        };
        self.define(result, id);
        Ok(())
    }

    pub(super) fn binary(&mut self, result: Value, op: BinaryOp, left: Value, right: Value) -> Result<(), LowerError> {
        let ty = self.type_id(self.type_of(result));
        let operands = [self.id(left), self.id(right)];
        let id = match operation(op, self.type_of(left)) {
            Operation::Core(op) => self.op(op, ty, &operands)?,
            Operation::Glsl(op) => self.glsl(op, ty, &operands)?,
        };
        self.define(result, id);
        Ok(())
    }

    pub(super) fn select(&mut self, result: Value, condition: Value, yes: Value, no: Value) -> Result<(), LowerError> {
        let operands = [self.id(condition), self.id(yes), self.id(no)];
        let id = self.op(Op::Select, self.type_id(self.type_of(result)), &operands)?;
        self.define(result, id);
        Ok(())
    }

    pub(super) fn compose(&mut self, result: Value, words: [Value; 4]) -> Result<(), LowerError> {
        let words = words.map(|word| self.id(word));
        let id = self.op(Op::CompositeConstruct, self.globals.uvec4, &words)?;
        self.define(result, id);
        Ok(())
    }

    pub(super) fn extract(&mut self, result: Value, vector: Value, index: u32) -> Result<(), LowerError> {
        let (uint, vector) = (self.globals.uint, self.id(vector));
        let id = self.builder.composite_extract(uint, None, vector, [index])?;
        self.define(result, id);
        Ok(())
    }

    pub(super) fn get(&mut self, result: Value, var: Var) -> Result<(), LowerError> {
        let (ty, var) = (self.type_id(self.type_of(result)), self.vars[var.0 as usize]);
        let id = self.builder.load(ty, None, var, None, [])?;
        self.define(result, id);
        Ok(())
    }

    pub(super) fn set(&mut self, var: Var, value: Value) -> Result<(), LowerError> {
        let (var, value) = (self.vars[var.0 as usize], self.id(value));
        Ok(self.builder.store(var, value, None, [])?)
    }

    fn glsl(&mut self, op: GlslStd450Op, ty: Word, operands: &[Word]) -> Result<Word, LowerError> {
        let set = self.globals.glsl.ok_or_else(|| missing("GLSL.std.450"))?;
        let operands: Vec<_> = operands.iter().map(|&operand| Operand::IdRef(operand)).collect();
        Ok(self.builder.ext_inst(ty, None, set, op as u32, operands)?)
    }
}

/// The walk that collects a kernel's needs overlooked something.
fn missing(what: &str) -> LowerError {
    LowerError::Structure(format!("{what} is used, and not declared"))
}

/// An instruction, or one of the extended set.
enum Operation {
    Core(Op),
    Glsl(GlslStd450Op),
}

fn operation(op: BinaryOp, ty: Type) -> Operation {
    let logical = ty == Type::Bool;
    Operation::Core(match op {
        BinaryOp::Add => Op::IAdd,
        BinaryOp::Sub => Op::ISub,
        BinaryOp::Mul => Op::IMul,
        BinaryOp::Div => Op::UDiv,
        BinaryOp::Rem => Op::UMod,
        BinaryOp::And if logical => Op::LogicalAnd,
        BinaryOp::And => Op::BitwiseAnd,
        BinaryOp::Or if logical => Op::LogicalOr,
        BinaryOp::Or => Op::BitwiseOr,
        BinaryOp::Xor | BinaryOp::Ne if logical => Op::LogicalNotEqual,
        BinaryOp::Xor => Op::BitwiseXor,
        BinaryOp::Shl => Op::ShiftLeftLogical,
        BinaryOp::Shr => Op::ShiftRightLogical,
        BinaryOp::Min => return Operation::Glsl(GlslStd450Op::UMin),
        BinaryOp::Max => return Operation::Glsl(GlslStd450Op::UMax),
        BinaryOp::Eq if logical => Op::LogicalEqual,
        BinaryOp::Eq => Op::IEqual,
        BinaryOp::Ne => Op::INotEqual,
        BinaryOp::Lt => Op::ULessThan,
        BinaryOp::Le => Op::ULessThanEqual,
        BinaryOp::Gt => Op::UGreaterThan,
        BinaryOp::Ge => Op::UGreaterThanEqual,
    })
}
