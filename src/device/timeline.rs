//! A timeline semaphore: one value for each launch of a queue.

use std::sync::Arc;
use std::time::Duration;

use ash::vk;

use super::error::{Result, check};
use super::logical::Device;

/// Which launches of a queue have ended; clones are the same one, for any thread.
#[derive(Clone)]
pub struct Timeline(Arc<Inner>);

struct Inner {
    raw: vk::Semaphore,
    device: Device,
}

impl Timeline {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is alive and the structures live until the call returns.
        let raw = check("vkCreateSemaphore", unsafe { device.raw().create_semaphore(&info, None) })?;
        Ok(Self(Arc::new(Inner { raw, device: device.clone() })))
    }

    /// The last launch that has ended, with all before it. Costs a call into the driver.
    ///
    /// # Errors
    /// [`super::Error::DeviceLost`].
    pub fn reached(&self) -> Result<u64> {
        // SAFETY: the semaphore is alive and a timeline.
        let value = unsafe { self.0.device.raw().get_semaphore_counter_value(self.0.raw) };
        check("vkGetSemaphoreCounterValue", value)
    }

    /// Waits until a launch has ended, but not longer than `patience`; says whether it has.
    ///
    /// # Errors
    /// [`super::Error::DeviceLost`].
    pub fn wait(&self, value: u64, patience: Duration) -> Result<bool> {
        let (semaphores, values) = ([self.0.raw], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let nanoseconds = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the semaphore is alive and a timeline.
        let waited = unsafe { self.0.device.raw().wait_semaphores(&info, nanoseconds) };
        match waited {
            Err(vk::Result::TIMEOUT) => Ok(false),
            waited => check("vkWaitSemaphores", waited).map(|()| true),
        }
    }

    /// The Vulkan handle, valid while the timeline lives: other queues may wait for a launch's value.
    pub fn raw(&self) -> vk::Semaphore {
        self.0.raw
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.device.is_leaked() {
            // SAFETY: the launch queue holds a clone until all its submissions have ended.
            unsafe { self.device.raw().destroy_semaphore(self.raw, None) };
        }
    }
}
