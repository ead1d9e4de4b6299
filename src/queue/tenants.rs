//! Tenants on the host: who may push, how many tasks each may have in flight, and whose tasks may run.
//!
//! A tenant's credits bound its tasks in flight, so that its queue on the device always has room for them. Pushing and
//! completing a task move one counter; registering and blocking are cold and take a lock.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::link::LinkError;
use super::shared::Shared;
use super::sync::{AtomicU32, Ordering};
use super::words::{Memory, Words};
use crate::protocol::{inlet, outlet, tenant};

/// In a tenant's word: it is registered. The bits below count its tasks in flight.
const KNOWN: u32 = 1 << 31;

/// Why a tenant can't be changed like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// No such tenant is registered.
    #[error("tenant {0} is not registered: use a number that registering one gave")]
    Unknown(u32),
    /// Tenant 0 is always registered and open.
    #[error("tenant 0 is always there and its tasks always run: register another for tasks that may have to wait")]
    First,
    /// All numbers are taken.
    #[error(
        "all {limit} tenants are registered: unregister one, or build the runtime for more (up to {})",
        tenant::MAX_TENANTS
    )]
    Full {
        /// Tenants that the queues were made for, tenant 0 included.
        limit: u32,
    },
    /// The tenant has tasks in flight.
    #[error("tenant {tenant} has {tasks} tasks in flight: take their completions first")]
    InUse {
        /// The tenant.
        tenant: u32,
        /// Its tasks in flight.
        tasks: u32,
    },
    /// The tenant's tasks may run from now on, but nothing can run them.
    #[error(transparent)]
    Lost(#[from] LinkError),
}

/// Why a task of a tenant isn't taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not registered.
    Unknown,
    /// It has as many tasks in flight as it may.
    NoCredit,
}

/// The registered tenants and their tasks in flight.
#[derive(Debug)]
pub struct Registry {
    states: Box<[AtomicU32]>,
    pub credits: u32,
    /// The bitmaps that the kernel reads, as they were stored last.
    bitmaps: Mutex<Bitmaps>,
}

#[derive(Debug, Default)]
struct Bitmaps {
    open: [u32; tenant::BITMAP_WORDS as usize],
    known: [u32; tenant::BITMAP_WORDS as usize],
    epoch: u32,
}

impl Registry {
    pub fn new(tenants: u32, credits: u32) -> Self {
        Self {
            states: (0..tenants).map(|number| AtomicU32::new(if number == 0 { KNOWN } else { 0 })).collect(),
            credits,
            bitmaps: Mutex::default(),
        }
    }

    /// Tenants that there can be.
    pub fn len(&self) -> u32 {
        self.states.len() as u32
    }

    /// Counts a task of a tenant other than 0 that is about to be pushed.
    pub fn enter(&self, tenant: u32) -> Result<(), Refusal> {
        let state = self.states.get(tenant as usize).ok_or(Refusal::Unknown)?;
        // Relaxed: the counter alone decides, and the ring orders the rest.
        let before = state.fetch_add(1, Ordering::Relaxed);
        let refusal = match before {
            before if before & KNOWN == 0 => Refusal::Unknown,
            before if before & !KNOWN >= self.credits => Refusal::NoCredit,
            _ => return Ok(()),
        };
        state.fetch_sub(1, Ordering::Relaxed);
        Err(refusal)
    }

    /// Counts a task of a tenant other than 0 as ended, or as not pushed after all.
    pub fn leave(&self, tenant: u32) {
        if let Some(state) = self.states.get(tenant as usize) {
            // Release: pairs with the acquire in `unregister`.
            state.fetch_sub(1, Ordering::Release);
        }
    }

    /// A tenant's tasks in flight, where it is registered.
    fn in_flight(&self, tenant: u32) -> Option<u32> {
        let state = self.states.get(tenant as usize)?.load(Ordering::Relaxed);
        (state & KNOWN != 0).then_some(state & !KNOWN)
    }

    fn register(&self) -> Option<u32> {
        let free = |&number: &u32| {
            let state = &self.states[number as usize];
            // Another thread's refused push may just be counted in the bits below.
            state.load(Ordering::Relaxed) & KNOWN == 0 && state.fetch_or(KNOWN, Ordering::Relaxed) & KNOWN == 0
        };
        (1..self.len()).find(free)
    }

    fn unregister(&self, tenant: u32) -> Result<(), TenantError> {
        let state = self.states.get(tenant as usize).ok_or(TenantError::Unknown(tenant))?;
        // Acquire: pairs with the release in `leave`.
        match state.compare_exchange(KNOWN, 0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(found) if found & KNOWN == 0 => Err(TenantError::Unknown(tenant)),
            Err(found) => Err(TenantError::InUse { tenant, tasks: found & !KNOWN }),
        }
    }
}

/// Whether a launch would run tasks that wait in tenants' queues: some were an open tenant's when the last one ended, or the
/// bitmap has changed since.
pub fn parked_work<W: Words + ?Sized>(inlet: &W, outlet: &W) -> bool {
    outlet.load(outlet::PARKED) > 0
        && (outlet.load(outlet::PARKED_OPEN) != 0
            || outlet.load(outlet::PARKED_EPOCH) != inlet.load(inlet::TENANTS_EPOCH))
}

