//! What can go wrong between a program and its Vulkan device.

use std::path::PathBuf;
use std::time::Duration;

use ash::vk;

use super::info::DeviceInfo;
use super::select::Selector;

/// Result of the device layer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the device layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine has no Vulkan loader.
    #[error("no Vulkan loader ({0}); install one, on Debian with `apt install libvulkan1 mesa-vulkan-drivers`")]
    NoLoader(#[source] ash::LoadingError),
    /// The loader found no driver.
    #[error(
        "the Vulkan loader finds no driver; install one (on Debian `apt install mesa-vulkan-drivers` for GPUs and for \
         the CPU), or name its manifest in VK_DRIVER_FILES"
    )]
    NoDriver,
    /// The loader is too old.
    #[error("the Vulkan loader has version {}, and {} is needed: install a newer one", version(*found), version(*needed))]
    OldLoader {
        /// What it offers.
        found: u32,
        /// What abide needs.
        needed: u32,
    },
    /// No device fits the selector.
    #[error("no Vulkan device matches {selector}; there {}", listing(.devices))]
    NoMatch {
        /// What was asked for.
        selector: Selector,
        /// What exists.
        devices: Vec<DeviceInfo>,
    },
    /// The text of a selector can't be read.
    #[error("{name} is {value:?}, which is not Unicode: give an index, a part of the device's name, or its UUID")]
    BadSelector {
        /// Where the text came from.
        name: &'static str,
        /// The text.
        value: std::ffi::OsString,
    },
    /// The device lacks something that abide needs.
    #[error("{device} lacks {missing}: {mend}")]
    Unsupported {
        /// Name of the device.
        device: String,
        /// What it lacks.
        missing: String,
        /// What can be done about it.
        mend: &'static str,
    },
    /// A value is beyond a limit of the device.
    #[error("{name}: {what} is {value}, but the device allows {limit}")]
    Limit {
        /// Which object.
        name: String,
        /// Which of its values.
        what: &'static str,
        /// The value.
        value: u64,
        /// The most (or, for a smallest value, the least) that the device takes.
        limit: u64,
    },
    /// What was passed doesn't fit the object that it was passed to.
    #[error("{name} takes {expected} {what}, not {given}")]
    Mismatch {
        /// The object.
        name: String,
        /// What was counted.
        what: &'static str,
        /// How many it takes.
        expected: u64,
        /// How many were given.
        given: u64,
    },
    /// An object of another device was passed.
    #[error("{name} belongs to another device than {other}: make both on the same one")]
    ForeignObject {
        /// The object.
        name: String,
        /// What it was used with.
        other: String,
    },
    /// Memory ran out.
    #[error("out of {memory} memory for {name} ({bytes} bytes): free some, or ask for less")]
    OutOfMemory {
        /// Whose memory.
        memory: &'static str,
        /// What it was for.
        name: String,
        /// How much was asked for; 0 where the driver needed it for itself.
        bytes: u64,
    },
    /// The device has no memory type for a placement.
    #[error("no memory type of the device can hold {name}: {wanted}")]
    NoMemoryType {
        /// What it was for.
        name: String,
        /// What the type must be.
        wanted: &'static str,
    },
    /// gpu-allocator refused.
    #[error("can't allocate {name} ({bytes} bytes)")]
    Allocation {
        /// What it was for.
        name: String,
        /// How much was asked for.
        bytes: u64,
        /// Why.
        source: gpu_allocator::AllocationError,
    },
    /// The device is lost.
    #[error("the device was lost in {call}; drop everything made from it and open it again")]
    DeviceLost {
        /// The call that reported it.
        call: &'static str,
    },
    /// A launch did not end in time; the device is left alone from then on.
    #[error("{what} did not end within {patience:?}; its device is leaked")]
    Hung {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        patience: Duration,
    },
    /// A kernel of the admission test can't be lowered.
    #[error("can't lower the admission test's kernel {kernel}")]
    Lower {
        /// The kernel.
        kernel: &'static str,
        /// Why.
        source: crate::spirv::LowerError,
    },
    /// A pipeline cache can't be written.
    #[error("can't write the pipeline cache {}", path.display())]
    CacheFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A Vulkan call failed in a way that has no error of its own here.
    #[error("{call} failed: {result}")]
    Vulkan {
        /// The call.
        call: &'static str,
        /// What it returned.
        result: vk::Result,
    },
}

impl Error {
    /// Whether the device is gone: nothing but dropping its objects makes sense then.
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::DeviceLost { .. })
    }
}

/// Gives a Vulkan result its name and its typed error.
pub(super) fn check<T>(call: &'static str, result: Result<T, vk::Result>) -> Result<T> {
    result.map_err(|result| match result {
        vk::Result::ERROR_DEVICE_LOST => Error::DeviceLost { call },
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => Error::OutOfMemory { memory: "device", name: call.into(), bytes: 0 },
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => Error::OutOfMemory { memory: "host", name: call.into(), bytes: 0 },
        result => Error::Vulkan { call, result },
    })
}

/// A Vulkan version as people write it.
pub(super) fn version(encoded: u32) -> String {
    let (major, minor) = (vk::api_version_major(encoded), vk::api_version_minor(encoded));
    format!("{major}.{minor}.{}", vk::api_version_patch(encoded))
}

fn listing(devices: &[DeviceInfo]) -> String {
    match devices {
        [] => "are none".to_owned(),
        devices => {
            let lines: Vec<_> = devices.iter().map(|device| format!("\n  {device}")).collect();
            format!("are:{}", lines.concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_become_typed() {
        let lost = check::<()>("vkQueueSubmit", Err(vk::Result::ERROR_DEVICE_LOST));
        assert!(lost.is_err_and(|error| error.is_device_lost()));
        let memory = check::<()>("vkCreateBuffer", Err(vk::Result::ERROR_OUT_OF_HOST_MEMORY));
        assert!(matches!(memory, Err(Error::OutOfMemory { memory: "host", .. })));
        let other = check::<()>("vkMapMemory", Err(vk::Result::ERROR_MEMORY_MAP_FAILED)).unwrap_err();
        assert_eq!(other.to_string(), "vkMapMemory failed: Mapping of a memory object has failed");
        assert_eq!(version(vk::make_api_version(0, 1, 2, 131)), "1.2.131");
    }
}
