//! The keeper: a thread that looks after the kernel for programs that publish and then never call again.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::queue::InFlight;

/// How often the keeper looks.
const INTERVAL: Duration = Duration::from_millis(2);

/// Ends its thread when dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread.
    pub fn new(in_flight: InFlight) -> std::io::Result<Self> {
        let end = Arc::new((Mutex::new(false), Condvar::new()));
        let ours = end.clone();
        let thread = std::thread::Builder::new().name("abide keeper".into()).spawn(move || {
            let (ended, wake) = &*ours;
            let mut ended = ended.lock();
            while !*ended {
                wake.wait_for(&mut ended, INTERVAL);
                if !*ended {
                    // What keeps the kernel from running is told to whoever pushes or polls.
                    let _ = in_flight.look_after();
                }
            }
        })?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let (ended, wake) = &*self.end;
        *ended.lock() = true;
        wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A keeper that panicked has nothing left to tell.
            let _ = thread.join();
        }
    }
}
