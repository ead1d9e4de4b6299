//! Words in memory that a device shares: the only file of the queues that holds raw pointers.
//!
//! No reference is ever made over this memory, since the device writes it behind the compiler's back: words are read
//! and written by volatile accesses and streaming stores. Reading write-combined memory costs a microsecond a word,
//! so the queues only ever store there.

use std::arch::asm;
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use super::words::{STORE_ORDER, Words};
use crate::protocol::slot;

/// How a whole line reaches the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineStore {
    /// Word by word into cached memory, tags last.
    Ordered,
    /// Four streaming stores of 16 bytes, each with its own tag.
    Stream16,
    /// One streaming store of the whole line.
    Stream64,
}

/// Words of a mapped range that a device shares.
#[derive(Clone, Debug)]
pub struct MappedWords {
    base: NonNull<u32>,
    len: u32,
    line_store: LineStore,
}

// SAFETY: the range is shared memory by nature: whoever made the value promised that it stays mapped, and all
// accesses are volatile or streaming, whichever thread makes them.
unsafe impl Send for MappedWords {}
// SAFETY: as for Send; no method hands out a reference into the range.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Wraps `len` words at `base`; `write_combined` says that the host's view of them is not cached.
    ///
    /// # Safety
    /// - `base` points to `len` mapped words, readable and writable, aligned to 64 bytes.
    /// - They stay mapped while this value or a clone of it lives. A queue keeps its link alive, so a link that owns
    ///   the mapping is enough.
    /// - No Rust reference to any of the words is used meanwhile.
    ///
    /// # Panics
    /// When `base` is not aligned to 64 bytes.
    pub unsafe fn new(base: NonNull<u32>, len: u32, write_combined: bool) -> Self {
        assert!(base.addr().get().is_multiple_of(64), "words start at a 64-byte line, not at {base:?}");
        let line_store = match write_combined {
            false => LineStore::Ordered,
            true if is_x86_feature_detected!("avx512f") => LineStore::Stream64,
            true => LineStore::Stream16,
        };
        Self { base, len, line_store }
    }

    #[inline]
    fn word(&self, at: u32) -> *mut u32 {
        assert!(at < self.len, "word {at} of {}", self.len);
        // SAFETY: `at` is below the length of the range that the maker of this value vouched for.
        unsafe { self.base.as_ptr().add(at as usize) }
    }
}

impl Words for MappedWords {
    #[inline]
    fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    fn load(&self, at: u32) -> u32 {
        let word = self.word(at);
        // SAFETY: `word` is inside the mapped range and aligned; volatile, because the device writes it.
        let value = unsafe { word.read_volatile() };
        // Acquire: pairs with the order of the kernel's stores, of which the phase or the taken word is the last. On
        // x86 loads keep their order, so this binds the compiler only.
        fence(Ordering::Acquire);
        value
    }

    #[inline]
    fn store(&self, at: u32, value: u32) {
        // Release: pairs with the kernel's acquiring load. On x86 stores to cached memory keep their order, so this
        // binds the compiler only; on write-combined memory `flush` gives the order.
        fence(Ordering::Release);
        let word = self.word(at);
        // SAFETY: `word` is inside the mapped range and aligned; volatile, because the device reads it.
        unsafe { word.write_volatile(value) }
    }

    #[inline]
    fn store_slot(&self, at: u32, words: &[u32; slot::WORDS as usize]) {
        assert!(at.is_multiple_of(slot::WORDS), "a line starts at a multiple of 16 words, not at {at}");
        // Checks the far end, so that the whole line is known to be inside.
        self.word(at + slot::WORDS - 1);
        let line = self.word(at);
        match self.line_store {
            LineStore::Ordered => {
                for offset in STORE_ORDER {
                    // Release: no tag before its 16 bytes, no generation before the rest of the line.
                    fence(Ordering::Release);
                    // SAFETY: the offset is one of the line's 16, which are inside the mapped range.
                    let word = unsafe { line.add(offset as usize) };
                    // SAFETY: `word` is aligned and writable; volatile, because the device reads it.
                    unsafe { word.write_volatile(words[offset as usize]) };
                }
            }
            // SAFETY: the line is inside the mapped range and aligned to 64 bytes, as `base` is and `at` counts whole
            // lines.
            LineStore::Stream16 => unsafe { stream_16(line, words) },
            // SAFETY: as above; the CPU has AVX-512, or the variant would not have been chosen.
            LineStore::Stream64 => unsafe { stream_64(line, words) },
        }
    }

