//! Who keeps kernels on a device's queue: launches on one queue run one after another, so whoever stays makes the others
//! wait until it is asked to make room.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Someone who keeps kernels on the queue.
pub(crate) trait Resident: Send + Sync {
    /// Has the kernel that runs now leave soon, without waiting for that. It may be launched again, behind the others.
    fn make_room(&self);
}

/// Those who keep kernels on a device's queue.
#[derive(Default)]
pub(crate) struct Residents(Mutex<Vec<Weak<dyn Resident>>>);

impl Residents {
    /// Adds one; it is forgotten once it is dropped.
    pub fn enter(&self, resident: Weak<dyn Resident>) {
        let mut residents = self.0.lock();
        residents.retain(|other| other.strong_count() > 0);
        residents.push(resident);
    }

    /// Asks all but one to make room.
    pub fn ask_others(&self, asking: &dyn Resident) {
        // Called without the lock: the last clone of one that is just being dropped may go here.
        let others: Vec<Arc<dyn Resident>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        for other in others.iter().filter(|other| !std::ptr::addr_eq(Arc::as_ptr(other), asking)) {
            other.make_room();
        }
    }
}

impl fmt::Debug for Residents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Residents").field(&self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Asked(AtomicU32);

    impl Resident for Asked {
        fn make_room(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
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
        let asked = all.each_ref().map(|resident| resident.0.load(Ordering::Relaxed));
        assert_eq!(asked, [1, 0, 1]);
        drop(all);
        let last = Arc::new(Asked::default());
        let weak = Arc::downgrade(&last);
        residents.enter(weak);
        assert_eq!(residents.0.lock().len(), 1, "those that are gone are forgotten");
    }
}
