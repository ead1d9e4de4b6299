//! A view of the tasks in flight, for who owns what they use.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::link::LinkError;
use super::shared::Shared;
use super::tenants::Tenants;
use super::words::{Memory, Words};

/// Says which tasks have been pushed and which have ended. It can be cloned and sent to other threads.
pub struct InFlight<W: Words = Memory>(Arc<Shared<W>>);

impl<W: Words> InFlight<W> {
    pub(super) fn new(shared: Arc<Shared<W>>) -> Self {
        Self(shared)
    }

    /// For each level the position of the next task.
    pub fn issued(&self) -> Vec<u64> {
        self.0.levels.iter().map(|level| level.tail()).collect()
    }

    /// For each level a position before which all tasks have ended and their completions have been taken.
    pub fn finished(&self) -> Vec<u64> {
        self.0.levels.iter().map(|level| level.finished_before(&self.0.outlet)).collect()
    }

    /// Tasks that wait for the kernel. A hint while other threads push and poll.
    pub fn pending(&self) -> u64 {
        self.0.pending()
    }

    /// The tenants of the same queues.
    pub fn tenants(&self) -> Tenants<W> {
        Tenants::new(self.0.clone())
    }

    /// Has the link look after the launch where tasks are pending, without waiting.
    ///
    /// # Errors
    /// Why the tasks can't be run.
    pub fn look_after(&self) -> Result<(), LinkError> {
        self.0.turn(Duration::ZERO)
    }
}

impl<W: Words> Clone for InFlight<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: Words> fmt::Debug for InFlight<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("pending", &self.pending()).finish_non_exhaustive()
    }
}
