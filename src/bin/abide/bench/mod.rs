//! `abide bench`: what abide costs, beside what a program would do without it.

mod latency;
mod samples;

use std::process::ExitCode;

use abide::device::Selector;

/// Arguments of `abide bench`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(clap::Subcommand)]
enum Benchmark {
    /// Measures round trips: the least that the device allows, queue submissions, and a task
    Latency(latency::Arguments),
}

impl Arguments {
    /// Runs a benchmark on the device that `device` says, or else the environment.
    pub fn run(&self, device: Option<&Selector>) -> anyhow::Result<ExitCode> {
        let selector = match device {
            Some(selector) => selector.clone(),
            None => Selector::from_env()?,
        };
        match &self.benchmark {
            Benchmark::Latency(latency) => latency.run(&selector),
        }
    }
}
