//! The admission test's resident kernel, for whoever wants to know what a round trip costs at least.

use std::time::Duration;

use super::kernels::ping::RUNNING;
use super::probe::{NO_BEATS, Pair, Probe};
use crate::device::error::Result;
use crate::device::logical::Device;

/// A resident kernel that does nothing but reply to requests, in the memory that the admission test chose.
///
/// Its round trip is the floor: what host and device need to hear of one another, without any work or scheduling.
///
/// ```no_run
/// use std::time::Duration;
/// use abide::device::{Device, Ping, Selector};
///
/// let device = Device::open(&Selector::from_env()?)?;
/// let mut ping = Ping::new(&device)?;
/// ping.launch(Duration::from_millis(50))?;
/// while let Some(trip) = ping.round_trip()? {
///     println!("{trip:?}");
/// }
/// # Ok::<(), abide::device::Error>(())
/// ```
pub struct Ping {
    probe: Probe,
    pair: Pair,
    launch: u64,
    request: u32,
}

impl Ping {
    /// Makes the kernel and measures how fast it polls.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(device: &Device) -> Result<Self> {
        let mut probe = Probe::new(device)?;
        let pair = probe.pair(device.report().inlet, device.report().outlet)?;
        Ok(Self { probe, pair, launch: 0, request: 0 })
    }

    /// Launches the kernel, after the last launch, to stay for about `time`: less where the driver cuts loops short.
    ///
    /// It occupies the device's queue for launches meanwhile.
    ///
    /// # Errors
    /// What the device reports; [`crate::device::Error::Hung`] where the last launch doesn't leave.
    pub fn launch(&mut self, time: Duration) -> Result<()> {
        self.stop()?;
        (self.launch, self.request) = (self.probe.begin(&self.pair, time, NO_BEATS)?, 0);
        self.probe.answers(&self.pair, self.launch, RUNNING, 1)?;
        Ok(())
    }

    /// Sends a request and waits for the reply: the time that both took, or none where the launch has ended.
    ///
    /// # Errors
    /// [`crate::device::Error::DeviceLost`].
    pub fn round_trip(&mut self) -> Result<Option<Duration>> {
        // A launch polls 2^30 times at most, so that it never comes to the request that stops it.
        self.request = self.request.wrapping_add(1);
        self.probe.round_trip(&self.pair, self.launch, self.request)
    }

    /// Has the kernel leave, and waits until it has.
    ///
    /// # Errors
    /// [`crate::device::Error::Hung`] where it doesn't leave, [`crate::device::Error::DeviceLost`].
    pub fn stop(&mut self) -> Result<()> {
        self.probe.dismiss(&self.pair, self.launch)
    }
}

impl std::fmt::Debug for Ping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ping").field("launch", &self.launch).field("request", &self.request).finish_non_exhaustive()
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            log::error!("dropping a ping kernel: {error}");
        }
    }
}
