//! Tenants: blocked ones' tasks wait and cost the others nothing, each task runs once whatever is blocked and opened, and
//! nobody takes more than its credits.

#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/runtime.rs"]
mod common;
#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/handlers.rs"]
mod handlers;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use abide::protocol::opcode;
use abide::queue::{BatchError, Outcome, PushError, Task, TaskError, TenantError, WaitError};
use abide::runtime::Health;
use common::{DEADLINE, modes, scaled};
use handlers::{ECHO_WORDS, echo};

/// A time in which a task would have run.
const A_WHILE: Duration = Duration::from_millis(50);

#[test]
fn a_blocked_tenants_tasks_wait_whole_and_the_others_run() {
    for mode in modes() {
        let mut builder = common::builder().mode(mode).tenants(3, 16);
        let opcode = builder.handler(echo(), "main");
        let (runtime, mut submission, mut completion) = builder.build().unwrap();
        let tenants = runtime.tenants();
        let (one, other) = (tenants.register().unwrap(), tenants.register().unwrap());
        let stride = ECHO_WORDS.next_multiple_of(16);
        let copies = runtime.buffer("copies", u64::from(16 * stride) * 4).unwrap();
        let table = runtime.bind(&[&copies]).unwrap();
        tenants.block(one).unwrap();

        let word = |number: u32, at: usize| (number + 1).wrapping_mul(0x9e37_79b1).rotate_left(at as u32);
        let payload = |number: u32| -> [u32; ECHO_WORDS as usize] {
            std::array::from_fn(|at| if at == 0 { number * stride } else { word(number, at) })
        };
        let mut tickets = Vec::new();
        for number in 0..16 {
            let payload = payload(number);
            // A handler with all the payload that there can be, and built-ins between.
            let task = match number % 4 {
                0 => Task::new(opcode::NOP).payload(&payload[1..2]),
                _ => Task::new(opcode).bindings(table.index()).payload(&payload),
            };
            let task = task.tenant(one).level(number % 5).user_data(u64::from(number));
            tickets.push(submission.push(task).unwrap());
        }
        submission.publish().unwrap();
        for (tenant, number) in [(0, 100), (other, 101), (0, 102)] {
            let task = Task::new(opcode::NOP).tenant(tenant).user_data(number);
            let ticket = submission.push(task).unwrap();
            submission.publish().unwrap();
            assert_eq!(completion.wait(ticket, DEADLINE).unwrap().user_data, number);
        }
        let early = completion.wait(tickets[0], A_WHILE);
        assert!(matches!(early, Err(WaitError::Timeout { .. })), "{early:?}");
        assert_eq!((tenants.in_flight(one), tenants.in_flight(other)), (Some(16), Some(0)));
        assert!((0..16 * stride).all(|at| copies.mapped().unwrap().load(at as usize) == 0), "nothing ran");

        tenants.open(one).unwrap();
        for (number, ticket) in (0..).zip(tickets) {
            let done = completion.wait(ticket, DEADLINE).unwrap();
            assert_eq!((done.outcome, done.user_data), (Outcome::Done, u64::from(number)), "mode {}", mode.name());
            if number % 4 == 0 {
                assert_eq!(done.result, word(number, 1));
            } else {
                let mut found = [0; ECHO_WORDS as usize];
                copies.mapped().unwrap().read((number * stride) as usize, &mut found);
                assert_eq!(found, payload(number), "task {number}");
            }
        }
        common::until("all entries have come", || completion.poll().is_none() && completion.outstanding() == 0);
        assert_eq!(tenants.in_flight(one), Some(0));
        assert_eq!(completion.strays(), 0);
    }
}

