//! What pushing and polling cost the host, against the model kernel: no device and no bus in it.
//!
//! Rounds of tasks are pushed, run by the model kernel outside the measured time, and polled, so that no figure holds
//! another's work.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide::protocol::{inlet, opcode, outlet};
use abide::queue::model::ModelKernel;
use abide::queue::{
    self, CompletionQueue, HeapWords, Link, LinkError, MappedWords, Memory, QueueConfig, SubmissionQueue, Task, Words,
};
use criterion::{Criterion, criterion_group, criterion_main};

/// Slots of the one level, and tasks of a round.
const SLOTS: u32 = 1024;

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

/// Words in ordinary memory behind the type that mapped memory has. Leaked: it is as large as a test's and made once.
fn mapped(len: u32) -> Memory {
    let words = vec![0u32; len as usize + 16].leak();
    let aligned = words.as_ptr().align_offset(64);
    let base = NonNull::new(words[aligned..].as_mut_ptr()).expect("a slice has an address");
    // SAFETY: `len` words follow the aligned one, are never freed and are reached in no other way from here on.
    Memory::Mapped(unsafe { MappedWords::new(base, len, false) })
}

struct Rounds<W: Words> {
    submission: SubmissionQueue<W>,
    completion: CompletionQueue<W>,
    kernel: ModelKernel<W>,
}

impl<W: Words + Clone> Rounds<W> {
    fn new(memory: impl Fn(u32) -> W) -> Self {
        let config = QueueConfig::even(&[0, SLOTS], SLOTS * 2, 0);
        let inlet = memory(inlet::words(SLOTS, 0));
        let outlet = memory(outlet::words(SLOTS, config.entries));
        let kernel = ModelKernel::new(&config, inlet.clone(), outlet.clone());
        let (submission, completion) = queue::pair(&config, inlet, outlet, Arc::new(Up)).expect("the shape is right");
        Self { submission, completion, kernel }
    }

    /// Runs enough rounds for `tasks` tasks; returns the time that the measured half of them took.
    fn run(&mut self, tasks: u64, measured: Half, push: impl Fn(&mut SubmissionQueue<W>)) -> Duration {
        let rounds = tasks.div_ceil(u64::from(SLOTS));
        let mut spent = Duration::ZERO;
        for _ in 0..rounds {
            let start = Instant::now();
            push(&mut self.submission);
            let pushed = start.elapsed();
            while self.kernel.run_one() {}
            let start = Instant::now();
            for _ in 0..SLOTS {
                black_box(self.completion.poll());
            }
            spent += if measured == Half::Push { pushed } else { start.elapsed() };
            assert_eq!(self.completion.outstanding(), 0);
        }
        spent.mul_f64(tasks as f64 / (rounds * u64::from(SLOTS)) as f64)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Half {
    Push,
    Poll,
}

fn one_by_one<W: Words>(submission: &mut SubmissionQueue<W>) {
    for value in 0..SLOTS {
        let payload = [value, 1];
        let task = Task::new(opcode::NOP).level(0).user_data(7).payload(&payload);
        black_box(submission.push(black_box(task))).expect("the round fits");
    }
}

fn in_batches<W: Words>(submission: &mut SubmissionQueue<W>) {
    let payload = [3, 1];
    let batch = [Task::new(opcode::NOP).level(0).user_data(7).payload(&payload); 64];
    for _ in 0..SLOTS / 64 {
        black_box(submission.push_batch(black_box(&batch))).expect("the round fits");
    }
}

fn benches_of<W: Words + Clone>(criterion: &mut Criterion, name: &str, memory: impl Fn(u32) -> W) {
    let mut group = criterion.benchmark_group(name);
    let mut rounds = Rounds::new(memory);
    group.bench_function("push", |bencher| bencher.iter_custom(|tasks| rounds.run(tasks, Half::Push, one_by_one)));
    group.bench_function("push in batches of 64", |bencher| {
        bencher.iter_custom(|tasks| rounds.run(tasks, Half::Push, in_batches));
    });
    group.bench_function("poll", |bencher| bencher.iter_custom(|tasks| rounds.run(tasks, Half::Poll, in_batches)));
    group.bench_function("empty poll", |bencher| bencher.iter(|| black_box(rounds.completion.poll())));
    group.bench_function("publish with nothing pushed", |bencher| {
        bencher.iter(|| black_box(rounds.submission.publish()))
    });
}

fn queues(criterion: &mut Criterion) {
    benches_of(criterion, "heap words", |len| Arc::new(HeapWords::new(len)));
    benches_of(criterion, "mapped words", mapped);
}

criterion_group!(benches, queues);
criterion_main!(benches);
