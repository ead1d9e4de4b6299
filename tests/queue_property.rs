//! The queues under random use: every task that was pushed comes back once, with its own user data and result.

#![cfg(not(loom))]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide::protocol::{inlet, opcode, outlet};
use abide::queue::model::{ModelKernel, ModelTask};
use abide::queue::{
    self, BatchError, Completion, CompletionQueue, HeapWords, Link, LinkError, Outcome, PushError, QueueConfig,
    SubmissionQueue, Task, Ticket, WaitError,
};
use proptest::prelude::*;

/// A kernel that never leaves.
struct Up;

impl Link for Up {
    fn launch(&self) -> u32 {
        1
    }

    fn turn(&self, _patience: Duration, _waiting: bool) -> Result<(), LinkError> {
        Ok(())
    }
}

type Memory = Arc<HeapWords>;

fn queues(config: &QueueConfig) -> (SubmissionQueue<Memory>, CompletionQueue<Memory>, ModelKernel<Memory>) {
    let inlet = Arc::new(HeapWords::new(inlet::words(config.slots(), config.tables)));
    let outlet = Arc::new(HeapWords::new(outlet::words(config.slots(), config.entries)));
    let kernel = ModelKernel::new(config, inlet.clone(), outlet.clone());
    let (submission, completion) = queue::pair(config, inlet, outlet, Arc::new(Up)).expect("the shape is right");
    (submission, completion, kernel)
}

/// Shapes with windows under and over the rings, that start at 0, under 2^32 laps, or under 2^32 positions.
fn any_config() -> impl Strategy<Value = QueueConfig> {
    let level = (1u32..7, 1u32..20);
    (prop::collection::vec(level, 1..4), 0u32..4, any::<bool>()).prop_map(|(levels, start, late_ticket)| {
        let mut offsets = vec![0];
        for (slots, _) in &levels {
            offsets.push(offsets[offsets.len() - 1] + slots);
        }
        let windows: Vec<u32> = levels.iter().map(|&(_, window)| window).collect();
        let entries = windows.iter().sum::<u32>().next_power_of_two();
        let wrap = 1u64 << 32;
        let first_lap = match start {
            0 => 0,
            1 => wrap - 2,
            2 => wrap / u64::from(levels[0].0) - 2,
            _ => wrap * 77 - 1,
        };
        let first_ticket = if late_ticket { u32::MAX - 9 } else { 0 };
        QueueConfig { offsets, windows, entries, tables: 0, tenants: 1, credits: 1, first_lap, first_ticket }
    })
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        level: u32,
    },
    Batch {
        level: u32,
        len: usize,
    },
    /// The kernel takes in the next task.
    Claim,
    /// It completes one of those that it holds, or only the first half of it.
    Complete {
        which: prop::sample::Index,
        half: bool,
    },
    /// It completes some of those that it holds, in a row, by one entry.
    Range {
        which: prop::sample::Index,
        len: usize,
    },
    Poll,
    Wait {
        which: prop::sample::Index,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u32..3).prop_map(|level| Step::Push { level }),
        1 => (0u32..3, 0usize..6).prop_map(|(level, len)| Step::Batch { level, len }),
        4 => Just(Step::Claim),
        4 => (any::<prop::sample::Index>(), prop::bool::weighted(0.3)).prop_map(|(which, half)| Step::Complete { which, half }),
        2 => (any::<prop::sample::Index>(), 1usize..5).prop_map(|(which, len)| Step::Range { which, len }),
        2 => Just(Step::Poll),
        2 => any::<prop::sample::Index>().prop_map(|which| Step::Wait { which }),
    ]
}

/// What must be true of the queues, kept in the simplest way.
struct Books {
    config: QueueConfig,
    pushed: HashMap<Ticket, u32>,
    delivered: HashSet<Ticket>,
    /// Tasks whose slot says that they have ended while their entry has not come.
    halves: Vec<ModelTask>,
    held: Vec<ModelTask>,
    /// Tasks that were completed as a part of a range.
    ranged: HashSet<Ticket>,
    /// Tasks of each level that the kernel has taken in.
    claimed: Vec<usize>,
    next: u32,
}

impl Books {
    fn level(&self, level: u32) -> u32 {
        level % self.config.levels()
    }

    fn in_flight(&self, level: u32) -> usize {
        let open = self.pushed.keys().filter(|ticket| ticket.level() == level && !self.delivered.contains(ticket));
        // Delivered early, and the entry is still to come.
        let early = self.halves.iter().filter(|task| task.level == level && self.delivered.contains(&ticket_of(task)));
        open.count() + early.count()
    }

