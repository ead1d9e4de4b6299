//! Rules for one node: the operands that it needs, and their types.

use super::{AtomicOperand, Fault, Scope, Types, Verifier};
use crate::ir::{
    self, Atomic, AtomicOp, BinaryOp, Input, MemoryClasses, Node, Order, Place, SubgroupOp, Type, UnaryOp, Value, Var,
};

const BOOL: Types = Types(&[Type::Bool]);
const U32: Types = Types(&[Type::U32]);
const VEC4: Types = Types(&[Type::Vec4]);
const BOOL_OR_U32: Types = Types(&[Type::Bool, Type::U32]);
const U32_OR_VEC4: Types = Types(&[Type::U32, Type::Vec4]);

/// The one type, as the types that would do.
fn only(ty: Type) -> Types {
    match ty {
        Type::Bool => BOOL,
        Type::U32 => U32,
        Type::Vec4 => VEC4,
    }
}

impl Verifier<'_> {
    /// Checks a node without the blocks that it holds. Operands come first, so that no node uses its own result.
    pub(super) fn shallow(&mut self, node: &Node, scope: &mut Scope) -> Result<(), Fault> {
        match node {
            Node::ConstU32(result, _) => self.result(*result, U32, scope),
            Node::ConstBool(result, _) => self.result(*result, BOOL, scope),
            Node::Input(result, input) => self.input(*result, *input, scope),
            Node::Unary(result, op, operand) => self.unary(*result, *op, *operand, scope),
            Node::Binary(result, op, left, right) => self.binary(*result, *op, [*left, *right], scope),
            Node::Select(result, condition, yes, no) => {
                self.operand(*condition, BOOL)?;
                let ty = self.used(*yes)?;
                self.operand(*no, only(ty))?;
                self.result(*result, only(ty), scope)
            }
            Node::Compose(result, words) => {
                for word in words {
                    self.operand(*word, U32)?;
                }
                self.result(*result, VEC4, scope)
            }
            Node::Extract(result, vector, index) => {
                self.operand(*vector, VEC4)?;
                if *index > 3 {
                    return Err(Fault::ExtractIndex(*index));
                }
                self.result(*result, U32, scope)
            }
            Node::Get(result, var) => {
                let ty = self.var(*var)?;
                if !self.set[var.0 as usize] {
                    return Err(Fault::UnsetVar(*var));
                }
                self.result(*result, only(ty), scope)
            }
            Node::Set(var, value) => self.set(*var, *value, scope),
            Node::Load(result, place) => {
                self.place(place, false)?;
                self.result(*result, U32, scope)
            }
            Node::Store(place, value) => {
                self.place(place, false)?;
                self.operand(*value, U32)
            }
            Node::Load4(result, place) => {
                self.place(place, true)?;
                self.result(*result, VEC4, scope)
            }
            Node::Store4(place, value) => {
                self.place(place, true)?;
                self.operand(*value, VEC4)
            }
            Node::Atomic(atomic) => self.atomic(atomic, scope),
            Node::MemoryBarrier(_, order, classes) => orders_something(*order, *classes),
            Node::ControlBarrier(ir::Scope::Device, _) => Err(Fault::ControlScope),
            Node::ControlBarrier(_, classes) => orders_something(Order::AcquireRelease, *classes),
            Node::Subgroup(result, op) => self.subgroup(*result, op, scope),
            Node::If(condition, ..) => self.operand(*condition, BOOL),
            Node::For(index, bound, _) => {
                self.operand(*bound, U32)?;
                // The body's block forgets it.
                self.result(*index, U32, &mut Scope::default())
            }
            Node::Loop(_) | Node::Break | Node::Continue => Ok(()),
            Node::CallHandler(opcode) => {
                self.operand(*opcode, U32)?;
                self.module.task.map(|_| ()).ok_or(Fault::NoTask)
            }
        }
    }

    /// Checks a value that is used.
    fn operand(&self, value: Value, expected: Types) -> Result<(), Fault> {
        fits(value, self.used(value)?, expected)
    }

    /// Checks a value that is defined, and makes it visible.
    fn result(&mut self, value: Value, expected: Types, scope: &mut Scope) -> Result<(), Fault> {
        let found = self.define(value)?;
        scope.values.push(value);
        fits(value, found, expected)
    }

    fn input(&mut self, result: Value, input: Input, scope: &mut Scope) -> Result<(), Fault> {
        let declared = self.module.params;
        match input {
            Input::Param(word) if word >= declared => Err(Fault::UnknownParam { word, declared }),
            _ => self.result(result, U32, scope),
        }
    }

    fn unary(&mut self, result: Value, op: UnaryOp, operand: Value, scope: &mut Scope) -> Result<(), Fault> {
        let expected = match op {
            UnaryOp::Not => BOOL_OR_U32,
            UnaryOp::FindLsb | UnaryOp::CountOnes => U32,
        };
        self.operand(operand, expected)?;
        let ty = self.used(operand)?;
        self.result(result, only(ty), scope)
    }

    fn binary(&mut self, result: Value, op: BinaryOp, operands: [Value; 2], scope: &mut Scope) -> Result<(), Fault> {
        use BinaryOp::*;
        let [left, right] = operands;
        let expected = if matches!(op, And | Or | Xor | Eq | Ne) { BOOL_OR_U32 } else { U32 };
        self.operand(left, expected)?;
        let ty = self.used(left)?;
        self.operand(right, only(ty))?;
        let compares = matches!(op, Eq | Ne | Lt | Le | Gt | Ge);
        self.result(result, if compares { BOOL } else { only(ty) }, scope)
    }

    fn set(&mut self, var: Var, value: Value, scope: &mut Scope) -> Result<(), Fault> {
        let ty = self.var(var)?;
        self.operand(value, only(ty))?;
        if !std::mem::replace(&mut self.set[var.0 as usize], true) {
            scope.vars.push(var);
        }
        Ok(())
    }

    fn place(&self, place: &Place, quad: bool) -> Result<(), Fault> {
        match *place {
            Place::Buffer { buffer, index } => {
                let declared = self.module.buffers.len();
                if buffer.0 as usize >= declared {
                    return Err(Fault::UnknownBuffer { buffer, declared });
                }
                self.operand(index, U32)
            }
            Place::Shared { shared, index } => {
                let declared = self.module.shared.len();
                if shared.0 as usize >= declared {
                    return Err(Fault::UnknownShared { shared, declared });
                }
                if quad {
                    return Err(Fault::QuadInShared(shared));
                }
                self.operand(index, U32)
            }
            Place::Address { low, high, index, .. } => {
                self.operand(low, U32)?;
                self.operand(high, U32)?;
                self.operand(index, U32)
            }
        }
    }

    fn atomic(&mut self, atomic: &Atomic, scope: &mut Scope) -> Result<(), Fault> {
        let op = atomic.op;
        self.place(&atomic.place, false)?;
        for (operand, value, needed) in [
            (AtomicOperand::Result, atomic.result, op != AtomicOp::Store),
            (AtomicOperand::Value, atomic.value, op != AtomicOp::Load),
            (AtomicOperand::Expected, atomic.expected, op == AtomicOp::CompareExchange),
        ] {
            match (value, needed) {
                (None, true) => return Err(Fault::MissingOperand { op, operand }),
                (Some(_), false) => return Err(Fault::ExtraOperand { op, operand }),
                (Some(value), true) if operand != AtomicOperand::Result => self.operand(value, U32)?,
                _ => {}
            }
        }
        let legal = match op {
            AtomicOp::Load => matches!(atomic.order, Order::Relaxed | Order::Acquire),
            AtomicOp::Store => matches!(atomic.order, Order::Relaxed | Order::Release),
            _ => true,
        };
        if !legal {
            return Err(Fault::IllegalOrder { op, order: atomic.order });
        }
        match atomic.result {
            Some(result) => self.result(result, U32, scope),
            None => Ok(()),
        }
    }

    fn subgroup(&mut self, result: Value, op: &SubgroupOp, scope: &mut Scope) -> Result<(), Fault> {
        let ty = match *op {
            SubgroupOp::Any(value) | SubgroupOp::All(value) => {
                self.operand(value, BOOL)?;
                BOOL
            }
            SubgroupOp::Ballot(value) => {
                self.operand(value, BOOL)?;
                VEC4
            }
            SubgroupOp::Shuffle(value, lane) => {
                self.operand(lane, U32)?;
                self.operand(value, U32_OR_VEC4)?;
                only(self.used(value)?)
            }
            SubgroupOp::BroadcastFirst(value) => {
                self.operand(value, U32_OR_VEC4)?;
                only(self.used(value)?)
            }
            SubgroupOp::Add(value) => {
                self.operand(value, U32)?;
                U32
            }
            SubgroupOp::Elect => BOOL,
        };
        self.result(result, ty, scope)
    }
}

