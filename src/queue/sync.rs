//! The atomics that the queues are built on: the standard library's, or loom's where loom checks them.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A value on a cache line pair of its own, so that writers of its neighbours don't take the line away.
#[derive(Debug)]
#[repr(align(128))]
pub struct Padded<T>(pub T);
