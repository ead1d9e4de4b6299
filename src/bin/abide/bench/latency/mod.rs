//! `abide bench latency`: what a round trip takes, in four ways, on one device in one process.
//!
//! All ways need the device's queue, where a resident kernel lets nothing else run: so they take turns, in rounds, that
//! noise of the machine hits them alike.

mod figures;
pub mod ways;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use abide::device::{Device, Selector};
use abide::protocol::PRIORITY_LEVELS;
use abide::runtime::Runtime;
use anyhow::Result;
use indicatif::ProgressBar;

use super::PolicyName;
use super::samples::Samples;
use crate::out;
use figures::Figures;
use ways::{Floor, Submit, Tasks, Wait, Way};

/// Turns of each way.
const ROUNDS: u32 = 10;
/// Round trips at the start of a turn that don't count: drivers compile kernels at their first launch, and a resident
/// kernel has to be launched again.
const WARM_UP: u32 = 16;
/// How long a turn may take beyond its warm-up: together two seconds for each way.
const TURN_TIME: Duration = Duration::from_millis(200);
/// The longest pause before a round trip, in nanoseconds. Without pauses of random length, host and poller fall into
/// step and any difference under a poll's time is lost.
const LONGEST_PAUSE: u64 = 2_000;
/// Slots of the default ring.
const SLOTS: u32 = 4096;

/// Arguments of `abide bench latency`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Prints JSON; times are in microseconds
    #[arg(long)]
    json: bool,
    /// Workers that stay on the device, instead of as many as the planner recommends
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
    /// How the kernel claims tasks, instead of the default
    #[arg(long, value_enum)]
    policy: Option<PolicyName>,
    /// Slots of the ring
    #[arg(long, default_value_t = SLOTS, value_parser = clap::value_parser!(u32).range(1..))]
    slots: u32,
    /// Round trips of each way, fewer where they would take more than two seconds
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
}

impl Arguments {
    /// Measures on one device and prints the figures.
    pub fn run(&self, device: &Selector) -> Result<ExitCode> {
        let figures = self.measure(&Device::open(device)?)?;
        if self.json {
            out::print(&format!("{:#}\n", figures.to_json()))?;
        } else {
            out::print(&figures.to_text())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self, device: &Device) -> Result<Figures> {
        // Everything is made before the first launch: some drivers make such calls wait for a resident kernel.
        let mut floor = Floor::new(device)?;
        let mut submit_wait = Submit::new(device, Wait::Semaphore)?;
        let mut submit_poll = Submit::new(device, Wait::Counter)?;
        let mut builder = Runtime::builder(device).levels(PRIORITY_LEVELS).slots(self.slots);
        if let Some(policy) = self.policy {
            builder = builder.policy(policy.into());
        }
        let mut tasks = Tasks::new(builder.workers(self.workers.unwrap_or(0)).build()?);

        let mut ways: [&mut dyn Way; 4] = [&mut floor, &mut submit_wait, &mut submit_poll, &mut tasks];
        let mut samples: [Samples; 4] = Default::default();
        let (mut left, mut pauses, bar) = (self.samples, Pauses::default(), ProgressBar::new(ROUNDS.into()));
        for round in 0..ROUNDS {
            let count = left.div_ceil(ROUNDS - round);
            left -= count;
            for (way, samples) in ways.iter_mut().zip(&mut samples) {
                take_turn(*way, count, &mut pauses, samples)?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();

        let runtime = tasks.runtime();
        let [floor, submit_wait, submit_poll, abide] = samples.map(Samples::summary);
        Ok(Figures {
            device: device.info().name.clone(),
            driver: device.info().driver(),
            mode: runtime.mode().name(),
            policy: runtime.policy().name(),
            reason: device.report().reason.clone(),
            workers: runtime.plan().worker_groups,
            width: runtime.plan().geometry.width,
            slots: self.slots,
            floor,
            submit_wait,
            submit_poll,
            abide,
        })
    }
}

/// Takes so many round trips one way, or as many as there is time for.
fn take_turn(way: &mut dyn Way, count: u32, pauses: &mut Pauses, samples: &mut Samples) -> Result<()> {
    way.begin()?;
    let mut began = Instant::now();
    for turn in 0..WARM_UP + count {
        if turn <= WARM_UP {
            began = Instant::now();
        } else if began.elapsed() >= TURN_TIME {
            break;
        }
        pauses.pause();
        match way.round_trip()? {
            Some(_) if turn < WARM_UP => {}
            Some(time) => samples.push(time),
            // What was resident has left, so the next round trip wouldn't be one of many.
            None => way.begin()?,
        }
    }
    way.end()
}

/// Draws pauses of random length.
struct Pauses(u64);

impl Default for Pauses {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Pauses {
    /// Passes the time of one pause, on the core.
    fn pause(&mut self) {
        let (began, length) = (Instant::now(), self.draw());
        while began.elapsed() < length {
            std::hint::spin_loop();
        }
    }

    /// The next pause's length, by xorshift.
    fn draw(&mut self) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_nanos(self.0 % LONGEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_of_all_lengths() {
        let mut pauses = Pauses::default();
        let drawn: Vec<_> = (0..1_000).map(|_| pauses.draw().as_nanos() as u64).collect();
        let mean = drawn.iter().sum::<u64>() / 1_000;
        assert!(drawn.iter().all(|&length| length < LONGEST_PAUSE));
        assert!((800..1_200).contains(&mean), "{mean} ns on average");
    }
}
