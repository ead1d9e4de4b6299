//! Ends that come at a bad moment: launches cut short, queues, tables and runtimes dropped while tasks are under way, and
//! runtimes that share a device. Everything is done, or known to be undone, within bounds.

#[path = "common/runtime.rs"]
mod common;
#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/handlers.rs"]
mod handlers;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide::device::{Device, Mode, Relabel, Selector};
use abide::protocol::completion::fault;
use abide::protocol::{PRIORITY_LEVELS, opcode};
use abide::queue::{CompletionQueue, FaultCode, LinkError, Outcome, PushError, SubmissionQueue, Task, WaitError};
use abide::runtime::{BufferRange, Error, Health, Reach, Runtime};
use common::{DEADLINE, device, modes, run_checked, scaled, ways};

/// How long dropping a runtime may take: its patience with the kernel, then the launch queue's.
const DROP_BOUND: Duration = Duration::from_secs(7);

#[test]
fn launches_of_one_pass_finish_everything() {
    for (mode, policy) in ways() {
        let builder = common::builder().mode(mode).policy(policy).slots(64).workers(2).reach(Reach::Whole);
        run_checked(builder.pass_budget(1), scaled(500));
    }
}

#[test]
fn launches_too_short_to_look_at_every_slot_finish_or_say_so() {
    for (mode, policy) in ways() {
        let builder =
            common::builder().mode(mode).policy(policy).slots(512).workers(1).reach(Reach::Heads(16)).pass_budget(1);
        let (_runtime, mut submission, mut completion) = builder.build().unwrap();
        for number in 0..scaled(200) {
            match submission.push(Task::new(opcode::NOP).level(number as u32 % PRIORITY_LEVELS)) {
                Ok(_) => submission.publish().unwrap(),
                Err(PushError::Full(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        while completion.outstanding() > 0 {
            match completion.wait_any(DEADLINE) {
                Ok(done) => assert_eq!(done.outcome, Outcome::Done),
                Err(WaitError::Quiet { .. }) if completion.outstanding() == 0 => {}
                Err(WaitError::Lost(LinkError::KernelLeft { .. })) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(completion.strays(), 0);
    }
}

#[test]
fn without_shared_memory_tasks_run_in_epochs() {
    let builder = Device::builder().selector(Selector::from_env().unwrap()).relabel(Relabel::NoSharedMemory);
    let device = builder.open().unwrap();
    assert_eq!(device.report().mode, Mode::Epochs, "{}", device.report().reason);
    let refused = Runtime::builder(&device).mode(Mode::Resident).build();
    assert!(matches!(refused, Err(Error::NotResident { .. })), "{refused:?}");
    run_checked(Runtime::builder(&device), scaled(3_000));
    run_checked(Runtime::builder(&device).slots(40).in_flight(64).workers(1), scaled(1_000));
    assert!(!device.is_leaked());
}

/// A runtime with its queues, each of which a test drops when it likes.
struct Parts {
    runtime: Option<Runtime>,
    submission: Option<SubmissionQueue>,
    completion: Option<CompletionQueue>,
}

#[test]
fn halves_and_runtime_go_in_any_order() {
    for (mode, policy) in ways() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let (runtime, mut submission, completion) =
                common::builder().mode(mode).policy(policy).slots(40).build().unwrap();
            for number in 0..30 {
                submission.push(Task::new(opcode::NOP).level(number % PRIORITY_LEVELS)).unwrap();
            }
            // Half of the orders leave the publishing to the drop.
            if order[0] != 1 {
                submission.publish().unwrap();
            }
            let mut parts =
                Parts { runtime: Some(runtime), submission: Some(submission), completion: Some(completion) };
            let start = Instant::now();
            for part in order {
                match part {
                    0 => drop(parts.runtime.take()),
                    1 => drop(parts.submission.take()),
                    _ => drop(parts.completion.take()),
                }
            }
            assert!(start.elapsed() < DROP_BOUND, "{order:?} took {:?}", start.elapsed());
            assert!(!device().is_leaked(), "{order:?}");
        }
    }
}

#[test]
fn halves_outlive_their_runtime() {
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) =
            common::builder().mode(mode).policy(policy).slots(40).build().unwrap();
        let tickets: Vec<_> = (0..8).map(|_| submission.push(Task::new(opcode::NOP)).unwrap()).collect();
        submission.publish().unwrap();
        drop(runtime);
        let mut known = 0;
        for &ticket in &tickets {
            match completion.wait(ticket, DEADLINE) {
                Ok(done) => assert_eq!(done.outcome, Outcome::Done),
                Err(WaitError::Lost(LinkError::Stopped)) => continue,
                Err(error) => panic!("{error}"),
            }
            known += 1;
        }
        known += completion.unfinished().count();
        assert_eq!(known, tickets.len(), "each task is done or known to be unfinished");
        let refused = submission.push(Task::new(opcode::NOP)).map(|_| submission.publish());
        assert!(matches!(refused, Err(PushError::Lost(_)) | Ok(Err(LinkError::Stopped))), "{refused:?}");
    }
}

#[test]
fn who_waits_while_the_runtime_goes_is_told() {
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) = common::builder().mode(mode).policy(policy).build().unwrap();
        runtime.quiesce(DEADLINE).unwrap();
        let ticket = submission.push(Task::new(opcode::NOP)).unwrap();
        submission.publish().unwrap();
        let waiter = std::thread::spawn(move || {
            let waited = completion.wait(ticket, DEADLINE);
            (waited, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(30));
        let dropped = Instant::now();
        drop(runtime);
        let (waited, told) = waiter.join().unwrap();
        assert!(matches!(waited, Err(WaitError::Lost(LinkError::Stopped))), "{waited:?}");
        assert!(told.duration_since(dropped) < DROP_BOUND, "told after {:?}", told.duration_since(dropped));
    }
}

/// Tables and buffers are dropped while tasks that name them wait: the tasks write what they were given all the same.
#[test]
fn tables_and_buffers_last_as_long_as_their_tasks() {
    for (mode, policy) in ways() {
        let (runtime, mut submission, mut completion) =
            common::builder().mode(mode).policy(policy).tables(2).build().unwrap();
        for round in 0..20 {
            runtime.quiesce(DEADLINE).unwrap();
            let buffer = runtime.buffer("short-lived", 4096).unwrap();
            let table = runtime.bind(&[&buffer]).unwrap();
            let tickets: Vec<_> = (0..8)
                .map(|word| {
                    let task = Task::new(opcode::STORE).bindings(table.index()).level(word % PRIORITY_LEVELS);
                    submission.push(task.payload(&[word, word + round])).unwrap()
                })
                .collect();
            submission.publish().unwrap();
            drop(table);
            // One table is free, and the dropped one is not while its tasks are unfinished.
            let other = runtime.buffer("the other", 64).unwrap();
            let taken = runtime.bind(&[&other]).unwrap();
            assert!(matches!(runtime.bind(&[&other]), Err(Error::Tables(2))));
            let held = (round % 2 == 0).then_some(buffer);
            // Where nobody holds the buffer, others are made and written where it might have lain.
            let others: Vec<_> = (0..4).map(|_| runtime.buffer("another", 4096).unwrap()).collect();
            runtime.resume().unwrap();
            for (word, &ticket) in (0..).zip(&tickets) {
                let done = completion.wait(ticket, DEADLINE).unwrap();
                assert_eq!((done.outcome, done.result), (Outcome::Done, word + round));
            }
            if let Some(buffer) = held {
                let words: Vec<u32> = (0..8).map(|word| buffer.mapped().unwrap().load(word)).collect();
                assert_eq!(words, (round..round + 8).collect::<Vec<_>>());
            }
            for other in others {
                assert!((0..8).all(|word| other.mapped().unwrap().load(word) == 0), "a task wrote to freed memory");
            }
            common::until("all completions are taken", || completion.poll().is_none() && completion.outstanding() == 0);
            drop((taken, runtime.bind(&[&other]).unwrap()));
        }
    }
}

/// A task that names a table after its drop finds nothing there, or what it found stays until the task has ended.
#[test]
fn a_task_that_names_a_dropped_table_does_no_harm() {
    const INNER: u32 = 1 << 14;
    let words = handlers::spin();
    for mode in modes() {
        let mut builder = common::builder().mode(mode).workers(1);
        let spin = builder.handler(words, "main");
        let (runtime, mut submission, mut completion) = builder.build().unwrap();
        let buffer = runtime.buffer("dropped", 4096).unwrap();
        let table = runtime.bind(&[&buffer]).unwrap();
        let late = table.index();
        drop((table, buffer));
        let ticket = submission.push(Task::new(spin).bindings(late).payload(&[1 << 10, INNER, 3])).unwrap();
        submission.publish().unwrap();
        // Time for the task to begin; where it has not begun it finds an empty table.
        let early = completion.wait(ticket, Duration::from_millis(30));
        let others: Vec<_> = (0..8).map(|_| runtime.buffer("another", 4096).unwrap()).collect();
        let tables: Vec<_> = others.iter().map(|other| runtime.bind(&[other]).unwrap()).collect();
        let more: Vec<_> = (0..8).map(|_| runtime.buffer("another", 4096).unwrap()).collect();
        let done = early.or_else(|_| completion.wait(ticket, DEADLINE)).unwrap();
        let harmless =
            [Outcome::Done, Outcome::Fault(FaultCode(fault::NOT_BOUND)), Outcome::Fault(FaultCode(fault::LOOP_LIMIT))];
        assert!(harmless.contains(&done.outcome), "{done:?}");
        for other in others.iter().chain(&more) {
            assert_eq!(other.mapped().unwrap().load(3), 0, "a task wrote to freed memory");
        }
        // Once the task has ended, its table is free again, and who names it finds nothing.
        drop(tables);
        drop(runtime.bind(&[]).unwrap());
        let ticket = submission.push(Task::new(opcode::STORE).bindings(late).payload(&[3, 7])).unwrap();
        submission.publish().unwrap();
        let done = completion.wait(ticket, DEADLINE).unwrap();
        assert!(matches!(done.outcome, Outcome::Fault(_)), "{done:?}");
    }
}

#[test]
fn parts_of_buffers_are_checked() {
    let (runtime, _submission, _completion) = common::builder().build().unwrap();
    let buffer = runtime.buffer("words", 256).unwrap();
    for (offset, bytes) in [(8, 16), (0, 10), (0, 0), (240, 32), (u64::MAX - 15, 32), (256, 16), (0, 260)] {
        let part = BufferRange { buffer: &buffer, offset, bytes };
        let refused = runtime.bind_ranges(&[part]);
        assert!(matches!(refused, Err(Error::BindRange { .. })), "{offset}, {bytes}: {refused:?}");
    }
    runtime.bind_ranges(&[BufferRange { buffer: &buffer, offset: 240, bytes: 16 }]).unwrap();
}

/// Eight threads publish while the kernel is sent off the device and let back, again and again.
#[test]
fn quiescing_under_many_publishers_loses_nothing() {
    const THREADS: u64 = 8;
    for (mode, policy) in ways() {
        let (runtime, submission, mut completion) =
            common::builder().mode(mode).policy(policy).slots(80).build().unwrap();
        let share = scaled(150);
        let over = AtomicBool::new(false);
        let rounds = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut submission = submission.clone();
                scope.spawn(move || {
                    for number in 0..share {
                        let level = (thread + number) as u32 % PRIORITY_LEVELS;
                        let task = Task::new(opcode::NOP).level(level).user_data(thread * share + number);
                        let start = Instant::now();
                        while submission.push(task).is_err() {
                            assert!(start.elapsed() < DEADLINE, "level {level} stays full");
                            std::thread::sleep(Duration::from_micros(100));
                        }
                        submission.publish().unwrap();
                        std::thread::sleep(Duration::from_micros(200));
                    }
                });
            }
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    runtime.quiesce(DEADLINE).unwrap();
                    assert_eq!(runtime.health(), Health::Quiesced);
                    runtime.resume().unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
            let mut seen = vec![false; (THREADS * share) as usize];
            for done in 0..seen.len() {
                let next = completion.wait_any(DEADLINE);
                let next = next.unwrap_or_else(|error| {
                    over.store(true, Ordering::Relaxed);
                    panic!("{done} tasks are done, then {error}")
                });
                let seen = &mut seen[next.user_data as usize];
                assert!(!std::mem::replace(seen, true), "task {} came twice", next.user_data);
            }
            over.store(true, Ordering::Relaxed);
        });
        eprintln!("mode {}: {} rounds of quiesce and resume", mode.name(), rounds.load(Ordering::Relaxed));
        assert_eq!((completion.outstanding(), completion.strays()), (0, 0));
    }
}

