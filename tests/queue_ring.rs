//! The queues against the model kernel, one behaviour a test: what overlaps with what is written out.

#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use abide::protocol::{completion::fault, inlet, opcode, outlet, slot};
use abide::queue::model::ModelKernel;
use abide::queue::{
    self, BatchError, CompletionQueue, ConfigError, ExitReason, FaultCode, HeapWords, Link, LinkError, Outcome,
    PushError, QueueConfig, SubmissionQueue, Task, TaskError, Ticket, WaitError, Words,
};

const NOW: Duration = Duration::ZERO;

/// A link that counts how often it is asked and answers what the test sets.
#[derive(Default)]
struct TestLink {
    launch: AtomicU32,
    turns: AtomicU32,
    waiting: AtomicBool,
    lost: AtomicU32,
}

const LOST: LinkError = LinkError::KernelLeft { reason: ExitReason(outlet::exit::BUDGET) };

impl Link for TestLink {
    fn launch(&self) -> u32 {
        self.launch.load(Ordering::Relaxed)
    }

    fn turn(&self, _patience: Duration, waiting: bool) -> Result<(), LinkError> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
        match self.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            1 => Err(LinkError::Stalled { quiet: Duration::from_secs(1) }),
            _ => Err(LOST),
        }
    }
}

struct Bench {
    submission: SubmissionQueue<Arc<HeapWords>>,
    completion: CompletionQueue<Arc<HeapWords>>,
    kernel: ModelKernel<Arc<HeapWords>>,
    outlet: Arc<HeapWords>,
    link: Arc<TestLink>,
}

fn bench(config: &QueueConfig) -> Bench {
    let (slots, entries) = (config.slots(), config.entries);
    let inlet = Arc::new(HeapWords::new(inlet::words(slots, config.tables)));
    let outlet = Arc::new(HeapWords::new(outlet::words(slots, entries)));
    let kernel = ModelKernel::new(config, inlet.clone(), outlet.clone());
    let link = Arc::new(TestLink { launch: AtomicU32::new(1), ..TestLink::default() });
    let (submission, completion) =
        queue::pair(config, inlet, outlet.clone(), link.clone()).expect("the shape is right");
    Bench { submission, completion, kernel, outlet, link }
}

/// One level of `slots` slots and a window of `window` tasks.
fn one_level(slots: u32, window: u32) -> QueueConfig {
    QueueConfig { windows: vec![window], ..QueueConfig::even(&[0, slots], window.next_power_of_two(), 1) }
}

fn nop(value: &[u32]) -> Task<'_> {
    Task::new(opcode::NOP).level(0).user_data(u64::from(value[0])).payload(value)
}

#[test]
fn a_full_queue_gives_the_task_back() {
    let mut bench = bench(&one_level(2, 4));
    bench.submission.push(nop(&[1])).expect("slot 0 is free");
    bench.submission.push(nop(&[2])).expect("slot 1 is free");
    let task = nop(&[3]);
    assert_eq!(bench.submission.push(task), Err(PushError::Full(task)));
    // A slot is free once its task is taken in, finished or not.
    let claimed = bench.kernel.claim().expect("two tasks wait");
    bench.submission.push(task).expect("slot 0 was taken in");
    assert_eq!(bench.submission.in_flight(0), 3);
    bench.kernel.complete(&claimed, Outcome::Done, 1);
    while bench.kernel.run_one() {}
    let results: Vec<u32> = std::iter::from_fn(|| bench.completion.poll()).map(|done| done.result).collect();
    assert_eq!(results, [1, 2, 3]);
    assert_eq!(bench.completion.outstanding(), 0);
}

#[test]
fn a_window_bounds_tasks_in_flight_where_slots_do_not() {
    let mut bench = bench(&one_level(8, 2));
    bench.submission.push(nop(&[1])).expect("the window is open");
    bench.submission.push(nop(&[2])).expect("the window is open");
    assert!(matches!(bench.submission.push(nop(&[3])), Err(PushError::Full(_))));
    bench.kernel.run_one();
    assert!(matches!(bench.submission.push(nop(&[3])), Err(PushError::Full(_))), "not delivered yet");
    assert_eq!(bench.completion.poll().map(|done| done.user_data), Some(1));
    bench.submission.push(nop(&[3])).expect("the window is open again");
}

