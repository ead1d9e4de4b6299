//! Tasks that flow through one runtime, counted and checked by the sum of their numbers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide::protocol::opcode;
use abide::queue::{BatchError, Completion, CompletionQueue, Outcome, SubmissionQueue, Task};
use abide::runtime::Runtime;
use anyhow::{Result, bail, ensure};

use super::figures::Rate;

/// How long nothing may come back: CPU drivers compile a kernel at its first launch, for seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Empty polls after which the consumer offers its core, and looks at the clock.
const POLLS: u32 = 4_096;
/// Times that a ring is filled and drained.
const ROUNDS: u32 = 8;

/// How tasks are pushed.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Threads that push; 0 for the one that takes completions.
    pub producers: u32,
    /// Tasks that are pushed and published together.
    pub batch: u32,
}

/// A runtime with its queues.
pub struct Flow {
    runtime: Runtime,
    submission: SubmissionQueue,
    completion: CompletionQueue,
    /// Slots of the level that is used.
    slots: u32,
}

/// What has come back.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    tasks: u64,
    sum: u64,
}

impl Tally {
    fn take(&mut self, done: Completion) -> Result<()> {
        ensure!(done.outcome == Outcome::Done && done.result == 0, "a NOP came back as {done:?}");
        self.tasks += 1;
        self.sum = self.sum.wrapping_add(done.user_data);
        Ok(())
    }
}

/// Numbers tasks from 0 on, a batch at a time.
struct Batch {
    tasks: Vec<Task<'static>>,
    /// Whether the batch is still to be pushed.
    ready: bool,
    pushed: Tally,
}

impl Batch {
    fn new(len: u32) -> Self {
        Self { tasks: vec![Task::new(opcode::NOP); len as usize], ready: false, pushed: Tally::default() }
    }

    /// Pushes and publishes a batch; false where there is no room.
    fn publish(&mut self, submission: &mut SubmissionQueue) -> Result<bool> {
        let pushed = self.push(submission)?;
        if pushed {
            submission.publish()?;
        }
        Ok(pushed)
    }

    /// Pushes a batch; false where there is no room.
    fn push(&mut self, submission: &mut SubmissionQueue) -> Result<bool> {
        let (first, count) = (self.pushed.tasks, self.tasks.len() as u64);
        if !self.ready {
            for (number, task) in (first..).zip(&mut self.tasks) {
                *task = task.user_data(number);
            }
            self.ready = true;
        }
        match submission.push_batch(&self.tasks) {
            Ok(_) => {}
            Err(BatchError::Full { .. }) => return Ok(false),
            Err(error) => bail!("{error}"),
        }
        self.ready = false;
        self.pushed.tasks += count;
        self.pushed.sum = self.pushed.sum.wrapping_add(count * first + count * (count - 1) / 2);
        Ok(true)
    }
}

impl Flow {
    /// Takes a runtime of even levels with its queues, as its builder gives it, and has its kernel compiled.
    pub fn new(
        (runtime, submission, completion): (Runtime, SubmissionQueue, CompletionQueue),
        slots: u32,
    ) -> Result<Self> {
        let mut flow = Self { runtime, submission, completion, slots: slots / abide::protocol::PRIORITY_LEVELS };
        let mut one = Batch::new(1);
        one.publish(&mut flow.submission)?;
        flow.drain(one.pushed)?;
        Ok(flow)
    }

    /// Fills the ring while no kernel is on the device, then has it run; gives the rates of both, the best of some rounds. Without
    /// a publish for each batch, which would look after the kernel that isn't there.
    pub fn fill_and_drain(&mut self) -> Result<(Rate, Rate)> {
        let (mut published, mut drained) = (Rate::default(), Rate::default());
        for _ in 0..ROUNDS {
            self.runtime.quiesce(PATIENCE)?;
            let mut batch = Batch::new(self.slots.min(64));
            let began = Instant::now();
            while batch.push(&mut self.submission)? {}
            published = published.best(Rate::of(batch.pushed.tasks, began.elapsed()));
            self.submission.publish()?;
            let began = Instant::now();
            self.runtime.resume()?;
            self.drain(batch.pushed)?;
            drained = drained.best(Rate::of(batch.pushed.tasks, began.elapsed()));
        }
        Ok((published, drained))
    }

    /// Takes completions until all that was pushed has come back.
    fn drain(&mut self, pushed: Tally) -> Result<()> {
        let mut tally = Tally::default();
        while tally.tasks < pushed.tasks {
            tally.take(self.completion.wait_any(PATIENCE)?)?;
        }
        ensure!(tally.sum == pushed.sum, "{} tasks came back, but not those that were pushed", tally.tasks);
        Ok(())
    }

