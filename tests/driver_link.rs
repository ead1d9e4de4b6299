//! A shader does the same as a linked handler and as a plain dispatch: every byte of every buffer, on the driver at
//! hand.

#[path = "common/compute.rs"]
#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
mod compute;
#[expect(dead_code, reason = "shared with other tests: this one uses a part of it")]
mod link;

use abide::protocol::completion::fault;
use abide::protocol::task;
use abide::spirv::link::{HandlerModule, Limits, Linked, link};
use ash::vk::SubgroupFeatureFlags;
use compute::{Extra, Gpu, Job};

use link::kernel::{self, kernel};
use link::shaders::{self, Fill, Shader};

/// What Vulkan promises.
const LIMITS: Limits = Limits { workgroup_bytes: 16 * 1024 };
/// Opcode of the first shader; the others follow.
const FIRST: u32 = 16;
/// A bit pattern that no handler leaves as fault or result.
const UNTOUCHED: u32 = 0x5afe_0000;

/// A shader's buffers before it runs.
fn contents(shader: &Shader) -> Vec<Vec<u32>> {
    let word = |buffer: usize, at: u32, fill| {
        let small = (at.wrapping_mul(2_654_435_761) >> 20).wrapping_add(buffer as u32 * 13) % 100;
        match fill {
            Fill::Words => small,
            Fill::Floats => (small as f32 * 0.125 - 5.0).to_bits(),
        }
    };
    let buffers = shader.buffers.iter().enumerate();
    buffers.map(|(index, buffer)| (0..buffer.words).map(|at| word(index, at, buffer.fill)).collect()).collect()
}

/// Runs the shader as it is; gives its buffers.
fn plain(gpu: &Gpu, shader: &Shader, words: &[u32]) -> Vec<Vec<u32>> {
    let [x, y, z] = shader.grid;
    let uniforms = (0..).zip(shader.buffers).filter(|(_, buffer)| buffer.uniform).map(|(binding, _)| binding).collect();
    let job =
        Job { buffers: contents(shader), params: shader.payload.to_vec(), width: 64, groups: x, ..Job::default() };
    gpu.run_with(words, &job, &Extra { uniforms, rows: [y, z], ..Extra::default() }).0.buffers
}

/// A task that runs a shader.
struct Task<'a> {
    shader: &'a Shader,
    opcode: u32,
    /// Entries that keep a length of 0.
    unbound: &'a [u32],
}

/// What a task left: its buffers, and fault and result of each workgroup.
struct Done {
    buffers: Vec<Vec<u32>>,
    left: Vec<u32>,
}

/// Runs tasks one after the other in one launch of a linked kernel with two workers.
fn run(gpu: &Gpu, kernel: &[u32], tasks: &[Task<'_>]) -> Vec<Done> {
    let (mut records, mut pointed, mut left_at) = (Vec::new(), Vec::new(), 0);
    for task in tasks {
        let mut record = kernel::record(task.opcode, task.shader.grid, UNTOUCHED, left_at);
        let start = records.len() as u32;
        for (entry, words) in (0..).zip(contents(task.shader)) {
            let bytes = if task.unbound.contains(&entry) { 0 } else { words.len() as u32 * 4 };
            pointed.push((words, start + kernel::bind(&mut record, entry, bytes)));
        }
        if !task.shader.payload.is_empty() {
            pointed.push((task.shader.payload.to_vec(), start + task::PAYLOAD_LOW));
        }
        records.extend(record);
        left_at += task.shader.grid.iter().product::<u32>() * 2;
    }
    let buffers = vec![records, vec![UNTOUCHED; left_at as usize]];
    let job = Job { buffers, params: vec![tasks.len() as u32], width: 64, groups: 2, ..Job::default() };
    let (outcome, contents) = gpu.run_with(kernel, &job, &Extra { pointed, ..Extra::default() });
    let (mut contents, mut left) = (contents.into_iter(), outcome.buffers[1].as_slice());
    let done = |task: &Task<'_>| {
        let buffers = contents.by_ref().take(task.shader.buffers.len()).collect();
        if !task.shader.payload.is_empty() {
            assert_eq!(contents.next().as_deref(), Some(task.shader.payload), "nobody writes the payload");
        }
        let (own, rest) = left.split_at(task.shader.grid.iter().product::<u32>() as usize * 2);
        left = rest;
        Done { buffers, left: own.to_vec() }
    };
    tasks.iter().map(done).collect()
}

