//! Epoch mode: the queues work on shadows of inlet and outlet, and between two slices, when nothing is in flight, words are
//! copied from and to them.
//!
//! Relies on nothing that Vulkan doesn't promise: the host touches the device's buffers only while no submission uses them.

use std::sync::Arc;

use crate::protocol::{completion, inlet, outlet, slot};
use crate::queue::{HeapWords, MappedWords, Memory, QueueConfig, Words, parked_work};

/// The shadows, and how far they have been copied.
#[derive(Debug)]
pub(super) struct Shadows {
    inlet: Arc<HeapWords>,
    outlet: Arc<HeapWords>,
    device_inlet: MappedWords,
    device_outlet: MappedWords,
    config: QueueConfig,
    levels: Vec<Level>,
    /// Next entry of the completion queue.
    head: u32,
    /// Tasks that were copied to the device's ring, modulo 2^32.
    copied: u32,
}

/// How far one level has been copied; positions modulo 2^64.
#[derive(Debug)]
struct Level {
    first: u32,
    slots: u32,
    /// Positions before this one are in the device's ring.
    copied: u64,
    /// Positions before this one have been taken.
    taken: u64,
}

impl Level {
    fn place(&self, position: u64) -> (u32, u32) {
        let slots = u64::from(self.slots);
        (self.first + (position % slots) as u32, ((position / slots) as u32).wrapping_add(1))
    }
}

impl Shadows {
    /// Makes the shadows; the device's words hold what a ring starts with.
    pub fn new(config: &QueueConfig, device_inlet: MappedWords, device_outlet: MappedWords) -> Self {
        let (slots, tables) = (config.slots(), config.tables);
        let inlet = Arc::new(HeapWords::new(inlet::words(slots, tables)));
        let outlet = Arc::new(HeapWords::new(outlet::words(slots, config.entries)));
        for (at, word) in config.initial_inlet() {
            inlet.store(at, word);
        }
        for (at, word) in config.initial_outlet() {
            outlet.store(at, word);
        }
        let levels = config.offsets.windows(2).map(|ends| {
            let slots = ends[1] - ends[0];
            let start = config.first_lap.wrapping_mul(u64::from(slots));
            Level { first: ends[0], slots, copied: start, taken: start }
        });
        let (levels, head) = (levels.collect(), config.first_ticket);
        Self { inlet, outlet, device_inlet, device_outlet, config: config.clone(), levels, head, copied: 0 }
    }

    /// The queues' memory.
    pub fn memory(&self) -> (Memory, Memory) {
        (Memory::Shadow(self.inlet.clone()), Memory::Shadow(self.outlet.clone()))
    }

    /// Copies what was published to the device's ring; gives the tasks that wait there. Nothing may be in flight.
    pub fn copy_in(&mut self) -> u64 {
        let (slots, tables) = (self.config.slots(), self.config.tables);
        for (number, level) in (0..).zip(&mut self.levels).filter(|(_, level)| level.slots > 0) {
            // Ends: a slot is only published again once it was taken, which is copied out by this thread.
            while level.copied - level.taken < u64::from(level.slots) {
                let (index, generation) = level.place(level.copied);
                let at = inlet::slot_at(index);
                if self.inlet.load(at + slot::GENERATION) != generation {
                    break;
                }
                let extended = self.inlet.load(at + slot::KIND) & slot::FLAG_EXTENDED != 0;
                if extended {
                    let extension = inlet::extensions_at(slots, tables) + index * slot::EXTENSION_WORDS;
                    for line in (0..slot::EXTENSION_WORDS).step_by(slot::WORDS as usize) {
                        copy_line(&self.inlet, &self.device_inlet, extension + line);
                    }
                }
                copy_line(&self.inlet, &self.device_inlet, at);
                level.copied += 1;
                self.copied = self.copied.wrapping_add(1);
            }
            self.device_inlet.store(inlet::DOORBELLS + number, level.copied as u32);
        }
        copy_line(&self.inlet, &self.device_inlet, inlet::TENANTS_OPEN);
        let epoch = self.inlet.load(inlet::TENANTS_EPOCH);
        self.device_inlet.store(inlet::TENANTS_EPOCH, epoch);
        self.device_inlet.flush();
        self.waiting()
    }

    /// Whether tasks wait in the queues of tenants that are open now.
    pub fn has_parked_work(&self) -> bool {
        parked_work(&*self.inlet, &*self.outlet)
    }

