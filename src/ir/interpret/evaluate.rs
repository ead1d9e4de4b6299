//! What operations without effect give.

use crate::ir::{BinaryOp, UnaryOp};

/// An operation on one word; `truth` says that it is a bool.
pub fn unary(op: UnaryOp, word: u32, truth: bool) -> u32 {
    match op {
        UnaryOp::Not if truth => word ^ 1,
        UnaryOp::Not => !word,
        UnaryOp::FindLsb if word == 0 => u32::MAX,
        UnaryOp::FindLsb => word.trailing_zeros(),
        UnaryOp::CountOnes => word.count_ones(),
    }
}

/// An operation on two words. Where the IR leaves the result undefined it is 0.
pub fn binary(op: BinaryOp, left: u32, right: u32) -> u32 {
    match op {
        BinaryOp::Add => left.wrapping_add(right),
        BinaryOp::Sub => left.wrapping_sub(right),
        BinaryOp::Mul => left.wrapping_mul(right),
        BinaryOp::Div => left.checked_div(right).unwrap_or(0),
        BinaryOp::Rem => left.checked_rem(right).unwrap_or(0),
        BinaryOp::And => left & right,
        BinaryOp::Or => left | right,
        BinaryOp::Xor => left ^ right,
        BinaryOp::Shl => left.checked_shl(right).unwrap_or(0),
        BinaryOp::Shr => left.checked_shr(right).unwrap_or(0),
        BinaryOp::Min => left.min(right),
        BinaryOp::Max => left.max(right),
        BinaryOp::Eq => u32::from(left == right),
        BinaryOp::Ne => u32::from(left != right),
        BinaryOp::Lt => u32::from(left < right),
        BinaryOp::Le => u32::from(left <= right),
        BinaryOp::Gt => u32::from(left > right),
        BinaryOp::Ge => u32::from(left >= right),
    }
}