    /// Takes up to `len` of the tasks that the kernel holds, one of them chosen, which follow one another.
    fn take_range(&mut self, which: prop::sample::Index, len: usize) -> Vec<ModelTask> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let mut next = ticket_of(&self.held[which.index(self.held.len())]);
        let mut range = Vec::new();
        while range.len() < len {
            let Some(at) = self.held.iter().position(|task| ticket_of(task) == next) else { break };
            range.push(self.held.swap_remove(at));
            next = Ticket::from_bits(next.to_bits() + 1);
        }
        range
    }

    fn push(&mut self, ticket: Ticket, value: u32) {
        assert_eq!(self.pushed.insert(ticket, value), None, "{ticket} was issued twice");
    }

    fn deliver(&mut self, done: Completion) {
        let value = self.pushed[&done.ticket];
        let result = if self.ranged.contains(&done.ticket) { 0 } else { value };
        assert_eq!((done.user_data, done.result), (u64::from(value) << 32 | 5, result));
        assert_eq!(done.outcome, Outcome::Done);
        assert!(self.delivered.insert(done.ticket), "{} was delivered twice", done.ticket);
    }
}

/// The tests put a task's ticket into its payload, which the queues don't look at.
fn ticket_of(task: &ModelTask) -> Ticket {
    Ticket::from_bits(u64::from(task.payload[1]) | u64::from(task.payload[2]) << 32)
}

fn task(level: u32, payload: &[u32]) -> Task<'_> {
    Task::new(opcode::NOP).level(level).user_data(u64::from(payload[0]) << 32 | 5).payload(payload)
}