    #[inline]
    fn flush(&self) {
        if self.line_store != LineStore::Ordered {
            // Drains this core's write-combining buffers; a plain store of another kind would not.
            // SAFETY: every x86-64 CPU has the instruction.
            unsafe { _mm_sfence() };
        }
    }
}

/// Stores a line by four streaming stores, the unit with the generation last.
///
/// # Safety
/// `line` points to 16 writable words, aligned to 64 bytes.
#[inline]
unsafe fn stream_16(line: *mut u32, words: &[u32; slot::WORDS as usize]) {
    for unit in [1, 2, 3, 0] {
        let from = words[unit * 4..].as_ptr().cast::<__m128i>();
        // SAFETY: `from` points to the unit's four words; the load takes any alignment.
        let value = unsafe { _mm_loadu_si128(from) };
        // SAFETY: the unit is one of the line's four.
        let to = unsafe { line.add(unit * 4) }.cast::<__m128i>();
        // SAFETY: `to` is writable and aligned to 16 bytes. The kernel reads each unit by its own tag, and `flush`
        // follows before anything is announced, so the store may pass others.
        unsafe { _mm_stream_si128(to, value) }
    }
}

/// Stores a line by one streaming store of 64 bytes.
///
/// Written in assembly because the intrinsic is newer than the oldest compiler that the crate takes. Register 16 is
/// one that legacy SSE code cannot see, so the wide store costs that code nothing afterwards.
///
/// # Safety
/// `line` points to 16 writable words, aligned to 64 bytes, and the CPU has AVX-512F.
#[inline]
unsafe fn stream_64(line: *mut u32, words: &[u32; slot::WORDS as usize]) {
    // SAFETY: both pointers are good for 64 bytes, `line` is aligned as the store demands, and the caller vouches for
    // the instructions.
    unsafe {
        asm!(
            "vmovdqu64 zmm16, [{from}]",
            "vmovntdq [{to}], zmm16",
            from = in(reg) words.as_ptr(),
            to = in(reg) line,
            out("zmm16") _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Line([u32; 32]);

    fn round_trip(line_store: LineStore) {
        let mut memory = Line([0; 32]);
        let base = NonNull::new(memory.0.as_mut_ptr()).expect("an array has an address");
        // SAFETY: the array is aligned, outlives the words and is only read through them.
        let mut words = unsafe { MappedWords::new(base, 32, false) };
        words.line_store = line_store;
        let line = std::array::from_fn(|word| word as u32 + 100);
        words.store_slot(16, &line);
        words.flush();
        for at in 0..32 {
            let expected = if at < 16 { 0 } else { at - 16 + 100 };
            assert_eq!(words.load(at), expected, "{line_store:?}, word {at}");
        }
    }

    #[test]
    fn each_way_of_storing_a_line_stores_all_of_it_and_nothing_else() {
        round_trip(LineStore::Ordered);
        round_trip(LineStore::Stream16);
        if is_x86_feature_detected!("avx512f") {
            round_trip(LineStore::Stream64);
        }
    }

    #[test]
    #[should_panic(expected = "word 32 of 32")]
    fn a_word_outside_is_refused() {
        let mut memory = Line([0; 32]);
        let base = NonNull::new(memory.0.as_mut_ptr()).expect("an array has an address");
        // SAFETY: the array is aligned, outlives the words and is only read through them.
        let words = unsafe { MappedWords::new(base, 32, true) };
        words.load(32);
    }
}
