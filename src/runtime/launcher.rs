//! Launches the kernel and watches it: the queues' [`Link`].
//!
//! Everything here is off the fast path. One lock serialises it; no wait under it is longer than its caller's patience.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::epoch::Shadows;
use super::error::{Error, Result};
use super::memory::Buffers;
use crate::device::{self, Device, Kernel, LaunchQueue, Mode};
use crate::protocol::{inlet, launch, outlet, state};
use crate::queue::{ExitReason, Link, LinkError};

/// Launches in a row that took in nothing while work waited, after which the kernel counts as lost.
const FRUITLESS_LAUNCHES: u32 = 8;

/// How long a kernel may take from its launch to its first sign of life: drivers compile pipelines then.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long the end of a launch may take once its last worker has said that it leaves.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// What a kernel is launched with.
#[derive(Clone, Debug)]
pub(super) struct LaunchPlan {
    pub mode: Mode,
    pub workers: u32,
    /// Launch parameters; the launch's number is filled in.
    pub params: [u32; launch::WORDS as usize],
    /// How long the kernel may show no sign of life while work waits.
    pub stall: Duration,
    /// How long the crew stays without work; resident mode only.
    pub park: Duration,
}

/// What the kernel is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// Not on the device; the next publish launches it.
    Parked,
    /// On the device.
    Running {
        /// Time since the launch.
        since: Duration,
        /// Time since it last showed that it lives, as far as anyone looked.
        quiet: Duration,
    },
    /// Kept off the device until it is resumed.
    Quiesced,
    /// Can't run any more.
    Lost(LinkError),
}

/// Launches one kernel.
pub(super) struct Launcher {
    device: Device,
    kernel: Kernel,
    buffers: Buffers,
    plan: LaunchPlan,
    /// Number of the latest launch.
    number: AtomicU32,
    state: Mutex<State>,
    /// Signalled when `phase` leaves Quiesced.
    resumed: Condvar,
}

impl fmt::Debug for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launcher")
            .field("plan", &self.plan)
            .field("number", &self.number)
            .field("buffers", &self.buffers)
            .finish_non_exhaustive()
    }
}

struct State {
    queue: LaunchQueue,
    shadows: Option<Shadows>,
    phase: Phase,
    /// Value of the latest launch on the queue's timeline.
    value: u64,
    started: Instant,
    beat: Option<Beat>,
    /// Claims when the latest launch began.
    claims: u32,
    fruitless: u32,
    /// Passes that the crew does in a microsecond, as last measured.
    pace: f64,
}

#[derive(Clone, Copy)]
struct Beat {
    word: u32,
    seen: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No launch is on the device.
    Idle,
    Running,
    /// No launch is on the device, and none may be started.
    Quiesced,
    Lost(LinkError),
}