    /// Copies completions and taken words to the shadow; gives the tasks that still wait in the device's ring. Nothing may
    /// be in flight.
    pub fn copy_out(&mut self) -> u64 {
        // Taken words first: who sees a completion finds its slot free.
        for level in &mut self.levels {
            let mut in_order = true;
            for position in level.taken..level.copied {
                let (index, generation) = level.place(position);
                let at = outlet::taken_at(index);
                let taken = self.device_outlet.load(at) == generation;
                if taken {
                    self.outlet.store(at, generation);
                }
                in_order &= taken;
                level.taken += u64::from(in_order);
            }
        }
        for word in [outlet::PARKED, outlet::PARKED_OPEN, outlet::PARKED_EPOCH] {
            self.outlet.store(word, self.device_outlet.load(word));
        }
        let (slots, entries) = (self.config.slots(), self.config.entries);
        // Ends: there are at most as many new entries as the queue has, and phases of older ones differ.
        for _ in 0..entries {
            let at = outlet::entry_at(slots, entries, self.head);
            let phase = self.head.wrapping_add(1);
            if self.device_outlet.load(at + completion::PHASE) != phase {
                break;
            }
            for word in 0..completion::PHASE {
                self.outlet.store(at + word, self.device_outlet.load(at + word));
            }
            self.outlet.store(at + completion::PHASE, phase);
            self.head = phase;
        }
        self.waiting()
    }

    /// Tasks that have been copied in, modulo 2^32.
    pub fn copied(&self) -> u32 {
        self.copied
    }

    /// Completions that have been copied out, modulo 2^32.
    pub fn completed(&self) -> u32 {
        self.head
    }

    /// Tasks in the device's ring that were not taken when it was last looked at, or that come behind such a task.
    pub fn waiting(&self) -> u64 {
        self.levels.iter().map(|level| level.copied - level.taken).sum()
    }
}

fn copy_line(from: &HeapWords, to: &MappedWords, at: u32) {
    let words = std::array::from_fn(|word| from.load(at + word as u32));
    to.store_slot(at, &words);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{CompletionQueue, Link, LinkError, SubmissionQueue, Task, model::ModelKernel, pair};
    use std::ptr::NonNull;
    use std::time::Duration;

    struct Still;

    impl Link for Still {
        fn launch(&self) -> u32 {
            1
        }

        fn turn(&self, _patience: Duration, _waiting: bool) -> Result<(), LinkError> {
            Ok(())
        }
    }

    /// Mapped words over memory that lives as long as the process.
    fn mapped(words: u32) -> MappedWords {
        let lines: &'static mut [Line] = vec![Line([0; 16]); words.div_ceil(16) as usize].leak();
        let base = NonNull::from(&mut lines[0]).cast();
        // SAFETY: the memory is aligned to 64 bytes, never freed, and only accessed through these words.
        unsafe { MappedWords::new(base, words, false) }
    }

    #[derive(Clone)]
    #[repr(align(64))]
    struct Line(#[expect(dead_code, reason = "accessed through its address")] [u32; 16]);

    fn run(config: &QueueConfig) {
        let inlet = mapped(inlet::words(config.slots(), config.tables));
        let outlet = mapped(outlet::words(config.slots(), config.entries));
        for (at, word) in config.initial_inlet() {
            inlet.store(at, word);
        }
        for (at, word) in config.initial_outlet() {
            outlet.store(at, word);
        }
        let mut shadows = Shadows::new(config, inlet.clone(), outlet.clone());
        let (shadow_inlet, shadow_outlet) = shadows.memory();
        let link = Arc::new(Still);
        let (mut submission, mut completion): (SubmissionQueue, CompletionQueue) =
            pair(config, shadow_inlet, shadow_outlet, link).unwrap();
        let mut kernel = ModelKernel::new(config, inlet, outlet);
        let (mut pushed, mut done) = (0, 0);
        for slice in 0..200 {
            let long = [slice; 20];
            let payload = if slice % 3 == 0 { &long[..] } else { &long[..1] };
            for _ in 0..slice % 7 {
                let level = pushed as u32 % config.levels();
                if submission.push(Task::new(0).level(level).user_data(pushed).payload(payload)).is_ok() {
                    pushed += 1;
                }
            }
            submission.publish().unwrap();
            let waiting = shadows.copy_in();
            for _ in 0..waiting.min(u64::from(slice % 5)) {
                kernel.run_one();
            }
            assert!(completion.poll().is_none(), "nothing comes before it is copied out");
            shadows.copy_out();
            while let Some(completion) = completion.poll() {
                assert!(completion.result < 200, "a slice's number comes back, not {}", completion.result);
                done += 1;
            }
        }
        while shadows.copy_in() > 0 {
            kernel.run_one();
            shadows.copy_out();
        }
        while completion.poll().is_some() {
            done += 1;
        }
        assert_eq!(pushed, done);
        assert!(pushed > 300, "{pushed} tasks");
    }

    #[test]
    fn tasks_go_in_and_completions_come_out_between_slices() {
        run(&QueueConfig::even(&[0, 3, 8], 16, 0));
    }

    #[test]
    fn positions_and_tickets_wrap() {
        let mut config = QueueConfig::even(&[0, 3, 8], 16, 0);
        config.first_lap = (1 << 32) - 2;
        config.first_ticket = u32::MAX - 5;
        run(&config);
    }
}
