//! Handlers that take long: waits, stops and drops end within their bounds, and nothing is lost that could be kept.
//!
//! Half a minute is spent in child processes, since a kernel that stays takes its device along.

#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/runtime.rs"]
mod common;
#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/handlers.rs"]
mod handlers;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use abide::device::Mode;
use abide::protocol::completion::fault;
use abide::queue::{CompletionQueue, FaultCode, LinkError, Outcome, SubmissionQueue, Task, Ticket, WaitError};
use abide::runtime::{BindingTable, Error, Health, Runtime};
use common::{DEADLINE, device, modes};
use handlers::spin;

/// Where a test runs itself as the child: the mode to use.
const CHILD: &str = "ABIDE_TEST_CHILD_MODE";

/// How long dropping a runtime may take: its patience with the kernel, then the launch queue's.
const DROP_BOUND: Duration = Duration::from_secs(7);

/// Turns of the first loop that is timed: under what stock Mesa cuts off.
const SAMPLE: u32 = 30_000;

/// A runtime with one worker whose handler takes as long as it is told.
struct Bench {
    runtime: Runtime,
    submission: SubmissionQueue,
    completion: CompletionQueue,
    table: BindingTable,
    opcode: u32,
    turns_per_ms: u32,
}

impl Bench {
    fn new(mode: Mode, stall: Duration) -> Self {
        let mut builder = common::builder().mode(mode).workers(1).stall_after(stall);
        let opcode = builder.handler(spin(), "main");
        let (runtime, submission, completion) = builder.build().unwrap();
        let words = runtime.buffer("what came of it", 64).unwrap();
        let table = runtime.bind(&[&words]).unwrap();
        let mut bench = Self { runtime, submission, completion, table, opcode, turns_per_ms: SAMPLE };
        let mut time = |outer| {
            let ticket = bench.push(outer);
            let start = Instant::now();
            bench.finish(ticket);
            start.elapsed()
        };
        // The first time the kernel is compiled.
        time(1);
        if device().report().loop_limit.is_none() {
            let (some, many) = (time(10), time(210));
            let sample = many.saturating_sub(some).max(Duration::from_micros(200)) / 200;
            bench.turns_per_ms = (SAMPLE as f64 / (sample.as_secs_f64() * 1e3)) as u32;
        }
        bench
    }

    /// Pushes a task that takes so many milliseconds, and publishes it.
    fn push(&mut self, ms: u32) -> Ticket {
        let payload = [ms, self.turns_per_ms, 0];
        let ticket =
            self.submission.push(Task::new(self.opcode).bindings(self.table.index()).payload(&payload)).unwrap();
        self.submission.publish().unwrap();
        ticket
    }

