//! A kernel that runs a list of tasks: the workgroups share out each task's grid, and take one task after the other.

use abide::ir::{Access, Builder, Input, MemoryClasses, Order, Scope};
use abide::protocol::{binding, task};
use abide::spirv::{Lowered, lower};

/// Binding of the buffer with the tasks.
pub const TASKS: u32 = 0;
/// Binding of the buffer that takes fault and result of each workgroup: two words each.
pub const LEFT: u32 = 1;
/// Launch parameters: the number of tasks.
pub const PARAMS: u32 = 1;

/// In a task's record, behind the task's words as the handler meets them: its opcode.
pub const OPCODE: u32 = task::WORDS;
/// In a task's record: the word of [`LEFT`] where its first workgroup puts what it left.
pub const LEFT_AT: u32 = task::WORDS + 1;
/// Words of a task's record.
pub const RECORD: u32 = task::WORDS + 2;

/// The kernel.
pub fn kernel() -> Lowered {
    let mut b = Builder::new("tasks", PARAMS);
    let tasks = b.buffer("tasks", TASKS, Access::Coherent);
    let left = b.buffer("left", LEFT, Access::Coherent);
    let words = b.task("task", task::WORDS);
    let (lane, width) = (b.input(Input::LocalIndex), b.input(Input::WorkgroupSize));
    let (worker, workers) = (b.input(Input::WorkgroupIndex), b.input(Input::WorkgroupCount));
    let first = b.eq(lane, 0);
    let count = b.param(0);
    b.count(count, |b, number| {
        let record = b.mul(number, RECORD);
        let [x, y, z, opcode, left_at] = [task::GRID, task::GRID + 1, task::GRID + 2, OPCODE, LEFT_AT].map(|word| {
            let at = b.add(record, word);
            let place = b.at(tasks, at);
            b.load(place)
        });
        let plane = b.mul(x, y);
        let groups = b.mul(plane, z);
        let turns = b.add(groups, workers);
        let turns = b.sub(turns, 1);
        let turns = b.div(turns, workers);
        b.count(turns, |b, turn| {
            let start = b.mul(turn, workers);
            let group = b.add(start, worker);
            let inside = b.lt(group, groups);
            b.when(inside, |b| {
                let parts = b.value(task::WORDS);
                let parts = b.add(parts, width);
                let parts = b.sub(parts, 1);
                let parts = b.div(parts, width);
                b.count(parts, |b, part| {
                    let start = b.mul(part, width);
                    let at = b.add(start, lane);
                    let inside = b.lt(at, task::WORDS);
                    b.when(inside, |b| {
                        let from = b.add(record, at);
                        let from = b.at(tasks, from);
                        let word = b.load(from);
                        let to = b.shared_at(words, at);
                        b.store(to, word);
                    });
                });
                b.control_barrier(MemoryClasses::SHARED);
                b.when(first, |b| {
                    let rows = b.div(group, x);
                    let own = [b.rem(group, x), b.rem(rows, y), b.div(rows, y)];
                    for (axis, part) in (0..).zip(own) {
                        let place = b.shared_at(words, task::GROUP + axis);
                        b.store(place, part);
                    }
                });
                b.memory_barrier(Scope::Device, Order::Acquire, MemoryClasses::ALL);
                b.control_barrier(MemoryClasses::ALL);
                b.call_handler(opcode);
                b.control_barrier(MemoryClasses::ALL);
                b.when(first, |b| {
                    let start = b.mul(group, 2);
                    let start = b.add(left_at, start);
                    for (index, word) in (0u32..).zip([task::FAULT, task::RESULT]) {
                        let from = b.shared_at(words, word);
                        let value = b.load(from);
                        let at = b.add(start, index);
                        let to = b.at(left, at);
                        b.store(to, value);
                    }
                });
                b.control_barrier(MemoryClasses::SHARED);
            });
        });
    });
    lower(&b.finish()).expect("the test kernel lowers")
}

/// The record of a task whose binding table is empty.
pub fn record(opcode: u32, grid: [u32; 3], result: u32, left_at: u32) -> Vec<u32> {
    let mut record = vec![0; RECORD as usize];
    record[task::GRID as usize..][..3].copy_from_slice(&grid);
    record[task::RESULT as usize] = result;
    record[OPCODE as usize] = opcode;
    record[LEFT_AT as usize] = left_at;
    record
}

/// Gives an entry of a record's binding table its length in bytes; the word where its address goes.
pub fn bind(record: &mut [u32], entry: u32, bytes: u32) -> u32 {
    let at = task::BINDINGS + entry * binding::ENTRY_WORDS;
    record[at as usize + 2] = bytes;
    at
}