#[test]
fn a_task_that_runs_for_long_stops_nobody() {
    let mut bench = bench(&one_level(4, 8));
    let long = bench.submission.push(nop(&[1000])).expect("the ring is empty");
    let claimed = bench.kernel.claim().expect("it was pushed");
    for round in 0..200 {
        let ticket = bench.submission.push(nop(&[round])).expect("one other is in flight");
        assert!(bench.kernel.run_one());
        let done = bench.completion.wait(ticket, NOW).expect("it has ended");
        assert_eq!((done.user_data, done.result), (u64::from(round), round));
    }
    assert_eq!(bench.completion.unfinished().collect::<Vec<_>>(), [(long, 1000)]);
    bench.kernel.complete(&claimed, Outcome::Done, 7);
    let done = bench.completion.wait(long, NOW).expect("it has ended");
    assert_eq!((done.user_data, done.result), (1000, 7));
}

#[test]
fn many_tasks_that_run_for_long_fill_the_window_and_no_more() {
    let mut bench = bench(&one_level(3, 16));
    let mut held = Vec::new();
    for round in 0..16 {
        bench.submission.push(nop(&[round])).expect("the window is open");
        let claimed = bench.kernel.claim().expect("it was pushed");
        // Every third ends at once, so that homes are taken out of order.
        if round % 3 == 0 {
            bench.kernel.complete(&claimed, Outcome::Done, round);
            assert_eq!(bench.completion.poll().map(|done| done.user_data), Some(u64::from(round)));
        } else {
            held.push((round, claimed));
        }
    }
    let mut round = 16;
    while held.len() < 16 {
        bench.submission.push(nop(&[round])).expect("the window is open");
        held.push((round, bench.kernel.claim().expect("it was pushed")));
        round += 1;
    }
    assert!(matches!(bench.submission.push(nop(&[99])), Err(PushError::Full(_))));
    assert_eq!(bench.completion.unfinished().count(), 16);
    for (round, claimed) in held.into_iter().rev() {
        bench.kernel.complete(&claimed, Outcome::Done, round);
        let done = bench.completion.poll().expect("one has ended");
        assert_eq!((done.user_data, done.result), (u64::from(round), round));
    }
}

#[test]
fn a_direct_completion_is_delivered_once() {
    let mut bench = bench(&one_level(4, 4));
    let ticket = bench.submission.push(nop(&[5])).expect("the ring is empty");
    let claimed = bench.kernel.claim().expect("it was pushed");
    bench.kernel.complete_slot(&claimed, Outcome::Done, 50);
    let done = bench.completion.wait(ticket, NOW).expect("its slot says so");
    assert_eq!((done.ticket, done.user_data, done.result), (ticket, 5, 50));
    assert_eq!(bench.completion.wait(ticket, NOW), Err(WaitError::AlreadyDelivered(ticket)));
    assert_eq!(bench.completion.poll(), None);
    assert_eq!(bench.completion.outstanding(), 1, "its entry has not come");
    assert_eq!(bench.completion.unfinished().count(), 0);
    bench.kernel.complete_entry(&claimed, Outcome::Done, 50);
    assert_eq!(bench.completion.poll(), None, "the entry is dropped");
    assert_eq!(bench.completion.outstanding(), 0);
    assert_eq!(bench.completion.wait(ticket, NOW), Err(WaitError::AlreadyDelivered(ticket)));
}

