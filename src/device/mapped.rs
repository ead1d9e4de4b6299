//! Words of mapped memory: the only file of the layer that follows raw pointers.
//!
//! The device writes this memory while the host reads it, so no reference to it is ever made; each word is one atomic
//! access.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// A buffer's words, as the host sees them.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u32>,
    words: usize,
}

// SAFETY: the words are only accessed atomically, from any thread.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Takes `words` words from `base` on, and sets them to zero.
    ///
    /// # Safety
    /// - They are mapped, aligned to four bytes, and stay so for as long as the value lives.
    /// - Neither the device nor anyone else accesses them yet.
    pub(super) unsafe fn zeroed(base: NonNull<u32>, words: usize) -> Self {
        // SAFETY: the caller promises so many mapped words that nobody else accesses.
        unsafe { base.as_ptr().write_bytes(0, words) };
        Self { base, words }
    }

    /// The address of the first word. It is valid while the buffer lives.
    pub fn as_ptr(&self) -> NonNull<u32> {
        self.base
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.words
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at < self.words, "word {at} of a buffer of {} words", self.words);
        // SAFETY: `at` is within the mapped words.
        let word = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: the word is aligned and mapped while self lives, and only accessed atomically on the host.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// Reads a word; later reads stay behind it. Its partner is the device's store of that word.
    ///
    /// # Panics
    /// Where there is no such word.
    pub fn load(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Writes a word; earlier writes stay before it. Its partner is the device's load of that word.
    ///
    /// # Panics
    /// Where there is no such word.
    pub fn store(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Release);
    }

    /// Sends on what write-combining buffers still hold.
    pub fn flush(&self) {
        fence(Ordering::SeqCst);
    }

    /// Reads words in order. Device-local memory is slow to read: about a microsecond a word on a discrete GPU.
    ///
    /// # Panics
    /// Where the words aren't all there.
    pub fn read(&self, at: usize, into: &mut [u32]) {
        for (index, word) in into.iter_mut().enumerate() {
            // The order among the words doesn't matter: whoever orders them has ended a launch, or loads a flag first.
            *word = self.word(at + index).load(Ordering::Relaxed);
        }
    }

    /// Writes words in order.
    ///
    /// # Panics
    /// Where there isn't room for all of them.
    pub fn write(&self, at: usize, from: &[u32]) {
        for (index, &word) in from.iter().enumerate() {
            // As for reading: a submission, or a store of a flag behind them, orders them.
            self.word(at + index).store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_start_as_zero_and_hold_what_is_written() {
        let mut memory = vec![7_u32; 8];
        let base = NonNull::new(memory.as_mut_ptr()).expect("a vector's pointer is not null");
        // SAFETY: the vector outlives the value, and nothing else touches it meanwhile.
        let mapped = unsafe { Mapped::zeroed(base, 8) };
        let mut words = [1; 4];
        mapped.read(4, &mut words);
        assert_eq!(words, [0; 4]);
        mapped.write(2, &[5, 6]);
        mapped.store(7, 9);
        mapped.flush();
        assert_eq!((mapped.load(2), mapped.load(3), mapped.load(7)), (5, 6, 9));
    }

    #[test]
    #[should_panic(expected = "word 1 of a buffer of 1 words")]
    fn words_beyond_the_end_are_refused() {
        let mut memory = vec![7_u32; 1];
        let base = NonNull::new(memory.as_mut_ptr()).expect("a vector's pointer is not null");
        // SAFETY: the vector outlives the value, and nothing else touches it meanwhile.
        unsafe { Mapped::zeroed(base, 1) }.load(1);
    }
}
