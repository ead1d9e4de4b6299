//! Puts the parts together: a kernel with its handlers, kept on a device and fed through queues.
//!
//! ```no_run
//! use std::time::Duration;
//! use abide::device::{Device, Selector};
//! use abide::protocol::opcode;
//! use abide::queue::Task;
//! use abide::runtime::Runtime;
//!
//! let device = Device::open(&Selector::from_env()?)?;
//! let (runtime, mut submission, mut completion) = Runtime::builder(&device).build()?;
//! let ticket = submission.push(Task::new(opcode::NOP).payload(&[42]))?;
//! submission.publish()?;
//! let done = completion.wait(ticket, Duration::from_secs(1))?;
//! assert_eq!(done.result, 42);
//! drop(runtime); // Stops the kernel.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bindings;
mod builder;
mod epoch;
mod error;
mod keeper;
mod launcher;
mod memory;
mod pulse;

use std::time::Duration;

pub use bindings::{BindingTable, BufferRange};
pub use builder::{MODE_VARIABLE, POLICY_VARIABLE, Policy, Reach, RuntimeBuilder};
pub use error::{Error, Result};
pub use launcher::Health;

use crate::device::{Buffer, CopyRegion, Device, LaunchQueue, Mode, Placement};
use crate::planner::GridPlan;
use crate::protocol::state;
use crate::queue::Tenants;
use crate::spirv::link::LinkedHandler;
use bindings::Tables;
use keeper::Keeper;
use launcher::Launcher;
use std::sync::Arc;

/// How long a dropped runtime waits for its kernel before it leaks the device.
const DROP_PATIENCE: Duration = Duration::from_secs(5);

/// A kernel on a device, with its handlers and its memory.
///
/// It comes with the two halves of its queues, which can go to other threads. Dropping it stops the kernel: tasks that no
/// worker has claimed by then stay unfinished, and the halves say so.
#[derive(Debug)]
pub struct Runtime {
    launcher: Arc<Launcher>,
    policy: Policy,
    handlers: Vec<LinkedHandler>,
    plan: GridPlan,
    tables: Tables,
    copies: Option<Copies>,
    _keeper: Option<Keeper>,
}

