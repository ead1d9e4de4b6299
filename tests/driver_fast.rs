//! The fast policy's own faults, as `driver_faults` has them, and its corners: ranges, hand-over, doorbells, wraps.

#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/runtime.rs"]
mod common;
#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/compute.rs"]
mod compute;

use std::time::Duration;

use abide::device::{DeviceType, Mode};
use abide::protocol::completion::fault;
use abide::protocol::{completion, inlet, launch, opcode, outlet, slot, state};
use abide::queue::{CompletionQueue, FaultCode, Outcome, SubmissionQueue, Task};
use abide::runtime::{Policy, RuntimeBuilder};
use abide::scheduler::fast::{self, Lanes};
use abide::scheduler::{Fences, Mutation};
use common::{DEADLINE, device, modes, policies, run_checked, scaled, until};

/// How long a check of a planted fault waits for what may never come.
const SOON: Duration = Duration::from_secs(1);

/// Passes of a launch of a planted fault: enough to outlast [`SOON`], few enough for the runtime to be dropped.
fn passes() -> u32 {
    if device().info().device_type == DeviceType::Cpu { 300_000 } else { 100_000 }
}

type Check = fn(RuntimeBuilder<'static>, Duration) -> Result<(), String>;

fn builders(modes: &[Mode]) -> Vec<RuntimeBuilder<'static>> {
    if !policies().contains(&Policy::Fast) {
        eprintln!("SKIPPED: the driver cuts loops short");
        return Vec::new();
    }
    modes.iter().map(|&mode| common::builder().policy(Policy::Fast).mode(mode)).collect()
}

fn resident() -> Vec<Mode> {
    modes().into_iter().filter(|&mode| mode == Mode::Resident).collect()
}

