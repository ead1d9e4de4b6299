//! The command line tool. Exit status: 0 done, 1 failed, 2 wrong usage.

mod bench;
mod demo;
mod doctor;
mod out;
mod shader;

use std::process::ExitCode;

use abide::device::Selector;
use clap::{Parser, Subcommand};

/// A resident compute kernel on Vulkan, fed with tasks through memory
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Device by index, a part of its name, or UUID; stands before ABIDE_DEVICE. The best one if neither is given
    #[arg(long, global = true, value_name = "DEVICE")]
    device: Option<Selector>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures what abide costs on a device
    Bench(bench::Arguments),
    /// Streams textures as tasks: mip levels, BC1 and BC7; compares with queue submissions, and writes DDS and PNG files
    Demo(demo::Arguments),
    /// Shows the Vulkan devices, and how a kernel can stay on each
    Doctor(doctor::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if log::set_logger(&StandardError).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    let device = arguments.device.as_ref();
    let result = match arguments.command {
        Command::Bench(bench) => bench.run(device),
        Command::Demo(demo) => demo.run(device),
        Command::Doctor(doctor) => doctor.run(device),
    };
    match result {
        Ok(code) => code,
        // As of any tool at the head of a pipe.
        Err(error) if out::is_closed(&error) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("abide: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the library's warnings and errors to standard error.
struct StandardError;

impl log::Log for StandardError {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("abide") && metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("abide: {}", record.args());
        }
    }

    fn flush(&self) {}
}