/// The way to copy device memory to the host beside a kernel that stays.
struct Copies {
    queue: LaunchQueue,
    staging: Buffer,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").field("staging", &self.staging).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Starts describing a runtime.
    pub fn builder(device: &Device) -> RuntimeBuilder<'_> {
        RuntimeBuilder::new(device)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.launcher.device()
    }

    /// How the kernel stays on the device.
    pub fn mode(&self) -> Mode {
        self.launcher.mode()
    }

    /// How the kernel finds and claims tasks: what was asked for, or the scan where that can't be.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How the kernel is launched.
    pub fn plan(&self) -> GridPlan {
        self.plan
    }

    /// What each linked handler needs of its tasks, by opcode.
    pub fn handlers(&self) -> &[LinkedHandler] {
        &self.handlers
    }

    /// Makes a buffer that handlers read and write through binding tables and that the host can map, all zero.
    ///
    /// What tasks wrote is there for the host once it has their completions: by [`Runtime::read`] at speed, or by
    /// [`Buffer::mapped`] word by word. What the host writes before it publishes a task is there for that task.
    ///
    /// # Errors
    /// What the device layer reports.
    pub fn buffer(&self, name: &str, bytes: u64) -> Result<Buffer> {
        let state = self.device().buffer(name, bytes, Placement::State)?;
        if state.mapped().is_some() {
            return Ok(state);
        }
        drop(state);
        Ok(self.device().buffer(name, bytes, Placement::Inlet)?)
    }

    /// Makes a binding table of buffers: entry b is what a handler's binding b of set 0 reads and writes.
    ///
    /// # Errors
    /// [`Error::Entries`] for more buffers than a table has entries, [`Error::Tables`] where all tables are taken.
    pub fn bind(&self, buffers: &[&Buffer]) -> Result<BindingTable> {
        let ranges: Vec<_> = buffers.iter().map(|buffer| BufferRange::whole(buffer)).collect();
        self.bind_ranges(&ranges)
    }

    /// Makes a binding table of parts of buffers, as [`Runtime::bind`] does of whole ones: a handler finds the part as if it
    /// were the buffer, and built-ins reach nothing outside it.
    ///
    /// # Errors
    /// [`Error::BindRange`] for a part that is not in its buffer or not aligned; those of [`Runtime::bind`].
    pub fn bind_ranges(&self, ranges: &[BufferRange<'_>]) -> Result<BindingTable> {
        self.tables.bind(self.device(), ranges)
    }

    /// Reads words that completed tasks have written, at the speed of a copy where the device has a queue for copies.
    ///
    /// # Errors
    /// [`Error::Range`] where the words aren't all in the buffer; what the device layer reports, and
    /// [`Error::CopyTimeout`].
    pub fn read(&mut self, buffer: &Buffer, first: u64, into: &mut [u32]) -> Result<()> {
        let end = first.saturating_add(into.len() as u64);
        if end > buffer.size() / 4 {
            return Err(Error::Range { name: buffer.name().into(), end, words: buffer.size() / 4 });
        }
        match (&mut self.copies, buffer.mapped()) {
            (Some(copies), _) => copies.read(buffer, first, into),
            (None, Some(mapped)) => {
                mapped.read(first as usize, into);
                Ok(())
            }
            (None, None) => Err(Error::Unmapped { name: buffer.name().into() }),
        }
    }

    /// The tenants that tasks can be pushed for.
    pub fn tenants(&self) -> Tenants {
        self.tables.in_flight().tenants()
    }

    /// How the kernel is doing.
    pub fn health(&self) -> Health {
        self.launcher.health()
    }

    /// Has the kernel leave the device, with queues and tasks as they are, and waits until it has.
    ///
    /// Until [`Runtime::resume`] no task runs; tasks can be pushed. For calls of the embedder that wait for the device or its
    /// queue to be idle, or that the driver makes wait for the kernel.
    ///
    /// # Errors
    /// [`Error::StillRunning`] where a handler takes longer than `patience`; what the device layer reports.
    pub fn quiesce(&self, patience: Duration) -> Result<()> {
        self.launcher.quiesce(patience)
    }

    /// Lets the kernel be launched again: at once where tasks wait, else by the next publish.
    ///
    /// # Errors
    /// [`Error::Lost`] where the kernel can't run any more.
    pub fn resume(&self) -> Result<()> {
        self.launcher.resume()?;
        Ok(self.tables.in_flight().look_after()?)
    }

    /// Stops the kernel for good and waits until it has left.
    ///
    /// # Errors
    /// [`Error::StillRunning`] where a handler takes longer than `patience`: the kernel leaves when it ends, and no task
    /// runs after that.
    pub fn stop(&self, patience: Duration) -> Result<()> {
        self.launcher.stop(patience)
    }

    /// Claims of each level since the start, and completions of all, modulo 2^32. Read while the kernel runs: a hint.
    pub fn counters(&self) -> Option<Counters> {
        let words = self.launcher.memory().state.mapped()?;
        let levels = self.launcher.memory().config.levels();
        let claims = (0..levels).map(|level| words.load((state::LEVEL_COUNTERS + level) as usize)).collect();
        Some(Counters { claims, done: words.load(state::DONE_COUNT as usize) })
    }
}

/// The kernel's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Tasks claimed, by level.
    pub claims: Vec<u32>,
    /// Tasks ended, of all levels.
    pub done: u32,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Err(error) = self.stop(DROP_PATIENCE) {
            // Memory that the kernel may still write must stay.
            log::error!("a runtime is dropped and its kernel hasn't left within {DROP_PATIENCE:?}: {error}");
            self.device().leak();
        }
    }
}

/// Words of the staging buffer for copies.
const STAGING_WORDS: u64 = 1 << 20;

/// How long one copy may take: a piece of the staging buffer's size takes a thousandth of it.
const COPY_PATIENCE: Duration = Duration::from_secs(2);

impl Copies {
    fn new(device: &Device) -> Result<Option<Self>> {
        let Some(queue) = device.copy_queue()? else { return Ok(None) };
        let staging = device.buffer("staging for copies", STAGING_WORDS * 4, Placement::Outlet)?;
        Ok(staging.mapped().is_some().then_some(Self { queue, staging }))
    }

    fn read(&mut self, buffer: &Buffer, first: u64, into: &mut [u32]) -> Result<()> {
        let mut from = first * 4;
        for piece in into.chunks_mut(STAGING_WORDS as usize) {
            let bytes = piece.len() as u64 * 4;
            let value = self.queue.copy(buffer, &self.staging, &[CopyRegion { from, to: 0, bytes }])?;
            if !self.queue.wait(value, COPY_PATIENCE)? {
                return Err(Error::CopyTimeout { name: buffer.name().into(), waited: COPY_PATIENCE });
            }
            if let Some(staged) = self.staging.mapped() {
                staged.read(0, piece);
            }
            from += bytes;
        }
        Ok(())
    }
}
