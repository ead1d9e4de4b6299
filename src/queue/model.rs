//! A kernel in Rust that keeps to the protocol: the other side of the queues, for tests and benchmarks without a GPU.
//!
//! It takes tasks in and completes them when it is told to, so that a test decides what overlaps with what. It knows
//! the words of `protocol` only, and nothing of how the host keeps its books.

use super::config::QueueConfig;
use super::outcome::{FaultCode, Outcome};
use super::words::Words;
use crate::protocol::{completion, inlet, opcode, outlet, slot};

/// A task that the model kernel has taken in and not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTask {
    /// Level of the partition that the task's slot lies in.
    pub level: u32,
    /// The slot's words.
    pub words: [u32; slot::WORDS as usize],
    /// All payload words that the task can carry: those of the slot, then those of the extension.
    pub payload: Vec<u32>,
    slot: u32,
    position: u32,
}

impl ModelTask {
    /// Opcode of the task.
    pub const fn opcode(&self) -> u32 {
        self.words[slot::KIND as usize] & slot::HANDLER_MASK
    }

    const fn generation(&self) -> u32 {
        self.words[slot::GENERATION as usize]
    }

    const fn outcome_word(&self, outcome: Outcome) -> u32 {
        let tenant = self.words[slot::TENANT as usize];
        match outcome {
            Outcome::Done => completion::pack_outcome(completion::DONE, self.level, 0, tenant),
            Outcome::Fault(code) => completion::pack_outcome(completion::FAULT, self.level, code.0, tenant),
        }
    }
}

/// A kernel in Rust over the same words as a pair of queues.
#[derive(Debug)]
pub struct ModelKernel<W> {
    inlet: W,
    outlet: W,
    offsets: Vec<u32>,
    entries: u32,
    tables: u32,
    /// Generation last taken in, for each slot.
    taken: Vec<u32>,
    /// Slot of each level where the next scan starts.
    cursors: Vec<u32>,
    ticket: u32,
}

impl<W: Words> ModelKernel<W> {
    /// A kernel for queues of the same shape, which [`pair`](super::pair) checks; stores the words that the shape starts
    /// with.
    pub fn new(config: &QueueConfig, inlet: W, outlet: W) -> Self {
        config.initial_inlet().for_each(|(at, value)| inlet.store(at, value));
        config.initial_doorbells().for_each(|(at, value)| inlet.store(at, value));
        config.initial_outlet().for_each(|(at, value)| outlet.store(at, value));
        Self {
            inlet,
            outlet,
            offsets: config.offsets.clone(),
            entries: config.entries,
            tables: config.tables,
            taken: vec![config.first_lap as u32; config.slots() as usize],
            cursors: config.offsets[..config.offsets.len() - 1].to_vec(),
            ticket: config.first_ticket,
        }
    }

    fn slots(&self) -> u32 {
        self.taken.len() as u32
    }

    /// Takes in the next task of the most urgent level that has one.
    pub fn claim(&mut self) -> Option<ModelTask> {
        (0..self.cursors.len()).find_map(|level| self.claim_at(level))
    }

    fn claim_at(&mut self, level: usize) -> Option<ModelTask> {
        let (first, end) = (self.offsets[level], self.offsets[level + 1]);
        let mut index = self.cursors[level];
        for _ in first..end {
            let next = if index + 1 == end { first } else { index + 1 };
            if let Some((words, payload)) = self.read(index) {
                let generation = words[slot::GENERATION as usize];
                let lap = generation.wrapping_sub(1);
                let position = lap.wrapping_mul(end - first).wrapping_add(index - first);
                self.taken[index as usize] = generation;
                self.cursors[level] = next;
                // The payload is copied: from here on the host may write the slot's next task.
                self.outlet.store(outlet::taken_at(index), generation);
                return Some(ModelTask { level: level as u32, words, payload, slot: index, position });
            }
            index = next;
        }
        None
    }