fn fits(value: Value, found: Type, expected: Types) -> Result<(), Fault> {
    match expected.0.contains(&found) {
        true => Ok(()),
        false => Err(Fault::Type { value, found, expected }),
    }
}

fn orders_something(order: Order, classes: MemoryClasses) -> Result<(), Fault> {
    match order != Order::Relaxed && (classes.buffers || classes.shared) {
        true => Ok(()),
        false => Err(Fault::OrdersNothing),
    }
}

/// A node's kind, as its variant is spelled.
pub(super) fn kind(node: &Node) -> &'static str {
    match node {
        Node::ConstU32(..) => "ConstU32",
        Node::ConstBool(..) => "ConstBool",
        Node::Input(..) => "Input",
        Node::Unary(..) => "Unary",
        Node::Binary(..) => "Binary",
        Node::Select(..) => "Select",
        Node::Compose(..) => "Compose",
        Node::Extract(..) => "Extract",
        Node::Get(..) => "Get",
        Node::Set(..) => "Set",
        Node::Load(..) => "Load",
        Node::Store(..) => "Store",
        Node::Load4(..) => "Load4",
        Node::Store4(..) => "Store4",
        Node::Atomic(_) => "Atomic",
        Node::MemoryBarrier(..) => "MemoryBarrier",
        Node::ControlBarrier(..) => "ControlBarrier",
        Node::Subgroup(..) => "Subgroup",
        Node::If(..) => "If",
        Node::Loop(_) => "Loop",
        Node::For(..) => "For",
        Node::Break => "Break",
        Node::Continue => "Continue",
        Node::CallHandler(_) => "CallHandler",
    }
}
