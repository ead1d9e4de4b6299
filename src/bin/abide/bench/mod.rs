//! `abide bench`: what abide costs, beside what a program would do without it.

mod latency;
mod samples;
mod throughput;

use std::process::ExitCode;

use abide::device::Selector;
use abide::runtime::Policy;

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
    /// Measures how many tasks a second go through, beside publishing alone and queue submissions
    Throughput(throughput::Arguments),
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
            Benchmark::Throughput(throughput) => throughput.run(&selector),
        }
    }
}

/// A claim policy, as the command line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PolicyName {
    /// The reference scan
    Scan,
    /// The elected poller
    Fast,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Scan => Self::Scan,
            PolicyName::Fast => Self::Fast,
        }
    }
}