fn run(config: QueueConfig, steps: Vec<Step>) {
    let (mut submission, mut completion, mut kernel) = queues(&config);
    let levels = config.levels() as usize;
    let starts = config.offsets.windows(2).map(|ends| u64::from(ends[1] - ends[0]) * config.first_lap);
    let mut tails: Vec<u64> = starts.collect();
    let mut books = Books {
        config,
        pushed: HashMap::new(),
        delivered: HashSet::new(),
        halves: Vec::new(),
        held: Vec::new(),
        ranged: HashSet::new(),
        claimed: vec![0; levels],
        next: 0,
    };
    // In one thread the next ticket of a level is known before the push.
    let payload = |books: &mut Books, level: u32, position: u64| {
        books.next += 1;
        let bits = u64::from(level) << 61 | position;
        [books.next, bits as u32, (bits >> 32) as u32]
    };
    for step in steps {
        match step {
            Step::Push { level } => {
                let level = books.level(level);
                let words = payload(&mut books, level, tails[level as usize]);
                match submission.push(task(level, &words)) {
                    Ok(ticket) => {
                        assert_eq!(ticket, Ticket::from_bits(u64::from(words[1]) | u64::from(words[2]) << 32));
                        tails[level as usize] += 1;
                        books.push(ticket, words[0]);
                    }
                    Err(PushError::Full(back)) => {
                        assert_eq!(back, task(level, &words));
                        let slots = books.config.offsets[level as usize + 1] - books.config.offsets[level as usize];
                        let window = books.config.windows[level as usize] as usize;
                        let pushed = books.pushed.keys().filter(|ticket| ticket.level() == level).count();
                        let untaken = pushed - books.claimed[level as usize];
                        let full = submission.in_flight(level) as usize >= window || untaken >= slots as usize;
                        assert!(full, "full without need");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Batch { level, len } => {
                let level = books.level(level);
                let tail = tails[level as usize];
                let words: Vec<[u32; 3]> =
                    (tail..).take(len).map(|position| payload(&mut books, level, position)).collect();
                let tasks: Vec<Task> = words.iter().map(|words| task(level, words)).collect();
                match submission.push_batch(&tasks) {
                    Ok(tickets) => {
                        assert_eq!(tickets.len(), len);
                        tails[level as usize] += len as u64;
                        tickets.zip(&words).for_each(|(ticket, words)| books.push(ticket, words[0]));
                    }
                    Err(BatchError::Full { .. }) => {}
                    Err(BatchError::TooLong { limit, .. }) => assert!(len > limit as usize),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Claim => {
                if let Some(task) = kernel.claim() {
                    books.claimed[task.level as usize] += 1;
                    books.held.push(task);
                }
            }
            Step::Complete { which, half } => {
                if !books.halves.is_empty() && !half {
                    let task = books.halves.swap_remove(which.index(books.halves.len()));
                    kernel.complete_entry(&task, Outcome::Done, task.payload[0]);
                } else if !books.held.is_empty() {
                    let task = books.held.swap_remove(which.index(books.held.len()));
                    kernel.complete_slot(&task, Outcome::Done, task.payload[0]);
                    books.halves.push(task);
                }
            }
            Step::Range { which, len } => {
                let range = books.take_range(which, len);
                if !range.is_empty() {
                    books.ranged.extend(range.iter().map(ticket_of));
                    kernel.complete_range(&range);
                }
            }
            Step::Poll => {
                if let Some(done) = completion.poll() {
                    books.deliver(done);
                }
            }
            Step::Wait { which } => {
                let mut tickets: Vec<Ticket> = books.pushed.keys().copied().collect();
                tickets.sort_unstable();
                let Some(&ticket) = tickets.get(which.index(tickets.len().max(1))) else {
                    continue;
                };
                match completion.wait(ticket, Duration::ZERO) {
                    Ok(done) => {
                        assert_eq!(done.ticket, ticket);
                        books.deliver(done);
                    }
                    Err(WaitError::AlreadyDelivered(_)) => assert!(books.delivered.contains(&ticket)),
                    Err(WaitError::Timeout { .. }) => assert!(!books.delivered.contains(&ticket)),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        for level in 0..levels as u32 {
            // Entries that wait in the queue still count for the queue and no longer for the books.
            assert!(submission.in_flight(level) as usize >= books.in_flight(level));
            assert!(submission.in_flight(level) <= u64::from(books.config.windows[level as usize]));
        }
    }
    // The kernel ends what is left, and all of it comes back.
    for task in std::mem::take(&mut books.halves) {
        kernel.complete_entry(&task, Outcome::Done, task.payload[0]);
    }
    for task in std::mem::take(&mut books.held) {
        kernel.complete(&task, Outcome::Done, task.payload[0]);
    }
    while kernel.run_one() {}
    while let Some(done) = completion.poll() {
        books.deliver(done);
    }
    assert_eq!(books.delivered.len(), books.pushed.len(), "some were lost");
    assert_eq!((completion.outstanding(), completion.strays(), completion.unfinished().count()), (0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_task_comes_back_once_with_what_is_its_own(
        config in any_config(),
        steps in prop::collection::vec(any_step(), 1..200),
    ) {
        run(config, steps);
    }
}

/// Three producers, a kernel that completes out of order, and a consumer that polls and waits.
fn run_threads(config: &QueueConfig, tasks_each: u32) {
    const PRODUCERS: u32 = 3;
    let (submission, mut completion, mut kernel) = queues(config);
    let total = u64::from(PRODUCERS * tasks_each);
    let stop = AtomicBool::new(false);
    let sum = AtomicU64::new(0);
    let started = Instant::now();
    let alive = || assert!(started.elapsed() < Duration::from_secs(120), "the test hangs");
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let mut submission = submission.clone();
            let (sum, levels) = (&sum, config.levels());
            scope.spawn(move || {
                for number in 0..tasks_each {
                    let value = producer << 28 | number;
                    let words = [value, 0, 0];
                    while let Err(PushError::Full(_)) = submission.push(task(number % levels, &words)) {
                        alive();
                        std::thread::yield_now();
                    }
                    sum.fetch_add(u64::from(value), Ordering::Relaxed);
                    submission.publish().expect("the kernel never leaves");
                }
            });
        }
        let stop = &stop;
        scope.spawn(move || {
            let mut held: Vec<ModelTask> = Vec::new();
            let mut passes = 0usize;
            while !stop.load(Ordering::Relaxed) {
                alive();
                passes = passes.wrapping_mul(25).wrapping_add(7);
                match kernel.claim() {
                    Some(task) => held.push(task),
                    None => std::thread::yield_now(),
                }
                if held.len() > 3 || passes.is_multiple_of(3) {
                    let which = passes % held.len().max(1);
                    if which < held.len() {
                        let task = held.swap_remove(which);
                        kernel.complete(&task, Outcome::Done, task.payload[0]);
                    }
                }
            }
        });
        let (mut count, mut got) = (0, 0);
        let mut seen = HashSet::new();
        while count < total {
            alive();
            match completion.wait_any(Duration::from_millis(200)) {
                Ok(done) => {
                    assert_eq!(done.user_data, u64::from(done.result) << 32 | 5);
                    assert!(seen.insert(done.ticket), "{} came twice", done.ticket);
                    got += u64::from(done.result);
                    count += 1;
                }
                Err(WaitError::Quiet { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(got, sum.load(Ordering::Relaxed));
        assert_eq!((completion.outstanding(), completion.strays()), (0, 0));
    });
}

#[test]
fn threads_push_while_positions_wrap() {
    let wrap = 1u64 << 32;
    for first_lap in [0, wrap - 50, wrap / 3 - 50] {
        let config = QueueConfig {
            offsets: vec![0, 3, 8],
            windows: vec![5, 4],
            entries: 16,
            tables: 0,
            tenants: 1,
            credits: 1,
            first_lap,
            first_ticket: u32::MAX - 500,
        };
        run_threads(&config, 20_000);
    }
}