impl Launcher {
    pub fn new(
        device: &Device,
        queue: LaunchQueue,
        (kernel, buffers): (Kernel, Buffers),
        shadows: Option<Shadows>,
        plan: LaunchPlan,
    ) -> Self {
        let pass_us = device.report().floor_us.unwrap_or(1.0).max(0.1);
        let state = State {
            queue,
            shadows,
            phase: Phase::Idle,
            value: 0,
            started: Instant::now(),
            beat: None,
            claims: 0,
            fruitless: 0,
            pace: 1.0 / pass_us,
        };
        Self {
            device: device.clone(),
            kernel,
            buffers,
            plan,
            number: AtomicU32::new(0),
            state: Mutex::new(state),
            resumed: Condvar::new(),
        }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn mode(&self) -> Mode {
        self.plan.mode
    }

    pub fn memory(&self) -> &Buffers {
        &self.buffers
    }

    pub fn health(&self) -> Health {
        let mut state = self.state.lock();
        if state.phase == Phase::Running && self.has_ended(&mut state, Duration::ZERO) == Ok(true) {
            self.ended(&mut state);
        }
        match state.phase {
            Phase::Idle => Health::Parked,
            Phase::Quiesced => Health::Quiesced,
            Phase::Lost(error) => Health::Lost(error),
            Phase::Running => {
                let quiet = state.beat.map_or(state.started, |beat| beat.seen).elapsed();
                Health::Running { since: state.started.elapsed(), quiet }
            }
        }
    }

    /// Has the kernel leave and waits until it has; nothing is launched until it is resumed.
    pub fn quiesce(&self, patience: Duration) -> Result<()> {
        self.leave(patience, Phase::Quiesced)
    }

    /// Has the kernel leave for good.
    pub fn stop(&self, patience: Duration) -> Result<()> {
        let left = self.leave(patience, Phase::Lost(LinkError::Stopped));
        self.resumed.notify_all();
        left
    }

    /// Lets the kernel be launched again.
    pub fn resume(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let Phase::Lost(error) = state.phase {
            return Err(error.into());
        }
        if state.phase == Phase::Quiesced {
            state.phase = Phase::Idle;
        }
        drop(state);
        self.resumed.notify_all();
        Ok(())
    }

    fn leave(&self, patience: Duration, after: Phase) -> Result<()> {
        let mut state = self.state.lock();
        if state.phase == Phase::Running {
            self.set_stop(1);
            if !self.device_result(&mut state, |state| state.queue.wait(state.value, patience))? {
                if let Phase::Lost(_) = after {
                    // Whoever waits for tasks learns that no more will run.
                    state.phase = after;
                }
                return Err(Error::StillRunning { waited: patience });
            }
            self.ended(&mut state);
            self.set_stop(0);
        }
        if !matches!(state.phase, Phase::Lost(_)) {
            state.phase = after;
        }
        Ok(())
    }

    fn set_stop(&self, word: u32) {
        // In epochs a slice ends by itself; the inlet is the device's alone until it has.
        if self.plan.mode == Mode::Resident
            && let Some(words) = self.buffers.inlet.mapped()
        {
            words.store(inlet::STOP as usize, word);
            words.flush();
        }
    }

    /// Runs a call into the device layer; an error ends everything.
    fn device_result<T>(
        &self,
        state: &mut State,
        call: impl FnOnce(&mut State) -> device::Result<T>,
    ) -> Result<T, LinkError> {
        call(state).map_err(|error| {
            let lost = match error {
                device::Error::DeviceLost { .. } => LinkError::DeviceLost,
                error => {
                    log::error!("the kernel can't be launched or watched: {error}");
                    LinkError::Refused
                }
            };
            state.phase = Phase::Lost(lost);
            lost
        })
    }

    /// Launches, if there is work: in epochs that is known, else whoever calls has some.
    fn start(&self, state: &mut State) -> Result<(), LinkError> {
        if let Some(shadows) = &mut state.shadows
            && shadows.copy_in() == 0
        {
            return Ok(());
        }
        let number = self.number.load(Ordering::Relaxed).wrapping_add(1);
        let mut params = self.plan.params;
        params[launch::LAUNCH as usize] = number;
        if self.plan.mode == Mode::Resident && !self.plan.park.is_zero() {
            let passes = self.plan.park.as_secs_f64() * 1e6 * state.pace;
            params[launch::IDLE_LIMIT as usize] = (passes as u32).max(1);
        }
        let workers = self.plan.workers;
        state.claims = self.claims();
        state.value = self.device_result(state, |state| state.queue.launch(&self.kernel, [workers, 1, 1], &params))?;
        // Release: pairs with the acquire in `launch`: who sees the number knows that its launch is under way.
        self.number.store(number, Ordering::Release);
        (state.phase, state.started, state.beat) = (Phase::Running, Instant::now(), None);
        Ok(())
    }

    /// Takes in that the launch has ended.
    fn ended(&self, state: &mut State) {
        state.phase = Phase::Idle;
        if let Some(shadows) = &mut state.shadows {
            shadows.copy_out();
        }
        let word = |at: u32| self.buffers.outlet.mapped().map_or(0, |words| words.load(at as usize));
        let said = word(outlet::ENDED) == self.number.load(Ordering::Relaxed);
        let reason = if said { word(outlet::EXIT) } else { 0 };
        let fruitful = self.claims() != state.claims;
        state.fruitless = if fruitful { 0 } else { state.fruitless + 1 };
        if reason == outlet::exit::SHUTDOWN {
            state.phase = Phase::Lost(LinkError::Stopped);
        } else if state.fruitless >= FRUITLESS_LAUNCHES {
            state.phase = Phase::Lost(LinkError::KernelLeft { reason: ExitReason(reason) });
        }
    }

    /// Claims so far: a read across the bus, off the fast path. 0 where the host can't read the state.
    fn claims(&self) -> u32 {
        self.buffers.state.mapped().map_or(0, |words| words.load(state::CLAIM_COUNT as usize))
    }

    /// Whether the launch has ended, waiting for `patience` at most.
    fn has_ended(&self, state: &mut State, patience: Duration) -> Result<bool, LinkError> {
        let value = state.value;
        let number = self.number.load(Ordering::Relaxed);
        let said = self.plan.mode == Mode::Resident
            && self.buffers.outlet.mapped().is_some_and(|words| words.load(outlet::ENDED as usize) == number);
        if said {
            // The last worker has left: what is missing is the end of the submission.
            return self.device_result(state, |state| state.queue.wait(value, END_PATIENCE));
        }
        let reached = self.device_result(state, |state| state.queue.reached())?;
        if reached >= value {
            return Ok(true);
        }
        if self.plan.mode == Mode::Epochs && !patience.is_zero() {
            return self.device_result(state, |state| state.queue.wait(value, patience));
        }
        Ok(false)
    }

    /// Looks for a sign of life of a launch that hasn't ended.
    fn listen(&self, state: &mut State) -> Result<(), LinkError> {
        let now = Instant::now();
        let word = self.buffers.outlet.mapped().map_or(0, |words| words.load(outlet::HEARTBEAT as usize));
        let resident = self.plan.mode == Mode::Resident;
        match state.beat {
            // In epochs the outlet is the device's until the slice has ended: its length is bounded instead.
            None if !resident => self.quiet_for(now - state.started, START_PATIENCE.max(self.plan.stall)),
            None => {
                let first = outlet::pack_beat(self.number.load(Ordering::Relaxed), 0);
                if word >> outlet::BEAT_BITS == first >> outlet::BEAT_BITS {
                    state.beat = Some(Beat { word, seen: now });
                    return Ok(());
                }
                self.quiet_for(now - state.started, START_PATIENCE.max(self.plan.stall))
            }
            Some(beat) if beat.word == word => self.quiet_for(now - beat.seen, self.plan.stall),
            Some(beat) => {
                let beats = word.wrapping_sub(beat.word) & ((1 << outlet::BEAT_BITS) - 1);
                let elapsed = (now - beat.seen).as_secs_f64() * 1e6;
                // Beats of different workers are a few apart: only many of them say something of the pace.
                if (16..1 << (outlet::BEAT_BITS - 1)).contains(&beats) {
                    state.pace = f64::from(beats << outlet::BEAT_SHIFT) / elapsed;
                }
                state.beat = Some(Beat { word, seen: now });
                Ok(())
            }
        }
    }

    fn quiet_for(&self, quiet: Duration, limit: Duration) -> Result<(), LinkError> {
        if quiet > limit { Err(LinkError::Stalled { quiet }) } else { Ok(()) }
    }

    fn look(&self, state: &mut MutexGuard<'_, State>, patience: Duration) -> Result<(), LinkError> {
        match state.phase {
            Phase::Lost(error) => Err(error),
            Phase::Quiesced => {
                self.resumed.wait_for(state, patience);
                Ok(())
            }
            Phase::Idle => self.start(state),
            Phase::Running => {
                if !self.has_ended(state, patience)? {
                    return self.listen(state);
                }
                self.ended(state);
                if let Phase::Lost(error) = state.phase { Err(error) } else { self.start(state) }
            }
        }
    }
}

impl Link for Launcher {
    fn launch(&self) -> u32 {
        match self.plan.mode {
            // Acquire: pairs with the release in `start`.
            Mode::Resident => self.number.load(Ordering::Acquire),
            // The shadow's ENDED word stays 0, so that every call turns.
            Mode::Epochs => 0,
        }
    }

    fn turn(&self, patience: Duration) -> Result<(), LinkError> {
        // Another thread that is at it does the same.
        let Some(mut state) = self.state.try_lock_for(patience) else { return Ok(()) };
        self.look(&mut state, patience)
    }
}
