//! The runtime on the driver at hand, in each mode that it can do: tasks go in, completions come back, exactly once.

#[path = "common/runtime.rs"]
mod common;

use std::time::Duration;

use abide::device;
use abide::protocol::completion::fault;
use abide::protocol::{CRITICAL, IDLE, NORMAL, opcode};
use abide::queue::{FaultCode, LinkError, Outcome, PushError, Task, WaitError};
use abide::runtime::{Error, Health, Reach};
use common::{DEADLINE, run_checked, ways};

#[test]
fn a_nop_comes_back_with_its_payload() {
    for (mode, policy) in ways() {
        let (_runtime, mut submission, mut completion) = common::builder().mode(mode).policy(policy).build().unwrap();
        for round in 0..100u32 {
            let payload = [round];
            let task = Task::new(opcode::NOP).level(round % 5).user_data(7).payload(&payload);
            let ticket = submission.push(task).unwrap();
            submission.publish().unwrap();
            let done = completion.wait(ticket, DEADLINE).unwrap();
            assert_eq!((done.ticket, done.user_data, done.outcome, done.result), (ticket, 7, Outcome::Done, round));
        }
        // A completion that was taken from its slot counts until its entry in the queue was seen.
        common::until("all tasks are finished", || completion.poll().is_none() && completion.outstanding() == 0);
    }
}

#[test]
fn built_ins_reach_bound_memory_and_nothing_else() {
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) = common::builder().mode(mode).policy(policy).build().unwrap();
        let (to, from) = (runtime.buffer("to", 256).unwrap(), runtime.buffer("from", 256).unwrap());
        let words = to.mapped().unwrap();
        from.mapped().unwrap().write(0, &(100..164).collect::<Vec<u32>>());
        let table = runtime.bind(&[&to, &from]).unwrap();
        let mut run = |opcode, payload: &[u32]| {
            let ticket = submission.push(Task::new(opcode).bindings(table.index()).payload(payload)).unwrap();
            submission.publish().unwrap();
            let done = completion.wait(ticket, DEADLINE).unwrap();
            (done.outcome, done.result)
        };
        let out_of_range = (Outcome::Fault(FaultCode(fault::OUT_OF_RANGE)), 0);
        assert_eq!(run(opcode::STORE, &[5, 40]), (Outcome::Done, 40));
        assert_eq!(run(opcode::ATOMIC_ADD, &[5, 2]), (Outcome::Done, 40));
        assert_eq!(run(opcode::LOAD, &[5]), (Outcome::Done, 42));
        assert_eq!(run(opcode::COMPARE_SWAP, &[5, 41, 1]), (Outcome::Done, 42));
        assert_eq!(run(opcode::COMPARE_SWAP, &[5, 42, 1]), (Outcome::Done, 42));
        assert_eq!(run(opcode::STORE, &[63, 9]), (Outcome::Done, 9));
        assert_eq!(run(opcode::STORE, &[64, 9]), out_of_range);
        assert_eq!(run(opcode::LOAD, &[u32::MAX]), out_of_range);
        assert_eq!(run(opcode::MEMCPY, &[10, 1, 50]), (Outcome::Done, 50));
        assert_eq!(run(opcode::MEMCPY, &[10, 1, 55]), out_of_range);
        assert_eq!(run(opcode::MEMCPY, &[0, u32::MAX, 2]), out_of_range);
        let mut seen = [0; 64];
        words.read(0, &mut seen);
        let mut expected = [0; 64];
        (expected[5], expected[63]) = (1, 9);
        for word in 0..50 {
            expected[10 + word] = 101 + word as u32;
        }
        assert_eq!(seen, expected);
    }
}

#[test]
fn unknown_opcodes_and_missing_tables_are_faults() {
    for (mode, policy) in ways() {
        let (_runtime, mut submission, mut completion) = common::builder().mode(mode).policy(policy).build().unwrap();
        for (opcode, code) in [
            (opcode::SHUTDOWN + 1, fault::NO_HANDLER),
            (opcode::FIRST_HANDLER, fault::NO_HANDLER),
            (opcode::STORE, fault::NOT_BOUND),
            (opcode::MEMCPY, fault::NOT_BOUND),
        ] {
            let ticket = submission.push(Task::new(opcode).payload(&[0, 1, 2])).unwrap();
            submission.publish().unwrap();
            let done = completion.wait(ticket, DEADLINE).unwrap();
            assert_eq!(done.outcome, Outcome::Fault(FaultCode(code)), "opcode {opcode}");
        }
    }
}

