//! The host's part of the admission test: launches, requests, and what is seen while a kernel runs.

use std::time::{Duration, Instant};

use super::kernels::{self, WIDTH, gather, ping, turns};
use super::report::PlacementReport;
use crate::device::buffer::Buffer;
use crate::device::error::{Error, Result};
use crate::device::info::DeviceType;
use crate::device::launch::{CopyRegion, LaunchQueue};
use crate::device::logical::Device;
use crate::device::mapped::Mapped;
use crate::device::memory::MemoryType;
use crate::device::pipeline::{Kernel, Pipeline, PipelineDesc};
use crate::ir::Module;

/// How long a launch of the test may take; its kernels need milliseconds.
pub(in crate::device) const PATIENCE: Duration = Duration::from_secs(5);

/// Turns of the loop that is tried; the known limit is 65,535.
const TURNS: u32 = 200_000;
/// Changes of a word, one after another in one launch, that prove that it is seen while the kernel runs. Each can cost
/// a time slice where kernel and host have to share a core.
const ROUNDS: u32 = 4;
/// How long kernels poll one memory type before it counts as not seen, and how long this may take where the machine is
/// busy with other things. On a CPU driver kernel and host wait for each other's cores.
const TYPE_TIME: Duration = Duration::from_millis(100);
const TYPE_TIME_CPU: Duration = Duration::from_millis(500);
const TYPE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the kernel of one try polls.
const TRY_TIME: Duration = Duration::from_millis(30);
/// A request without a reply is followed by another after this time.
const REQUEST_TIME: Duration = Duration::from_micros(200);
/// Launches of one length that measure how long a poll takes, and the most polls of one; half a millisecond is enough.
const CALIBRATIONS: u32 = 5;
const MOST_CALIBRATED: u32 = 1 << 22;
/// How long round trips are measured, and how many at most; longer where the machine is so busy that there are few.
const FLOOR_TIME: Duration = Duration::from_millis(50);
const FLOOR_PATIENCE: Duration = Duration::from_millis(500);
const FLOOR_ROUNDS: usize = 4_000;
const FEW_ROUNDS: usize = 200;
/// The most workgroups that are counted.
const MOST_WORKERS: u32 = 4_096;
/// How long a workgroup waits for the others, and how often this is tried: on a GPU all that fit start at once, on a CPU
/// the system has to schedule the driver's threads first.
const GATHER_TIME: Duration = Duration::from_millis(2);
const GATHER_TIME_CPU: Duration = Duration::from_millis(20);
const GATHER_TRIES_CPU: u32 = 3;
/// The kernel beats at every 256th poll, or as good as never.
const BEATS: u32 = 255;
pub(super) const NO_BEATS: u32 = u32::MAX >> 1;

/// The test of one device, under way.
pub(super) struct Probe {
    device: Device,
    queue: LaunchQueue,
    ping: Pipeline,
}

/// A ping kernel with its two buffers, and what one poll takes.
pub(super) struct Pair {
    kernel: Kernel,
    inlet: Buffer,
    outlet: Buffer,
    pub poll_ns: f64,
}

/// What one launch of the ping kernel showed.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    running: bool,
    beats: u32,
    replies: u32,
    changes: u32,
}

