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
use super::pulse::Pulse;
use crate::device::{self, Device, Kernel, LaunchQueue, Mode, Resident};
use crate::protocol::{inlet, launch, outlet, state};
use crate::queue::{ExitReason, Link, LinkError};

/// Launches in a row that took in nothing while work waited, after which the kernel counts as lost.
const FRUITLESS_LAUNCHES: u32 = 8;

/// How long a kernel may take from its launch to its first sign of life: drivers compile pipelines then.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long a launch waits before others that stay on the device's queue are asked to make room, again and again.
const ROOM_AFTER: Duration = Duration::from_millis(2);

/// How long the end of a launch may take once its last worker has said that it leaves.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// What a kernel is launched with.
#[derive(Clone, Debug)]
pub(super) struct LaunchPlan {
    pub mode: Mode,
    pub workers: u32,
    /// Launch parameters; the launch's number is filled in.
    pub params: [u32; launch::WORDS as usize],
    /// How long a pass takes, in shortest round trips: a guess, until heartbeats say better.
    pub pass_floors: f64,
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
        /// Number of the launch; counts on from 1.
        launch: u32,
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
    /// Signalled when the gate has changed, and when a launch has been started.
    changed: Condvar,
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
    gate: Gate,
    /// Whether the latest launch has not been seen to end. It may be on the device whatever the gate says.
    running: bool,
    /// Value of the latest launch on the queue's timeline.
    value: u64,
    started: Instant,
    /// When others were last asked to make room.
    asked: Instant,
    /// What [`Launcher::progress`] gave when the latest launch began.
    progress: u32,
    /// What it was for [`Launcher::parked`].
    parked: [u32; 2],
    fruitless: u32,
    /// Whether a launch was due while the device was [held](crate::device::Residents::is_held).
    held_back: bool,
    pulse: Pulse,
}

/// Whether launches may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Not before it is resumed.
    Quiesced,
    /// Never again.
    Lost(LinkError),
}

impl State {
    /// Sets the gate, unless nothing opens it any more.
    fn set_gate(&mut self, gate: Gate) {
        if !matches!(self.gate, Gate::Lost(_)) {
            self.gate = gate;
        }
    }
}

impl Launcher {
    pub fn new(
        device: &Device,
        queue: LaunchQueue,
        (kernel, buffers): (Kernel, Buffers),
        shadows: Option<Shadows>,
        plan: LaunchPlan,
    ) -> Self {
        let pass_us = device.report().floor_us.unwrap_or(1.0).max(0.1) * plan.pass_floors;
        let state = State {
            queue,
            shadows,
            gate: Gate::Open,
            running: false,
            value: 0,
            started: Instant::now(),
            asked: Instant::now(),
            progress: 0,
            parked: [0; 2],
            fruitless: 0,
            held_back: false,
            pulse: Pulse::new(1.0 / pass_us),
        };
        Self {
            device: device.clone(),
            kernel,
            buffers,
            plan,
            number: AtomicU32::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
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
        if state.running && self.has_ended(&mut state, Duration::ZERO) == Ok(true) {
            self.ended(&mut state);
        }
        match state.gate {
            Gate::Lost(error) => Health::Lost(error),
            _ if state.running => {
                let launch = self.number.load(Ordering::Relaxed);
                let quiet = state.pulse.seen().unwrap_or(state.started).elapsed();
                Health::Running { launch, since: state.started.elapsed(), quiet }
            }
            Gate::Open => Health::Parked,
            Gate::Quiesced => Health::Quiesced,
        }
    }

    /// Has the kernel leave and waits until it has; nothing is launched until it is resumed.
    pub fn quiesce(&self, patience: Duration) -> Result<()> {
        self.leave(patience, Gate::Quiesced)
    }

    /// Has the kernel leave for good.
    pub fn stop(&self, patience: Duration) -> Result<()> {
        let left = self.leave(patience, Gate::Lost(LinkError::Stopped));
        self.changed.notify_all();
        left
    }

    /// Lets the kernel be launched again. One that was asked to leave and hasn't yet leaves all the same: parts of its crew
    /// may be gone.
    pub fn resume(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let Gate::Lost(error) = state.gate {
            return Err(error.into());
        }
        state.gate = Gate::Open;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn leave(&self, patience: Duration, after: Gate) -> Result<()> {
        let start = Instant::now();
        let mut state = self.state.lock();
        // Ends: it goes round only where someone else has resumed meanwhile, and not once the patience is used up.
        loop {
            // Those who wait for tasks that the kernel still ends learn of the gate behind it afterwards.
            state.set_gate(Gate::Quiesced);
            if !state.running {
                state.set_gate(after);
                return Ok(());
            }
            if !self.end_launch(&mut state, patience.saturating_sub(start.elapsed()))? {
                state.set_gate(after);
                return Err(Error::StillRunning { waited: patience });
            }
        }
    }

    /// Has the launch that is under way end, and waits for that; says whether it has. Another may have begun by then.
    fn end_launch(&self, state: &mut MutexGuard<'_, State>, patience: Duration) -> Result<bool, LinkError> {
        let start = Instant::now();
        self.set_stop(1);
        let (value, timeline) = (state.value, state.queue.timeline().clone());
        // Ends: it goes round only until the patience is used up.
        loop {
            let rest = patience.saturating_sub(start.elapsed());
            let begun = self.has_begun(self.heartbeat());
            let slice = if begun { rest } else { rest.min(ROOM_AFTER) };
            // Without the lock, so that nobody's call takes as long as this one.
            let ended = MutexGuard::unlocked(state, || timeline.wait(value, slice));
            if self.device_result(state, |_| ended)? {
                if state.running && state.value == value {
                    self.ended(state);
                }
                return Ok(true);
            }
            if slice == rest {
                return Ok(false);
            }
            // It can't end before those that the queue runs first, and they may stay for ever.
            self.ask_others(state);
        }
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
            state.gate = Gate::Lost(lost);
            // A lost device runs nothing any more.
            state.running &= lost != LinkError::DeviceLost;
            lost
        })
    }

