//! The device layer on a real driver: run with scripts/with-driver.sh, which names the driver in ABIDE_TEST_DRIVER.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abide::device::{
    CacheFile, CacheStatus, Device, Error, Instance, Mode, Ping, Pipeline, PipelineDesc, Quirk, Relabel, Selector,
    validation_errors,
};
use abide::ir::{Access, Builder, Input};

#[path = "driver_device/adopt.rs"]
mod adopt;
#[path = "driver_device/hang.rs"]
mod hang;
#[path = "driver_device/launch.rs"]
mod launch;

/// The driver under test; none, with a word on standard error, where there is none.
fn driver() -> Option<String> {
    let driver = std::env::var("ABIDE_TEST_DRIVER").ok();
    if driver.is_none() {
        eprintln!("skipped: run with scripts/with-driver.sh");
    }
    driver
}

fn open() -> Device {
    let builder = Device::builder().selector(Selector::from_env().unwrap());
    builder.pipeline_cache(CacheFile::Off).open().unwrap()
}

/// A pipeline that writes `index * params[0] + input[index]` to `output[index]` for `params[1]` words.
fn scale(device: &Device) -> Pipeline {
    let mut b = Builder::new("scale", 2);
    let input = b.buffer("input", 0, Access::Private);
    let output = b.buffer("output", 1, Access::Private);
    let (group, width, lane) =
        (b.input(Input::WorkgroupIndex), b.input(Input::WorkgroupSize), b.input(Input::LocalIndex));
    let first = b.mul(group, width);
    let index = b.add(first, lane);
    let (factor, count) = (b.param(0), b.param(1));
    let inside = b.lt(index, count);
    b.when(inside, |b| {
        let scaled = b.mul(index, factor);
        let from = b.at(input, index);
        let old = b.load(from);
        let sum = b.add(scaled, old);
        let to = b.at(output, index);
        b.store(to, sum);
    });
    let words = abide::spirv::lower(&b.finish()).unwrap().words;
    let desc = PipelineDesc { name: "scale", words: &words, entry: c"main", width: 64, params: 2, buffers: 2 };
    // SAFETY: the words are lowered IR, and launches pass a count within the buffers.
    unsafe { Pipeline::new(device, &desc) }.unwrap()
}

/// Asserts that the validation layer, where it is enabled, has found nothing so far.
fn assert_valid() {
    let (count, texts) = validation_errors();
    assert_eq!(count, 0, "the validation layer reports:\n{}", texts.join("\n"));
}

#[test]
fn admission_finds_what_each_driver_can_do() {
    let Some(driver) = driver() else { return };
    let device = open();
    let report = device.report();
    let (mode, loop_limit) = match driver.as_str() {
        "mesa-stock" => (Mode::Epochs, Some(65_535)),
        _ => (Mode::Resident, None),
    };
    assert_eq!((report.mode, report.loop_limit), (mode, loop_limit), "{report:?}");
    assert!(report.workers_at_once >= 1, "{report:?}");
    assert!(!report.placements.is_empty() && !report.reason.is_empty(), "{report:?}");
    assert_eq!(loop_limit.is_some(), report.reason.contains("65535"), "{report:?}");
    if driver != "system" {
        // CPU drivers have one memory, which both sides see. Kernels that are cut off after half a millisecond may be
        // over before the host gets to look, where the machine is busy.
        let seen = report.placements.iter().all(|seen| seen.host_write_seen && seen.device_write_seen);
        assert!(seen || loop_limit.is_some(), "{report:?}");
        assert_eq!(report.floor_us.is_some(), seen, "{report:?}");
        assert!(device.quirk(Quirk::SharedThreadPool).is_some(), "{}", device.info());
    }
    assert_eq!(device.quirk(Quirk::LoopLimit).is_some(), loop_limit.is_some(), "{}", device.info());
    // The second time the report comes from the process's memory, so it is the same to the last digit.
    assert_eq!(open().report(), report);
    assert_valid();
}

