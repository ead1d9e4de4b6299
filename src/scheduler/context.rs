//! What every part of a scheduler kernel works on.

use super::{Fences, Mutation};
use crate::ir::{Access, Buffer, Builder, Input, MemoryClasses, Order, Place, Shared, Value};
use crate::protocol::{inlet, launch, slot, state, task};

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
    /// First slot of each level, then the number of slots.
    pub offsets: Vec<Value>,
    /// Slots of the ring.
    pub slots: Value,
    /// Whether the workgroup is one subgroup.
    pub single: Value,
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
        let offsets = (0..=levels)
            .map(|level| {
                let place = b.at(inlet, inlet::PRIORITY_OFFSETS + level);
                b.load(place)
            })
            .collect();
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
            offsets,
            slots,
            single,
            fences,
            mutation,
        }
    }

    /// Levels of the kernel.
    pub fn levels(&self) -> u32 {
        self.offsets.len() as u32 - 1
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