fn runs_on(gpu: &Gpu, shader: &Shader) -> bool {
    let needs = SubgroupFeatureFlags::BASIC
        | SubgroupFeatureFlags::VOTE
        | SubgroupFeatureFlags::ARITHMETIC
        | SubgroupFeatureFlags::BALLOT
        | SubgroupFeatureFlags::SHUFFLE;
    let runs = !shader.subgroups || gpu.has(needs);
    if !runs {
        eprintln!("SKIPPED: {}: the device lacks subgroup operations", shader.name);
    }
    runs
}

/// Each shader with its words.
fn compiled() -> Vec<(&'static Shader, Vec<u32>)> {
    shaders::ALL.iter().filter_map(|shader| Some((shader, shader.words()?))).collect()
}

fn linked(modules: &[(&Shader, Vec<u32>)]) -> Linked {
    let handlers: Vec<_> =
        (FIRST..).zip(modules).map(|(opcode, (_, words))| HandlerModule { words, entry: "main", opcode }).collect();
    link(&kernel(), &handlers, &LIMITS).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares what a task did with what the shader does as it is.
fn compare(gpu: &Gpu, shader: &Shader, words: &[u32], done: &Done) {
    let expected = plain(gpu, shader, words);
    assert_ne!(expected, contents(shader), "{}: the shader changes something", shader.name);
    for (binding, (found, expected)) in done.buffers.iter().zip(&expected).enumerate() {
        let wrong = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "{}: binding {binding} differs from here\n{found:x?}\n{expected:x?}", shader.name);
    }
    assert!(done.left.chunks(2).all(|left| left == [0, UNTOUCHED]), "{}: {:x?}", shader.name, done.left);
}

#[test]
fn each_alone() {
    let Some(gpu) = Gpu::open() else { return };
    for (shader, words) in compiled().into_iter().filter(|(shader, _)| runs_on(&gpu, shader)) {
        let alone = linked(&[(shader, words.clone())]);
        // Twice: the second run starts from what the first has left in private and workgroup variables.
        let tasks = [FIRST, FIRST].map(|opcode| Task { shader, opcode, unbound: &[] });
        for done in run(&gpu, &alone.words, &tasks) {
            compare(&gpu, shader, &words, &done);
        }
    }
}

#[test]
fn all_in_one_kernel() {
    let Some(gpu) = Gpu::open() else { return };
    let modules: Vec<_> = compiled().into_iter().filter(|(shader, _)| runs_on(&gpu, shader)).collect();
    let all = linked(&modules);
    // Forth and back, so that each runs after another one.
    let order = (0..modules.len()).chain((0..modules.len()).rev());
    let tasks: Vec<_> =
        order.map(|at| Task { shader: modules[at].0, opcode: FIRST + at as u32, unbound: &[] }).collect();
    let done = run(&gpu, &all.words, &tasks);
    for (task, done) in tasks.iter().zip(&done) {
        compare(&gpu, task.shader, &modules[(task.opcode - FIRST) as usize].1, done);
    }
}

#[test]
fn an_unbound_buffer_and_an_unknown_opcode_are_faults() {
    let Some(gpu) = Gpu::open() else { return };
    let modules = compiled();
    let (shader, words) = &modules[0];
    let all = linked(&modules[..3]);
    let tasks = [(FIRST, &[1][..], fault::NOT_BOUND), (FIRST + 3, &[], fault::NO_HANDLER)];
    let cases = tasks.map(|(opcode, unbound, _)| Task { shader, opcode, unbound });
    let fine = [Task { shader, opcode: FIRST, unbound: &[] }];
    let mut done = run(&gpu, &all.words, &cases.into_iter().chain(fine).collect::<Vec<_>>());
    compare(&gpu, shader, words, &done.pop().expect("three tasks ran"));
    for (done, (_, _, code)) in done.iter().zip(tasks) {
        assert_eq!(done.buffers, contents(shader), "nothing ran");
        assert!(done.left.chunks(2).all(|left| left == [code, UNTOUCHED]), "{:x?}, not {code}", done.left);
    }
}
