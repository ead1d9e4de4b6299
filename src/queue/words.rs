//! How the queues see shared memory: as 32-bit words behind the trait [`Words`].
//!
//! Every access to the inlet and the outlet goes through it, so that loom replays the code that ships and so that
//! epoch mode runs the same queues over shadows in ordinary memory. Knows nothing of what the words mean.

use std::sync::Arc;

use super::mapped::MappedWords;
use super::sync::{AtomicU32, Ordering};
use crate::protocol::slot;

/// Shared memory, word by word.
pub trait Words: Send + Sync {
    /// Number of words.
    fn len(&self) -> u32;

    /// True where there is no word at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Loads a word with Acquire: what its writer stored before is visible after.
    ///
    /// # Panics
    /// When `at` is outside the memory.
    fn load(&self, at: u32) -> u32;

    /// Stores a word with Release: what this thread stored before is visible to who loads it.
    ///
    /// # Panics
    /// When `at` is outside the memory.
    fn store(&self, at: u32, value: u32);

    /// Stores a 64-byte line whose words 0, 4, 8 and 12 are tags: no tag is visible before its 16 bytes are.
    ///
    /// # Panics
    /// When `at` is not the first word of a line or the line is outside the memory.
    fn store_slot(&self, at: u32, words: &[u32; slot::WORDS as usize]);

    /// Makes this thread's earlier stores leave for the device now.
    fn flush(&self);
}

impl<W: Words + ?Sized> Words for Arc<W> {
    #[inline]
    fn len(&self) -> u32 {
        W::len(self)
    }

    #[inline]
    fn load(&self, at: u32) -> u32 {
        W::load(self, at)
    }

    #[inline]
    fn store(&self, at: u32, value: u32) {
        W::store(self, at, value);
    }

    #[inline]
    fn store_slot(&self, at: u32, words: &[u32; slot::WORDS as usize]) {
        W::store_slot(self, at, words);
    }

    #[inline]
    fn flush(&self) {
        W::flush(self);
    }
}

/// The order in which a line's words are stored one by one: in each 16 bytes the tag last, and word 0 last of all.
pub(super) const STORE_ORDER: [u32; slot::WORDS as usize] = [5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0];

const _: () = assert!(slot::GENERATION == STORE_ORDER[15]);

/// Words in ordinary memory of this process: shadows in epoch mode, and tests.
///
/// ```
/// use abide::queue::{HeapWords, Words};
///
/// let words = HeapWords::new(16);
/// words.store(3, 7);
/// assert_eq!(words.load(3), 7);
/// ```
#[derive(Debug)]
pub struct HeapWords(Box<[AtomicU32]>);

impl HeapWords {
    /// Makes `len` words, all 0.
    pub fn new(len: u32) -> Self {
        Self((0..len).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Words for HeapWords {
    #[inline]
    fn len(&self) -> u32 {
        self.0.len() as u32
    }

    #[inline]
    fn load(&self, at: u32) -> u32 {
        // Acquire: pairs with the Release in `store`, of another thread or of the model kernel.
        self.0[at as usize].load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, at: u32, value: u32) {
        // Release: pairs with the Acquire in `load`.
        self.0[at as usize].store(value, Ordering::Release);
    }

    #[inline]
    fn store_slot(&self, at: u32, words: &[u32; slot::WORDS as usize]) {
        assert!(at.is_multiple_of(slot::WORDS), "a line starts at a multiple of 16 words, not at {at}");
        let line = &self.0[at as usize..][..words.len()];
        for offset in STORE_ORDER {
            // Release, as in `store`.
            line[offset as usize].store(words[offset as usize], Ordering::Release);
        }
    }

    // Ordinary memory is coherent, and stores leave in order.
    #[inline]
    fn flush(&self) {}
}

/// The memory that a runtime gives its queues.
#[derive(Clone, Debug)]
pub enum Memory {
    /// Memory that the device reads or writes while the queues run.
    Mapped(MappedWords),
    /// A shadow that the runtime copies to and from the device between epochs.
    Shadow(Arc<HeapWords>),
}

impl Words for Memory {
    #[inline]
    fn len(&self) -> u32 {
        match self {
            Self::Mapped(words) => words.len(),
            Self::Shadow(words) => words.len(),
        }
    }

    #[inline]
    fn load(&self, at: u32) -> u32 {
        match self {
            Self::Mapped(words) => words.load(at),
            Self::Shadow(words) => words.load(at),
        }
    }

    #[inline]
    fn store(&self, at: u32, value: u32) {
        match self {
            Self::Mapped(words) => words.store(at, value),
            Self::Shadow(words) => words.store(at, value),
        }
    }

    #[inline]
    fn store_slot(&self, at: u32, words: &[u32; slot::WORDS as usize]) {
        match self {
            Self::Mapped(memory) => memory.store_slot(at, words),
            Self::Shadow(memory) => memory.store_slot(at, words),
        }
    }

    #[inline]
    fn flush(&self) {
        match self {
            Self::Mapped(words) => words.flush(),
            Self::Shadow(words) => words.flush(),
        }
    }
}