#[test]
fn a_small_ring_goes_round_many_times() {
    for (mode, policy) in ways() {
        let builder = common::builder().mode(mode).policy(policy).slots(40).in_flight(64);
        run_checked(builder, common::scaled(20_000));
    }
}

#[test]
fn positions_and_tickets_wrap() {
    for (mode, policy) in ways() {
        for reach in [Reach::Whole, Reach::Heads(16)] {
            let builder = common::builder().mode(mode).policy(policy).slots(23).in_flight(64).reach(reach);
            run_checked(builder.start_at((1 << 32) - 3, u32::MAX - 50), common::scaled(2_000));
        }
    }
}

#[test]
fn every_number_of_levels_and_any_split_works() {
    for levels in 1..=8 {
        run_checked(common::builder().levels(levels).slots(64).workers(2), common::scaled(500));
    }
    run_checked(common::builder().split(&[0, 0, 1, 7, 7, 30]), common::scaled(500));
}

#[test]
fn more_urgent_tasks_run_first() {
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) =
            common::builder().mode(mode).policy(policy).workers(1).reach(Reach::Whole).build().unwrap();
        runtime.quiesce(DEADLINE).unwrap();
        let mut pushed = Vec::new();
        for level in [IDLE, NORMAL, CRITICAL, NORMAL, CRITICAL] {
            pushed.push((level, submission.push(Task::new(opcode::NOP).level(level)).unwrap()));
        }
        submission.publish().unwrap();
        runtime.resume().unwrap();
        let order: Vec<u32> = pushed.iter().map(|_| completion.wait_any(DEADLINE).unwrap().ticket.level()).collect();
        assert_eq!(order, [CRITICAL, CRITICAL, NORMAL, NORMAL, IDLE]);
    }
}

#[test]
fn a_parked_kernel_is_launched_by_the_next_publish() {
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) =
            common::builder().mode(mode).policy(policy).park_after(Duration::from_millis(2)).build().unwrap();
        for round in 0..5 {
            let ticket = submission.push(Task::new(opcode::NOP).payload(&[round])).unwrap();
            submission.publish().unwrap();
            assert_eq!(completion.wait(ticket, DEADLINE).unwrap().result, round);
            common::until("the kernel parks", || runtime.health() == Health::Parked);
        }
    }
}

#[test]
fn quiesce_keeps_tasks_and_resume_runs_them() {
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) = common::builder().mode(mode).policy(policy).build().unwrap();
        let first = submission.push(Task::new(opcode::NOP)).unwrap();
        submission.publish().unwrap();
        completion.wait(first, DEADLINE).unwrap();
        runtime.quiesce(DEADLINE).unwrap();
        assert_eq!(runtime.health(), Health::Quiesced);
        let kept = submission.push(Task::new(opcode::NOP).user_data(9)).unwrap();
        submission.publish().unwrap();
        let waited = completion.wait(kept, Duration::from_millis(20));
        assert!(matches!(waited, Err(WaitError::Timeout { taken: false, .. })), "{waited:?}");
        runtime.resume().unwrap();
        assert_eq!(completion.wait(kept, DEADLINE).unwrap().user_data, 9);
    }
}