#[test]
fn a_direct_completion_is_not_believed_while_another_lap_may_write_it() {
    let mut bench = bench(&one_level(1, 4));
    let first = bench.submission.push(nop(&[1])).expect("the ring is empty");
    let first_claimed = bench.kernel.claim().expect("it was pushed");
    let second = bench.submission.push(nop(&[2])).expect("the slot was taken in");
    let second_claimed = bench.kernel.claim().expect("it was pushed");
    let timed_out = |outcome| matches!(outcome, Err(WaitError::Timeout { taken: true, alive: true, .. }));
    // A later lap was pushed, and may be writing over the first's words.
    bench.kernel.complete_slot(&first_claimed, Outcome::Done, 10);
    assert!(timed_out(bench.completion.wait(first, NOW)));
    // An earlier lap has not come through the queue, and may be writing over the second's.
    bench.kernel.complete_slot(&second_claimed, Outcome::Done, 20);
    assert!(timed_out(bench.completion.wait(second, NOW)));
    bench.kernel.complete_entry(&first_claimed, Outcome::Done, 10);
    assert_eq!(bench.completion.wait(second, NOW).map(|done| done.result), Ok(20), "now it is believed");
    bench.kernel.complete_entry(&second_claimed, Outcome::Done, 20);
    assert_eq!(bench.completion.wait(first, NOW).map(|done| done.result), Ok(10));
    assert_eq!((bench.completion.poll(), bench.completion.outstanding()), (None, 0));
}

#[test]
fn completions_that_a_wait_passes_by_are_kept_in_order() {
    let mut bench = bench(&one_level(8, 8));
    let tickets: Vec<Ticket> = (0..6).map(|n| bench.submission.push(nop(&[n])).expect("there is room")).collect();
    while bench.kernel.run_one() {}
    assert_eq!(bench.completion.wait(tickets[3], NOW).map(|done| done.user_data), Ok(3));
    assert_eq!(bench.completion.wait(tickets[1], NOW).map(|done| done.user_data), Ok(1));
    let rest: Vec<u64> = std::iter::from_fn(|| bench.completion.poll()).map(|done| done.user_data).collect();
    assert_eq!(rest, [0, 2, 4, 5]);
    assert_eq!(bench.completion.outstanding(), 0);
}

#[test]
fn a_ticket_that_was_never_issued_is_an_error() {
    let mut bench = bench(&one_level(4, 4));
    bench.submission.push(nop(&[1])).expect("the ring is empty");
    for ticket in [Ticket::from_bits(1), Ticket::from_bits(1 << 61), Ticket::from_bits(u64::MAX)] {
        assert_eq!(bench.completion.wait(ticket, NOW), Err(WaitError::NeverIssued(ticket)));
    }
}

