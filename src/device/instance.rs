//! The Vulkan loader and an instance of its own or of the embedder's.

use std::ffi::CStr;
use std::sync::Arc;

use ash::vk;

use super::error::{Error, Result, check};
use super::info::DeviceInfo;
use super::messenger::{self, Messenger};

/// The Vulkan version that abide asks for and needs.
pub const API_VERSION: u32 = vk::API_VERSION_1_2;

/// An instance; clones are the same one.
///
/// ```no_run
/// # fn main() -> Result<(), abide::device::Error> {
/// for device in abide::device::Instance::new()?.devices()? {
///     println!("{device}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Instance(Arc<Inner>);

struct Inner {
    raw: ash::Instance,
    messenger: Option<Messenger>,
    owned: bool,
    /// Keeps the loader's library in the process.
    _entry: ash::Entry,
}

impl Instance {
    /// Loads the Vulkan loader and makes an instance.
    ///
    /// # Errors
    /// [`Error::NoLoader`], [`Error::NoDriver`] or [`Error::OldLoader`] where the machine isn't set up for Vulkan 1.2,
    /// and what making an instance can fail with.
    pub fn new() -> Result<Self> {
        // SAFETY: loading the library runs its initialisers; it is the system's Vulkan loader.
        let entry = unsafe { ash::Entry::load() }.map_err(Error::NoLoader)?;
        // SAFETY: the entry was loaded from the Vulkan loader.
        let found = check("vkEnumerateInstanceVersion", unsafe { entry.try_enumerate_instance_version() })?;
        let found = found.unwrap_or(vk::API_VERSION_1_0);
        if found < API_VERSION {
            return Err(Error::OldLoader { found, needed: API_VERSION });
        }
        let debug = messenger::is_wanted() && has_debug_utils(&entry)?;
        let application =
            vk::ApplicationInfo::default().application_name(c"abide").engine_name(c"abide").api_version(API_VERSION);
        let extensions = [ash::ext::debug_utils::NAME.as_ptr()];
        let info = vk::InstanceCreateInfo::default().application_info(&application).enabled_extension_names(if debug {
            &extensions
        } else {
            &[]
        });
        // SAFETY: the structures live until the call returns, and the extension is one that the loader has.
        let raw = unsafe { entry.create_instance(&info, None) };
        let raw = match raw {
            Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => return Err(Error::NoDriver),
            raw => check("vkCreateInstance", raw)?,
        };
        let mut inner = Inner { raw, messenger: None, owned: true, _entry: entry };
        if debug {
            inner.messenger = Some(Messenger::new(&inner._entry, &inner.raw)?);
        }
        Ok(Self(Arc::new(inner)))
    }

    /// Takes the embedder's instance, which stays the embedder's to destroy.
    pub(super) fn borrowed(entry: ash::Entry, raw: ash::Instance) -> Self {
        Self(Arc::new(Inner { raw, messenger: None, owned: false, _entry: entry }))
    }

    /// All devices, in the loader's order.
    ///
    /// # Errors
    /// [`Error::NoDriver`] where there are none, and what the enumeration can fail with.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let physical = self.physical_devices()?;
        let infos = physical.iter().enumerate().map(|(at, &physical)| DeviceInfo::read(&self.0.raw, physical, at));
        Ok(infos.collect())
    }

    pub(super) fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>> {
        // SAFETY: the instance is alive.
        let found = unsafe { self.0.raw.enumerate_physical_devices() };
        match found {
            Err(vk::Result::ERROR_INITIALIZATION_FAILED) => Err(Error::NoDriver),
            Ok(list) if list.is_empty() => Err(Error::NoDriver),
            found => check("vkEnumeratePhysicalDevices", found),
        }
    }

    /// The instance's functions.
    pub fn raw(&self) -> &ash::Instance {
        &self.0.raw
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        if let Some(messenger) = &self.messenger {
            // SAFETY: the instance is destroyed below, and the messenger only here.
            unsafe { messenger.destroy() };
        }
        // SAFETY: every device holds a clone of the instance, so none is left.
        unsafe { self.raw.destroy_instance(None) };
    }
}

fn has_debug_utils(entry: &ash::Entry) -> Result<bool> {
    // SAFETY: the entry was loaded from the Vulkan loader.
    let found = unsafe { entry.enumerate_instance_extension_properties(None) };
    let found = check("vkEnumerateInstanceExtensionProperties", found)?;
    let is_debug = |name: Result<&CStr, _>| name.is_ok_and(|name: &CStr| name == ash::ext::debug_utils::NAME);
    Ok(found.iter().any(|extension| is_debug(extension.extension_name_as_c_str())))
}
