//! Buffers, pipelines and launches.

use std::time::Duration;

use abide::device::{CopyRegion, Device, Error, Pipeline, PipelineDesc, Placement};

use super::{assert_valid, driver, open, scale};

const PATIENCE: Duration = Duration::from_secs(20);
const WORDS: usize = 1_000;

/// Launches the scaling kernel a few times and checks what it wrote.
pub fn scales(device: &Device) {
    let input = device.buffer("input", WORDS as u64 * 4, Placement::Inlet).unwrap();
    let output = device.buffer("output", WORDS as u64 * 4, Placement::Outlet).unwrap();
    let kernel = scale(device).bind(&[&input, &output]).unwrap();
    let mut queue = device.launch_queue().unwrap();
    let given: Vec<_> = (0..WORDS as u32).map(|at| at ^ 0x5a5a).collect();
    input.mapped().unwrap().write(0, &given);
    for factor in [3, 5, 7] {
        let launch = queue.launch(&kernel, [16, 1, 1], &[factor, WORDS as u32]).unwrap();
        assert!(queue.wait(launch, PATIENCE).unwrap());
        assert!(queue.reached().unwrap() >= launch);
        let mut read = vec![0; WORDS];
        output.mapped().unwrap().read(0, &mut read);
        let wanted: Vec<_> = given.iter().zip(0..).map(|(&word, at)| at * factor + word).collect();
        assert_eq!(read, wanted);
    }
}

#[test]
fn kernels_read_and_write_buffers() {
    if driver().is_none() {
        return;
    }
    scales(&open());
    assert_valid();
}

#[test]
fn buffers_lie_where_the_report_says() {
    if driver().is_none() {
        return;
    }
    let device = open();
    let report = device.report().clone();
    let wanted =
        [(Placement::Inlet, report.inlet), (Placement::Outlet, report.outlet), (Placement::State, report.state)];
    for (placement, memory) in wanted {
        let buffers: Vec<_> = (1..20).map(|size| device.buffer("small", size * 100 + 1, placement).unwrap()).collect();
        for buffer in &buffers {
            assert_eq!(buffer.memory_type(), memory);
            assert_eq!((buffer.address() % 64, buffer.size() % 4), (0, 0), "{buffer:?}");
            if placement != Placement::State {
                let words = buffer.mapped().unwrap();
                assert!((0..words.len()).all(|at| words.load(at) == 0));
                words.write(0, &vec![u32::MAX; words.len()]);
            }
        }
    }
    let too_large = device.buffer("too large", u64::MAX / 2, Placement::State).unwrap_err();
    assert!(matches!(too_large, Error::Limit { .. }), "{too_large}");
    assert_valid();
}

#[test]
fn command_buffers_are_used_again() {
    if driver().is_none() {
        return;
    }
    let device = open();
    let buffer = device.buffer("words", 4096, Placement::Outlet).unwrap();
    let kernel = scale(&device).bind(&[&buffer, &buffer]).unwrap();
    let mut queue = device.launch_queue().unwrap();
    for turn in 1..=500 {
        // Every launch adds 1 to word 1, so each sees what the one before wrote.
        assert_eq!(queue.launch(&kernel, [1, 1, 1], &[1, 2]).unwrap(), turn);
        if turn % 50 == 0 {
            assert!(queue.wait(turn, PATIENCE).unwrap());
        }
    }
    assert_eq!(buffer.mapped().unwrap().load(1), 500);
    assert!(!queue.wait(501, Duration::from_millis(1)).unwrap(), "nothing was launched with this value");
    assert_eq!((queue.last(), queue.timeline().reached().unwrap()), (500, 500));
    assert_valid();
}

#[test]
fn buffers_are_filled_and_copied() {
    if driver().is_none() {
        return;
    }
    let device = open();
    let state = device.buffer("state", 4096, Placement::State).unwrap();
    let output = device.buffer("output", 4096, Placement::Outlet).unwrap();
    let queues = [Some(device.launch_queue().unwrap()), device.copy_queue().unwrap()];
    for (mut queue, word) in queues.into_iter().flatten().zip(7_u32..) {
        queue.fill(&state, word).unwrap();
        let copied = queue.copy(&state, &output, &[CopyRegion { from: 8, to: 400, bytes: 100 }]).unwrap();
        assert!(queue.wait(copied, PATIENCE).unwrap());
        let words = output.mapped().unwrap();
        assert_eq!([99, 100, 124, 125].map(|at| words.load(at)), [0, word, word, 0]);
        let beyond = queue.copy(&state, &output, &[CopyRegion { from: 4000, to: 0, bytes: 100 }]);
        assert!(matches!(beyond, Err(Error::Limit { value: 4100, limit: 4096, .. })));
    }
    assert_valid();
}

#[test]
fn what_does_not_fit_is_refused() {
    if driver().is_none() {
        return;
    }
    let (device, other) = (open(), open());
    let pipeline = scale(&device);
    let buffer = device.buffer("words", 64, Placement::Inlet).unwrap();
    let foreign = other.buffer("foreign", 64, Placement::Inlet).unwrap();
    assert!(matches!(pipeline.bind(&[&buffer]), Err(Error::Mismatch { expected: 2, given: 1, .. })));
    assert!(matches!(pipeline.bind(&[&buffer, &foreign]), Err(Error::ForeignObject { .. })));
    let kernel = pipeline.bind(&[&buffer, &buffer]).unwrap();
    let mut queue = device.launch_queue().unwrap();
    assert!(matches!(queue.launch(&kernel, [1, 1, 1], &[1]), Err(Error::Mismatch { expected: 2, given: 1, .. })));
    assert!(matches!(queue.launch(&kernel, [1, u32::MAX, 1], &[1, 1]), Err(Error::Limit { .. })));
    assert!(matches!(other.launch_queue().unwrap().launch(&kernel, [1; 3], &[1, 1]), Err(Error::ForeignObject { .. })));
    assert!(matches!(queue.fill(&foreign, 0), Err(Error::ForeignObject { .. })));
    assert_eq!(queue.last(), 0);

    let wide = PipelineDesc { name: "wide", words: &[], entry: c"main", width: u32::MAX, params: 0, buffers: 0 };
    // SAFETY: the width is refused before the words are looked at.
    let refused = unsafe { Pipeline::new(&device, &wide) };
    assert!(matches!(refused, Err(Error::Limit { .. })));
    assert_valid();
}
