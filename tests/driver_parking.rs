//! Parking raced against publishing: a kernel that parks whenever it can, and tasks that come at any moment. No task waits
//! longer than it takes to notice and to launch.

#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/runtime.rs"]
mod common;

use std::time::{Duration, Instant};

use abide::device::Mode;
use abide::protocol::opcode;
use abide::queue::Task;
use abide::runtime::{Health, Policy, Reach, RuntimeBuilder};
use common::{DEADLINE, scaled, ways};

/// The longest that a task may wait. Stated are 1 ms to notice and the time of a launch; the rest is for cores that run
/// other things, for seconds on a machine that builds meanwhile.
const BOUND: Duration = Duration::from_secs(10);

/// Parks after the first look at every slot that found nothing.
fn parks_at_once((mode, policy): (Mode, Policy)) -> RuntimeBuilder<'static> {
    common::builder()
        .mode(mode)
        .policy(policy)
        .slots(64)
        .workers(2)
        .reach(Reach::Whole)
        .park_after(Duration::from_nanos(1))
}

/// Lets up to a fifth of a millisecond pass, most often far less, without giving the core away.
fn dawdle(random: &mut u64) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let pause = Duration::from_nanos(((*random >> 20) % 200_000) >> (*random % 12));
    let start = Instant::now();
    while start.elapsed() < pause {
        std::hint::spin_loop();
    }
}

#[test]
fn no_task_waits_for_long() {
    for way in ways() {
        let (_runtime, mut submission, mut completion) = parks_at_once(way).build().unwrap();
        let ticket = submission.push(Task::new(opcode::NOP)).unwrap();
        submission.publish().unwrap();
        completion.wait(ticket, DEADLINE).unwrap();
        let (mut random, mut longest, mut sum) = (0x2545_f491_4f6c_dd1d_u64, Duration::ZERO, Duration::ZERO);
        let tasks = scaled(2_000) as u32;
        for number in 0..tasks {
            dawdle(&mut random);
            let start = Instant::now();
            let payload = [number];
            let ticket = submission.push(Task::new(opcode::NOP).payload(&payload)).unwrap();
            submission.publish().unwrap();
            let done = if number % 2 == 0 {
                completion.wait(ticket, BOUND).unwrap_or_else(|error| panic!("task {number}: {error}"))
            } else {
                // Polls notice as well.
                loop {
                    match completion.poll() {
                        Some(done) => break done,
                        None => assert!(start.elapsed() < BOUND, "task {number}: {:?}", completion.link_error()),
                    }
                    std::thread::yield_now();
                }
            };
            assert_eq!((done.ticket, done.result), (ticket, number));
            longest = longest.max(start.elapsed());
            sum += start.elapsed();
        }
        let mean = sum / tasks;
        eprintln!(
            "{tasks} tasks raced against parking in mode {}: {mean:.1?} each, {longest:.1?} at most",
            way.0.name()
        );
        assert_eq!(completion.strays(), 0);
    }
}

#[test]
fn several_producers_meet_a_kernel_that_parks() {
    for way in ways() {
        let (runtime, submission, mut completion) = parks_at_once(way).build().unwrap();
        let share = scaled(500);
        std::thread::scope(|scope| {
            for producer in 0..4u64 {
                let mut submission = submission.clone();
                scope.spawn(move || {
                    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(producer + 1);
                    for number in 0..share {
                        dawdle(&mut random);
                        let task = Task::new(opcode::NOP).level(producer as u32).user_data(producer * share + number);
                        let start = Instant::now();
                        while submission.push(task).is_err() {
                            assert!(start.elapsed() < DEADLINE, "level {producer} stays full");
                            std::thread::sleep(Duration::from_micros(50));
                        }
                        submission.publish().unwrap();
                    }
                });
            }
            let mut seen = vec![false; 4 * share as usize];
            for done in 0..seen.len() {
                let next = completion.wait_any(DEADLINE);
                let next = next.unwrap_or_else(|error| panic!("{done} tasks are done, then {error}"));
                let seen = &mut seen[next.user_data as usize];
                assert!(!std::mem::replace(seen, true), "task {} came twice", next.user_data);
            }
        });
        assert_eq!((completion.outstanding(), completion.strays()), (0, 0));
        common::until("the kernel parks", || runtime.health() == Health::Parked);
    }
}

/// With a keeper a program may publish and never look again: its tasks run, and the kernel parks once they have.
#[test]
fn a_keeper_runs_what_nobody_waits_for() {
    for way in ways() {
        let builder = parks_at_once(way).keeper(true);
        let (runtime, mut submission, completion) = builder.build().unwrap();
        let counter = runtime.buffer("counter", 64).unwrap();
        let table = runtime.bind(&[&counter]).unwrap();
        let words = counter.mapped().unwrap();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut longest = Duration::ZERO;
        let tasks = scaled(200) as u32;
        for number in 0..tasks {
            dawdle(&mut random);
            let start = Instant::now();
            submission.push(Task::new(opcode::ATOMIC_ADD).bindings(table.index()).payload(&[0, 1])).unwrap();
            submission.publish().unwrap();
            // The first task waits for the kernel to be compiled.
            common::until("the task runs", || words.load(0) == number + 1);
            longest = if number == 0 { Duration::ZERO } else { longest.max(start.elapsed()) };
        }
        assert!(longest < BOUND, "a task ran after {longest:?}");
        eprintln!("{tasks} tasks with a keeper in mode {}: {longest:.1?} at most", way.0.name());
        // Completions that nobody takes are no reason to launch again, and nothing is wrong with a kernel that parks.
        let quiet = std::time::Instant::now();
        while quiet.elapsed() < Duration::from_millis(300) {
            let health = runtime.health();
            assert!(!matches!(health, Health::Lost(_)), "{health:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        common::until("the kernel parks", || runtime.health() == Health::Parked);
        assert_eq!(completion.outstanding(), u64::from(tasks));
    }
}

/// Publishing nothing new, again and again, launches nothing: tasks that have run are no reason.
#[test]
fn completions_that_wait_launch_nothing() {
    for way in ways() {
        let (runtime, mut submission, mut completion) = parks_at_once(way).build().unwrap();
        let ticket = submission.push(Task::new(opcode::NOP)).unwrap();
        let counters = || runtime.counters().is_some_and(|counters| counters.done == 0);
        submission.publish().unwrap();
        common::until("the task runs", || {
            submission.publish().unwrap();
            !counters()
        });
        for _ in 0..200 {
            submission.publish().unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        common::until("the kernel parks", || runtime.health() == Health::Parked);
        completion.wait(ticket, DEADLINE).unwrap();
        let again = submission.push(Task::new(opcode::NOP)).unwrap();
        submission.publish().unwrap();
        completion.wait(again, DEADLINE).unwrap();
    }
}