    /// Has tasks flow for so long; gives their rate, until the last one has come back.
    pub fn measure(&mut self, setting: Setting, time: Duration) -> Result<Rate> {
        let setting = Setting { batch: setting.batch.min(self.slots), ..setting };
        let (tasks, took) = if setting.producers == 0 { self.alone(setting, time) } else { self.apart(setting, time) }?;
        ensure!(self.completion.strays() == 0, "{} stray completions", self.completion.strays());
        Ok(Rate::of(tasks, took))
    }

    /// One thread pushes a batch and takes what has come, by turns.
    fn alone(&mut self, setting: Setting, time: Duration) -> Result<(u64, Duration)> {
        let (mut batch, mut tally) = (Batch::new(setting.batch), Tally::default());
        let (began, mut quiet) = (Instant::now(), Quiet::new());
        let mut pushes = true;
        while pushes || tally.tasks < batch.pushed.tasks {
            let mut moved = pushes && batch.publish(&mut self.submission)?;
            for _ in 0..setting.batch.max(64) {
                let Some(done) = self.completion.poll() else { break };
                tally.take(done)?;
                moved = true;
            }
            pushes = pushes && began.elapsed() < time;
            quiet.look(moved, &self.completion)?;
        }
        ensure!(tally.sum == batch.pushed.sum, "tasks came back that were not pushed");
        Ok((tally.tasks, began.elapsed()))
    }

    /// Threads push, and this one takes completions.
    fn apart(&mut self, setting: Setting, time: Duration) -> Result<(u64, Duration)> {
        let (stop, sum, count, over) =
            (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let handles: Vec<_> = (1..setting.producers).map(|_| self.submission.clone()).collect();
        let completion = &mut self.completion;
        let own = std::slice::from_mut(&mut self.submission);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let (stop, sum, count, over) = (&stop, &sum, &count, &over);
            let produce = |submission: &mut SubmissionQueue| -> Result<()> {
                let mut batch = Batch::new(setting.batch);
                let result = loop {
                    match batch.publish(submission) {
                        Ok(true) => {}
                        Ok(false) => std::thread::yield_now(),
                        Err(error) => break Err(error),
                    }
                    if stop.load(Ordering::Relaxed) {
                        break Ok(());
                    }
                };
                sum.fetch_add(batch.pushed.sum, Ordering::Relaxed);
                count.fetch_add(batch.pushed.tasks, Ordering::Relaxed);
                // Release: pairs with the consumer's acquire: it then knows how many tasks there are.
                over.fetch_add(1, Ordering::Release);
                result
            };
            let began = Instant::now();
            for submission in own {
                threads.push(scope.spawn(move || produce(submission)));
            }
            for mut submission in handles {
                threads.push(scope.spawn(move || produce(&mut submission)));
            }
            let (mut tally, mut quiet) = (Tally::default(), Quiet::new());
            let result = loop {
                let done = completion.poll();
                let moved = done.is_some();
                if let Some(Err(error)) = done.map(|done| tally.take(done)) {
                    break Err(error);
                }
                if !moved || tally.tasks % 1_024 == 0 {
                    if began.elapsed() >= time {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let all = over.load(Ordering::Acquire) == u64::from(setting.producers);
                    if all && tally.tasks == count.load(Ordering::Relaxed) {
                        break Ok(());
                    }
                    if let Err(error) = quiet.look(moved, completion) {
                        break Err(error);
                    }
                }
            };
            let took = began.elapsed();
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().map_err(|_| anyhow::anyhow!("a producer panicked"))??;
            }
            result?;
            ensure!(tally.sum == sum.load(Ordering::Relaxed), "tasks came back that were not pushed");
            Ok((tally.tasks, took))
        })
    }
}

/// Notices that nothing moves any more.
struct Quiet {
    polls: u32,
    since: Instant,
}

impl Quiet {
    fn new() -> Self {
        Self { polls: 0, since: Instant::now() }
    }

    /// Takes in whether something moved.
    fn look(&mut self, moved: bool, completion: &CompletionQueue) -> Result<()> {
        if moved {
            (self.polls, self.since) = (0, Instant::now());
            return Ok(());
        }
        self.polls += 1;
        if self.polls.is_multiple_of(POLLS) {
            if let Some(error) = completion.link_error() {
                bail!("{error}");
            }
            ensure!(self.since.elapsed() < PATIENCE, "no task came back for {PATIENCE:?}");
            // CPU drivers run the kernel on the cores that this thread would keep busy.
            std::thread::yield_now();
        }
        Ok(())
    }
}
