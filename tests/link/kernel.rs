//! A kernel that runs one task by hand: each workgroup takes one workgroup of the task's grid.

use abide::ir::{Access, Builder, Input, MemoryClasses, Order, Scope};
use abide::protocol::{binding, task};
use abide::spirv::{Lowered, lower};

/// Word of the task buffer with the opcode.
pub const OPCODE: u32 = task::WORDS;
/// Words of the task buffer: the task's words as the handler meets them, then the opcode.
pub const TASK_WORDS: u32 = task::WORDS + 4;
/// Binding of the task buffer.
pub const TASK: u32 = 0;
/// Binding of the buffer that takes FAULT and RESULT of each workgroup: two words each.
pub const FAULTS: u32 = 1;

/// The kernel: copies the task's words, with its own index as WorkgroupId, calls the handler, stores what it left.
///
/// Only one row of workgroups is launched: the grid is unrolled here, as a worker of the real kernel does.
pub fn kernel() -> Lowered {
    let mut b = Builder::new("one task", 0);
    let words = b.buffer("task_words", TASK, Access::Coherent);
    let faults = b.buffer("faults", FAULTS, Access::Coherent);
    let task_array = b.task("task", task::WORDS);
    let (lane, width) = (b.input(Input::LocalIndex), b.input(Input::WorkgroupSize));
    let group = b.input(Input::WorkgroupIndex);
    let turns = b.div(task::WORDS - 1, width);
    let turns = b.add(turns, 1);
    b.count(turns, |b, turn| {
        let start = b.mul(turn, width);
        let at = b.add(start, lane);
        let inside = b.lt(at, task::WORDS);
        b.when(inside, |b| {
            let from = b.at(words, at);
            let word = b.load(from);
            let to = b.shared_at(task_array, at);
            b.store(to, word);
        });
    });
    b.control_barrier(MemoryClasses::SHARED);
    let first = b.eq(lane, 0);
    b.when(first, |b| {
        let [x, y] = [0, 1].map(|axis| {
            let place = b.at(words, task::GRID + axis);
            b.load(place)
        });
        let rows = b.div(group, x);
        let parts = [b.rem(group, x), b.rem(rows, y), b.div(rows, y)];
        for (axis, part) in parts.into_iter().enumerate() {
            let place = b.shared_at(task_array, task::GROUP + axis as u32);
            b.store(place, part);
        }
    });
    b.memory_barrier(Scope::Device, Order::Acquire, MemoryClasses::ALL);
    b.control_barrier(MemoryClasses::ALL);
    let place = b.at(words, OPCODE);
    let opcode = b.load(place);
    b.call_handler(opcode);
    b.control_barrier(MemoryClasses::ALL);
    b.when(first, |b| {
        for (index, word) in [task::FAULT, task::RESULT].into_iter().enumerate() {
            let from = b.shared_at(task_array, word);
            let value = b.load(from);
            let start = b.mul(group, 2);
            let at = b.add(start, index as u32);
            let to = b.at(faults, at);
            b.store(to, value);
        }
    });
    lower(&b.finish()).expect("the test kernel lowers")
}

/// Puts an entry {address, length} into the binding table of a task's words.
pub fn bind(words: &mut [u32], entry: u32, address: u64, length: u64) {
    let at = (task::BINDINGS + entry * binding::ENTRY_WORDS) as usize;
    words[at..at + 4].copy_from_slice(&[address as u32, (address >> 32) as u32, length as u32, (length >> 32) as u32]);
}