/// Runs a check, which must hold, and with the fault planted, where it must not.
fn plant(mutation: Mutation, check: Check) {
    for builder in builders(&resident()) {
        check(builder.clone(), DEADLINE).unwrap();
        match check(builder.mutation(mutation).pass_budget(passes()), SOON) {
            Ok(()) => panic!("{mutation:?} went unnoticed"),
            Err(error) => eprintln!("{mutation:?} shows: {error}"),
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What a task that needs a buffer and has none comes back with.
const UNBOUND: Outcome = Outcome::Fault(FaultCode(fault::NOT_BOUND));

/// Runs tasks that aren't short, published together; all must come back as they should, and nothing else.
fn run_long(
    submission: &mut SubmissionQueue,
    completion: &mut CompletionQueue,
    tasks: u64,
    patience: Duration,
) -> Result<(), String> {
    for number in 0..tasks {
        submission.push(Task::new(opcode::LOAD).user_data(number)).map_err(text)?;
    }
    submission.publish().map_err(text)?;
    for number in 0..tasks {
        let done = completion.wait_any(patience).map_err(|error| format!("{number} of {tasks} are done: {error}"))?;
        if done.outcome != UNBOUND {
            return Err(format!("{done:?}"));
        }
    }
    std::thread::sleep(Duration::from_millis(40));
    match (completion.poll(), completion.strays()) {
        (None, 0) => Ok(()),
        (more, strays) => Err(format!("{more:?}, {strays} strays")),
    }
}

/// A worker that runs a long task has given the poller's place up, and somebody polls afterwards.
fn tasks_follow_long_ones(builder: RuntimeBuilder<'static>, patience: Duration) -> Result<(), String> {
    let (_runtime, mut submission, mut completion) = builder.workers(1).build().map_err(text)?;
    // The kernel is compiled first.
    run_long(&mut submission, &mut completion, 1, DEADLINE)?;
    (0..3).try_for_each(|_| run_long(&mut submission, &mut completion, 1, patience))
}

#[test]
fn fault_a_poller_that_goes_leaves_its_place() {
    plant(Mutation::PlaceKept, tasks_follow_long_ones);
}

#[test]
fn fault_an_old_doorbell_is_not_far_ahead() {
    plant(Mutation::DoorbellUnsigned, tasks_follow_long_ones);
}

/// No worker claims more than what is there.
fn batches_end_where_they_end(builder: RuntimeBuilder<'static>, patience: Duration) -> Result<(), String> {
    let (_runtime, mut submission, mut completion) = builder.workers(1).build().map_err(text)?;
    run_long(&mut submission, &mut completion, 1, DEADLINE)?;
    (2..6).try_for_each(|tasks| run_long(&mut submission, &mut completion, tasks, patience))
}

#[test]
fn fault_a_range_ends_with_what_is_there() {
    plant(Mutation::RangeOverrun, batches_end_where_they_end);
}

/// Pushes batches over two levels, each of them awaited: NOPs whose results are all 0, or not, and long tasks among them.
fn run_batches(builder: RuntimeBuilder<'static>, levels: u32) {
    let (_runtime, mut submission, mut completion) = builder.levels(levels).slots(40 * levels).build().unwrap();
    let mut number = 0u64;
    for round in 0..scaled(150) {
        let kind = |at: u64| (round % 4, (at * 7 + round) % 5);
        let (first, count) = (number, 1 + round % 20);
        for at in 0..count {
            let payload = [number as u32];
            let task = match kind(at) {
                (0, _) => Task::new(opcode::NOP),
                (1, 0) | (2, 0 | 1) => Task::new(opcode::LOAD),
                _ => Task::new(opcode::NOP).payload(&payload),
            };
            let level = if (round + at / 4) % 3 == 0 { 0 } else { levels - 1 };
            submission.push(task.level(level).user_data(number)).unwrap();
            number += 1;
        }
        submission.publish().unwrap();
        let mut seen = vec![false; count as usize];
        for _ in 0..count {
            let done = completion.wait_any(DEADLINE).unwrap();
            let at = done.user_data - first;
            assert!(!std::mem::replace(&mut seen[at as usize], true), "{done:?} came twice");
            let expected = match kind(at) {
                (0, _) => (Outcome::Done, 0),
                (1, 0) | (2, 0 | 1) => (UNBOUND, 0),
                _ => (Outcome::Done, done.user_data as u32),
            };
            assert_eq!((done.outcome, done.result), expected, "{done:?}");
        }
    }
    assert_eq!((completion.poll(), completion.strays()), (None, 0));
}

#[test]
fn batches_come_back_whole_whatever_they_hold() {
    for workers in [1, 2, 5] {
        // With few levels each has four lanes, with more one, or half a one.
        for levels in [1, 2, 5, 8] {
            for builder in builders(&modes()) {
                run_batches(builder.workers(workers), levels);
            }
        }
    }
}

/// Who waits for one task of a batch finds it, whether its completion is an entry of its own or a range's.
#[test]
fn one_of_a_batch_can_be_waited_for() {
    for builder in builders(&modes()) {
        let (_runtime, mut submission, mut completion) = builder.workers(3).build().unwrap();
        for _ in 0..scaled(30) {
            let tickets = submission.push_batch(&[Task::new(opcode::NOP); 20]).unwrap();
            submission.publish().unwrap();
            for ticket in tickets.rev() {
                assert_eq!(completion.wait(ticket, DEADLINE).unwrap().ticket, ticket);
            }
        }
        until("all are finished", || completion.poll().is_none() && completion.outstanding() == 0);
        assert_eq!(completion.strays(), 0);
    }
}

/// Positions that cross 2^31 and 2^32 in rings of any size: a claimer finds index and lap of each.
#[test]
fn positions_cross_each_half_of_their_32_bits() {
    for workers in [1, 3] {
        for builder in builders(&modes()) {
            for (slots, half) in [(7, 1u64 << 31), (5, 1 << 32), (64, 3 << 31)] {
                let lap = half / slots - 4;
                let builder = builder.clone().levels(1).slots(slots as u32).in_flight(64).workers(workers);
                run_checked(builder.start_at(lap, u32::MAX - 99), scaled(600));
            }
        }
    }
}

/// The host's stop word is obeyed while a backlog is there: no worker starts more than what it has claimed.
#[test]
fn a_launch_ends_amid_a_backlog_and_the_next_one_goes_on() {
    for builder in builders(&resident()) {
        let (runtime, mut submission, mut completion) = builder.workers(2).build().unwrap();
        let mut done = 0;
        for _ in 0..scaled(20) {
            while submission.push(Task::new(opcode::LOAD)).is_ok() {}
            submission.publish().unwrap();
            runtime.quiesce(DEADLINE).unwrap();
            done += std::iter::from_fn(|| completion.poll()).count();
            runtime.resume().unwrap();
        }
        while completion.outstanding() > 0 {
            completion.wait_any(DEADLINE).unwrap();
            done += 1;
        }
        assert!(done > 0 && completion.strays() == 0);
        assert_eq!(runtime.counters().unwrap().done as usize, done);
    }
}

/// How a kernel of one level ends a NOP that lies alone in its ring, of whose slot the units in `missing` never arrived.
fn outcome_of(gpu: &compute::Gpu, lanes: Lanes, missing: &[usize]) -> u32 {
    const SLOTS: u32 = 4;
    let mut memory = vec![0; inlet::words(SLOTS, 0) as usize];
    memory[inlet::PRIORITY_OFFSETS as usize + 1] = SLOTS;
    let at = inlet::slot_at(0) as usize;
    for tag in slot::TAGS {
        memory[at + tag as usize] = 1;
    }
    for &unit in missing {
        memory[at + slot::TAGS[unit] as usize] = 0;
    }
    let mut params = vec![0; launch::WORDS as usize];
    for (word, value) in [
        (launch::LAUNCH, 1),
        (launch::SLOTS, SLOTS),
        (launch::ENTRIES, SLOTS),
        (launch::LOOKS, 1),
        // The launch ends once the task has been claimed and nothing else is found.
        (launch::TARGET, 1),
        (launch::RANGE_LEAST, 1),
        (launch::RANGE_MOST, 1),
    ] {
        params[word as usize] = value;
    }
    let outlet_words = outlet::words(SLOTS, SLOTS) as usize;
    let buffers = vec![memory, vec![0; outlet_words], vec![0; state::words(SLOTS, 1, (1, 1)) as usize]];
    let words = abide::spirv::lower(&fast::kernel(1, lanes, Fences::Full, None)).unwrap().words;
    let job = compute::Job { buffers, params, width: 4, groups: 1, ..compute::Job::default() };
    let outcome = gpu.run(&words, &job);
    let entry = outlet::entry_at(SLOTS, SLOTS, 0);
    assert_eq!(outcome.buffers[1][(entry + completion::PHASE) as usize], 1, "the task has ended");
    outcome.buffers[1][(entry + completion::OUTCOME) as usize]
}

#[test]
fn a_slot_that_never_arrives_whole_is_a_fault() {
    if builders(&modes()).is_empty() {
        return;
    }
    let Some(gpu) = compute::Gpu::open() else { return };
    for lanes in [Lanes::Wide, Lanes::Few] {
        assert_eq!(outcome_of(&gpu, lanes, &[]), completion::pack_outcome(completion::DONE, 0, 0, 0));
        for missing in [&[1][..], &[2], &[3], &[1, 2, 3]] {
            let torn = completion::pack_outcome(completion::FAULT, 0, fault::TORN, 0);
            assert_eq!(outcome_of(&gpu, lanes, missing), torn, "{lanes:?}, without {missing:?}");
        }
    }
}
