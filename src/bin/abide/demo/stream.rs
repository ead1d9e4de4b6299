//! Streams a plan's tiles through something that runs them one by one.
//!
//! A tile is started once those that it reads from have completed, the most urgent first. What runs the tiles stays behind
//! [`Runner`]: abide's queues, or one queue submission each.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use abide::protocol::PRIORITY_LEVELS;
use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::plan::{PARAMETERS, Plan, Tile, parameters};
use super::pyramid::Pyramid;

/// How long nothing may complete before the runner counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tile on its way to a runner.
pub struct Job<'a> {
    /// Its place in the plan, by which it comes back.
    pub number: u32,
    /// The tile.
    pub tile: &'a Tile,
    /// The shader's parameters.
    pub parameters: [u32; PARAMETERS],
}

/// Runs tiles one by one.
pub trait Runner {
    /// How many tiles are best started together.
    fn batch(&self) -> usize;

    /// Starts tiles of one priority level, from the first on, as far as there is room; gives how many.
    ///
    /// # Errors
    /// The device fails.
    fn start(&mut self, jobs: &[Job<'_>]) -> Result<usize>;

    /// Appends the numbers of tiles that have completed.
    ///
    /// # Errors
    /// The device fails, or a tile did.
    fn collect(&mut self, completed: &mut Vec<u32>) -> Result<()>;
}

/// What streaming a plan took.
#[derive(Default)]
pub struct Timing {
    /// From the first tile started to the last completed.
    pub total: Duration,
    /// From publishing to completion as the host sees it, for the tiles of each priority level.
    pub latencies: [Vec<Duration>; PRIORITY_LEVELS as usize],
}

/// Streams all tiles of a plan.
///
/// # Errors
/// Those of the runner, or nothing completes for too long.
pub fn stream(plan: &Plan, pyramid: &Pyramid, runner: &mut dyn Runner, progress: &ProgressBar) -> Result<Timing> {
    let mut state = Streaming::new(plan);
    let mut completed = Vec::new();
    let (mut done, mut timing) = (0, Timing::default());
    let start = Instant::now();
    let mut last_news = start;
    while done < plan.tiles.len() {
        let started = state.start(plan, pyramid, runner)?;
        runner.collect(&mut completed)?;
        let now = Instant::now();
        if completed.is_empty() {
            let total = plan.tiles.len();
            ensure!(now - last_news < PATIENCE, "no tile has completed for {PATIENCE:?} ({done} of {total} have)");
            if !started {
                // Drivers that run shaders on the CPU need the core more than this loop does.
                std::thread::yield_now();
            }
            continue;
        }
        last_news = now;
        done += completed.len();
        progress.inc(completed.len() as u64);
        for number in completed.drain(..) {
            let latency = now - state.complete(plan, number);
            timing.latencies[plan.tiles[number as usize].urgency as usize].push(latency);
        }
    }
    timing.total = start.elapsed();
    timing.latencies.iter_mut().for_each(|latencies| latencies.sort_unstable());
    Ok(timing)
}

/// Where each tile of a plan stands.
struct Streaming {
    waits: Vec<u32>,
    ready: [VecDeque<u32>; PRIORITY_LEVELS as usize],
    published: Vec<Instant>,
}

impl Streaming {
    fn new(plan: &Plan) -> Self {
        let mut ready: [VecDeque<u32>; PRIORITY_LEVELS as usize] = Default::default();
        for (tile, number) in plan.tiles.iter().zip(0..) {
            if plan.waits[number as usize] == 0 {
                ready[tile.urgency as usize].push_back(number);
            }
        }
        let published = vec![Instant::now(); plan.tiles.len()];
        Self { waits: plan.waits.clone(), ready, published }
    }

    /// Starts one batch of the most urgent level that has tiles and room; says whether there was one.
    fn start(&mut self, plan: &Plan, pyramid: &Pyramid, runner: &mut dyn Runner) -> Result<bool> {
        for queue in &mut self.ready {
            let job = |&number: &u32| {
                let tile = &plan.tiles[number as usize];
                Job { number, tile, parameters: parameters(pyramid, tile.product, tile.level, tile.index) }
            };
            let jobs: Vec<_> = queue.iter().take(runner.batch()).map(job).collect();
            if jobs.is_empty() {
                continue;
            }
            let now = Instant::now();
            let started = runner.start(&jobs)?;
            for number in queue.drain(..started) {
                self.published[number as usize] = now;
            }
            if started > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Readies those that waited for a tile; gives the time at which it was published.
    fn complete(&mut self, plan: &Plan, number: u32) -> Instant {
        for &follower in &plan.followers[number as usize] {
            self.waits[follower as usize] -= 1;
            if self.waits[follower as usize] == 0 {
                self.ready[plan.tiles[follower as usize].urgency as usize].push_back(follower);
            }
        }
        self.published[number as usize]
    }
}

/// The value below which `share` of the sorted latencies lie, in microseconds; 0 where there are none.
pub fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::Rect;

    /// Completes tiles last in, first out, and has room for three.
    #[derive(Default)]
    struct Lifo {
        running: Vec<u32>,
        order: Vec<u32>,
    }

    impl Runner for Lifo {
        fn batch(&self) -> usize {
            2
        }

        fn start(&mut self, jobs: &[Job<'_>]) -> Result<usize> {
            let room = jobs.len().min(3 - self.running.len());
            self.running.extend(jobs.iter().take(room).map(|job| job.number));
            Ok(room)
        }

        fn collect(&mut self, completed: &mut Vec<u32>) -> Result<()> {
            let last = self.running.pop();
            self.order.extend(last);
            completed.extend(last);
            Ok(())
        }
    }

    #[test]
    fn every_tile_runs_once_after_those_it_reads() {
        let pyramid = Pyramid::new(333, 200);
        let plan = Plan::new(&pyramid, &Rect::centre(333, 200));
        let mut runner = Lifo::default();
        let timing = stream(&plan, &pyramid, &mut runner, &ProgressBar::hidden()).expect("the runner never fails");
        assert_eq!(timing.latencies.iter().map(Vec::len).sum::<usize>(), plan.tiles.len());
        let mut place = vec![None; plan.tiles.len()];
        for (at, &number) in runner.order.iter().enumerate() {
            assert_eq!(place[number as usize].replace(at), None, "tile {number} ran twice");
        }
        for (source, followers) in plan.followers.iter().enumerate() {
            assert!(followers.iter().all(|&follower| place[source] < place[follower as usize]));
        }
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let sorted: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| percentile(&sorted, share).round()), [50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