/// The tenants of a pair of queues: registers them, and blocks and opens them while tasks flow. It can be cloned and sent to
/// other threads.
///
/// Tenant 0 is always there, has no limit and is never blocked. A *blocked* tenant's tasks are pushed as ever and wait on the
/// device, in a queue of the tenant's own, where they cost the others nothing. A task that a worker has begun is not
/// interrupted.
pub struct Tenants<W: Words = Memory>(Arc<Shared<W>>);

impl<W: Words> Tenants<W> {
    pub(super) fn new(shared: Arc<Shared<W>>) -> Self {
        Self(shared)
    }

    /// Registers a tenant, open, and gives its number.
    ///
    /// # Errors
    /// [`TenantError::Full`].
    pub fn register(&self) -> Result<u32, TenantError> {
        let mut bitmaps = self.bitmaps();
        let limit = self.0.tenants.len();
        let tenant = self.0.tenants.register().ok_or(TenantError::Full { limit })?;
        let (word, bit) = place(tenant);
        bitmaps.known[word] |= bit;
        bitmaps.open[word] |= bit;
        self.store(&mut bitmaps, word);
        Ok(tenant)
    }

    /// Forgets a tenant; its number may be given to another one.
    ///
    /// # Errors
    /// [`TenantError::InUse`] while it has tasks in flight; [`TenantError::Unknown`] and [`TenantError::First`].
    pub fn unregister(&self, tenant: u32) -> Result<(), TenantError> {
        if tenant == 0 {
            return Err(TenantError::First);
        }
        let mut bitmaps = self.bitmaps();
        self.0.tenants.unregister(tenant)?;
        let (word, bit) = place(tenant);
        bitmaps.known[word] &= !bit;
        bitmaps.open[word] &= !bit;
        self.store(&mut bitmaps, word);
        Ok(())
    }

    /// Keeps a tenant's tasks from being begun until it is opened.
    ///
    /// # Errors
    /// [`TenantError::Unknown`] and [`TenantError::First`].
    pub fn block(&self, tenant: u32) -> Result<(), TenantError> {
        self.change(tenant, |open, bit| open & !bit)
    }

    /// Lets a tenant's tasks run, those that wait first.
    ///
    /// # Errors
    /// [`TenantError::Unknown`], [`TenantError::First`], and [`TenantError::Lost`] where they can't be run now.
    pub fn open(&self, tenant: u32) -> Result<(), TenantError> {
        self.change(tenant, |open, bit| open | bit)?;
        // A kernel that leaves just now is missed here, and noticed by the next publish, poll or wait.
        if self.0.kernel_has_left() {
            self.0.turn(Duration::ZERO)?;
        }
        Ok(())
    }

    /// A tenant's tasks that were pushed and have not ended; none where it is not registered. Tenant 0's aren't counted.
    pub fn in_flight(&self, tenant: u32) -> Option<u32> {
        self.0.tenants.in_flight(tenant)
    }

    /// Tasks that a tenant other than 0 may have in flight.
    pub fn credits(&self) -> u32 {
        self.0.tenants.credits
    }

    fn change(&self, tenant: u32, change: impl FnOnce(u32, u32) -> u32) -> Result<(), TenantError> {
        if tenant == 0 {
            return Err(TenantError::First);
        }
        let mut bitmaps = self.bitmaps();
        self.0.tenants.in_flight(tenant).ok_or(TenantError::Unknown(tenant))?;
        let (word, bit) = place(tenant);
        bitmaps.open[word] = change(bitmaps.open[word], bit);
        self.store(&mut bitmaps, word);
        Ok(())
    }

    fn bitmaps(&self) -> std::sync::MutexGuard<'_, Bitmaps> {
        // Nothing that panics runs under the lock.
        self.0.tenants.bitmaps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a word of each bitmap, then the epoch.
    fn store(&self, bitmaps: &mut Bitmaps, word: usize) {
        let inlet = &self.0.inlet;
        inlet.store(inlet::TENANTS_KNOWN + word as u32, bitmaps.known[word]);
        inlet.store(inlet::TENANTS_OPEN + word as u32, bitmaps.open[word]);
        inlet.flush();
        bitmaps.epoch = bitmaps.epoch.wrapping_add(1);
        // After the bitmaps: pairs with the acquire by which a kernel that leaves reads it before them.
        inlet.store(inlet::TENANTS_EPOCH, bitmaps.epoch);
        inlet.flush();
    }
}

impl<W: Words> Clone for Tenants<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: Words> fmt::Debug for Tenants<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = (1..self.0.tenants.len()).filter(|&tenant| self.in_flight(tenant).is_some()).count();
        f.debug_struct("Tenants")
            .field("registered", &registered)
            .field("credits", &self.credits())
            .finish_non_exhaustive()
    }
}

/// Word and bit of a tenant in a bitmap.
fn place(tenant: u32) -> (usize, u32) {
    ((tenant / 32) as usize, 1 << (tenant % 32))
}
