//! Binding tables: which buffers a task's handler finds under its bindings.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::{Error, Result};
use super::launcher::Launcher;
use crate::device::{Buffer, Device};
use crate::protocol::binding;
use crate::queue::InFlight;

/// The runtime's tables.
#[derive(Debug)]
pub(super) struct Tables {
    pool: Arc<Pool>,
}

struct Pool {
    launcher: Arc<Launcher>,
    in_flight: InFlight,
    state: Mutex<State>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    free: Vec<u32>,
    /// Dropped tables, with the buffers that unfinished tasks may still use.
    retired: Vec<Retired>,
}

#[derive(Debug)]
struct Retired {
    table: u32,
    /// Whether its entries are empty: tasks that are pushed from then on find nothing in it.
    empty: bool,
    /// Tasks that were pushed before the table was dropped, or before it was made empty.
    until: Vec<u64>,
    _buffers: Vec<Buffer>,
}

/// A part of a buffer, for [`Runtime::bind_ranges`](super::Runtime::bind_ranges).
#[derive(Clone, Copy, Debug)]
pub struct BufferRange<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// First byte: a multiple of 16.
    pub offset: u64,
    /// How many bytes: whole words, and at least one.
    pub bytes: u64,
}

impl<'a> BufferRange<'a> {
    /// A buffer from its first byte to its last.
    pub fn whole(buffer: &'a Buffer) -> Self {
        Self { buffer, offset: 0, bytes: buffer.size() }
    }

    fn check(&self, device: &Device) -> Result<()> {
        let (buffer, offset, bytes) = (self.buffer, self.offset, self.bytes);
        if !buffer.device().is(device) {
            return Err(Error::ForeignBuffer { name: buffer.name().into() });
        }
        // Handlers read 16 bytes as one access.
        let aligned = offset.is_multiple_of(16) && bytes.is_multiple_of(4);
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= buffer.size());
        if aligned && inside && bytes > 0 {
            return Ok(());
        }
        Err(Error::BindRange { name: buffer.name().into(), offset, bytes, size: buffer.size() })
    }
}

/// A binding table; it keeps its buffers alive while any task that names it is unfinished.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use abide::{device::{Device, Selector}, protocol::opcode, queue::Task, runtime::Runtime};
/// # let device = Device::open(&Selector::from_env()?)?;
/// let (runtime, mut submission, _completion) = Runtime::builder(&device).build()?;
/// let words = runtime.buffer("words", 4096)?;
/// let table = runtime.bind(&[&words])?;
/// submission.push(Task::new(opcode::STORE).bindings(table.index()).payload(&[3, 42]))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BindingTable {
    index: u32,
    buffers: Vec<Buffer>,
    pool: Arc<Pool>,
}

impl BindingTable {
    /// What tasks name it by: see [`crate::queue::Task::bindings`]. A task that is pushed after the table was dropped finds
    /// what the table had, nothing, or what a later table of the same number has.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The bound buffers, by entry; of some only a part may be bound.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }
}

impl Drop for BindingTable {
    fn drop(&mut self) {
        let retired = Retired {
            table: self.index,
            empty: false,
            until: self.pool.in_flight.issued(),
            _buffers: std::mem::take(&mut self.buffers),
        };
        self.pool.state.lock().retired.push(retired);
    }
}

impl Tables {
    pub fn new(launcher: Arc<Launcher>, in_flight: InFlight) -> Self {
        // Handed out from the first on.
        let free = (0..launcher.memory().config.tables).rev().collect();
        Self { pool: Arc::new(Pool { launcher, in_flight, state: Mutex::new(State { free, retired: Vec::new() }) }) }
    }

    pub fn in_flight(&self) -> &InFlight {
        &self.pool.in_flight
    }

    pub fn bind(&self, device: &Device, ranges: &[BufferRange<'_>]) -> Result<BindingTable> {
        if ranges.len() > binding::ENTRIES as usize {
            return Err(Error::Entries(ranges.len()));
        }
        for range in ranges {
            range.check(device)?;
        }
        let memory = self.pool.launcher.memory();
        let Some(words) = memory.inlet.mapped() else {
            return Err(Error::Unmapped { name: memory.inlet.name().into() });
        };
        let index = self.take()?;
        let at = memory.table_at(index);
        for entry in 0..binding::ENTRIES as usize {
            let (address, length) =
                ranges.get(entry).map_or((0, 0), |range| (range.buffer.address() + range.offset, range.bytes));
            let entry_words = [address as u32, (address >> 32) as u32, length as u32, (length >> 32) as u32];
            words.write(at + entry * binding::ENTRY_WORDS as usize, &entry_words);
        }
        // A task that names the table is published after this.
        words.flush();
        let buffers = ranges.iter().map(|range| range.buffer.clone()).collect();
        Ok(BindingTable { index, buffers, pool: self.pool.clone() })
    }

    /// A table that no unfinished task names.
    fn take(&self) -> Result<u32> {
        let mut state = self.pool.state.lock();
        let State { free, retired } = &mut *state;
        if !retired.is_empty() {
            self.empty(retired);
            let finished = self.pool.in_flight.finished();
            retired.retain(|old| {
                let done = old.empty && old.ended(&finished);
                if done {
                    free.push(old.table);
                }
                !done
            });
        }
        free.pop().ok_or(Error::Tables(self.pool.launcher.memory().config.tables))
    }

    /// Empties the tables whose tasks have ended, so that whoever names one nevertheless gets a fault. A task may have
    /// copied the entries just before: the buffers stay until all that were pushed by now have ended, too.
    fn empty(&self, retired: &mut [Retired]) {
        let memory = self.pool.launcher.memory();
        let Some(words) = memory.inlet.mapped() else { return };
        let finished = self.pool.in_flight.finished();
        let mut ended: Vec<_> = retired.iter_mut().filter(|old| !old.empty && old.ended(&finished)).collect();
        for old in &ended {
            for entry in 0..binding::ENTRIES {
                // The length alone: an entry without one is not bound, and a kernel that copies it just now finds the
                // address that belongs to the length that it found.
                let at = memory.table_at(old.table) + (entry * binding::ENTRY_WORDS) as usize;
                words.write(at + 2, &[0, 0]);
            }
        }
        // Before the tasks are looked at: those that are pushed later find the entries empty.
        words.flush();
        let issued = self.pool.in_flight.issued();
        for old in &mut ended {
            old.empty = true;
            old.until.clone_from(&issued);
        }
    }
}

impl Retired {
    fn ended(&self, finished: &[u64]) -> bool {
        self.until.iter().zip(finished).all(|(until, finished)| finished >= until)
    }
}
