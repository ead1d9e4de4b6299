//! Results under load: what tasks have written is all there, by each way of reading it, once the host has their completions.

#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/runtime.rs"]
mod common;
#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/handlers.rs"]
mod handlers;
#[path = "common/payloads.rs"]
mod payloads;

use std::time::Instant;

use abide::device::{Buffer, DeviceType};
use abide::queue::{Completion, Outcome, Task};
use abide::runtime::Runtime;
use common::{DEADLINE, device, scaled, ways};
use handlers::{FILL_WORDS, fill, fill_word};

/// Words of each task's results that the host looks at one by one.
const LOOKS: u32 = 64;

/// Random numbers for which results to look at.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(end)) >> 32) as u32
    }
}

/// What the host reads of a task's results.
struct Reader<'a> {
    runtime: Runtime,
    results: &'a Buffer,
    random: Random,
    whole: Vec<u32>,
    stale: u64,
}

impl Reader<'_> {
    fn compare(&mut self, done: &Completion, seed: u32, index: u32, found: u32) {
        let expected = fill_word(seed, index);
        if found != expected {
            self.stale += 1;
            eprintln!("{done:?}: word {index} is {found:#x}, not {expected:#x}");
        }
    }

    /// Random words, read where they lie; last first, since the last are the likeliest to be late.
    fn look(&mut self, done: &Completion, (first, seed): (u32, u32)) {
        for look in 0..LOOKS {
            let index = if look == 0 { FILL_WORDS - 1 } else { self.random.below(FILL_WORDS) };
            let found = self.results.mapped().unwrap().load((first + index) as usize);
            self.compare(done, seed, index, found);
        }
    }

    /// The words from a random one on, by a copy where the device has a queue for copies.
    fn read(&mut self, done: &Completion, (first, seed): (u32, u32), words: u32) {
        let start = if words == FILL_WORDS { 0 } else { self.random.below(FILL_WORDS - words) };
        let mut into = std::mem::take(&mut self.whole);
        let range = &mut into[..words as usize];
        self.runtime.read(self.results, u64::from(first + start), range).unwrap();
        for (index, &found) in (start..).zip(range.iter()) {
            self.compare(done, seed, index, found);
        }
        self.whole = into;
    }
}

#[test]
fn no_result_is_stale() {
    let gpu = device().info().device_type != DeviceType::Cpu;
    let (workers, tasks) = (if gpu { 64 } else { 0 }, scaled(300));
    // A million tasks are read in full 5,000 times.
    let whole_each = (tasks / 5_000).max(8);
    for (mode, policy) in ways() {
        let mut builder = common::builder().mode(mode).policy(policy).slots(320).workers(workers);
        let opcode = builder.handler(fill(), "main");
        let (runtime, mut submission, mut completion) = builder.build().unwrap();
        let regions = runtime.plan().worker_groups * 2;
        let results = runtime.buffer("results", u64::from(regions * FILL_WORDS) * 4).unwrap();
        let table = runtime.bind(&[&results]).unwrap();
        let random = Random(0x2545_f491_4f6c_dd1d);
        let whole = vec![0; FILL_WORDS as usize];
        let mut reader = Reader { runtime, results: &results, random, whole, stale: 0 };
        let mut free: Vec<u32> = (0..regions).collect();
        let (mut pushed, mut done, mut progress, start) = (0u64, 0, Instant::now(), Instant::now());
        while done < tasks {
            while let Some(region) = free.pop_if(|_| pushed < tasks) {
                let payload = [region * FILL_WORDS, pushed as u32 ^ 0x5eed_0000];
                let user_data = pushed << 32 | u64::from(region);
                let task = Task::new(opcode).bindings(table.index()).level(pushed as u32 % 5).user_data(user_data);
                submission.push(task.payload(&payload)).unwrap();
                pushed += 1;
            }
            submission.publish().unwrap();
            let Some(completion) = completion.poll() else {
                assert!(progress.elapsed() < DEADLINE, "{done} tasks are done: {:?}", reader.runtime.health());
                std::thread::yield_now();
                continue;
            };
            assert_eq!(completion.outcome, Outcome::Done);
            let (number, region) = (completion.user_data >> 32, completion.user_data as u32);
            let place = (region * FILL_WORDS, number as u32 ^ 0x5eed_0000);
            reader.look(&completion, place);
            if number % whole_each == 0 {
                reader.read(&completion, place, FILL_WORDS);
            } else if number % 3 == 0 {
                reader.read(&completion, place, LOOKS);
            }
            free.push(region);
            (done, progress) = (done + 1, Instant::now());
        }
        eprintln!("{tasks} tasks of {} KiB in mode {}: {:.1?}", FILL_WORDS / 256, mode.name(), start.elapsed());
        assert_eq!((reader.stale, completion.strays()), (0, 0));
    }
}

#[test]
fn the_longest_payloads_arrive_whole_over_many_laps() {
    for (mode, policy) in ways() {
        let builder = common::builder().mode(mode).policy(policy).levels(1).slots(5).in_flight(64);
        payloads::run_payloads(builder, scaled(4_000), DEADLINE).unwrap();
    }
}
