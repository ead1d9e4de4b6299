//! Opcodes: which handler a task runs. Built-ins come first, registered handlers from [`FIRST_HANDLER`] on.

/// Does nothing; the result is the first payload word.
pub const NOP: u32 = 0;
/// Stores payload word 1 at word index 0 of the bound buffer; the result is the stored value.
pub const STORE: u32 = 1;
/// Adds payload word 1 at word index 0 of the bound buffer; the result is the value before.
pub const ATOMIC_ADD: u32 = 2;
/// Loads word index 0 of the bound buffer into the result.
pub const LOAD: u32 = 3;
/// Replaces payload word 1 by word 2 at word index 0; the result is the value before.
pub const COMPARE_SWAP: u32 = 4;
/// Copies words from the table's second buffer to its first: to, from, count.
pub const MEMCPY: u32 = 5;
/// Asks the kernel to leave once the tasks that workers hold have ended.
pub const SHUTDOWN: u32 = 6;
/// Opcodes below this are built in or reserved.
pub const FIRST_HANDLER: u32 = 16;

const _: () = assert!(SHUTDOWN < FIRST_HANDLER && FIRST_HANDLER <= super::slot::HANDLER_MASK);
