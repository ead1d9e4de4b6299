//! `abide bench throughput`: NOP tasks a second, by number of producers, batch, workers, slots and policy, beside what bounds
//! them: publishing alone, draining a full ring, and queue submissions back to back.

mod figures;
mod flow;

use std::process::ExitCode;
use std::time::Duration;

use abide::device::{Device, Selector};
use abide::runtime::{Policy, Runtime};
use anyhow::Result;
use indicatif::ProgressBar;

use super::PolicyName;
use super::latency::ways::{Submit, Wait};
use figures::{Figures, Rate, Row};
use flow::{Flow, Setting};

/// The most tasks in flight, of all levels.
const IN_FLIGHT: u32 = 1 << 19;
/// Slots of the default ring: 4,096 a level.
const SLOTS: u32 = 20_480;
/// Dispatches that are submitted back to back.
const SUBMISSIONS: u32 = 200;

/// Arguments of `abide bench throughput`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Goes through all settings, which takes minutes
    #[arg(long)]
    full: bool,
    /// Policies; both if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    policy: Vec<PolicyName>,
    /// Threads that push; 0 has the one that takes the completions push as well
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=64))]
    producers: Vec<u32>,
    /// Tasks that are pushed and published together
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: Vec<u32>,
    /// Workers that stay on the device; 0 for as many as the planner recommends
    #[arg(long, value_delimiter = ',')]
    workers: Vec<u32>,
    /// Slots of the ring, of all levels
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(5..))]
    slots: Vec<u32>,
    /// How long each setting is measured, in milliseconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    ms: u64,
}

impl Arguments {
    /// Measures on one device and prints the figures.
    pub fn run(&self, device: &Selector) -> Result<ExitCode> {
        let figures = self.measure(&Device::open(device)?)?;
        if self.json {
            println!("{:#}", figures.to_json());
        } else {
            print!("{}", figures.to_text());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self, device: &Device) -> Result<Figures> {
        let submissions = Submit::new(device, Wait::Semaphore)?.burst(SUBMISSIONS)?;
        let (policies, workers, slots) = (self.policies(), self.workers(device), self.slots());
        let settings = self.settings();
        let kernels = policies.len() * workers.len() * slots.len();
        let bar = ProgressBar::new((kernels * settings.len()) as u64);
        let (mut rows, mut ceiling, mut drain) = (Vec::new(), Rate::default(), Rate::default());
        let mut mode = "";
        for &policy in &policies {
            for &workers in &workers {
                for &slots in &slots {
                    let builder = Runtime::builder(device).policy(policy).slots(slots).in_flight(IN_FLIGHT);
                    let parts = builder.workers(workers).build()?;
                    if parts.0.policy() != policy {
                        continue;
                    }
                    let workers = parts.0.plan().worker_groups;
                    mode = parts.0.mode().name();
                    let mut flow = Flow::new(parts, slots)?;
                    let (published, drained) = flow.fill_and_drain()?;
                    ceiling = ceiling.best(published);
                    drain = drain.best(drained);
                    for &setting in &settings {
                        let rate = flow.measure(setting, Duration::from_millis(self.ms))?;
                        let Setting { producers, batch } = setting;
                        rows.push(Row { policy: policy.name(), workers, slots, producers, batch, rate });
                        bar.inc(1);
                    }
                }
            }
        }
        bar.finish_and_clear();
        Ok(Figures {
            device: device.info().name.clone(),
            driver: device.info().driver(),
            mode,
            submits: Rate::of(u64::from(SUBMISSIONS), submissions),
            ceiling,
            drain,
            rows,
        })
    }

    fn policies(&self) -> Vec<Policy> {
        match self.policy.is_empty() {
            true => vec![Policy::Fast, Policy::Scan],
            false => self.policy.iter().map(|&name| name.into()).collect(),
        }
    }

    fn workers(&self, device: &Device) -> Vec<u32> {
        let most = device.report().workers_at_once.max(1);
        let all = [1, 8, 33, 132, 528, 2_112];
        match (self.workers.is_empty(), self.full) {
            (false, _) => self.workers.clone(),
            (true, false) => vec![0],
            (true, true) => all.into_iter().filter(|&workers| workers <= most).collect(),
        }
    }

    fn slots(&self) -> Vec<u32> {
        match (self.slots.is_empty(), self.full) {
            (false, _) => self.slots.clone(),
            (true, false) => vec![SLOTS],
            (true, true) => vec![256, 4_096, SLOTS, 65_536],
        }
    }

    fn settings(&self) -> Vec<Setting> {
        let or = |given: &[u32], full: &[u32], quick: &[u32]| match (given.is_empty(), self.full) {
            (false, _) => given.to_vec(),
            (true, true) => full.to_vec(),
            (true, false) => quick.to_vec(),
        };
        let producers = or(&self.producers, &[0, 1, 2, 4, 8], &[0, 1, 4]);
        let batches = or(&self.batch, &[1, 4, 16, 64, 256], &[1, 16, 256]);
        let settings = producers.iter().flat_map(|&producers| {
            let setting = move |&batch| Setting { producers, batch };
            batches.iter().map(setting)
        });
        settings.collect()
    }
}
