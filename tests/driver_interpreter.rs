//! The interpreter and the drivers leave the same memory: random kernels whose outcome no schedule changes.
//!
//! `ABIDE_TEST_SCALE` multiplies the number of programs; `ABIDE_TEST_SEED` begins with another one.

#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
#[path = "common/compute.rs"]
mod compute;
#[expect(dead_code, reason = "shared with tests that break kernels as well")]
#[path = "common/random_kernel.rs"]
mod random_kernel;
#[path = "common/settled_kernel.rs"]
mod settled_kernel;

use abide::ir::interpret::{Launch, Options, PlainMemory, Program, Workgroup};
use compute::{Gpu, Job};
use settled_kernel::{INPUTS, MAX_WIDTH, OWN, TALLIES, settled};

/// Programs of a kernel.
const BATCH: u32 = 4;
/// Programs, unless a scale is given.
const PROGRAMS: u32 = 320;
const GROUPS: u32 = 2;
/// Where the addressed buffer lies for the interpreter.
const ADDRESS: u64 = 0x7_0000_0000;
/// Operations of a workgroup, at most.
const BUDGET: u64 = 100_000_000;

fn setting(name: &str) -> Option<u32> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as u32 ^ (self.0 >> 20) as u32
    }

    fn words(&mut self, count: u32) -> Vec<u32> {
        // Small numbers and edges as often as others.
        let mut word = || match self.next() % 4 {
            0 => self.next() % 8,
            1 => [0, 1, 31, 32, 0x7fff_ffff, 0x8000_0000, u32::MAX][self.next() as usize % 7],
            _ => self.next() ^ self.next() << 13,
        };
        (0..count).map(|_| word()).collect()
    }
}

/// What the kernel is run with, by the seed.
fn job(seed: u32, programs: u32, width: u32) -> Job {
    let mut random = Random(u64::from(seed) << 20);
    let own = programs * OWN * width * GROUPS;
    Job {
        buffers: vec![random.words(INPUTS), random.words(own), random.words(programs * TALLIES)],
        addressed: random.words(own),
        params: vec![0, 0, 5, 0xdead_beef],
        width,
        groups: GROUPS,
    }
}

/// Runs the kernel on the interpreter, workgroup by workgroup; `backwards` begins with the last.
fn interpret(program: &Program, job: &Job, subgroup: u32, backwards: bool) -> Vec<Vec<u32>> {
    let mut buffers = job.buffers.clone();
    buffers.push(job.addressed.clone());
    let mut memory = PlainMemory { addresses: vec![(ADDRESS, buffers.len() - 1)], buffers };
    let mut params = job.params.clone();
    params[..2].copy_from_slice(&[ADDRESS as u32, (ADDRESS >> 32) as u32]);
    let launch = Launch { width: job.width, subgroup, groups: job.groups, params };
    let mut order: Vec<u32> = (0..job.groups).collect();
    if backwards {
        order.reverse();
    }
    for index in order {
        let mut workgroup = Workgroup::new(program, &launch, index).expect("the launch fits the program");
        workgroup.run(program, &launch, &mut memory, BUDGET).expect("the program does nothing wrong");
    }
    memory.buffers
}

/// Runs the programs of these seeds as one kernel, and says where the two differ.
fn compare(gpu: &Gpu, seeds: std::ops::Range<u32>) -> Result<(), String> {
    let list = |seed: u32| {
        let mut random = Random(u64::from(seed));
        let length = 20 + random.next() % 200;
        (0..length).map(|_| random.next()).collect()
    };
    let programs: Vec<Vec<u32>> = seeds.clone().map(list).collect();
    let module = settled(&programs);
    let lowered = abide::spirv::lower(&module).map_err(|error| format!("seeds {seeds:?}: {error}"))?;
    // Stock Mesa's memory barriers wait for all subgroups: it is right where there is one.
    let subgroups = if std::env::var("ABIDE_TEST_DRIVER").is_ok_and(|name| name == "mesa-stock") { 1 } else { 2 };
    let width = (subgroups * gpu.subgroup_size()).min(MAX_WIDTH);
    let job = job(seeds.start, seeds.len() as u32, width);
    let program = Program::new(&module, &Options::default()).map_err(|error| error.to_string())?;
    let expected = interpret(&program, &job, gpu.subgroup_size(), false);
    if interpret(&program, &job, gpu.subgroup_size(), true) != expected {
        return Err(format!("seeds {seeds:?}: the order of the workgroups shows"));
    }
    let outcome = gpu.run(&lowered.words, &job);
    let found = outcome.buffers.iter().chain([&outcome.addressed]);
    for ((number, expected), found) in (0..).zip(&expected).zip(found) {
        if let Some(at) = (0..expected.len()).find(|&at| expected[at] != found[at]) {
            let own = (OWN * width * GROUPS) as usize;
            let program = if number == 2 { at / TALLIES as usize } else { at / own };
            let (lane, word) = (at % own / OWN as usize, at % OWN as usize);
            let (left, right) = (expected[at], found[at]);
            return Err(format!(
                "seed {}, buffer {number}, lane {lane}, word {word}: {left:#x} interpreted, {right:#x} run",
                seeds.start + program as u32
            ));
        }
    }
    Ok(())
}

#[test]
fn random_programs_leave_the_same_memory_on_the_interpreter_and_the_driver() {
    let Some(gpu) = Gpu::open() else { return };
    let first = setting("ABIDE_TEST_SEED").unwrap_or(1);
    let count = PROGRAMS * setting("ABIDE_TEST_SCALE").unwrap_or(1);
    for seed in (first..first + count).step_by(BATCH as usize) {
        let seeds = seed..(seed + BATCH).min(first + count);
        if let Err(fault) = compare(&gpu, seeds.clone()) {
            // Alone, so that what is reported is one program.
            let alone = seeds.map(|seed| compare(&gpu, seed..seed + 1)).find_map(Result::err);
            panic!("{}", alone.unwrap_or(fault));
        }
    }
    println!("{count} programs agree");
}