/// Three tenants' tasks flow while one after the other is blocked and opened: each task runs once.
#[test]
fn changing_masks_strands_nothing() {
    for mode in modes() {
        let (runtime, mut submission, mut completion) =
            common::builder().mode(mode).slots(160).tenants(4, 64).build().unwrap();
        let tenants = runtime.tenants();
        let numbers: Vec<u32> = (0..3).map(|_| tenants.register().unwrap()).collect();
        let tasks = scaled(6_000);
        let mut seen = vec![false; tasks as usize];
        let (mut pushed, mut done, mut progress) = (0, 0, Instant::now());
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut blocked = HashMap::new();
        while done < tasks {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let tenant = numbers[(random >> 40) as usize % 3];
            match random % 8 {
                0 if pushed < tasks => {
                    tenants.block(tenant).unwrap();
                    blocked.insert(tenant, ());
                }
                1 | 2 => {
                    tenants.open(tenant).unwrap();
                    blocked.remove(&tenant);
                }
                _ => {}
            }
            if pushed == tasks {
                for (tenant, ()) in blocked.drain() {
                    tenants.open(tenant).unwrap();
                }
            }
            for _ in 0..random % 23 {
                if pushed == tasks {
                    break;
                }
                let tenant = [0, numbers[0], numbers[1], numbers[2]][(pushed % 4) as usize];
                let payload = [pushed as u32];
                let task = Task::new(opcode::NOP).tenant(tenant).level((random >> 32) as u32 % 5).user_data(pushed);
                match submission.push(task.payload(&payload)) {
                    Ok(_) => pushed += 1,
                    Err(PushError::Full(_) | PushError::NoCredit(_)) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            submission.publish().unwrap();
            while let Some(completion) = completion.poll() {
                assert_eq!((completion.outcome, u64::from(completion.result)), (Outcome::Done, completion.user_data));
                let twice = std::mem::replace(&mut seen[completion.user_data as usize], true);
                assert!(!twice, "task {} came twice", completion.user_data);
                (done, progress) = (done + 1, Instant::now());
            }
            if progress.elapsed() > Duration::from_millis(20) {
                // All that is left may be blocked ones'.
                for (tenant, ()) in blocked.drain() {
                    tenants.open(tenant).unwrap();
                }
            }
            assert!(progress.elapsed() < DEADLINE, "{done} of {pushed} tasks done: {:?}", runtime.health());
        }
        assert_eq!(numbers.iter().filter_map(|&tenant| tenants.in_flight(tenant)).sum::<u32>(), 0);
        assert_eq!(completion.strays(), 0);
    }
}

#[test]
fn credits_bound_a_tenant_and_nobody_else() {
    for mode in modes() {
        let (runtime, mut submission, mut completion) = common::builder().mode(mode).tenants(3, 4).build().unwrap();
        let tenants = runtime.tenants();
        let (one, other) = (tenants.register().unwrap(), tenants.register().unwrap());
        assert_eq!(tenants.register(), Err(TenantError::Full { limit: 3 }));
        tenants.block(one).unwrap();
        let of = |tenant| Task::new(opcode::NOP).tenant(tenant);
        let batch = [of(one), of(one), of(0), of(one)];
        submission.push_batch(&batch).unwrap();
        assert_eq!(submission.push_batch(&batch).err(), Some(BatchError::NoCredit { tenant: one }));
        submission.push(of(one)).unwrap();
        assert_eq!(submission.push(of(one)), Err(PushError::NoCredit(of(one))));
        submission.publish().unwrap();
        assert_eq!(tenants.unregister(one), Err(TenantError::InUse { tenant: one, tasks: 4 }));
        // The refused batch gave back what it had counted.
        assert_eq!((tenants.in_flight(one), tenants.in_flight(other)), (Some(4), Some(0)));
        let ticket = submission.push(of(other)).unwrap();
        submission.publish().unwrap();
        assert_eq!(completion.wait(ticket, DEADLINE).unwrap().outcome, Outcome::Done);
        tenants.open(one).unwrap();
        common::until("all tasks are finished", || completion.poll().is_none() && completion.outstanding() == 0);
        submission.push(of(one)).unwrap();
        submission.publish().unwrap();
        common::until("the last one is finished", || completion.poll().is_none() && completion.outstanding() == 0);
    }
}

#[test]
fn unknown_tenants_are_named() {
    let (runtime, mut submission, _completion) = common::builder().tenants(2, 2).build().unwrap();
    let tenants = runtime.tenants();
    for tenant in [1, 2, 256, u32::MAX] {
        let task = Task::new(opcode::NOP).tenant(tenant);
        assert_eq!(submission.push(task), Err(PushError::Invalid(TaskError::Tenant { tenant })));
        let error = TaskError::Tenant { tenant };
        let batch = [Task::new(opcode::NOP), task];
        assert_eq!(submission.push_batch(&batch).err(), Some(BatchError::Invalid { index: 1, error }));
        for refused in [tenants.block(tenant), tenants.open(tenant), tenants.unregister(tenant)] {
            assert_eq!(refused, Err(TenantError::Unknown(tenant)));
        }
    }
    for refused in [tenants.block(0), tenants.open(0), tenants.unregister(0)] {
        assert_eq!(refused, Err(TenantError::First));
    }
    assert_eq!(submission.outstanding(), 0);
    for (tenants, credits) in [(0, 1), (257, 1), (2, 0), (2, 3), (256, 1 << 13)] {
        assert!(common::builder().tenants(tenants, credits).build().is_err(), "{tenants} tenants, {credits} credits");
    }
}

/// With nothing but blocked tasks the kernel parks, and is back once they may run.
#[test]
fn a_kernel_that_left_comes_back_for_an_opened_tenant() {
    for mode in modes() {
        let builder = common::builder().mode(mode).tenants(2, 8).park_after(Duration::from_millis(5));
        let (runtime, mut submission, mut completion) = builder.build().unwrap();
        let tenants = runtime.tenants();
        let tenant = tenants.register().unwrap();
        for round in 0..20 {
            tenants.block(tenant).unwrap();
            let tickets: Vec<_> = (0..8)
                .map(|number| submission.push(Task::new(opcode::NOP).tenant(tenant).user_data(number)).unwrap())
                .collect();
            submission.publish().unwrap();
            common::until("the kernel parks", || {
                assert!(completion.poll().is_none(), "a blocked task ran");
                runtime.health() == Health::Parked
            });
            // Blocking it once more, or another's coming and going, changes nothing.
            tenants.block(tenant).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            assert!(completion.poll().is_none(), "round {round}");
            tenants.open(tenant).unwrap();
            for ticket in tickets {
                assert_eq!(completion.wait(ticket, DEADLINE).unwrap().outcome, Outcome::Done);
            }
            common::until("all are finished", || completion.poll().is_none() && completion.outstanding() == 0);
        }
    }
}

/// 255 tenants come and go while tasks flow.
#[test]
fn tenants_come_and_go_while_tasks_flow() {
    for mode in modes() {
        let (runtime, mut submission, mut completion) =
            common::builder().mode(mode).slots(640).tenants(256, 4).build().unwrap();
        let tenants = runtime.tenants();
        let mut of = HashMap::new();
        let (mut pushed, mut done, mut progress) = (0u64, 0u64, Instant::now());
        let tasks = scaled(2_000);
        while done < tasks {
            if let Ok(tenant) = tenants.register() {
                for _ in 0..3 {
                    let task = Task::new(opcode::NOP).tenant(tenant).user_data(u64::from(tenant));
                    if submission.push(task.level((pushed % 5) as u32)).is_ok() {
                        *of.entry(tenant).or_insert(0) += 1;
                        pushed += 1;
                    }
                }
                submission.publish().unwrap();
            }
            while let Some(completion) = completion.poll() {
                *of.get_mut(&(completion.user_data as u32)).unwrap() -= 1;
                (done, progress) = (done + 1, Instant::now());
            }
            let finished: Vec<u32> = of.iter().filter(|&(_, &left)| left == 0).map(|(&tenant, _)| tenant).collect();
            for tenant in finished {
                tenants.unregister(tenant).unwrap();
                of.remove(&tenant);
            }
            assert!(progress.elapsed() < DEADLINE, "{done} of {pushed} tasks done: {:?}", runtime.health());
        }
    }
}
