//! What would spoil other tests, in processes of its own: kernels that don't end in time, and wrong calls.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use abide::device::{Device, DeviceType, Pipeline, PipelineDesc, Placement, VALIDATION_VARIABLE, validation_errors};
use abide::ir::{Access, Builder, Input};

use super::{driver, open};

/// Where a test runs itself as the child.
const CHILD: &str = "ABIDE_TEST_HANG_CHILD";

/// A pipeline that polls a word `params[0]` times, and leaves sooner if it is set.
fn stay(device: &Device) -> Pipeline {
    let mut b = Builder::new("stay", 1);
    let inlet = b.buffer("inlet", 0, Access::Volatile);
    let index = b.input(Input::LocalIndex);
    let first = b.eq(index, 0_u32);
    b.when(first, |b| {
        let (budget, turns) = (b.param(0), b.var(0_u32));
        b.count(budget, |b, turn| {
            b.set(turns, turn);
            let place = b.at(inlet, 0_u32);
            let word = b.load(place);
            let stop = b.ne(word, 0_u32);
            b.break_if(stop);
        });
        // SwiftShader leaves out loops of which nothing comes.
        let (place, turns) = (b.at(inlet, 1_u32), b.get(turns));
        b.store(place, turns);
    });
    let words = abide::spirv::lower(&b.finish()).unwrap().words;
    let desc = PipelineDesc { name: "stay", words: &words, entry: c"main", width: 32, params: 1, buffers: 1 };
    // SAFETY: the words are lowered IR that reads one word, and the loop has a bound.
    unsafe { Pipeline::new(device, &desc) }.unwrap()
}

/// Runs a test of this binary again as a child, and reads the line that it prints.
fn child(test: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(CHILD, "1").stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find(|line| line.contains("child: ")).unwrap_or_default();
    child.kill().unwrap();
    child.wait().unwrap();
    line
}

/// Launches a kernel that stays for half a minute, if nothing stops it and loops aren't cut off.
fn launch_long(device: &Device) -> abide::device::LaunchQueue {
    let inlet = device.buffer("inlet", 64, Placement::Inlet).unwrap();
    let kernel = stay(device).bind(&[&inlet]).unwrap();
    // CPU drivers poll in 10 ns or more; on a GPU the time of a poll is measured reliably.
    let is_cpu = device.info().device_type == DeviceType::Cpu;
    let budget = if is_cpu { 2e9 } else { (30e9 / device.report().poll_ns).min(2e9) } as u32;
    let mut queue = device.launch_queue().unwrap();
    let launch = queue.launch(&kernel, [1, 1, 1], &[budget]).unwrap();
    assert!(!queue.wait(launch, Duration::from_millis(50)).unwrap());
    queue
}

fn say_and_stay(text: &str) -> ! {
    println!("child: {text}");
    // The parent ends this process; a driver may not come back from an orderly exit while its kernel runs.
    std::thread::sleep(Duration::from_secs(20));
    std::process::abort()
}

#[test]
fn dropping_a_queue_under_a_kernel_that_stays_leaks_within_bounds() {
    // A driver that cuts loops off has no kernel that stays.
    if driver().is_none_or(|driver| driver == "mesa-stock") {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let device = open();
        let state = device.buffer("state", 64, Placement::State).unwrap();
        let queue = launch_long(&device);
        let began = Instant::now();
        drop(queue);
        let leaked = device.is_leaked();
        drop((state, device));
        let bounded = began.elapsed() < Duration::from_secs(4);
        say_and_stay(&format!("leaked {leaked}, bounded {bounded}"));
    }
    let test = "hang::dropping_a_queue_under_a_kernel_that_stays_leaks_within_bounds";
    assert!(child(test).contains("leaked true, bounded true"));
}

#[test]
fn leaking_is_immediate() {
    if driver().is_none_or(|driver| driver == "mesa-stock") {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let device = open();
        let queue = launch_long(&device);
        let began = Instant::now();
        queue.leak();
        drop(device);
        let bounded = began.elapsed() < Duration::from_millis(500);
        say_and_stay(&format!("bounded {bounded}"));
    }
    assert!(child("hang::leaking_is_immediate").contains("bounded true"));
}

#[test]
fn leaked_buffers_keep_their_device() {
    if driver().is_none() {
        return;
    }
    let device = open();
    let buffer = device.buffer("kept", 64, Placement::Outlet).unwrap();
    let words = buffer.mapped().unwrap().as_ptr();
    buffer.leak();
    drop(device);
    // SAFETY: a leaked buffer stays mapped for the rest of the process.
    assert_eq!(unsafe { words.read_volatile() }, 0);
}

#[test]
fn validation_errors_are_counted() {
    if driver().is_none() || std::env::var_os(VALIDATION_VARIABLE).is_none_or(|value| value != "1") {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let device = open();
        let empty = ash::vk::BufferCreateInfo::default();
        // SAFETY: not sound: a buffer of no bytes is what the layer is to report, and the driver's own is harmless.
        let made = unsafe { device.raw().create_buffer(&empty, None) };
        let (count, texts) = validation_errors();
        say_and_stay(&format!("counted {}, made {}: {texts:?}", count > 0, made.is_ok()));
    }
    let line = child("hang::validation_errors_are_counted");
    assert!(line.contains("counted true") && line.contains("VUID-VkBufferCreateInfo-size"), "{line}");
}