impl Probe {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let ping = pipeline(device, "ping", kernels::ping(), ping::PARAMS, 2)?;
        Ok(Self { device: device.clone(), queue: device.launch_queue()?, ping })
    }

    /// The number of loop iterations after which shaders are cut off.
    pub(super) fn loop_limit(&mut self, memory: MemoryType) -> Result<Option<u32>> {
        let pipeline = pipeline(&self.device, "turns", kernels::turns(), turns::PARAMS, 1)?;
        let outlet = self.device.buffer_in("admission turns", 64, memory)?;
        self.run(&pipeline.bind(&[&outlet])?, 1, &[TURNS])?;
        let taken = words(&outlet)?.load(turns::TURNS);
        Ok(Some(taken).filter(|&taken| taken < TURNS))
    }

    /// Binds the ping kernel to two memory types and measures how long a poll takes.
    pub(super) fn pair(&mut self, inlet: MemoryType, outlet: MemoryType) -> Result<Pair> {
        let bytes = ping::WORDS as u64 * 4;
        let inlet = self.device.buffer_in("admission inlet", bytes, inlet)?;
        let outlet = self.device.buffer_in("admission outlet", bytes, outlet)?;
        let kernel = self.ping.bind(&[&inlet, &outlet])?;
        let mut pair = Pair { kernel, inlet, outlet, poll_ns: 0.0 };
        // The first launch of a pipeline may compile it.
        self.run(&pair.kernel, 1, &[1, NO_BEATS])?;
        let mut budget = 1 << 8;
        pair.poll_ns = f64::INFINITY;
        loop {
            let mut polls = 0;
            // The shortest counts: any of them may have been held up.
            for _ in 0..CALIBRATIONS {
                let began = Instant::now();
                self.run(&pair.kernel, 1, &[budget, NO_BEATS])?;
                let took = began.elapsed().as_nanos() as f64;
                polls = words(&pair.outlet)?.load(ping::POLLS);
                pair.poll_ns = pair.poll_ns.min(took / f64::from(polls.max(1)));
            }
            // A loop limit shows as fewer polls than were asked for; longer launches would tell no more.
            if polls < budget || budget >= MOST_CALIBRATED || pair.poll_ns * f64::from(budget) > 5e5 {
                return Ok(pair);
            }
            budget *= 4;
        }
    }

    /// Tries one memory type in both directions.
    pub(super) fn placement(&mut self, memory: MemoryType) -> Result<PlacementReport> {
        let pair = self.pair(memory, memory)?;
        let (mut host_write_seen, mut device_write_seen) = (false, false);
        let (mut polled, began) = (0.0, Instant::now());
        let time = if self.is_cpu() { TYPE_TIME_CPU } else { TYPE_TIME };
        let enough = |polled| polled >= time.as_nanos() as f64 || began.elapsed() > TYPE_PATIENCE;
        while !(enough(polled) || host_write_seen && device_write_seen) {
            let seen = self.try_pair(&pair)?;
            polled += f64::from(words(&pair.outlet)?.load(ping::POLLS)) * pair.poll_ns;
            host_write_seen |= seen.replies.max(seen.changes) >= ROUNDS;
            // Each reply was to a request that followed the last reply, so the kernel was running.
            device_write_seen |= seen.running && (seen.replies >= ROUNDS || seen.beats >= ROUNDS);
        }
        Ok(PlacementReport { memory_type: memory.index, flags: memory.flags, host_write_seen, device_write_seen })
    }

    /// Launches the ping kernel once, and talks to it until it has replied often enough or left.
    fn try_pair(&mut self, pair: &Pair) -> Result<Seen> {
        let launch = self.begin(pair, TRY_TIME, BEATS)?;
        let (inlet, outlet) = (words(&pair.inlet)?, words(&pair.outlet)?);
        let (mut seen, mut request, mut beat, mut spins) = (Seen::default(), 0, 0, 0_u32);
        let mut sent = Instant::now();
        loop {
            let (running, now, reply) =
                (outlet.load(ping::RUNNING) == 1, outlet.load(ping::BEAT), outlet.load(ping::REPLY));
            let replied = request > 0 && reply == request;
            spins += 1;
            let news = running != seen.running || now != beat || replied;
            // What was read counts only if the launch had not ended afterwards.
            if (news || spins.is_multiple_of(64)) && self.has_ended(launch)? {
                break;
            }
            seen.running |= running;
            seen.beats += u32::from(now != beat);
            seen.replies += u32::from(replied);
            beat = now;
            let enough = seen.replies >= ROUNDS;
            if enough || replied || (running && request == 0) || sent.elapsed() > REQUEST_TIME {
                request = if enough { ping::STOP } else { request + 1 };
                inlet.store(ping::REQUEST, request);
                inlet.flush();
                sent = Instant::now();
            }
            if enough {
                break;
            }
            pause(spins, 64);
        }
        self.end(launch)?;
        seen.changes = outlet.load(ping::CHANGES);
        Ok(seen)
    }

    /// Round trips through two memory types, shortest first.
    pub(super) fn round_trips(&mut self, pair: &Pair) -> Result<Vec<Duration>> {
        let mut trips = Vec::with_capacity(FLOOR_ROUNDS);
        let began = Instant::now();
        while more_trips(began, trips.len()) {
            let launch = self.begin(pair, FLOOR_TIME, NO_BEATS)?;
            self.exchange(pair, launch, began, &mut trips)?;
            self.dismiss(pair, launch)?;
        }
        trips.sort_unstable();
        Ok(trips)
    }

    /// Round trips with one launch, until it ends or enough is measured.
    fn exchange(&self, pair: &Pair, launch: u64, began: Instant, trips: &mut Vec<Duration>) -> Result<()> {
        if !self.answers(pair, launch, ping::RUNNING, 1)? {
            return Ok(());
        }
        let mut request = 0;
        while more_trips(began, trips.len()) {
            request += 1;
            let Some(trip) = self.round_trip(pair, launch, request)? else { break };
            trips.push(trip);
        }
        Ok(())
    }

    /// Sends a request that differs from the last one and waits for the reply; none where the launch ends before.
    pub(super) fn round_trip(&self, pair: &Pair, launch: u64, request: u32) -> Result<Option<Duration>> {
        let inlet = words(&pair.inlet)?;
        let sent = Instant::now();
        inlet.store(ping::REQUEST, request);
        inlet.flush();
        Ok(self.answers(pair, launch, ping::REPLY, request)?.then(|| sent.elapsed()))
    }

    /// Waits until the kernel has written a word; false where the launch ends before.
    pub(super) fn answers(&self, pair: &Pair, launch: u64, word: usize, wanted: u32) -> Result<bool> {
        let (outlet, mut spins) = (words(&pair.outlet)?, 0_u32);
        while outlet.load(word) != wanted {
            spins += 1;
            if spins.is_multiple_of(256) && self.has_ended(launch)? {
                return Ok(false);
            }
            pause(spins, 1_024);
        }
        Ok(true)
    }

    /// Has a launch of the ping kernel leave, and waits until it has.
    pub(super) fn dismiss(&self, pair: &Pair, launch: u64) -> Result<()> {
        let inlet = words(&pair.inlet)?;
        inlet.store(ping::REQUEST, ping::STOP);
        inlet.flush();
        self.end(launch)
    }

    /// The most workgroups that run at once, by doubling a launch until some have to wait for others to leave.
    pub(super) fn workers_at_once(&mut self, state: MemoryType, outlet: MemoryType, poll_ns: f64) -> Result<u32> {
        let pipeline = pipeline(&self.device, "gather", kernels::gather(), gather::PARAMS, 1)?;
        let bytes = u64::from(gather::WORDS) * 4;
        let state = self.device.buffer_in("admission state", bytes, state)?;
        let outlet = self.device.buffer_in("admission count", bytes, outlet)?;
        let kernel = pipeline.bind(&[&state])?;
        let (time, tries) = if self.is_cpu() { (GATHER_TIME_CPU, GATHER_TRIES_CPU) } else { (GATHER_TIME, 1) };
        let (budget, mut total, mut most) = (polls(time, poll_ns) / gather::POLLS, 2, 1);
        while total <= MOST_WORKERS && most >= total / 2 {
            for _ in 0..tries {
                self.queue.fill(&state, 0)?;
                self.queue.launch(&kernel, [total, 1, 1], &[budget, total])?;
                let copy = self.queue.copy(&state, &outlet, &[CopyRegion { from: 0, to: 0, bytes }])?;
                self.end(copy)?;
                most = most.max(words(&outlet)?.load(gather::MOST as usize));
                if most >= total {
                    break;
                }
            }
            total *= 2;
        }
        Ok(most)
    }

    /// Launches the ping kernel, to poll for about `time`.
    pub(super) fn begin(&mut self, pair: &Pair, time: Duration, beat_mask: u32) -> Result<u64> {
        words(&pair.inlet)?.write(0, &[0; ping::WORDS]);
        words(&pair.outlet)?.write(0, &[0; ping::WORDS]);
        self.queue.launch(&pair.kernel, [1, 1, 1], &[polls(time, pair.poll_ns), beat_mask])
    }

    fn run(&mut self, kernel: &Kernel, workgroups: u32, params: &[u32]) -> Result<()> {
        let launch = self.queue.launch(kernel, [workgroups, 1, 1], params)?;
        self.end(launch)
    }

    fn is_cpu(&self) -> bool {
        self.device.info().device_type == DeviceType::Cpu
    }

    fn has_ended(&self, launch: u64) -> Result<bool> {
        Ok(self.queue.reached()? >= launch)
    }

    fn end(&self, launch: u64) -> Result<()> {
        if self.queue.wait(launch, PATIENCE)? {
            return Ok(());
        }
        self.device.leak();
        Err(Error::Hung { what: "a kernel of the admission test", patience: PATIENCE })
    }
}

