//! What a device must have and what must be enabled on it.

use std::ffi::CStr;

use ash::vk;

use super::error::{Error, Result, version};
use super::info::DeviceInfo;
use super::instance::API_VERSION;

/// Subgroup operations that the kernels use.
const SUBGROUP: vk::SubgroupFeatureFlags = vk::SubgroupFeatureFlags::from_raw(
    vk::SubgroupFeatureFlags::BASIC.as_raw()
        | vk::SubgroupFeatureFlags::VOTE.as_raw()
        | vk::SubgroupFeatureFlags::BALLOT.as_raw()
        | vk::SubgroupFeatureFlags::SHUFFLE.as_raw()
        | vk::SubgroupFeatureFlags::ARITHMETIC.as_raw(),
);

const NEWER_DRIVER: &str = "install a newer driver, or choose another device with ABIDE_DEVICE";
const ENABLE: &str = "make the device with what abide::device::requirements() lists";

/// What to enable when making a device that abide is to use.
#[derive(Clone, Debug)]
pub struct Requirements {
    /// The least Vulkan version, of the instance (`VkApplicationInfo::apiVersion`) and of the device.
    pub api_version: u32,
    /// Device extensions to enable.
    pub extensions: Vec<&'static CStr>,
    /// Vulkan 1.2 features to enable. Its `p_next` is null: chain it, or copy the features that are true.
    pub features: vk::PhysicalDeviceVulkan12Features<'static>,
}

/// Lists what has to be enabled on a physical device, after checking that it has all of it.
///
/// # Errors
/// [`Error::Unsupported`] names the first thing that is missing.
///
/// # Safety
/// - `instance` is alive and was made with Vulkan 1.1 or later.
/// - `physical` is one of its devices.
pub unsafe fn requirements(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<Requirements> {
    let info = DeviceInfo::read(instance, physical, 0);
    check_versions_and_subgroups(&info)?;
    let mut found = vk::PhysicalDeviceVulkan12Features::default();
    let mut all = vk::PhysicalDeviceFeatures2::default().push_next(&mut found);
    // SAFETY: the caller promises a live instance and its device, which has Vulkan 1.2 as checked above; the chain
    // lives until the call returns.
    unsafe { instance.get_physical_device_features2(physical, &mut all) };
    let features = needed();
    for (feature, has) in named(&features).into_iter().zip(named(&found)) {
        if feature.1 && !has.1 {
            return Err(missing(&info, format!("the feature {}", feature.0), NEWER_DRIVER));
        }
    }
    Ok(Requirements { api_version: API_VERSION, extensions: Vec::new(), features })
}

/// Checks the version that the embedder's instance and device were made with.
pub(super) fn check_enabled(info: &DeviceInfo, api_version: u32) -> Result<()> {
    if api_version < API_VERSION {
        let what = format!("Vulkan {} (the instance was made with {})", version(API_VERSION), version(api_version));
        return Err(missing(info, what, ENABLE));
    }
    check_versions_and_subgroups(info)
}

fn check_versions_and_subgroups(info: &DeviceInfo) -> Result<()> {
    if info.api_version < API_VERSION {
        let what = format!("Vulkan {} (it has {})", version(API_VERSION), version(info.api_version));
        return Err(missing(info, what, NEWER_DRIVER));
    }
    let lacks = SUBGROUP & !info.subgroup_operations;
    if !lacks.is_empty() {
        return Err(missing(info, format!("subgroup operations {lacks:?}"), NEWER_DRIVER));
    }
    if !info.subgroup_stages.contains(vk::ShaderStageFlags::COMPUTE) {
        return Err(missing(info, "subgroup operations in compute shaders".into(), NEWER_DRIVER));
    }
    Ok(())
}

pub(super) fn missing(info: &DeviceInfo, missing: String, mend: &'static str) -> Error {
    Error::Unsupported { device: info.name.clone(), missing, mend }
}

fn needed() -> vk::PhysicalDeviceVulkan12Features<'static> {
    vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(true)
        .vulkan_memory_model(true)
        .vulkan_memory_model_device_scope(true)
        .buffer_device_address(true)
}

fn named(features: &vk::PhysicalDeviceVulkan12Features<'_>) -> [(&'static str, bool); 4] {
    [
        ("timelineSemaphore", features.timeline_semaphore == vk::TRUE),
        ("vulkanMemoryModel", features.vulkan_memory_model == vk::TRUE),
        ("vulkanMemoryModelDeviceScope", features.vulkan_memory_model_device_scope == vk::TRUE),
        ("bufferDeviceAddress", features.buffer_device_address == vk::TRUE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_needed_feature_has_a_name() {
        assert!(named(&needed()).iter().all(|(_, needed)| *needed));
    }
}