#[test]
fn shutdown_ends_the_runtime_and_unfinished_tasks_stay_known() {
    const TASKS: u64 = 800;
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) =
            common::builder().mode(mode).policy(policy).workers(1).build().unwrap();
        runtime.quiesce(DEADLINE).unwrap();
        let shutdown = submission.push(Task::new(opcode::SHUTDOWN).level(CRITICAL)).unwrap();
        for number in 0..TASKS {
            submission.push(Task::new(opcode::NOP).level(IDLE).user_data(number)).unwrap();
        }
        submission.publish().unwrap();
        runtime.resume().unwrap();
        assert_eq!(completion.wait(shutdown, DEADLINE).unwrap().outcome, Outcome::Done);
        // The worker may take some more in before it notices.
        let mut known = Vec::new();
        let error = loop {
            match completion.wait_any(DEADLINE) {
                Ok(done) => known.push(done.user_data),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, WaitError::Lost(LinkError::Stopped)), "{error}");
        assert!(known.len() <= 100, "{known:?}");
        known.extend(completion.unfinished().map(|(_, number)| number));
        known.sort_unstable();
        assert_eq!(known, (0..TASKS).collect::<Vec<_>>());
        let refused = submission.push(Task::new(opcode::NOP));
        assert!(matches!(refused, Err(PushError::Lost(LinkError::Stopped))), "{refused:?}");
        assert_eq!(runtime.health(), Health::Lost(LinkError::Stopped));
    }
}

#[test]
fn a_launch_that_ends_by_its_budget_is_followed_by_another() {
    for (mode, policy) in ways() {
        let builder = common::builder().mode(mode).policy(policy).slots(64).pass_budget(50);
        run_checked(builder, common::scaled(3_000));
    }
}

/// With sweeps this rare, each launch sees by them only one round of the ring, and cursors fall a lap behind what those
/// claimed: tasks must be found all the same.
#[test]
fn rare_sweeps_leave_no_task_unseen() {
    let builder = common::builder().slots(320).workers(1).reach(Reach::Heads(1 << 30)).pass_budget(40);
    run_checked(builder, common::scaled(5_000));
}

#[test]
fn stop_in_the_middle_of_a_full_ring_loses_nothing_silently() {
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) =
            common::builder().mode(mode).policy(policy).slots(320).build().unwrap();
        let mut pushed = 0u64;
        for level in 0..5 {
            while submission.push(Task::new(opcode::NOP).level(level).user_data(pushed)).is_ok() {
                pushed += 1;
            }
        }
        submission.publish().unwrap();
        runtime.stop(DEADLINE).unwrap();
        let mut seen = vec![0; pushed as usize];
        while let Some(done) = completion.poll() {
            seen[done.user_data as usize] += 1;
        }
        for (_, user_data) in completion.unfinished() {
            seen[user_data as usize] += 1;
        }
        assert!(seen.iter().all(|&times| times == 1), "each of {pushed} tasks is done or known to be unfinished");
    }
}

#[test]
fn wrong_requests_are_refused_with_value_and_mend() {
    let at_hand = common::device();
    let refusals = [
        (common::builder().levels(9).build().err(), "9 priority levels"),
        (common::builder().split(&[0, 5, 3]).build().err(), "must not fall"),
        (common::builder().in_flight(1000).build().err(), "1000 completion entries"),
        (common::builder().reach(Reach::Heads(0)).build().err(), "each 0 passes: use a power of two"),
        (common::builder().reach(Reach::Heads(24)).build().err(), "each 24 passes: use a power of two"),
        (common::builder().width(1 << 20).build().err(), ""),
    ];
    for (error, text) in refusals {
        if let Some(error) = error {
            assert!(error.to_string().contains(text), "{error}");
        } else {
            assert!(text.is_empty(), "{text} was taken");
        }
    }
    let (runtime, mut submission, _completion) = common::builder().tables(1).build().unwrap();
    let buffer = runtime.buffer("words", 64).unwrap();
    assert!(buffer.device().is(at_hand));
    assert!(matches!(runtime.bind(&[&buffer; 17]), Err(Error::Entries(17))));
    for bytes in [u64::MAX, u64::MAX - 3, 1 << 60] {
        let refused = runtime.buffer("too large", bytes);
        let asked =
            |error: &Error| matches!(error, Error::Device(device::Error::Limit { value, .. }) if *value == bytes);
        assert!(refused.as_ref().is_err_and(asked), "{bytes}: {refused:?}");
    }
    let table = runtime.bind(&[&buffer]).unwrap();
    assert!(matches!(runtime.bind(&[&buffer]), Err(Error::Tables(1))));
    drop(table);
    runtime.bind(&[&buffer]).unwrap();
    let refused = submission.push(Task::new(opcode::NOP).level(5));
    assert!(matches!(refused, Err(PushError::Invalid(_))), "{refused:?}");
}