/// Two runtimes on one device, and so on one queue: a busy one lets the other one run.
#[test]
fn two_runtimes_share_a_device() {
    for (mode, policy) in ways() {
        let build = || common::builder().mode(mode).policy(policy).slots(64).workers(1).build().unwrap();
        let (_busy_runtime, mut busy, mut busy_done) = build();
        let (_other_runtime, mut other, mut other_done) = build();
        let over = AtomicBool::new(false);
        let progress = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let ticket = busy.push(Task::new(opcode::NOP)).unwrap();
                    busy.publish().unwrap();
                    busy_done.wait(ticket, DEADLINE).unwrap();
                    progress.fetch_add(1, Ordering::Relaxed);
                }
            });
            common::until("the busy runtime works", || progress.load(Ordering::Relaxed) > 10);
            let mut longest = Duration::ZERO;
            for number in 0..20 {
                let start = Instant::now();
                let ticket = other.push(Task::new(opcode::NOP).payload(&[number])).unwrap();
                other.publish().unwrap();
                let done = other_done.wait(ticket, DEADLINE);
                if done.is_err() {
                    over.store(true, Ordering::Relaxed);
                }
                assert_eq!(done.unwrap().result, number);
                longest = longest.max(if number == 0 { Duration::ZERO } else { start.elapsed() });
                // Long enough for the queue to be the busy one's again.
                std::thread::sleep(Duration::from_millis(2));
            }
            let before = progress.load(Ordering::Relaxed);
            common::until("the busy runtime goes on", || progress.load(Ordering::Relaxed) > before + 10);
            over.store(true, Ordering::Relaxed);
            eprintln!("mode {}: tasks beside a busy runtime took {longest:.1?} at most", mode.name());
        });
    }
}

