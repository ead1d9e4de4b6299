//! The queues under loom: every order in which producers, the kernel and the consumer can meet, within a bound on how
//! often a thread is interrupted. Run with `RUSTFLAGS="--cfg loom" cargo test --test queue_loom`.

#![cfg(loom)]

use std::sync::Arc;
use std::time::Duration;

use abide::protocol::{inlet, outlet};
use abide::queue::model::ModelKernel;
use abide::queue::{
    self, Completion, CompletionQueue, HeapWords, Link, LinkError, Outcome, PushError, QueueConfig, SubmissionQueue,
    Task, TaskError, TenantError, Ticket, WaitError,
};
use loom::thread;

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

/// One level, and a tenant beside tenant 0 with one credit.
fn queues(slots: u32, window: u32) -> (SubmissionQueue<Memory>, CompletionQueue<Memory>, ModelKernel<Memory>) {
    let config = QueueConfig {
        offsets: vec![0, slots],
        windows: vec![window],
        entries: window.next_power_of_two(),
        tables: 0,
        tenants: 2,
        credits: 1,
        first_lap: 0,
        first_ticket: 0,
    };
    let inlet = Arc::new(HeapWords::new(inlet::words(slots, 0)));
    let outlet = Arc::new(HeapWords::new(outlet::words(slots, config.entries)));
    let kernel = ModelKernel::new(&config, inlet.clone(), outlet.clone());
    let (submission, completion) = queue::pair(&config, inlet, outlet, Arc::new(Up)).expect("the shape is right");
    (submission, completion, kernel)
}