    /// Reads a slot whose next generation has arrived whole.
    fn read(&self, index: u32) -> Option<([u32; slot::WORDS as usize], Vec<u32>)> {
        let at = inlet::slot_at(index);
        let generation = self.taken[index as usize].wrapping_add(1);
        if self.inlet.load(at + slot::GENERATION) != generation {
            return None;
        }
        let words: [u32; slot::WORDS as usize] = std::array::from_fn(|word| self.inlet.load(at + word as u32));
        if slot::TAGS.iter().any(|&tag| words[tag as usize] != generation) {
            return None;
        }
        let mut payload: Vec<u32> = slot::PAYLOAD.iter().map(|&word| words[word as usize]).collect();
        if words[slot::KIND as usize] & slot::FLAG_EXTENDED != 0 {
            let from = inlet::extensions_at(self.slots(), self.tables) + index * slot::EXTENSION_WORDS;
            for unit in (from..from + slot::EXTENSION_WORDS).step_by(4) {
                if self.inlet.load(unit) != generation {
                    return None;
                }
                payload.extend((1..4).map(|word| self.inlet.load(unit + word)));
            }
        }
        Some((words, payload))
    }

    /// Completes a task: its slot's direct completion first, then an entry of the queue.
    pub fn complete(&mut self, task: &ModelTask, outcome: Outcome, result: u32) {
        self.complete_slot(task, outcome, result);
        self.complete_entry(task, outcome, result);
    }

    /// Stores the direct completion of a task's slot; [`complete_entry`](Self::complete_entry) must follow.
    pub fn complete_slot(&self, task: &ModelTask, outcome: Outcome, result: u32) {
        let at = outlet::direct_at(self.slots(), task.slot);
        self.store_completion(at, [result, task.position, task.outcome_word(outcome), task.generation()]);
    }

    /// Stores a task's entry in the completion queue.
    pub fn complete_entry(&mut self, task: &ModelTask, outcome: Outcome, result: u32) {
        let at = outlet::entry_at(self.slots(), self.entries, self.ticket);
        self.ticket = self.ticket.wrapping_add(1);
        self.store_completion(at, [result, task.position, task.outcome_word(outcome), self.ticket]);
    }

    /// Completes tasks of one level in a row, all Done with result 0, by one entry of the queue.
    ///
    /// # Panics
    /// Where there is no task, or one does not follow the one before it.
    pub fn complete_range(&mut self, tasks: &[ModelTask]) {
        let follows =
            |pair: &[ModelTask]| pair[1].level == pair[0].level && pair[1].position == pair[0].position.wrapping_add(1);
        assert!(!tasks.is_empty() && tasks.windows(2).all(follows), "a range is of tasks in a row: {tasks:?}");
        let at = outlet::entry_at(self.slots(), self.entries, self.ticket);
        self.ticket = self.ticket.wrapping_add(1);
        let outcome = completion::pack_range(tasks[0].level, tasks.len() as u32);
        self.store_completion(at, [0, tasks[0].position, outcome, self.ticket]);
    }

    /// Position, low 32 bits, before which a level's tasks are published, as its doorbell says.
    pub fn doorbell(&self, level: u32) -> u32 {
        self.inlet.load(inlet::DOORBELLS + level)
    }

    fn store_completion(&self, at: u32, words: [u32; completion::WORDS as usize]) {
        for (offset, word) in (0..).zip(words) {
            self.outlet.store(at + offset, word);
        }
    }

    /// Takes in one task and completes it: a NOP returns its first payload word, anything else has no handler.
    pub fn run_one(&mut self) -> bool {
        let Some(task) = self.claim() else {
            return false;
        };
        match task.opcode() {
            opcode::NOP => self.complete(&task, Outcome::Done, task.payload[0]),
            _ => self.complete(&task, Outcome::Fault(FaultCode(completion::fault::NO_HANDLER)), 0),
        }
        true
    }

    /// Reports that `launch` has ended, for a reason of `outlet::exit`.
    pub fn leave(&self, launch: u32, reason: u32) {
        self.outlet.store(outlet::EXIT, reason);
        self.outlet.store(outlet::ENDED, launch);
    }
}
