//! Exactly once: several producers, one consumer and a ring that goes round many times; each task runs once, and its
//! completion comes once with its own result and user data.

#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/runtime.rs"]
mod common;

use std::time::{Duration, Instant};

use abide::protocol::{PRIORITY_LEVELS, opcode};
use abide::queue::{Outcome, PushError, SubmissionQueue, Task};
use abide::runtime::RuntimeBuilder;
use common::{DEADLINE, scaled, ways};

/// Threads that push.
const PRODUCERS: u64 = 4;
/// Slots of the ring.
const SLOTS: u32 = 256;

/// One producer's part: tasks numbered from 0 on, of all levels and kinds of payload.
fn produce(mut submission: SubmissionQueue, producer: u64, tasks: u64, table: u32) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(producer + 1);
    let mut pushed = 0;
    let mut progress = Instant::now();
    while pushed < tasks {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let burst = random % 29;
        for _ in 0..burst {
            let user_data = producer << 32 | pushed;
            let long: [u32; 20] = std::array::from_fn(|word| echo(user_data) ^ word as u32);
            let task = match pushed % 4 {
                _ if pushed == tasks => break,
                0 => Task::new(opcode::ATOMIC_ADD).bindings(table).payload(&[0, 1]),
                1 => Task::new(opcode::NOP).payload(&long),
                _ => Task::new(opcode::NOP).payload(&long[..1]),
            };
            let level = (random >> 40) as u32 % PRIORITY_LEVELS;
            // The counter's word is the producer's own.
            let add = [producer as u32, 1];
            let task = if pushed % 4 == 0 { task.payload(&add) } else { task };
            match submission.push(task.level(level).user_data(user_data)) {
                Ok(_) => {}
                Err(PushError::Full(_)) => break,
                Err(error) => panic!("producer {producer}: {error}"),
            }
            (pushed, progress) = (pushed + 1, Instant::now());
            random = random.rotate_left(11);
        }
        submission.publish().unwrap();
        assert!(progress.elapsed() < DEADLINE, "producer {producer} pushed {pushed} of {tasks} tasks");
        // The kernel and the consumer need the cores, too.
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// The result of a NOP.
fn echo(user_data: u64) -> u32 {
    (user_data.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

fn run(builder: RuntimeBuilder<'_>, tasks: u64) {
    let share = tasks / PRODUCERS;
    let (runtime, submission, mut completion) = builder.slots(SLOTS).in_flight(1024).build().unwrap();
    let counters = runtime.buffer("counters", 64).unwrap();
    let table = runtime.bind(&[&counters]).unwrap();
    let mut seen = vec![false; (share * PRODUCERS) as usize];
    // Each add gives the count before it, so that no two of a producer give the same.
    let mut counts = vec![false; (share * PRODUCERS) as usize];
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (submission, table) = (submission.clone(), table.index());
            scope.spawn(move || produce(submission, producer, share, table));
        }
        let (mut done, mut progress) = (0, Instant::now());
        while done < share * PRODUCERS {
            let Some(completion) = completion.poll() else {
                let error = completion.link_error();
                assert!(error.is_none(), "{error:?}");
                assert!(progress.elapsed() < DEADLINE, "{done} tasks are done: {:?}", runtime.health());
                std::thread::yield_now();
                continue;
            };
            (done, progress) = (done + 1, Instant::now());
            let (producer, number) = (completion.user_data >> 32, completion.user_data & u64::from(u32::MAX));
            assert!(producer < PRODUCERS && number < share, "{completion:?} was never pushed");
            assert_eq!(completion.outcome, Outcome::Done, "task {number} of producer {producer}");
            let seen = &mut seen[(producer * share + number) as usize];
            assert!(!std::mem::replace(seen, true), "task {number} of producer {producer} came twice");
            if number % 4 == 0 {
                let before = u64::from(completion.result);
                assert!(before < share.div_ceil(4), "task {number} of producer {producer} found {before}");
                let counted = &mut counts[(producer * share + before) as usize];
                assert!(!std::mem::replace(counted, true), "two tasks of producer {producer} found {before}");
            } else {
                assert_eq!(completion.result, echo(completion.user_data), "task {number} of producer {producer}");
            }
        }
    });
    assert_eq!(completion.poll(), None);
    assert_eq!((completion.outstanding(), completion.strays()), (0, 0));
    for producer in 0..PRODUCERS {
        let adds = counters.mapped().unwrap().load(producer as usize);
        assert_eq!(u64::from(adds), share.div_ceil(4), "adds of producer {producer}");
    }
    if let Some(counters) = runtime.counters() {
        assert_eq!(u64::from(counters.done), share * PRODUCERS);
    }
}

#[test]
fn many_producers_and_one_consumer() {
    for (mode, policy) in ways() {
        let (tasks, start) = (scaled(20_000), Instant::now());
        run(common::builder().mode(mode).policy(policy), tasks);
        eprintln!("{tasks} tasks in mode {}: {:.1?}", mode.name(), start.elapsed());
    }
}

#[test]
fn the_wrap_of_positions_and_tickets_meets_many_producers() {
    for (mode, policy) in ways() {
        run(common::builder().mode(mode).policy(policy).start_at((1 << 32) - 2, u32::MAX - 1000), scaled(4_000));
    }
}
