//! What tests of the runtime share: one device a process, the modes that it can do, and a checked workload.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use abide::device::{Device, Mode, Selector};
use abide::protocol::opcode;
use abide::queue::{Outcome, Task};
use abide::runtime::{Policy, Runtime, RuntimeBuilder};

/// No wait of a test is longer. CPU drivers compile a kernel at its first launch, for seconds on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The device at hand.
pub fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| Device::open(&Selector::from_env().unwrap()).unwrap())
}

/// A runtime on it.
pub fn builder() -> RuntimeBuilder<'static> {
    Runtime::builder(device())
}

/// The modes that the device can do.
pub fn modes() -> Vec<Mode> {
    match device().report().mode {
        Mode::Resident => vec![Mode::Resident, Mode::Epochs],
        Mode::Epochs => vec![Mode::Epochs],
    }
}

/// The policies that the device can do.
pub fn policies() -> Vec<Policy> {
    match device().report().loop_limit {
        None => vec![Policy::Scan, Policy::Fast],
        Some(_) => vec![Policy::Scan],
    }
}

/// All that the device can do: each mode with each policy.
pub fn ways() -> Vec<(Mode, Policy)> {
    let policies = policies();
    modes()
        .into_iter()
        .flat_map(|mode| policies.iter().map(move |&policy| (mode, policy)).collect::<Vec<_>>())
        .collect()
}

/// A number of tasks, or `ABIDE_TEST_SCALE` times as many.
pub fn scaled(tasks: u64) -> u64 {
    let scale = std::env::var("ABIDE_TEST_SCALE").ok().and_then(|scale| scale.parse().ok());
    tasks * scale.unwrap_or(1)
}

/// Waits, within bounds, until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Runs so many tasks, of all kinds of payload, in bursts of odd sizes over all levels; each must come back once, with its
/// own result and user data.
pub fn run_checked(builder: RuntimeBuilder<'_>, tasks: u64) {
    let (runtime, mut submission, mut completion) = builder.build().unwrap();
    let counter = runtime.buffer("counter", 64).unwrap();
    let table = runtime.bind(&[&counter]).unwrap();
    let levels = runtime.counters().map_or(1, |counters| counters.claims.len() as u32);
    let mut seen = vec![false; tasks as usize];
    let (mut pushed, mut done, mut adds) = (0u64, 0u64, 0u32);
    let mut progress = Instant::now();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    while done < tasks {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        for _ in 0..random % 37 {
            if pushed == tasks {
                break;
            }
            let number = pushed as u32;
            let long: [u32; 20] = std::array::from_fn(|word| number ^ word as u32);
            let task = match number % 5 {
                0 => Task::new(opcode::ATOMIC_ADD).bindings(table.index()).payload(&[3, 1]),
                1 => Task::new(opcode::NOP).payload(&long),
                _ => Task::new(opcode::NOP).payload(&long[..1]),
            };
            let level = (random >> 32).wrapping_add(pushed) as u32 % levels;
            if submission.push(task.level(level).user_data(pushed)).is_err() {
                break;
            }
            adds += u32::from(number.is_multiple_of(5));
            pushed += 1;
        }
        submission.publish().unwrap();
        while let Some(completion) = completion.poll() {
            let number = completion.user_data;
            assert_eq!(completion.outcome, Outcome::Done, "task {number}");
            assert!(!std::mem::replace(&mut seen[number as usize], true), "task {number} came twice");
            if number % 5 == 0 {
                assert!(completion.result < tasks as u32, "task {number} gave {}", completion.result);
            } else {
                assert_eq!(completion.result, number as u32);
            }
            done += 1;
            progress = Instant::now();
        }
        assert!(progress.elapsed() < DEADLINE, "{done} of {pushed} tasks done: {:?}", runtime.health());
        if let Some(error) = completion.link_error() {
            panic!("{error}");
        }
    }
    assert_eq!(completion.poll(), None);
    assert_eq!((completion.outstanding(), completion.strays()), (0, 0));
    assert_eq!(counter.mapped().unwrap().load(3), adds);
    if let Some(counters) = runtime.counters() {
        assert_eq!(u64::from(counters.claims.iter().sum::<u32>()), tasks);
        assert_eq!(u64::from(counters.done), tasks);
    }
}
