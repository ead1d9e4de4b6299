//! What every part of a scheduler kernel works on.

use super::{Fences, Mutation};
use crate::ir::{Access, Buffer, Builder, Input, MemoryClasses, Order, Place, Shared, Value};
use crate::protocol::{LINE, completion, inlet, launch, outlet, slot, state, task};

/// Buffers, workgroup words and the values that stay the same for a launch.
#[derive(Clone, Debug)]
pub struct Context {
    /// Host to kernel.
    pub inlet: Buffer,
    /// Kernel to host.
    pub outlet: Buffer,
    /// The kernel's own.
    pub state: Buffer,
    /// The running task's words.
    pub task: Shared,
    /// Index in the workgroup.
    pub lane: Value,
    /// Invocations of the workgroup.
    pub width: Value,
    /// Index of the worker: a worker is a workgroup.
    pub worker: Value,
    /// Workers of the launch.
    pub workers: Value,
    /// Whether this lane is its worker's leader.
    pub leader: Value,
    /// First slot and number of slots of each level.
    pub partitions: Vec<(Value, Value)>,
    /// Slots of the ring.
    pub slots: Value,
    /// Whether the workgroup is one subgroup.
    pub single: Value,
    /// First word of the direct completions.
    pub direct: Value,
    /// First word of the completion queue.
    pub queue: Value,
    /// Entries of the completion queue, less one: a mask.
    pub entry_mask: Value,
    /// Whether accesses to buffers are ordered.
    pub fences: Fences,
    /// The fault that was planted, if any.
    pub mutation: Option<Mutation>,
}

impl Context {
    /// Declares the buffers and reads what stays the same, at the front of a kernel.
    pub fn new(b: &mut Builder, levels: u32, fences: Fences, mutation: Option<Mutation>) -> Self {
        let access = if fences == Fences::Full { Access::Volatile } else { Access::Private };
        let inlet = b.buffer("inlet", 0, access);
        let outlet = b.buffer("outlet", 1, access);
        let state = b.buffer("state", 2, access);
        let task = b.task("task", task::WORDS);
        let lane = b.input(Input::LocalIndex);
        let width = b.input(Input::WorkgroupSize);
        let worker = b.input(Input::WorkgroupIndex);
        let workers = b.input(Input::WorkgroupCount);
        let leader = b.eq(lane, 0u32);
        let slots = b.param(launch::SLOTS);
        let subgroups = b.input(Input::SubgroupCount);
        let single = b.eq(subgroups, 1u32);
        let words = round_to_lines(b, slots);
        let direct = b.add(words, outlet::STATUS_WORDS);
        let words = b.mul(slots, completion::WORDS);
        let words = round_to_lines(b, words);
        let queue = b.add(direct, words);
        let entries = b.param(launch::ENTRIES);
        let entry_mask = b.sub(entries, 1u32);
        let offsets: Vec<Value> = (0..=levels)
            .map(|level| {
                let place = b.at(inlet, inlet::PRIORITY_OFFSETS + level);
                b.load(place)
            })
            .collect();
        let partitions = offsets.windows(2).map(|ends| (ends[0], b.sub(ends[1], ends[0]))).collect();
        Self {
            inlet,
            outlet,
            state,
            task,
            lane,
            width,
            worker,
            workers,
            leader,
            partitions,
            slots,
            single,
            direct,
            queue,
            entry_mask,
            fences,
            mutation,
        }
    }

    /// Levels of the kernel.
    pub fn levels(&self) -> u32 {
        self.partitions.len() as u32
    }

    /// First slot and number of slots of a level that isn't the same in every kernel; those of level 0 where there is no such
    /// level.
    pub fn partition(&self, b: &mut Builder, level: Value) -> (Value, Value) {
        let (mut begin, mut slots) = self.partitions[0];
        for (other, &(other_begin, other_slots)) in self.partitions.iter().enumerate().skip(1) {
            let here = b.eq(level, other as u32);
            begin = b.select(here, other_begin, begin);
            slots = b.select(here, other_slots, slots);
        }
        (begin, slots)
    }

    /// An order, or none at all under [`Fences::None`].
    pub fn order(&self, order: Order) -> Order {
        if self.fences == Fences::Full { order } else { Order::Relaxed }
    }

    /// Access class of memory behind addresses: coherent, or plain under [`Fences::None`].
    pub fn address_access(&self) -> Access {
        if self.fences == Fences::Full { Access::Coherent } else { Access::Private }
    }

    /// Waits for the worker's lanes. Where they are one subgroup that costs next to nothing, while a workgroup barrier makes
    /// drivers on the CPU change stacks.
    pub fn barrier(&self, b: &mut Builder, classes: MemoryClasses) {
        b.branch(self.single, |b| b.subgroup_barrier(classes), |b| b.control_barrier(classes));
    }

    /// A word of the task's words.
    pub fn task_word(&self, b: &mut Builder, word: u32) -> Place {
        b.shared_at(self.task, word)
    }

    /// Loads a word of the task's words.
    pub fn load_task(&self, b: &mut Builder, word: u32) -> Value {
        let place = self.task_word(b, word);
        b.load(place)
    }

    /// Stores a word of the task's words.
    pub fn store_task(&self, b: &mut Builder, word: u32, value: impl Into<crate::ir::Operand>) {
        let place = self.task_word(b, word);
        b.store(place, value);
    }

    /// Word `word` of a slot in the inlet.
    pub fn slot_word(&self, b: &mut Builder, slot: Value, word: impl Into<crate::ir::Operand>) -> Place {
        let first = b.mul(slot, slot::WORDS);
        let first = b.add(first, inlet::CONTROL_WORDS);
        let index = b.add(first, word);
        b.at(self.inlet, index)
    }

    /// State word of a slot.
    pub fn slot_state(&self, b: &mut Builder, slot: Value) -> Place {
        let index = b.add(slot, state::SLOT_STATES);
        b.at(self.state, index)
    }
}

/// Rounds words up to whole lines, as [`crate::protocol::lines`] does.
pub fn round_to_lines(b: &mut Builder, words: Value) -> Value {
    let up = b.add(words, LINE - 1);
    b.and(up, !(LINE - 1))
}
