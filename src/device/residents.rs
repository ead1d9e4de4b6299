//! Who keeps kernels on a device's queue: launches on one queue run one after another, so whoever stays makes the others
//! wait until it is asked to make room.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Someone who keeps kernels on the queue.
pub(crate) trait Resident: Send + Sync {
    /// Has the kernel that runs now leave soon, without waiting for that. It may be launched again, behind the others.
    fn make_room(&self);

    /// Has the kernel leave and waits until it has, for `patience` at most; says whether it has.
    fn vacate(&self, patience: Duration) -> bool;

    /// Starts the launch that was held back, if one was: see [`Residents::is_held`].
    fn come_back(&self);
}

/// Those who keep kernels on a device's queue.
#[derive(Default)]
pub(crate) struct Residents {
    all: Mutex<Vec<Weak<dyn Resident>>>,
    /// How many calls need the device without kernels now.
    held: AtomicU32,
}

impl Residents {
    /// Adds one; it is forgotten once it is dropped.
    pub fn enter(&self, resident: Weak<dyn Resident>) {
        let mut residents = self.all.lock();
        residents.retain(|other| other.strong_count() > 0);
        residents.push(resident);
    }

    /// Asks all but one to make room.
    pub fn ask_others(&self, asking: &dyn Resident) {
        for other in self.living().iter().filter(|other| !std::ptr::addr_eq(Arc::as_ptr(other), asking)) {
            other.make_room();
        }
    }

    /// Whether no launch may be started now. Whoever is told so under the lock that serialises its launches is asked to
    /// [come back](Resident::come_back) afterwards.
    pub fn is_held(&self) -> bool {
        // Acquire: pairs with the release in `without_kernels`; its place is settled by the locks, see there.
        self.held.load(Ordering::Acquire) > 0
    }

    /// Makes a call while none of them has a kernel on the device; none where one hasn't left within `patience`.
    pub fn without_kernels<T>(&self, patience: Duration, call: impl FnOnce() -> T) -> Option<T> {
        // Before the list is read and each one's launches are looked at, both under locks: who starts one later is told.
        self.held.fetch_add(1, Ordering::AcqRel);
        let released = Released(self);
        let start = Instant::now();
        let gone = self.living().iter().all(|one| one.vacate(patience.saturating_sub(start.elapsed())));
        let result = gone.then(call);
        drop(released);
        result
    }

    /// Those that are not being dropped. They are called without the lock: the last clone of one may go then.
    fn living(&self) -> Vec<Arc<dyn Resident>> {
        self.all.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// Lets launches be started again when dropped.
struct Released<'a>(&'a Residents);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        if self.0.held.fetch_sub(1, Ordering::AcqRel) == 1 {
            for one in self.0.living() {
                one.come_back();
            }
        }
    }
}

impl fmt::Debug for Residents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Residents").field(&self.all.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Asked {
        room: AtomicU32,
        vacated: AtomicU32,
        back: AtomicU32,
        stays: bool,
    }

    impl Resident for Asked {
        fn make_room(&self) {
            self.room.fetch_add(1, Ordering::Relaxed);
        }

        fn vacate(&self, _patience: Duration) -> bool {
            self.vacated.fetch_add(1, Ordering::Relaxed);
            !self.stays
        }

        fn come_back(&self) {
            self.back.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_call_without_kernels_holds_launches_back_until_it_is_over() {
        let residents = Residents::default();
        let (one, stays) = (Arc::new(Asked::default()), Arc::new(Asked { stays: true, ..Asked::default() }));
        let weak = Arc::downgrade(&one);
        residents.enter(weak);
        let seen = residents.without_kernels(Duration::ZERO, || {
            let nested = residents.without_kernels(Duration::ZERO, || residents.is_held());
            (nested, residents.is_held(), one.back.load(Ordering::Relaxed))
        });
        assert_eq!(seen, Some((Some(true), true, 0)), "the inner call must not let launches start for the outer one");
        assert_eq!((one.vacated.load(Ordering::Relaxed), one.back.load(Ordering::Relaxed)), (2, 1));
        let weak = Arc::downgrade(&stays);
        residents.enter(weak);
        assert_eq!(residents.without_kernels(Duration::ZERO, || ()), None);
        assert!(!residents.is_held());
        assert_eq!(stays.back.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn all_others_are_asked() {
        let residents = Residents::default();
        let all: [Arc<Asked>; 3] = Default::default();
        for resident in &all {
            let weak = Arc::downgrade(resident);
            residents.enter(weak);
        }
        residents.ask_others(&*all[1]);
        let asked = all.each_ref().map(|resident| resident.room.load(Ordering::Relaxed));
        assert_eq!(asked, [1, 0, 1]);
        drop(all);
        let last = Arc::new(Asked::default());
        let weak = Arc::downgrade(&last);
        residents.enter(weak);
        assert_eq!(residents.all.lock().len(), 1, "those that are gone are forgotten");
    }
}