/// A runtime whose kernel never parks, with that kernel on the device.
fn staying(mode: Mode) -> Parts {
    let builder = common::builder().mode(mode).slots(64).workers(1).park_after(Duration::ZERO);
    let (runtime, mut submission, mut completion) = builder.build().unwrap();
    let ticket = submission.push(Task::new(opcode::NOP)).unwrap();
    submission.publish().unwrap();
    completion.wait(ticket, DEADLINE).unwrap();
    Parts { runtime: Some(runtime), submission: Some(submission), completion: Some(completion) }
}

/// Some drivers make pipeline calls wait for the kernel of another runtime: it makes room for them, and comes back.
#[test]
fn runtimes_come_and_go_beside_a_kernel_that_stays() {
    for mode in modes() {
        let mut first = staying(mode);
        for number in 0..3 {
            let start = Instant::now();
            drop(staying(mode));
            eprintln!("mode {}: runtime {number} came and went in {:?}", mode.name(), start.elapsed());
        }
        let (submission, completion) = (first.submission.as_mut().unwrap(), first.completion.as_mut().unwrap());
        let ticket = submission.push(Task::new(opcode::NOP)).unwrap();
        submission.publish().unwrap();
        completion.wait(ticket, DEADLINE).unwrap();
        assert!(!device().is_leaked());
    }
}

/// A runtime is dropped whose launch still waits behind another one's kernel.
#[test]
fn a_runtime_goes_whose_launch_has_not_begun() {
    for mode in modes() {
        let (runtime, mut submission, _completion) = common::builder().mode(mode).slots(64).build().unwrap();
        let _first = staying(mode);
        submission.push(Task::new(opcode::NOP)).unwrap();
        submission.publish().unwrap();
        let start = Instant::now();
        runtime.stop(DEADLINE).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "stopping took {:?}", start.elapsed());
        assert!(!device().is_leaked());
    }
}