#[test]
fn a_ping_kernel_replies_until_it_leaves() {
    let Some(driver) = driver() else { return };
    let device = open();
    let mut ping = Ping::new(&device).unwrap();
    // Not launched, it has left.
    assert_eq!(ping.round_trip().unwrap(), None);
    let mut trips = 0;
    // Kernels that are cut off early may be over before the host gets to look, where the machine is busy.
    for _ in 0..100 {
        ping.launch(Duration::from_millis(20)).unwrap();
        while ping.round_trip().unwrap().is_some() {
            trips += 1;
        }
        if trips > 0 {
            break;
        }
    }
    assert!(trips > 0 || driver == "mesa-stock", "no reply");
    ping.launch(Duration::from_secs(20)).unwrap();
    let began = Instant::now();
    ping.stop().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "it stayed for {:?}", began.elapsed());
    assert_valid();
}

#[test]
fn driver_threads_are_workers() {
    let Some(driver) = driver() else { return };
    let threads = std::env::var("LP_NUM_THREADS").ok().and_then(|threads| threads.parse::<u32>().ok());
    let Some(threads) = threads else { return };
    // On a busy machine the threads may not meet within the time that a launch has.
    let workers = (0..10).map(|_| open().report().workers_at_once).find(|&workers| workers > 1).unwrap_or(1);
    // SwiftShader deals a dispatch out in 16 batches.
    let most = if driver == "swiftshader" { threads.min(16) } else { threads };
    assert!((2..=most).contains(&workers), "{workers} workers on {threads} threads");
}

#[test]
fn without_a_window_into_device_memory_it_is_epochs() {
    if driver().is_none() {
        return;
    }
    let builder = Device::builder().selector(Selector::from_env().unwrap()).pipeline_cache(CacheFile::Off);
    let device = builder.relabel(Relabel::NoSharedMemory).open().unwrap();
    let report = device.report();
    assert_eq!(report.mode, Mode::Epochs, "{report:?}");
    if report.loop_limit.is_none() {
        assert!(report.reason.contains("no device-local memory that the host can write"), "{report:?}");
    }
    launch::scales(&device);
    assert_valid();
}

#[test]
fn devices_are_chosen_by_index_name_and_uuid() {
    if driver().is_none() {
        return;
    }
    let infos = Instance::new().unwrap().devices().unwrap();
    let best = Selector::Best.choose(&infos).unwrap();
    let part: String = best.name.to_uppercase().chars().take(8).collect();
    for selector in [Selector::Index(best.index), Selector::Name(part), Selector::Uuid(best.uuid)] {
        assert_eq!(Device::open(&selector).unwrap().info().index, best.index, "{selector}");
    }
    let nowhere = Device::open(&Selector::Name("no such device".into())).err().unwrap();
    assert!(matches!(&nowhere, Error::NoMatch { devices, .. } if devices.len() == infos.len()));
    assert!(nowhere.to_string().contains(&best.name), "{nowhere}");
    assert!(matches!(Device::open(&Selector::Index(99)), Err(Error::NoMatch { .. })));
    assert_valid();
}

#[test]
fn pipeline_cache_is_kept_and_checked() {
    if driver().is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("abide-cache-{}", std::process::id()));
    let path = folder.join("pipelines");
    let open = || {
        let builder = Device::builder().selector(Selector::from_env().unwrap());
        let device = builder.pipeline_cache(CacheFile::At(path.clone())).open().unwrap();
        let _made = scale(&device);
        device.cache_status().clone()
    };
    assert_eq!(open(), CacheStatus::New);
    assert!(matches!(open(), CacheStatus::Loaded(bytes) if bytes >= 32));

    let good = std::fs::read(&path).unwrap();
    let mut foreign = good.clone();
    foreign[16 + 16] ^= 1;
    let mut cut = good.clone();
    cut.pop();
    for (bytes, reason) in
        [(foreign, "damaged"), (cut, "damaged"), (b"abidepc1".to_vec(), "cut off"), (vec![7; 99], "no")]
    {
        std::fs::write(&path, bytes).unwrap();
        let status = open();
        assert!(matches!(&status, CacheStatus::Ignored(why) if why.contains(reason)), "{status:?}, not {reason}");
        assert!(matches!(open(), CacheStatus::Loaded(_)), "the damaged file is replaced");
    }
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary file stays behind: {left:?}");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_valid();
}

#[test]
fn device_can_be_shared_among_threads() {
    if driver().is_none() {
        return;
    }
    let device = Arc::new(open());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let device = device.clone();
            std::thread::spawn(move || launch::scales(&device))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_valid();
}