fn push(submission: &mut SubmissionQueue<Memory>, value: u32) -> Option<Ticket> {
    // The same in three of the slot's four units; the kernel here does nothing with the opcode.
    let payload = [value; 4];
    let task = Task::new(value).level(0).user_data(u64::from(value)).payload(&payload);
    match submission.push(task) {
        Ok(ticket) => Some(ticket),
        Err(PushError::Full(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Takes a completion's value, which must be the task's own.
fn value(done: Completion) -> u32 {
    assert_eq!(done.user_data, u64::from(done.result));
    assert_eq!(done.outcome, Outcome::Done);
    done.result
}

/// Checks all orders in which threads are interrupted at most `preemptions` times, or however often.
fn explore(preemptions: impl Into<Option<usize>>, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions.into();
    builder.max_branches = 10_000;
    builder.check(test);
}

/// Takes in one task, which must have arrived whole, and completes it.
fn run_one(kernel: &mut ModelKernel<Memory>) -> bool {
    let Some(task) = kernel.claim() else {
        return false;
    };
    let parts = [task.opcode(), task.payload[0], task.payload[3]];
    assert_eq!(parts, [task.payload[0]; 3], "parts of the slot are of another task");
    kernel.complete(&task, Outcome::Done, task.payload[0]);
    true
}

/// Takes in and completes one task, whatever it is.
fn run_any(kernel: &mut ModelKernel<Memory>) -> bool {
    let task = kernel.claim();
    task.iter().for_each(|task| kernel.complete(task, Outcome::Done, 0));
    task.is_some()
}

/// Runs the kernel and takes completions until nothing comes; adds the values.
fn drain(kernel: &mut ModelKernel<Memory>, completion: &mut CompletionQueue<Memory>, values: &mut Vec<u32>) {
    while run_one(kernel) {}
    values.extend(std::iter::from_fn(|| completion.poll()).map(value));
}

/// Two producers push while this thread runs the kernel and polls.
fn two_producers(slots: u32, window: u32) {
    let (submission, mut completion, mut kernel) = queues(slots, window);
    let producers = [1, 2].map(|value| {
        let mut submission = submission.clone();
        thread::spawn(move || push(&mut submission, value).map(|ticket| (ticket, value)))
    });
    let mut values = Vec::new();
    drain(&mut kernel, &mut completion, &mut values);
    let pushed: Vec<(Ticket, u32)> = producers.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
    drain(&mut kernel, &mut completion, &mut values);
    let mut expected: Vec<u32> = pushed.iter().map(|&(_, value)| value).collect();
    expected.sort_unstable();
    values.sort_unstable();
    assert_eq!(values, expected, "once each");
    assert!(!pushed.is_empty(), "an empty ring takes one at least");
    assert!(pushed.windows(2).all(|two| two[0].0 != two[1].0), "tickets differ");
    assert_eq!((completion.outstanding(), completion.strays()), (0, 0));
}

#[test]
fn loom_two_producers_share_a_level() {
    // Three interruptions take a minute: nothing holds the two up, so there are the most orders here.
    explore(2, || two_producers(2, 2));
}

#[test]
fn loom_two_producers_want_the_only_slot() {
    explore(3, || two_producers(1, 2));
}

#[test]
fn loom_two_producers_want_the_last_of_the_window() {
    explore(3, || two_producers(2, 1));
}

/// A handle pushes while another does so and is dropped: the one that is left pushes without a swap.
#[test]
fn loom_the_last_handle_pushes_after_one_that_was_dropped() {
    explore(3, || {
        let (mut submission, mut completion, mut kernel) = queues(2, 4);
        let mut other = submission.clone();
        let producer = thread::spawn(move || push(&mut other, 1).is_some());
        let mut pushed: Vec<u32> = [2, 3].into_iter().filter(|&value| push(&mut submission, value).is_some()).collect();
        pushed.extend(producer.join().unwrap().then_some(1));
        let mut values = Vec::new();
        drain(&mut kernel, &mut completion, &mut values);
        values.sort_unstable();
        pushed.sort_unstable();
        assert_eq!(values, pushed);
        assert_eq!(pushed.len(), 2, "the ring has two slots");
    });
}

/// The slot's first task is taken in, completed and delivered while a producer pushes the second.
#[test]
fn loom_a_slot_is_pushed_again_once_it_was_taken_in() {
    explore(None, || {
        let (mut submission, mut completion, mut kernel) = queues(1, 2);
        push(&mut submission, 1).expect("the ring is empty");
        let producer = thread::spawn(move || {
            // Twice, since the first may come before the kernel.
            let second = push(&mut submission, 2).or_else(|| push(&mut submission, 2));
            (second.is_some(), submission)
        });
        let mut values = Vec::new();
        drain(&mut kernel, &mut completion, &mut values);
        let (pushed, submission) = producer.join().unwrap();
        drain(&mut kernel, &mut completion, &mut values);
        assert_eq!(values, if pushed { vec![1, 2] } else { vec![1] });
        drop(submission);
    });
}

/// A task whose home is held is pushed while the one that holds it ends.
#[test]
fn loom_a_displaced_task_meets_the_end_of_the_one_at_its_home() {
    explore(None, || {
        let (mut submission, mut completion, mut kernel) = queues(1, 2);
        push(&mut submission, 1).expect("the ring is empty");
        let long = kernel.claim().expect("it was pushed");
        push(&mut submission, 2).expect("the slot was taken in");
        let mut values = Vec::new();
        drain(&mut kernel, &mut completion, &mut values);
        let producer = thread::spawn(move || {
            // Position 2, with the home of position 0.
            push(&mut submission, 3).expect("the slot was taken in and the window is open");
            submission
        });
        kernel.complete(&long, Outcome::Done, 1);
        drain(&mut kernel, &mut completion, &mut values);
        let submission = producer.join().unwrap();
        drain(&mut kernel, &mut completion, &mut values);
        values.sort_unstable();
        assert_eq!(values, [1, 2, 3]);
        assert_eq!((completion.outstanding(), completion.strays()), (0, 0));
        drop(submission);
    });
}

/// A slot's direct completion is read while the slot's next task is pushed, run and completed over it.
#[test]
fn loom_a_direct_completion_is_never_another_laps() {
    explore(3, || {
        let (mut submission, mut completion, mut kernel) = queues(1, 2);
        let first = push(&mut submission, 1).expect("the ring is empty");
        let claimed = kernel.claim().expect("it was pushed");
        let producer = thread::spawn(move || {
            push(&mut submission, 2).expect("the slot was taken in and the window is open");
            submission
        });
        let device = thread::spawn(move || {
            // The first task's worker is slow: its entry comes after the second task, if at all by then.
            kernel.complete_slot(&claimed, Outcome::Done, 1);
            run_one(&mut kernel);
            kernel.complete_entry(&claimed, Outcome::Done, 1);
            kernel
        });
        let mut values = Vec::new();
        match completion.wait(first, Duration::ZERO) {
            Ok(done) => {
                assert_eq!(done.ticket, first);
                values.push(value(done));
            }
            Err(WaitError::Timeout { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let submission = producer.join().unwrap();
        let mut kernel = device.join().unwrap();
        drain(&mut kernel, &mut completion, &mut values);
        values.sort_unstable();
        assert_eq!(values, [1, 2]);
        assert_eq!((completion.outstanding(), completion.strays()), (0, 0));
        drop(submission);
    });
}

/// A tenant is unregistered while one thread pushes for it and another takes its completion: a task that was pushed is always
/// counted, and one credit is never used twice.
#[test]
fn loom_credits_are_counted_while_a_tenant_goes() {
    explore(3, || {
        let (mut submission, mut completion, mut kernel) = queues(2, 2);
        let tenants = submission.tenants();
        let tenant = tenants.register().expect("there is room for one");
        let task = Task::new(1).level(0).tenant(tenant);
        submission.push(task).expect("the ring is empty");
        run_any(&mut kernel);
        let producer = thread::spawn(move || {
            let pushed = match submission.push(task) {
                Ok(_) => true,
                Err(PushError::NoCredit(_) | PushError::Invalid(TaskError::Tenant { .. })) => false,
                Err(error) => panic!("{error}"),
            };
            (submission, pushed)
        });
        let first = completion.poll().expect("it was completed before");
        assert_eq!(first.outcome, Outcome::Done);
        let gone = match tenants.unregister(tenant) {
            Ok(()) => true,
            Err(TenantError::InUse { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        let (submission, pushed) = producer.join().unwrap();
        assert!(!(gone && pushed), "a task was pushed for a tenant that is gone");
        assert_eq!(tenants.in_flight(tenant), (!gone).then_some(u32::from(pushed)));
        assert_eq!(run_any(&mut kernel), pushed);
        assert_eq!(completion.poll().is_some(), pushed);
        assert_eq!(tenants.in_flight(tenant), (!gone).then_some(0));
        drop(submission);
    });
}

/// Two producers publish; whoever is last, the doorbell passes no slot that isn't whole, and in the end has come to the tail.
#[test]
fn loom_a_doorbell_passes_only_what_is_published() {
    explore(3, || {
        let (submission, mut completion, mut kernel) = queues(2, 2);
        let producers = [1, 2].map(|value| {
            let mut submission = submission.clone();
            thread::spawn(move || {
                push(&mut submission, value).expect("the ring has two slots");
                submission.publish().expect("the kernel never leaves");
                submission
            })
        });
        let rung = kernel.doorbell(0);
        let mut values = Vec::new();
        for _ in 0..rung {
            let task = kernel.claim().expect("the doorbell has passed it");
            values.push(task.payload[0]);
            kernel.complete(&task, Outcome::Done, task.payload[0]);
        }
        let handles = producers.map(|thread| thread.join().unwrap());
        if values.is_empty() {
            assert_eq!(kernel.doorbell(0), 2, "both have marked, so one of them has seen both");
        }
        let mut all = Vec::new();
        drain(&mut kernel, &mut completion, &mut all);
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        drop(handles);
    });
}
