//! What is known of a physical device before it is opened.

use std::fmt;

use ash::vk;

use super::select::format_uuid;

/// What sort of device it is, in the order in which devices are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceType {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A part of a GPU, lent to a virtual machine.
    Virtual,
    /// A driver that runs shaders on the CPU.
    Cpu,
    /// Anything else.
    Other,
}

impl DeviceType {
    /// The type as one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Cpu => "cpu",
            Self::Other => "other",
        }
    }
}

impl From<vk::PhysicalDeviceType> for DeviceType {
    fn from(raw: vk::PhysicalDeviceType) -> Self {
        match raw {
            vk::PhysicalDeviceType::DISCRETE_GPU => Self::Discrete,
            vk::PhysicalDeviceType::INTEGRATED_GPU => Self::Integrated,
            vk::PhysicalDeviceType::VIRTUAL_GPU => Self::Virtual,
            vk::PhysicalDeviceType::CPU => Self::Cpu,
            _ => Self::Other,
        }
    }
}

/// A physical device: identity, driver and limits.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Place in the loader's list.
    pub index: usize,
    /// The device's name.
    pub name: String,
    /// Discrete, integrated, virtual or CPU.
    pub device_type: DeviceType,
    /// UUID of the device, the same in all processes and APIs.
    pub uuid: [u8; 16],
    /// The driver's id.
    pub driver_id: vk::DriverId,
    /// The driver's name.
    pub driver_name: String,
    /// The driver's version as it states it; its version number where it states none.
    pub driver_info: String,
    /// The driver's version number, in an encoding of its own.
    pub driver_version: u32,
    /// The highest Vulkan version that the device offers.
    pub api_version: u32,
    /// Limits of the device.
    pub limits: vk::PhysicalDeviceLimits,
    /// Invocations of a subgroup.
    pub subgroup_size: u32,
    /// The most bytes that one allocation can have.
    pub max_allocation: u64,
    pub(super) subgroup_operations: vk::SubgroupFeatureFlags,
    pub(super) subgroup_stages: vk::ShaderStageFlags,
    pub(super) vendor: u32,
    pub(super) device: u32,
    pub(super) cache_uuid: [u8; 16],
}

impl DeviceInfo {
    /// Reads the properties of a physical device.
    pub(super) fn read(instance: &ash::Instance, physical: vk::PhysicalDevice, index: usize) -> Self {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
        let mut maintenance = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut all = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut id)
            .push_next(&mut driver)
            .push_next(&mut subgroup)
            .push_next(&mut maintenance);
        // SAFETY: the instance is alive, the physical device is one of its own, and every structure of the chain lives
        // until the call returns.
        unsafe { instance.get_physical_device_properties2(physical, &mut all) };
        let core = all.properties;
        let text = |bytes: &[std::ffi::c_char]| {
            let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
            String::from_utf8_lossy(&bytes).trim().to_owned()
        };
        let mut driver_info = text(&driver.driver_info);
        if driver_info.is_empty() {
            driver_info = super::error::version(core.driver_version);
        }
        Self {
            index,
            name: text(&core.device_name),
            device_type: core.device_type.into(),
            uuid: id.device_uuid,
            driver_id: driver.driver_id,
            driver_name: text(&driver.driver_name),
            driver_info,
            driver_version: core.driver_version,
            api_version: core.api_version,
            limits: core.limits,
            subgroup_size: subgroup.subgroup_size,
            max_allocation: maintenance.max_memory_allocation_size,
            subgroup_operations: subgroup.supported_operations,
            subgroup_stages: subgroup.supported_stages,
            vendor: core.vendor_id,
            device: core.device_id,
            cache_uuid: core.pipeline_cache_uuid,
        }
    }

    /// The driver's name and version as one text.
    pub fn driver(&self) -> String {
        format!("{} {}", self.driver_name, self.driver_info).trim().to_owned()
    }

    /// The first dotted number of the driver's version text, as three parts: `(580, 159, 4)` of `580.159.04`.
    pub fn driver_release(&self) -> (u32, u32, u32) {
        release(&self.driver_info)
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, name, uuid) = (self.index, &self.name, format_uuid(&self.uuid));
        write!(f, "{index}: {name} ({}, {}), UUID {uuid}", self.device_type.name(), self.driver())
    }
}

fn release(text: &str) -> (u32, u32, u32) {
    let dotted = text.split(|c: char| !c.is_ascii_digit() && c != '.').find(|part| part.contains('.'));
    let mut parts = dotted.unwrap_or_default().split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

/// A device that doesn't exist.
#[cfg(test)]
pub(super) fn sample(index: usize, name: &str, device_type: DeviceType) -> DeviceInfo {
    DeviceInfo {
        index,
        name: name.into(),
        device_type,
        uuid: [index as u8; 16],
        driver_id: vk::DriverId::MESA_LLVMPIPE,
        driver_name: "driver".into(),
        driver_info: "1.0".into(),
        driver_version: 1,
        api_version: vk::API_VERSION_1_2,
        limits: vk::PhysicalDeviceLimits::default(),
        subgroup_size: 8,
        max_allocation: 1 << 30,
        subgroup_operations: vk::SubgroupFeatureFlags::empty(),
        subgroup_stages: vk::ShaderStageFlags::empty(),
        vendor: 0,
        device: 0,
        cache_uuid: [0; 16],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_read_from_what_drivers_say() {
        assert_eq!(release("Mesa 22.3.6 (LLVM 15.0.6)"), (22, 3, 6));
        assert_eq!(release("Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6)"), (25, 0, 7));
        assert_eq!(release("580.159.04"), (580, 159, 4));
        assert_eq!(release("no number"), (0, 0, 0));
    }

    #[test]
    fn discrete_devices_come_first() {
        assert!(DeviceType::Discrete < DeviceType::Integrated);
        assert!(DeviceType::Virtual < DeviceType::Cpu);
        assert_eq!(DeviceType::from(vk::PhysicalDeviceType::CPU), DeviceType::Cpu);
    }
}