    /// Whether a launch has work; in epochs the shadows know better than the caller. No launch may be on the device.
    fn has_work(&self, state: &mut State, waiting: bool) -> bool {
        state.shadows.as_mut().map_or(waiting, |shadows| shadows.copy_in() > 0 || shadows.has_parked_work())
    }

    fn start(&self, state: &mut State) -> Result<(), LinkError> {
        self.set_stop(0);
        let number = self.number.load(Ordering::Relaxed).wrapping_add(1);
        let mut params = self.plan.params;
        params[launch::LAUNCH as usize] = number;
        if self.plan.mode == Mode::Resident {
            let passes = (self.plan.park.as_secs_f64() * 1e6 * state.pulse.pace()) as u32;
            // A crew that left before it had looked at every slot would leave work behind, launch after launch.
            let least = params[launch::IDLE_LIMIT as usize];
            params[launch::IDLE_LIMIT as usize] = if self.plan.park.is_zero() { 0 } else { passes.max(least) };
        }
        if let Some(shadows) = &state.shadows {
            // Nothing comes in while a slice runs.
            params[launch::TARGET as usize] = shadows.copied();
        }
        let workers = self.plan.workers;
        state.progress = self.progress(state);
        state.parked = self.parked();
        state.value = self.device_result(state, |state| state.queue.launch(&self.kernel, [workers, 1, 1], &params))?;
        // Release: pairs with the acquire in `launch`: who sees the number knows that its launch is under way.
        self.number.store(number, Ordering::Release);
        (state.running, state.started) = (true, Instant::now());
        state.pulse.reset();
        self.changed.notify_all();
        Ok(())
    }

    /// Takes in that the launch has ended.
    fn ended(&self, state: &mut State) {
        state.running = false;
        if let Some(shadows) = &mut state.shadows {
            shadows.copy_out();
        }
        let word = |at: u32| self.buffers.outlet.mapped().map_or(0, |words| words.load(at as usize));
        let said = word(outlet::ENDED) == self.number.load(Ordering::Relaxed);
        let reason = if said { word(outlet::EXIT) } else { 0 };
        // A crew that was told to stop may not have had the time.
        let fruitful =
            reason == outlet::exit::STOP || self.progress(state) != state.progress || self.parked() != state.parked;
        state.fruitless = if fruitful { 0 } else { state.fruitless + 1 };
        if reason == outlet::exit::SHUTDOWN {
            state.set_gate(Gate::Lost(LinkError::Stopped));
        } else if state.fruitless >= FRUITLESS_LAUNCHES {
            state.set_gate(Gate::Lost(LinkError::KernelLeft { reason: ExitReason(reason) }));
        }
    }