/// The words of a buffer that lies in mappable memory.
fn words(buffer: &Buffer) -> Result<&Mapped> {
    let wanted = "the host must be able to map it";
    buffer.mapped().ok_or_else(|| Error::NoMemoryType { name: buffer.name().into(), wanted })
}

fn pipeline(device: &Device, kernel: &'static str, module: Module, params: u32, buffers: u32) -> Result<Pipeline> {
    let lowered = crate::spirv::lower(&module).map_err(|source| Error::Lower { kernel, source })?;
    let name = module.name.as_str();
    let width = device.info().subgroup_size.clamp(1, WIDTH);
    let desc = PipelineDesc { name, words: &lowered.words, entry: c"main", width, params, buffers };
    // SAFETY: the lowering gives valid words; the kernels access constant words within their buffers, and every loop of
    // theirs has a bound that is given at launch.
    unsafe { Pipeline::new(device, &desc) }
}

/// As many polls as take about `time`.
fn polls(time: Duration, poll_ns: f64) -> u32 {
    (time.as_nanos() as f64 / poll_ns.max(0.1)).clamp(1_000.0, f64::from(1_u32 << 30)) as u32
}

fn more_trips(began: Instant, trips: usize) -> bool {
    let time = if trips < FEW_ROUNDS { FLOOR_PATIENCE } else { FLOOR_TIME };
    trips < FLOOR_ROUNDS && began.elapsed() < time
}

/// Between two looks at a word; now and then the core is offered to a CPU driver's kernel.
fn pause(spins: u32, turns_to_offer: u32) {
    if spins.is_multiple_of(turns_to_offer) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