#[test]
fn a_timeout_says_how_far_the_task_came() {
    let mut bench = bench(&one_level(4, 4));
    let ticket = bench.submission.push(nop(&[1])).expect("the ring is empty");
    let waited = Duration::from_millis(3);
    match bench.completion.wait(ticket, waited) {
        Err(WaitError::Timeout { taken: false, alive: true, waited: time, .. }) => assert!(time >= waited),
        other => panic!("{other:?}"),
    }
    bench.kernel.claim().expect("it was pushed");
    bench.kernel.leave(1, outlet::exit::IDLE);
    let error = bench.completion.wait(ticket, waited).expect_err("nothing ended");
    assert!(matches!(error, WaitError::Timeout { taken: true, alive: false, .. }));
    assert!(error.to_string().contains("it was taken in, and the kernel has left"), "{error}");
    match bench.completion.wait_any(waited) {
        Err(WaitError::Quiet { outstanding: 1, alive: false, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_link_is_asked_only_when_the_kernel_has_left_with_tasks_pending() {
    let mut bench = bench(&one_level(4, 4));
    let turns = |bench: &Bench| bench.link.turns.load(Ordering::Relaxed);
    bench.submission.push(nop(&[1])).expect("the ring is empty");
    bench.submission.publish().expect("the kernel is there");
    assert_eq!((bench.completion.poll(), turns(&bench)), (None, 0), "the kernel is there");
    bench.kernel.leave(1, outlet::exit::IDLE);
    bench.submission.publish().expect("the link agrees");
    assert_eq!((bench.completion.poll(), turns(&bench)), (None, 2));
    assert!(bench.kernel.run_one());
    assert!(bench.completion.poll().is_some());
    bench.submission.publish().expect("the link agrees");
    assert_eq!((bench.completion.poll(), turns(&bench)), (None, 2), "nothing is pending");
    // A task that was delivered by its slot's word waits for its entry only.
    let ticket = bench.submission.push(nop(&[2])).expect("the ring is empty");
    let claimed = bench.kernel.claim().expect("it was pushed");
    bench.kernel.complete_slot(&claimed, Outcome::Done, 2);
    bench.completion.wait(ticket, NOW).expect("its slot says so");
    bench.submission.publish().expect("the link agrees");
    assert_eq!((bench.completion.poll(), turns(&bench)), (None, 2), "nothing is pending");
}

#[test]
fn a_launch_is_worth_starting_for_tasks_that_are_not_taken_in() {
    let mut bench = bench(&one_level(4, 4));
    bench.kernel.leave(1, outlet::exit::IDLE);
    let waiting = |bench: &mut Bench| {
        bench.submission.publish().expect("the link agrees");
        bench.link.waiting.load(Ordering::Relaxed)
    };
    for number in 0..9 {
        bench.submission.push(nop(&[number])).expect("the ring is empty");
        assert!(waiting(&mut bench), "task {number} is published");
        let claimed = bench.kernel.claim().expect("it was pushed");
        assert!(!waiting(&mut bench), "task {number} is taken in");
        bench.kernel.complete(&claimed, Outcome::Done, number);
        assert!(!waiting(&mut bench), "the completion of task {number} waits to be taken, not the task");
        assert_eq!(bench.completion.poll().map(|done| done.result), Some(number));
    }
}

#[test]
fn a_loss_is_typed_and_leaves_the_tasks_known() {
    let mut bench = bench(&one_level(4, 4));
    let ticket = bench.submission.push(nop(&[9])).expect("the ring is empty");
    bench.kernel.leave(1, outlet::exit::BUDGET);
    // A stall may pass, so the queue goes on taking tasks.
    bench.link.lost.store(1, Ordering::Relaxed);
    assert!(matches!(bench.submission.publish(), Err(LinkError::Stalled { .. })));
    assert_eq!(bench.completion.poll(), None);
    assert!(matches!(bench.completion.link_error(), Some(LinkError::Stalled { .. })));
    let other = bench.submission.push(nop(&[10])).expect("a stall is not final");
    bench.link.lost.store(2, Ordering::Relaxed);
    assert_eq!(bench.completion.wait(ticket, Duration::from_secs(60)), Err(WaitError::Lost(LOST)));
    assert_eq!(bench.submission.push(nop(&[11])), Err(PushError::Lost(LOST)));
    assert_eq!(bench.submission.push_batch(&[nop(&[11])]).err(), Some(BatchError::Lost(LOST)));
    assert_eq!(bench.completion.link_error(), Some(LOST));
    assert_eq!(bench.completion.unfinished().collect::<Vec<_>>(), [(ticket, 9), (other, 10)]);
    // What the kernel had finished is still delivered.
    bench.kernel.run_one();
    assert_eq!(bench.completion.wait(ticket, NOW).map(|done| done.user_data), Ok(9));
}

#[test]
fn the_whole_payload_arrives() {
    let mut bench = bench(&one_level(2, 2));
    let payload: Vec<u32> = (100..100 + slot::MAX_PAYLOAD).collect();
    for words in [0, 1, 5, 6, 7, 18, 19, 53, 54] {
        bench.submission.push(Task::new(opcode::NOP).level(0).payload(&payload[..words])).expect("there is room");
        let claimed = bench.kernel.claim().expect("it was pushed");
        assert_eq!(claimed.payload[..words], payload[..words]);
        assert!(claimed.payload[words..].iter().all(|&word| word == 0));
        bench.kernel.complete(&claimed, Outcome::Done, 0);
        bench.completion.poll().expect("it has ended");
    }
}

#[test]
fn a_range_is_one_entry_and_as_many_completions() {
    let mut bench = bench(&one_level(4, 8));
    let tickets: Vec<Ticket> =
        (0..4).map(|number| bench.submission.push(nop(&[0]).user_data(number)).unwrap()).collect();
    let claimed: Vec<_> = std::iter::from_fn(|| bench.kernel.claim()).collect();
    bench.kernel.complete_range(&claimed);
    let third = bench.completion.wait(tickets[2], Duration::ZERO).unwrap();
    assert_eq!((third.ticket, third.user_data, third.result), (tickets[2], 2, 0));
    let rest: Vec<u64> = std::iter::from_fn(|| bench.completion.poll()).map(|done| done.user_data).collect();
    assert_eq!(rest, [0, 1, 3]);
    assert_eq!((bench.completion.outstanding(), bench.completion.strays()), (0, 0));
}

#[test]
fn doorbells_ring_for_batches_and_not_for_lone_tasks() {
    let mut bench = bench(&one_level(8, 8));
    bench.submission.push(nop(&[1])).unwrap();
    bench.submission.publish().unwrap();
    assert_eq!(bench.kernel.doorbell(0), 0, "one task, and nothing else in flight");
    bench.submission.push(nop(&[1])).unwrap();
    bench.submission.publish().unwrap();
    assert_eq!(bench.kernel.doorbell(0), 2, "the first may be waiting still");
    // Two handles: what the other has pushed and not published is not passed.
    let mut other = bench.submission.clone();
    other.push(nop(&[2])).unwrap();
    bench.submission.push(nop(&[3])).unwrap();
    bench.submission.push(nop(&[4])).unwrap();
    bench.submission.publish().unwrap();
    assert_eq!(bench.kernel.doorbell(0), 2);
    other.publish().unwrap();
    assert_eq!(bench.kernel.doorbell(0), 5);
    drop(other);
    bench.submission.push(nop(&[5])).unwrap();
    bench.submission.publish().unwrap();
    assert_eq!(bench.kernel.doorbell(0), 6);
}

#[test]
fn faults_come_back_as_codes() {
    let mut bench = bench(&one_level(2, 2));
    bench.submission.push(Task::new(99).level(0)).expect("there is room");
    bench.kernel.run_one();
    let done = bench.completion.poll().expect("it has ended");
    assert_eq!(done.outcome, Outcome::Fault(FaultCode(fault::NO_HANDLER)));
}

#[test]
fn an_entry_that_names_no_task_is_dropped_and_counted() {
    let mut bench = bench(&one_level(2, 2));
    bench.submission.push(nop(&[1])).expect("there is room");
    let claimed = bench.kernel.claim().expect("it was pushed");
    bench.kernel.complete(&claimed, Outcome::Done, 1);
    bench.kernel.complete(&claimed, Outcome::Done, 1);
    assert!(bench.completion.poll().is_some());
    assert_eq!((bench.completion.poll(), bench.completion.strays()), (None, 0));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((bench.completion.poll(), bench.completion.strays()), (None, 1));
    bench.submission.push(nop(&[2])).expect("there is room");
    bench.kernel.run_one();
    assert_eq!(bench.completion.poll().map(|done| done.user_data), Some(2));
}

#[test]
fn fault_b16_a_batch_that_can_never_fit_is_refused_with_the_limit() {
    let mut bench = bench(&one_level(4, 3));
    let tasks: Vec<Task> = (0..4).map(|_| nop(&[1])).collect();
    let error = bench.submission.push_batch(&tasks).expect_err("the window is 3");
    assert_eq!(error, BatchError::TooLong { level: 0, len: 4, limit: 3 });
    assert!(error.to_string().contains("a batch of 4 tasks never fits level 0, which holds 3"), "{error}");
    assert_eq!(bench.submission.push_batch(&tasks[..3]).expect("it fits").count(), 3);
}

#[test]
fn fault_b16_a_batch_is_pushed_whole_or_not_at_all() {
    let mut bench = bench(&one_level(4, 4));
    let values: Vec<[u32; 1]> = (0..4).map(|n| [n]).collect();
    let tasks: Vec<Task> = values.iter().map(|value| nop(value)).collect();
    bench.submission.push(nop(&[9])).expect("the ring is empty");
    assert_eq!(bench.submission.push_batch(&tasks).err(), Some(BatchError::Full { level: 0, len: 4 }));
    assert_eq!(bench.submission.outstanding(), 1);
    bench.kernel.run_one();
    assert_eq!(bench.completion.poll().map(|done| done.user_data), Some(9));
    let tickets: Vec<Ticket> = bench.submission.push_batch(&tasks).expect("the ring is empty").collect();
    while bench.kernel.run_one() {}
    for (ticket, value) in tickets.into_iter().zip(0..) {
        assert_eq!(bench.completion.wait(ticket, NOW).map(|done| done.result), Ok(value));
    }
    assert_eq!(bench.submission.push_batch(&[]).expect("nothing to push").len(), 0);
}

#[test]
fn fault_b16_what_can_never_be_pushed_is_named() {
    let config = QueueConfig { windows: vec![2, 2, 2], ..QueueConfig::even(&[0, 2, 2, 4], 8, 1) };
    let mut bench = bench(&config);
    let long = [0; slot::MAX_PAYLOAD as usize + 1];
    let cases = [
        (Task::new(0).level(3), TaskError::Level { level: 3, levels: 3 }),
        (Task::new(0).level(1), TaskError::NoSlots { level: 1 }),
        (Task::new(0x1_0000), TaskError::Opcode { opcode: 0x1_0000, limit: 0xffff }),
        (Task::new(0).bindings(1), TaskError::Bindings { table: 1, tables: 1 }),
        (Task::new(0).payload(&long), TaskError::Payload { words: long.len(), limit: slot::MAX_PAYLOAD }),
    ];
    for (task, error) in cases {
        assert_eq!(bench.submission.push(task), Err(PushError::Invalid(error)));
        let batch = [Task::new(0).level(0), task];
        assert_eq!(bench.submission.push_batch(&batch).err(), Some(BatchError::Invalid { index: 1, error }));
    }
    let mixed = [Task::new(0).level(0), Task::new(0).level(2)];
    let error = BatchError::MixedLevels { first: 0, index: 1, level: 2 };
    assert_eq!(bench.submission.push_batch(&mixed).err(), Some(error));
    assert_eq!(bench.submission.outstanding(), 0);
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let config = one_level(4, 4);
    let words = |len| Arc::new(HeapWords::new(len));
    let link = || Arc::new(TestLink::default());
    let (inlet, outlet) = (inlet::words(4, 1), outlet::words(4, 4));
    let error = queue::pair(&config, words(inlet - 1), words(outlet), link()).map(drop);
    assert_eq!(error, Err(ConfigError::Memory { buffer: "inlet", words: inlet - 1, needed: inlet }));
    let error = queue::pair(&config, words(inlet), words(outlet - 1), link()).map(drop);
    assert_eq!(error, Err(ConfigError::Memory { buffer: "outlet", words: outlet - 1, needed: outlet }));
}

#[test]
fn dropping_a_handle_publishes_what_it_pushed() {
    let bench = bench(&one_level(4, 4));
    bench.kernel.leave(1, outlet::exit::IDLE);
    assert_eq!(bench.outlet.load(outlet::ENDED), 1);
    drop(bench.submission.clone());
    assert_eq!(bench.link.turns.load(Ordering::Relaxed), 0, "it pushed nothing");
    let mut other = bench.submission.clone();
    other.push(nop(&[1])).expect("there is room");
    drop(other);
    assert_eq!(bench.link.turns.load(Ordering::Relaxed), 1);
}

#[test]
fn halves_can_be_sent_to_other_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<SubmissionQueue>();
    assert_send::<CompletionQueue>();
}
