//! Drivers' known deviations, as data: one row each, asked for by name.

use std::ops::RangeInclusive;

use ash::vk;

use super::info::DeviceInfo;

/// A deviation's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quirk {
    /// Making and destroying pipelines, images and samplers waits until no kernel is running on the device.
    CallsWaitForKernels,
    /// Shader functions are cut off after so many loop iterations; the admission test measures how many.
    LoopLimit,
    /// Memory barriers, coherent accesses and atomics with an order wait for the whole workgroup, as a control barrier
    /// does. In code that not all of its subgroups run, the workgroup ends in the middle, in silence.
    MemoryBarriersWait,
    /// Loops whose values nobody uses are left out, though they load volatile words.
    IdleLoopsVanish,
    /// A shared pool of threads runs all devices of the process: a resident kernel can starve another device.
    SharedThreadPool,
}

/// A driver's release, as [`DeviceInfo::driver_release`] gives it.
type Release = (u32, u32, u32);

/// One known deviation of a driver.
#[derive(Clone, Debug)]
pub struct QuirkRow {
    /// Its name.
    pub quirk: Quirk,
    /// The driver.
    pub driver: vk::DriverId,
    /// The driver's releases that have it.
    pub releases: RangeInclusive<Release>,
    /// What happens.
    pub what: &'static str,
    /// With which release and when it was seen.
    pub seen: &'static str,
}

const ANY: RangeInclusive<Release> = (0, 0, 0)..=(u32::MAX, u32::MAX, u32::MAX);

/// All known deviations of drivers.
pub const QUIRKS: &[QuirkRow] = &[
    QuirkRow {
        quirk: Quirk::CallsWaitForKernels,
        driver: vk::DriverId::MESA_LLVMPIPE,
        releases: ANY,
        what: "pipeline creation and destruction, image views and samplers wait until the running kernel has left; \
               vkDestroyDevice with a running kernel does not return",
        seen: "Mesa 22.3.6 and 25.0.7, November 2026",
    },
    QuirkRow {
        quirk: Quirk::LoopLimit,
        driver: vk::DriverId::MESA_LLVMPIPE,
        releases: (0, 0, 0)..=(22, 3, u32::MAX),
        what: "a shader function silently ends its loops after 65,535 iterations in all",
        seen: "Mesa 22.3.6, November 2026; not in 25.0.7",
    },
    QuirkRow {
        quirk: Quirk::MemoryBarriersWait,
        driver: vk::DriverId::MESA_LLVMPIPE,
        releases: (0, 0, 0)..=(22, 3, u32::MAX),
        what: "a coherent load in a loop that one of two subgroups runs ends the workgroup after three turns; \
               workgroups of one subgroup and relaxed atomics are right",
        seen: "Mesa 22.3.6, November 2026; not in 25.0.7",
    },
    QuirkRow {
        quirk: Quirk::SharedThreadPool,
        driver: vk::DriverId::MESA_LLVMPIPE,
        releases: ANY,
        what: "resident workgroups on every thread leave other devices of the process nothing",
        seen: "Mesa 25.0.7, November 2026",
    },
    QuirkRow {
        quirk: Quirk::IdleLoopsVanish,
        driver: vk::DriverId::GOOGLE_SWIFTSHADER,
        releases: ANY,
        what: "a loop that only polls a volatile word until it changes does not wait at all, unless a value that it \
               computes is stored",
        seen: "SwiftShader of Chromium 156, November 2026",
    },
    QuirkRow {
        quirk: Quirk::SharedThreadPool,
        driver: vk::DriverId::GOOGLE_SWIFTSHADER,
        releases: ANY,
        what: "resident workgroups on every thread leave other devices of the process nothing",
        seen: "SwiftShader of Chromium 156, November 2026",
    },
];

/// A message of the validation layer that is wrong.
#[derive(Clone, Debug)]
pub struct NoiseRow {
    /// Name of the message, as the layer gives it.
    pub message: &'static str,
    /// A part of the text, where the name alone says too little.
    pub part: &'static str,
    /// What is wrong about it.
    pub what: &'static str,
    /// With which version of the layer and when it was seen.
    pub seen: &'static str,
}

/// All known wrong messages of the validation layer.
pub const NOISE: &[NoiseRow] = &[NoiseRow {
    message: "SYNC-HAZARD-WRITE-AFTER-WRITE",
    part: "",
    what: "submissions that a timeline semaphore orders are reported as hazards when a command buffer is used again",
    seen: "layer 1.3.239, November 2026",
}];

/// The row of a device's quirk, where it has that one.
pub fn quirk(device: &DeviceInfo, quirk: Quirk) -> Option<&'static QuirkRow> {
    let release = device.driver_release();
    QUIRKS.iter().find(|row| row.quirk == quirk && row.driver == device.driver_id && row.releases.contains(&release))
}

/// Whether a message of the validation layer is known to be wrong.
pub(super) fn is_noise(message: &str, text: &str) -> bool {
    NOISE.iter().any(|row| row.message == message && text.contains(row.part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_matched_by_name() {
        assert!(is_noise("SYNC-HAZARD-WRITE-AFTER-WRITE", "anything"));
        assert!(!is_noise("VUID-vkCmdDispatch-None-02699", "anything"));
    }

    #[test]
    fn every_quirk_says_when_it_was_seen() {
        assert!(QUIRKS.iter().all(|row| !row.what.is_empty() && !row.seen.is_empty()));
        assert!(QUIRKS.iter().all(|row| row.releases.start() < row.releases.end()));
    }
}
