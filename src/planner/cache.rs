//! Plans and geometries that this thread asked for before.
//!
//! A runtime plans at every relaunch and mostly for the same few shapes. Each thread keeps its own answers, so nothing
//! is locked; errors are not kept, because a mended request has another key anyway.

use std::cell::RefCell;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::geometry::Geometry;
use super::limits::GridLimits;
use super::request::{GridPlan, GridRequest, PlanError};
use super::sizing::SizingPolicy;

/// The most answers that each cache keeps.
pub const CAPACITY: usize = 128;

/// A map of at most [`CAPACITY`] answers, of which the one that was least recently used goes first.
///
/// ```
/// use abide::planner::cache::LeastRecentlyUsed;
///
/// let mut squares = LeastRecentlyUsed::new();
/// let square = squares.get_or_try_insert(3, || Ok::<_, ()>(9));
/// assert_eq!(square, Ok(9));
/// assert!(squares.contains(&3));
/// ```
#[derive(Clone, Debug)]
pub struct LeastRecentlyUsed<K, V> {
    answers: FxHashMap<K, Stamped<V>>,
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stamped<V> {
    value: V,
    used: u64,
}

impl<K: Copy + Eq + Hash, V: Copy> LeastRecentlyUsed<K, V> {
    /// An empty cache.
    pub fn new() -> Self {
        Self::with_clock(0)
    }

    /// An empty cache whose use clock stands at `clock`; it goes on from 0 after the last value.
    pub fn with_clock(clock: u64) -> Self {
        Self { answers: FxHashMap::default(), clock }
    }

    /// Number of answers.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// True where there is no answer.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// True where the key's answer is kept; asking so doesn't count as a use.
    pub fn contains(&self, key: &K) -> bool {
        self.answers.contains_key(key)
    }

    /// Returns the key's answer, and stamps it as used now.
    pub fn get(&mut self, key: &K) -> Option<V> {
        let now = self.tick();
        let stamped = self.answers.get_mut(key)?;
        stamped.used = now;
        Some(stamped.value)
    }

    /// Keeps an answer, in the place of the least recently used one where the cache is full.
    pub fn insert(&mut self, key: K, value: V) {
        let now = self.tick();
        if self.answers.len() >= CAPACITY && !self.answers.contains_key(&key) {
            // Ages by wrapping difference: right across the clock's wrap, since no age comes near 2^64.
            let oldest = self.answers.iter().max_by_key(|(_, stamped)| now.wrapping_sub(stamped.used));
            if let Some(oldest) = oldest.map(|(&key, _)| key) {
                self.answers.remove(&oldest);
            }
        }
        self.answers.insert(key, Stamped { value, used: now });
    }

    /// Returns the key's answer, from `make` where it isn't kept yet; an error is not kept.
    ///
    /// # Errors
    /// What `make` returns.
    pub fn get_or_try_insert<E>(&mut self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let value = make()?;
        self.insert(key, value);
        Ok(value)
    }

    fn tick(&mut self) -> u64 {
        self.clock = self.clock.wrapping_add(1);
        self.clock
    }
}

impl<K: Copy + Eq + Hash, V: Copy> Default for LeastRecentlyUsed<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// How full this thread's caches are, and how they were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Plans that are kept.
    pub plans: usize,
    /// Geometries that are kept.
    pub geometries: usize,
    /// Plans that were answered from the cache.
    pub plan_hits: u64,
}

type PlanKey = (SizingPolicy, GridRequest, GridLimits);
type GeometryKey = (u32, u32, GridLimits);

#[derive(Default)]
struct Caches {
    plans: LeastRecentlyUsed<PlanKey, GridPlan>,
    geometries: LeastRecentlyUsed<GeometryKey, Geometry>,
    plan_hits: u64,
}

thread_local! {
    static CACHES: RefCell<Caches> = RefCell::default();
}

/// How full this thread's caches are, and how they were used.
pub fn stats() -> CacheStats {
    CACHES.with_borrow(|caches| CacheStats {
        plans: caches.plans.len(),
        geometries: caches.geometries.len(),
        plan_hits: caches.plan_hits,
    })
}

/// The plan for a key, from `derive` where it isn't kept yet.
pub(super) fn plan(
    policy: SizingPolicy,
    request: GridRequest,
    limits: GridLimits,
    derive: impl FnOnce() -> Result<GridPlan, PlanError>,
) -> Result<GridPlan, PlanError> {
    let key = (policy, request, limits);
    let kept = CACHES.with_borrow_mut(|caches| {
        let kept = caches.plans.get(&key);
        caches.plan_hits += u64::from(kept.is_some());
        kept
    });
    if let Some(plan) = kept {
        return Ok(plan);
    }
    // Not inside the borrow: deriving a plan asks for its geometry.
    let plan = derive()?;
    CACHES.with_borrow_mut(|caches| caches.plans.insert(key, plan));
    Ok(plan)
}

/// The geometry of `slots` slots by workgroups of `width`.
pub(super) fn geometry(slots: u32, width: u32, limits: GridLimits) -> Result<Geometry, PlanError> {
    CACHES.with_borrow_mut(|caches| {
        let key = (slots, width, limits);
        caches.geometries.get_or_try_insert(key, || Geometry::new(slots, width, &limits))
    })
}