    /// A count that every task changes. Read while no launch is on the device.
    fn progress(&self, state: &State) -> u32 {
        match &state.shadows {
            Some(shadows) => shadows.completed(),
            None => self.claims(),
        }
    }

    /// What the last launch that ended said of tenants' queues: how many tasks waited, and under which bitmap.
    fn parked(&self) -> [u32; 2] {
        let word = |at: u32| self.buffers.outlet.mapped().map_or(0, |words| words.load(at as usize));
        [outlet::PARKED, outlet::PARKED_EPOCH].map(word)
    }

    /// Tasks claimed so far: a read across the bus, off the fast path. 0 where the host can't read the state.
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
    fn listen(&self, state: &mut MutexGuard<'_, State>) -> Result<(), LinkError> {
        let now = Instant::now();
        let heartbeat = self.heartbeat();
        if state.pulse.seen().is_some() || self.has_begun(heartbeat) {
            return quiet_for(state.pulse.feel(heartbeat, self.claims(), now), self.plan.stall);
        }
        if now - state.asked.max(state.started) > ROOM_AFTER {
            state.asked = now;
            self.ask_others(state);
        }
        quiet_for(now - state.started, START_PATIENCE.max(self.plan.stall))
    }

    /// Asks others on the device's queue to make room, without the lock: one that is just being dropped may go here, and
    /// drivers may make that wait for this kernel.
    fn ask_others(&self, state: &mut MutexGuard<'_, State>) {
        MutexGuard::unlocked(state, || self.device.residents().ask_others(self));
    }

    fn heartbeat(&self) -> u32 {
        self.buffers.outlet.mapped().map_or(0, |words| words.load(outlet::HEARTBEAT as usize))
    }

    /// Whether a heartbeat is the latest launch's. In epochs nobody knows: the outlet is the device's until the slice has
    /// ended, and its length is bounded instead.
    fn has_begun(&self, heartbeat: u32) -> bool {
        let first = outlet::pack_beat(self.number.load(Ordering::Acquire), 0);
        self.plan.mode == Mode::Resident && heartbeat >> outlet::BEAT_BITS == first >> outlet::BEAT_BITS
    }

    fn look(&self, state: &mut MutexGuard<'_, State>, patience: Duration, waiting: bool) -> Result<(), LinkError> {
        if let Gate::Lost(error) = state.gate {
            return Err(error);
        }
        let collects = state.running;
        if collects {
            if !self.has_ended(state, patience)? {
                return self.listen(state);
            }
            self.ended(state);
        }
        let gate = state.gate;
        match gate {
            Gate::Lost(error) => Err(error),
            Gate::Open if self.has_work(state, waiting) => {
                // Under the lock that `vacate` takes, so that it comes either before this or behind the launch.
                state.held_back = self.device.residents().is_held();
                if !state.held_back {
                    return self.start(state);
                }
                self.changed.wait_for(state, patience);
                Ok(())
            }
            // There are completions to look at first.
            Gate::Open | Gate::Quiesced if collects => Ok(()),
            // Another thread's call may change that.
            Gate::Open | Gate::Quiesced => {
                self.changed.wait_for(state, patience);
                Ok(())
            }
        }
    }
}

fn quiet_for(quiet: Duration, limit: Duration) -> Result<(), LinkError> {
    if quiet > limit { Err(LinkError::Stalled { quiet }) } else { Ok(()) }
}

impl Resident for Launcher {
    fn make_room(&self) {
        // Without the lock. Where it is late and meets another launch, that one leaves early, and is followed by another.
        if self.has_begun(self.heartbeat()) {
            self.set_stop(1);
        }
    }

    fn vacate(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        // What goes wrong has closed the gate, and is told to whoever asks the kernel for something. A lost device runs
        // nothing any more.
        !state.running || self.end_launch(&mut state, patience).unwrap_or(!state.running)
    }

    fn come_back(&self) {
        let mut state = self.state.lock();
        let due = std::mem::take(&mut state.held_back) && !state.running && state.gate == Gate::Open;
        if due && !self.device.residents().is_held() {
            // As in `vacate`.
            let _ = self.start(&mut state);
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

    fn turn(&self, patience: Duration, waiting: bool) -> Result<(), LinkError> {
        // Another thread that is at it does the same.
        let Some(mut state) = self.state.try_lock_for(patience) else { return Ok(()) };
        self.look(&mut state, patience, waiting)
    }
}
