//! The command line tool on a real driver: run with scripts/with-driver.sh. Figures are checked for sense, never for size.

use std::fs::File;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// The driver under test; none, with a word on standard error, where there is none.
fn driver() -> Option<String> {
    let driver = std::env::var("ABIDE_TEST_DRIVER").ok();
    if driver.is_none() {
        eprintln!("skipped: run with scripts/with-driver.sh");
    }
    driver
}

/// The tool that was built with this test, or another one named by `ABIDE_BIN`.
fn abide(arguments: &[&str]) -> Command {
    let built = || env!("CARGO_BIN_EXE_abide").into();
    let mut command = Command::new(std::env::var_os("ABIDE_BIN").unwrap_or_else(built));
    command.args(arguments);
    command
}

/// Runs commands one at a time: on a CPU driver, kernels that stay would take one another's cores.
fn output(command: &mut Command) -> Output {
    static TURN: Mutex<()> = Mutex::new(());
    let _others_wait = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    command.output().unwrap()
}

fn run(arguments: &[&str]) -> Output {
    output(&mut abide(arguments))
}

/// What a command that succeeds prints as JSON.
fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The mode that a driver's devices are known to allow.
fn mode(driver: &str) -> &'static str {
    if driver == "mesa-stock" { "epochs" } else { "resident" }
}

#[test]
fn doctor_reports_every_device() {
    let Some(driver) = driver() else { return };
    let report = json(&["doctor", "--json"]);
    let device = &report["devices"][0];
    assert_eq!(device["mode"], mode(&driver), "{device:#}");
    for key in ["name", "driver", "device_type", "uuid", "reason"] {
        assert!(device[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {device:#}");
    }
    assert!(device["placements"][0]["flags"].as_array().is_some_and(|flags| !flags.is_empty()), "{device:#}");
    assert!(device["placements"][0]["host_write_seen"].is_boolean(), "{device:#}");
    assert!(device["workers_at_once"].as_u64().is_some_and(|workers| workers > 0), "{device:#}");
    assert!(device.get("loop_limit").is_some() && device.get("floor_us").is_some(), "{device:#}");
    let text = run(&["doctor"]);
    assert!(text.status.success() && String::from_utf8_lossy(&text.stdout).contains("mode"), "{text:?}");
    assert_eq!(run(&["doctor", "--device", "no such device"]).status.code(), Some(1));
    assert_eq!(run(&["doctor", "--no-such-option"]).status.code(), Some(2));
}

#[test]
fn doctor_says_how_to_get_a_driver() {
    if driver().is_none() {
        return;
    }
    let mut command = abide(&["doctor", "--json"]);
    command.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent");
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["devices"].as_array().is_some_and(Vec::is_empty), "{report:#}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("scripts/with-driver.sh"), "{output:?}");
}

#[test]
fn bench_latency_measures_all_ways() {
    let Some(driver) = driver() else { return };
    let figures = json(&["bench", "latency", "--json", "--samples", "50"]);
    assert_eq!(figures["mode"], mode(&driver), "{figures:#}");
    for key in ["device", "driver", "reason"] {
        assert!(figures[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {figures:#}");
    }
    assert_eq!((&figures["levels"], &figures["slots"]), (&5.into(), &4096.into()), "{figures:#}");
    for key in ["workers", "width"] {
        assert!(figures[key].as_u64().is_some_and(|count| count > 0), "{key}: {figures:#}");
    }
    for key in ["floor_us", "submit_wait_us", "submit_poll_us", "abide_us"] {
        let summary = &figures[key];
        if key == "floor_us" && driver == "mesa-stock" && summary.is_null() {
            // Kernels that are cut off early may be over before the host gets to look, where the machine is busy.
            assert!(figures["abide_over_floor"].is_null(), "{figures:#}");
            continue;
        }
        let number = |name: &str| summary[name].as_f64().unwrap_or_else(|| panic!("{key}, {name}: {figures:#}"));
        let (p50, p99, p999, n) = (number("p50"), number("p99"), number("p999"), number("n"));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{key}: {figures:#}");
        assert!((1.0..=50.0).contains(&n), "{key}: {figures:#}");
    }
    assert!(figures["submit_wait_over_abide"].as_f64().is_some_and(|times| times > 0.0), "{figures:#}");
}

#[test]
fn bench_latency_goes_by_its_options() {
    if driver().is_none() {
        return;
    }
    let figures = json(&["bench", "latency", "--json", "--samples", "5", "--workers", "2", "--slots", "300"]);
    assert_eq!((&figures["workers"], &figures["slots"]), (&2.into(), &300.into()), "{figures:#}");
    assert!(figures["abide_us"]["n"].as_u64().is_some_and(|n| n <= 5), "{figures:#}");
    let text = run(&["bench", "latency", "--samples", "5"]);
    assert!(text.status.success() && String::from_utf8_lossy(&text.stdout).contains("round trip"), "{text:?}");
    assert_eq!(run(&["bench", "latency", "--workers", "0"]).status.code(), Some(2));
    assert_eq!(run(&["bench"]).status.code(), Some(2));
    // More than any device has.
    let refused = run(&["bench", "latency", "--workers", "4294967295"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("abide: "), "{refused:?}");
}

#[test]
fn a_reader_that_goes_and_a_full_disk_are_no_panics() {
    if driver().is_none() {
        return;
    }
    for arguments in [&["doctor"][..], &["doctor", "--json"], &["bench", "latency", "--samples", "1"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let gone = output(abide(arguments).stdout(writer));
        let said = String::from_utf8_lossy(&gone.stderr);
        assert!(gone.status.code() == Some(1) && !said.contains("panicked") && !said.contains("abide: "), "{gone:?}");
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let full = output(abide(&["doctor"]).stdout(full));
    let said = String::from_utf8_lossy(&full.stderr);
    assert!(full.status.code() == Some(1) && said.starts_with("abide: standard output can't be written"), "{full:?}");
}

#[test]
fn bench_throughput_measures_what_it_is_asked_for() {
    let Some(driver) = driver() else { return };
    let arguments =
        ["bench", "throughput", "--json", "--ms", "20", "--producers", "0,2", "--batch", "7", "--slots", "400"];
    let figures = json(&arguments);
    let throughput = &figures["throughput"];
    for key in ["tasks_per_s", "submits_per_s", "publish_ceiling_per_s", "drain_per_s"] {
        assert!(throughput[key].as_f64().is_some_and(|rate| rate > 0.0), "{key}: {figures:#}");
    }
    let rows = throughput["sweep"].as_array().unwrap();
    let policies = if driver == "mesa-stock" { vec!["scan"] } else { vec!["fast", "scan"] };
    let asked = policies.iter().flat_map(|policy| [(*policy, 0), (*policy, 2)]);
    assert!(rows.iter().map(|row| (row["policy"].as_str().unwrap(), row["producers"].as_u64().unwrap())).eq(asked));
    for row in rows {
        assert_eq!((&row["batch"], &row["slots"]), (&7.into(), &400.into()), "{row:#}");
        assert!(row["n"].as_u64().is_some_and(|n| n > 0), "{row:#}");
    }
    assert_eq!(run(&["bench", "throughput", "--policy", "none"]).status.code(), Some(2));
}
