//! The three buffers of a runtime, and what they hold before the first launch.

use crate::device::{Buffer, Device, LaunchQueue, Placement};
use crate::protocol::{binding, inlet, outlet, state};
use crate::queue::{MappedWords, Memory, QueueConfig};
use crate::scheduler::PriorityOffsets;

use super::error::{Error, Result};

/// Inlet, outlet and state.
#[derive(Debug)]
pub(super) struct Buffers {
    pub inlet: Buffer,
    pub outlet: Buffer,
    pub state: Buffer,
    pub config: QueueConfig,
}

/// How long clearing the state may take.
const CLEAR_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

impl Buffers {
    /// Makes the buffers for `workers` workers, with the words that they start with; `thresholds` are the starvation guard's, one
    /// for each level.
    pub fn new(
        device: &Device,
        queue: &mut LaunchQueue,
        (offsets, thresholds, config): (&PriorityOffsets, &[u32], QueueConfig),
        workers: u32,
    ) -> Result<Self> {
        let bytes = |words: u32| u64::from(words) * 4;
        let (slots, tables) = (config.slots(), config.tables);
        let inlet = device.buffer("inlet", bytes(inlet::words(slots, tables)), Placement::Inlet)?;
        let outlet = device.buffer("outlet", bytes(outlet::words(slots, config.entries)), Placement::Outlet)?;
        let state = device.buffer(
            "state",
            bytes(state::words(slots, workers, (config.tenants, config.credits))),
            Placement::State,
        )?;
        if state.mapped().is_none() {
            let value = queue.fill(&state, 0)?;
            if !queue.wait(value, CLEAR_PATIENCE)? {
                return Err(Error::StillRunning { waited: CLEAR_PATIENCE });
            }
        }
        let buffers = Self { inlet, outlet, state, config };
        buffers.initialise(offsets, thresholds)?;
        Ok(buffers)
    }

    fn initialise(&self, offsets: &PriorityOffsets, thresholds: &[u32]) -> Result<()> {
        let mut control = [0; inlet::CONTROL_WORDS as usize];
        offsets.write_to(&mut control);
        control[inlet::STARVATION_THRESHOLDS as usize..][..thresholds.len()].copy_from_slice(thresholds);
        let control = control.iter().enumerate().map(|(at, &word)| (at as u32, word));
        let lap = self.config.first_lap as u32;
        let cursors = (0..self.config.levels()).map(|level| (state::CURSORS + level, state::pack_cursor(lap, 0)));
        let cursors = cursors.filter(|&(_, word)| word != 0);
        let bells = self.config.initial_doorbells();
        store(&self.inlet, control.chain(bells).chain(self.config.initial_inlet()))?;
        store(&self.outlet, self.config.initial_outlet())?;
        store(&self.state, self.config.initial_state().chain(self.config.initial_intake()).chain(cursors))
    }

    /// The queues' memory for a resident kernel.
    ///
    /// # Safety
    /// The buffers outlive the words.
    pub unsafe fn mapped_words(&self) -> Result<(Memory, Memory)> {
        // SAFETY: the caller promises that the buffer outlives the words.
        let inlet = unsafe { words(&self.inlet) }?;
        // SAFETY: as above.
        let outlet = unsafe { words(&self.outlet) }?;
        Ok((Memory::Mapped(inlet), Memory::Mapped(outlet)))
    }

    /// First word of a binding table in the inlet.
    pub fn table_at(&self, table: u32) -> usize {
        (inlet::tables_at(self.config.slots()) + table * binding::TABLE_WORDS) as usize
    }
}

/// Words of a mapped buffer, for the queues.
///
/// # Safety
/// The buffer outlives the words.
pub(super) unsafe fn words(buffer: &Buffer) -> Result<MappedWords> {
    use ash::vk::MemoryPropertyFlags as Flags;
    let mapped = buffer.mapped().ok_or_else(|| Error::Unmapped { name: buffer.name().into() })?;
    let flags = buffer.memory_type().flags;
    let write_combined = flags.contains(Flags::DEVICE_LOCAL) && !flags.contains(Flags::HOST_CACHED);
    // SAFETY: the buffer's words are mapped, aligned to 256 bytes and, as the caller promises, outlive the value; the
    // device layer only accesses them word by word, without references to more than one atomic.
    Ok(unsafe { MappedWords::new(mapped.as_ptr(), mapped.len() as u32, write_combined) })
}

fn store(buffer: &Buffer, words: impl Iterator<Item = (u32, u32)>) -> Result<()> {
    let mut words = words.peekable();
    if words.peek().is_none() {
        return Ok(());
    }
    let mapped = buffer.mapped().ok_or_else(|| Error::Unmapped { name: buffer.name().into() })?;
    for (at, word) in words {
        mapped.store(at as usize, word);
    }
    mapped.flush();
    Ok(())
}
