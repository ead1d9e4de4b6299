//! What both halves hold: memory, levels, and the way to the kernel's launches.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::config::QueueConfig;
use super::doorbell::Doorbell;
use super::error::ConfigError;
use super::link::{Link, LinkError};
use super::ring::Level;
use super::sync::{AtomicU64, Ordering};
use super::tenants::{Registry, parked_work};
use super::words::Words;
use crate::protocol::{inlet, outlet};

/// What both halves of a pair of queues hold.
pub struct Shared<W> {
    pub inlet: W,
    pub outlet: W,
    pub levels: Box<[Level]>,
    pub slots: u32,
    pub entries: u32,
    pub tables: u32,
    pub tenants: Registry,
    /// Submission handles that exist.
    handles: AtomicU64,
    /// Outstanding tasks that the kernel has nothing more to do for; written by the completion queue alone.
    settled: AtomicU64,
    link: Arc<dyn Link>,
    /// The error after which nothing pushed would run.
    lost: OnceLock<LinkError>,
}

impl<W: Words> Shared<W> {
    pub fn new(config: &QueueConfig, inlet: W, outlet: W, link: Arc<dyn Link>) -> Result<Self, ConfigError> {
        config.check()?;
        let (slots, entries, tables) = (config.slots(), config.entries, config.tables);
        let sizes = [
            ("inlet", inlet.len(), inlet::words(slots, tables)),
            ("outlet", outlet.len(), outlet::words(slots, entries)),
        ];
        for (buffer, words, needed) in sizes {
            if words < needed {
                return Err(ConfigError::Memory { buffer, words, needed });
            }
        }
        let levels = config.rings().zip(&config.windows);
        let levels = levels.map(|(ring, &window)| Level::new(ring, window, config.first_lap)).collect();
        let (handles, settled) = (AtomicU64::new(0), AtomicU64::new(0));
        let tenants = Registry::new(config.tenants, config.credits);
        Ok(Self {
            inlet,
            outlet,
            levels,
            slots,
            entries,
            tables,
            tenants,
            handles,
            settled,
            link,
            lost: OnceLock::new(),
        })
    }

    /// Tells the kernel that a level's positions before `published` are, where that is worth while; gives whether it was.
    /// `alone` says that no other thread publishes meanwhile.
    pub fn ring_doorbell(&self, number: u32, mut published: u64, alone: bool) -> bool {
        let level = &self.levels[number as usize];
        if !level.doorbell.is_due(published, level.in_flight()) {
            return false;
        }
        level.doorbell.ring(published);
        if alone {
            self.inlet.store(inlet::DOORBELLS + number, published as u32);
            return true;
        }
        // Another producer may come further and store before: then the later position is stored again. Twice is enough: who
        // comes still further meanwhile does the same.
        for _ in 0..2 {
            // The fences order the look at how far all have come and the store, on both sides.
            Doorbell::settle();
            self.inlet.store(inlet::DOORBELLS + number, published as u32);
            Doorbell::settle();
            let now = level.doorbell.published();
            if now <= published {
                break;
            }
            published = now;
        }
        true
    }

    /// True where the latest launch has left.
    #[inline]
    pub fn kernel_has_left(&self) -> bool {
        self.outlet.load(outlet::ENDED) == self.link.launch()
    }

    /// Asks the link to look after the launch where there is something to run, and remembers an error that is final.
    #[cold]
    pub fn turn(&self, patience: Duration) -> Result<(), LinkError> {
        if self.pending() == 0 {
            return Ok(());
        }
        self.link.turn(patience, self.waiting()).inspect_err(|&error| {
            if error.is_final() {
                // The first final error stays; a later one tells nothing new.
                let _ = self.lost.set(error);
            }
        })
    }

    /// The error after which nothing pushed would run.
    #[inline]
    pub fn lost(&self) -> Option<LinkError> {
        self.lost.get().copied()
    }

    /// Counts a new submission handle.
    pub fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a submission handle that is dropped.
    pub fn drop_handle(&self) {
        // Release: pairs with the Acquire in `is_alone`: who is left sees what this handle has reserved.
        self.handles.fetch_sub(1, Ordering::Release);
    }

    /// True where the caller's submission handle is the only one; it stays so while the caller borrows it mutably, since
    /// handles come from handles only.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 1
    }

    /// Tasks that wait for the kernel: outstanding and not settled. A hint while other threads push.
    pub fn pending(&self) -> u64 {
        self.outstanding().saturating_sub(self.settled.load(Ordering::Relaxed))
    }

    /// True where a task has been published and not been taken in, or waits in the queue of a tenant that is open. Costs a read of write-combined memory, or several.
    pub fn waiting(&self) -> bool {
        self.levels.iter().any(|level| level.has_waiting(&self.inlet, &self.outlet))
            || parked_work(&self.inlet, &self.outlet)
    }

    /// Reports how many outstanding tasks are settled; called by the completion queue alone.
    pub fn settle(&self, tasks: u64) {
        // Relaxed: it only decides whether a kernel that has left is worth launching.
        self.settled.store(tasks, Ordering::Relaxed);
    }

    /// Tasks that were pushed and whose completions are not delivered or not consumed, of all levels.
    pub fn outstanding(&self) -> u64 {
        self.levels.iter().map(Level::in_flight).sum()
    }
}