    /// Waits for a task, however often that stalls; says how often.
    fn finish(&mut self, ticket: Ticket) -> u32 {
        let (start, mut stalls) = (Instant::now(), 0);
        loop {
            match self.completion.wait(ticket, DEADLINE) {
                Ok(done) => {
                    assert_eq!(done.outcome, Outcome::Done);
                    return stalls;
                }
                Err(WaitError::Lost(LinkError::Stalled { .. })) if start.elapsed() < DEADLINE => stalls += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until the kernel has begun as many tasks as were pushed with this one and before.
    fn let_it_begin(&self, ticket: Ticket) {
        let begun = || self.runtime.counters().unwrap().claims.iter().sum::<u32>();
        common::until("the task begins", || u64::from(begun()) > ticket.position());
    }
}

/// Whether handlers can take long here at all.
fn loops_are_cut() -> bool {
    let cut = device().report().loop_limit.is_some();
    if cut {
        eprintln!("SKIPPED: the driver cuts loops short");
    }
    cut
}

#[test]
fn a_loop_that_the_driver_cuts_is_a_fault() {
    if device().report().loop_limit.is_none() {
        return;
    }
    let mut bench = Bench::new(Mode::Epochs, Duration::from_secs(2));
    let ticket = bench.push(10);
    let done = bench.completion.wait(ticket, DEADLINE).unwrap();
    assert_eq!(done.outcome, Outcome::Fault(FaultCode(fault::LOOP_LIMIT)));
    // The next task, of its own launch, is as good as ever.
    let ticket = bench.push(1);
    assert_eq!(bench.completion.wait(ticket, DEADLINE).unwrap().outcome, Outcome::Done);
}

#[test]
fn a_stall_is_told_and_passes() {
    if loops_are_cut() {
        return;
    }
    for mode in modes() {
        let mut bench = Bench::new(mode, Duration::from_millis(100));
        let ticket = bench.push(1500);
        let start = Instant::now();
        let stalls = bench.finish(ticket);
        // A slice shows no sign of life until it has ended.
        assert_eq!(stalls > 0, mode == Mode::Resident, "{stalls} stalls in {:?}", start.elapsed());
        let ticket = bench.push(1);
        bench.finish(ticket);
    }
}

/// Tasks that are each short enough are no stall, however many come one after another with no pass between.
#[test]
fn tasks_in_a_row_are_a_sign_of_life() {
    if loops_are_cut() || !modes().contains(&Mode::Resident) {
        return;
    }
    let mut bench = Bench::new(Mode::Resident, Duration::from_secs(1));
    let mut tickets: VecDeque<_> = (0..4).map(|_| bench.push(70)).collect();
    let start = Instant::now();
    // However long the tasks really are, there are more for longer than the limit.
    while let Some(ticket) = tickets.pop_front() {
        bench.completion.wait(ticket, DEADLINE).unwrap_or_else(|error| panic!("after {:?}: {error}", start.elapsed()));
        if start.elapsed() < Duration::from_millis(1500) {
            tickets.push_back(bench.push(70));
        }
    }
}

#[test]
fn quiescing_can_be_tried_again() {
    if loops_are_cut() {
        return;
    }
    for mode in modes() {
        let mut bench = Bench::new(mode, Duration::from_secs(60));
        for resume_at_once in [false, true] {
            let long = bench.push(500);
            bench.let_it_begin(long);
            let start = Instant::now();
            let refused = bench.runtime.quiesce(Duration::from_millis(20));
            assert!(matches!(refused, Err(Error::StillRunning { .. })), "{refused:?}");
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
            assert!(matches!(bench.runtime.health(), Health::Running { .. }), "{:?}", bench.runtime.health());
            let behind = bench.push(1);
            if resume_at_once {
                bench.runtime.resume().unwrap();
            } else {
                // Meanwhile others look, and must not launch it again.
                let waited = bench.completion.wait(behind, Duration::from_millis(100));
                assert!(matches!(waited, Err(WaitError::Timeout { taken: false, .. })), "{waited:?}");
                bench.runtime.quiesce(DEADLINE).unwrap();
                assert_eq!(bench.runtime.health(), Health::Quiesced);
                std::thread::sleep(Duration::from_millis(20));
                let health = bench.runtime.health();
                assert_eq!(health, Health::Quiesced);
                bench.runtime.resume().unwrap();
            }
            for ticket in [long, behind] {
                bench.finish(ticket);
            }
        }
    }
}

#[test]
fn a_stop_amid_long_tasks_leaves_each_done_or_known() {
    if loops_are_cut() {
        return;
    }
    for mode in modes() {
        let mut bench = Bench::new(mode, Duration::from_secs(60));
        let tickets: Vec<_> = (0..6).map(|_| bench.push(150)).collect();
        bench.let_it_begin(tickets[0]);
        let refused = bench.runtime.stop(Duration::from_millis(10));
        assert!(matches!(refused, Err(Error::StillRunning { .. })), "{refused:?}");
        assert_eq!(bench.runtime.health(), Health::Lost(LinkError::Stopped));
        // Trying again waits for the kernel indeed: its memory may be freed after that.
        bench.runtime.stop(DEADLINE).unwrap();
        let mut done = 0;
        while let Some(completion) = bench.completion.poll() {
            assert_eq!(completion.outcome, Outcome::Done);
            done += 1;
        }
        let unfinished = bench.completion.unfinished().count();
        assert_eq!(done + unfinished, tickets.len(), "{done} done, {unfinished} unfinished");
        assert!(mode == Mode::Epochs || unfinished > 0, "a stop ends the launch");
        let Bench { runtime, submission, completion, .. } = bench;
        drop((runtime, submission, completion));
        assert!(!device().is_leaked());
    }
}

#[test]
fn a_thread_that_waits_is_told_of_a_drop_amid_its_task() {
    if loops_are_cut() {
        return;
    }
    for mode in modes() {
        let mut bench = Bench::new(mode, Duration::from_secs(60));
        let long = bench.push(400);
        bench.let_it_begin(long);
        let behind = bench.push(300);
        let Bench { runtime, mut completion, .. } = bench;
        let waiter = std::thread::spawn(move || {
            let both = [completion.wait(long, DEADLINE), completion.wait(behind, DEADLINE)];
            (both, Instant::now())
        });
        let dropped = Instant::now();
        drop(runtime);
        let ([long, behind], told) = waiter.join().unwrap();
        assert!(told.duration_since(dropped) < DROP_BOUND, "told after {:?}", told.duration_since(dropped));
        assert_eq!(long.unwrap().outcome, Outcome::Done, "the kernel ends what it has begun");
        match behind {
            Ok(done) => assert_eq!(done.outcome, Outcome::Done),
            Err(error) => assert!(matches!(error, WaitError::Lost(LinkError::Stopped)), "{error}"),
        }
    }
}

/// A child and the lines that it prints.
struct Half {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Half {
    /// Runs a test of this binary again.
    fn start(test: &str, mode: Mode) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, mode.name());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The line that the child reports with, then whether its process ended by itself within a bound.
    fn end(&mut self) -> (String, bool) {
        let line = self.lines.by_ref().map_while(Result::ok).find(|line| line.contains("child: ")).unwrap_or_default();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            if self.child.try_wait().unwrap().is_some() {
                return (line, true);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        (line, false)
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        // Both do nothing where it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_handler_of_half_a_minute_is_typed_and_left_behind() {
    if let Ok(mode) = std::env::var(CHILD) {
        let mode = if mode == Mode::Resident.name() { Mode::Resident } else { Mode::Epochs };
        println!("child: {}", half_a_minute(mode));
        std::process::exit(0);
    }
    if loops_are_cut() {
        return;
    }
    let test = "a_handler_of_half_a_minute_is_typed_and_left_behind";
    // One after the other: beside a kernel that never leaves, a small machine can't test another device.
    for mode in modes() {
        let (line, ended) = Half::start(test, mode).end();
        eprintln!("mode {}: {line}; the process ended by itself: {ended}", mode.name());
        let told = if mode == Mode::Resident { "stalled" } else { "timeout" };
        assert!(line.contains(told) && line.contains("leaked true, bounded true"), "{line}");
    }
}

/// Runs a task of half a minute, and says how waiting and dropping went.
fn half_a_minute(mode: Mode) -> String {
    let mut bench = Bench::new(mode, Duration::from_millis(500));
    // Half a minute and far more: a GPU that is busy with other work while the loop is timed makes it look slow.
    let ticket = bench.push(600_000);
    let start = Instant::now();
    let waited = match bench.completion.wait(ticket, Duration::from_secs(2)) {
        Err(WaitError::Lost(LinkError::Stalled { .. })) => "stalled".to_owned(),
        Err(WaitError::Timeout { .. }) => "timeout".to_owned(),
        other => format!("{other:?}"),
    };
    let waiting = start.elapsed();
    let start = Instant::now();
    drop(bench);
    let dropping = start.elapsed();
    let bounded = waiting < Duration::from_secs(4) && dropping < DROP_BOUND;
    let leaked = device().is_leaked();
    format!("{waited} after {waiting:.1?}, dropped after {dropping:.1?}, leaked {leaked}, bounded {bounded}")
}
