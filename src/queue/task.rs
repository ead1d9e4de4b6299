//! Tasks: what a program asks the kernel to run.

use crate::protocol::{self, binding, slot};

use super::error::TaskError;

/// A task that has not been pushed: which handler runs, with what, and how urgently.
///
/// ```
/// use abide::protocol::{CRITICAL, opcode};
/// use abide::queue::Task;
///
/// let task = Task::new(opcode::NOP).level(CRITICAL).user_data(7).payload(&[1, 2]);
/// # let _ = task;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a task runs only once it is pushed"]
pub struct Task<'a> {
    pub(super) opcode: u32,
    pub(super) level: u32,
    pub(super) tenant: u32,
    pub(super) bindings: Option<u32>,
    pub(super) user_data: u64,
    pub(super) payload: &'a [u32],
}

impl<'a> Task<'a> {
    /// A task for the handler under `opcode`, at level NORMAL, of tenant 0, without bindings and payload.
    #[inline]
    pub const fn new(opcode: u32) -> Self {
        Self { opcode, level: protocol::NORMAL, tenant: 0, bindings: None, user_data: 0, payload: &[] }
    }

    /// Sets the priority level; 0 is the most urgent.
    #[inline]
    pub const fn level(mut self, level: u32) -> Self {
        self.level = level;
        self
    }

    /// Sets the tenant that the task belongs to: 0, or one that [`Tenants::register`](super::Tenants::register) gave.
    #[inline]
    pub const fn tenant(mut self, tenant: u32) -> Self {
        self.tenant = tenant;
        self
    }

    /// Names the binding table whose buffers the handler reads and writes.
    #[inline]
    pub const fn bindings(mut self, table: u32) -> Self {
        self.bindings = Some(table);
        self
    }

    /// Sets the number that comes back with the completion; the kernel never sees it.
    #[inline]
    pub const fn user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }

    /// Sets the payload, up to [`slot::MAX_PAYLOAD`] words: what the handler reads as push constants.
    ///
    /// Up to [`slot::INLINE_PAYLOAD`] words travel in the slot itself, which is faster.
    #[inline]
    pub const fn payload(mut self, payload: &'a [u32]) -> Self {
        self.payload = payload;
        self
    }

    /// Says whether a queue of `levels` levels and `tables` binding tables can take the task.
    #[inline]
    pub(super) fn check(&self, levels: u32, tables: u32) -> Result<(), TaskError> {
        if self.opcode > slot::HANDLER_MASK {
            return Err(TaskError::Opcode { opcode: self.opcode, limit: slot::HANDLER_MASK });
        }
        if self.level >= levels {
            return Err(TaskError::Level { level: self.level, levels });
        }
        if self.payload.len() > slot::MAX_PAYLOAD as usize {
            return Err(TaskError::Payload { words: self.payload.len(), limit: slot::MAX_PAYLOAD });
        }
        match self.bindings {
            Some(table) if table >= tables => Err(TaskError::Bindings { table, tables }),
            _ => Ok(()),
        }
    }

    /// The payload words that don't fit the slot.
    #[inline]
    pub(super) fn extension(&self) -> &'a [u32] {
        self.payload.get(slot::INLINE_PAYLOAD as usize..).unwrap_or_default()
    }

    /// The slot's words for `generation`.
    #[inline]
    pub(super) fn slot_words(&self, generation: u32) -> [u32; slot::WORDS as usize] {
        let flags = if self.extension().is_empty() { 0 } else { slot::FLAG_EXTENDED };
        let mut words = [0; slot::WORDS as usize];
        words[slot::KIND as usize] = slot::pack_kind(self.opcode, self.level, flags);
        words[slot::TENANT as usize] = self.tenant;
        words[slot::BINDINGS as usize] = self.bindings.unwrap_or(binding::NONE);
        words[slot::GRID_X as usize] = 1;
        words[slot::GRID_YZ as usize] = 1 | (1 << 16);
        for tag in slot::TAGS {
            words[tag as usize] = generation;
        }
        for (at, &word) in slot::PAYLOAD.iter().zip(self.payload) {
            words[*at as usize] = word;
        }
        words
    }
}

/// Lines of an extension.
pub(super) const EXTENSION_LINES: u32 = slot::EXTENSION_WORDS / protocol::LINE;

/// Words of one line of the extension that carries `payload`: in each 16 bytes the generation, then three words.
pub(super) fn extension_line(payload: &[u32], generation: u32, line: u32) -> [u32; slot::WORDS as usize] {
    let per_line = (slot::EXTENSION_PAYLOAD / EXTENSION_LINES) as usize;
    let rest = payload.get(line as usize * per_line..).unwrap_or_default();
    let mut words = [0; slot::WORDS as usize];
    for (unit, tag) in slot::TAGS.into_iter().enumerate() {
        words[tag as usize] = generation;
        let from = rest.get(unit * 3..).unwrap_or_default();
        for (offset, &word) in from.iter().take(3).enumerate() {
            words[tag as usize + 1 + offset] = word;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_carries_generation_kind_and_payload() {
        let words = Task::new(3).level(1).tenant(9).bindings(4).payload(&[10, 11, 12, 13, 14, 15]).slot_words(77);
        assert_eq!(words, [77, 3 | (1 << 16), 9, 4, 77, 1, 0x1_0001, 0, 77, 10, 11, 12, 77, 13, 14, 15]);
    }

    #[test]
    fn a_long_payload_goes_on_in_the_extension() {
        let payload: Vec<u32> = (0..slot::MAX_PAYLOAD).collect();
        let task = Task::new(0).payload(&payload);
        assert_eq!(task.slot_words(1)[slot::KIND as usize] & slot::FLAG_EXTENDED, slot::FLAG_EXTENDED);
        assert_eq!(task.extension().len(), slot::EXTENSION_PAYLOAD as usize);
        let line = extension_line(task.extension(), 5, 1);
        assert_eq!(line, [5, 18, 19, 20, 5, 21, 22, 23, 5, 24, 25, 26, 5, 27, 28, 29]);
        assert_eq!(extension_line(&[1], 5, 3), [5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0]);
    }
}
