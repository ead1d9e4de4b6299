//! A device: opened by abide, or adopted from an embedder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;
use parking_lot::Mutex;

use super::admission::{self, Mode, Report};
use super::cache::{CacheFile, CacheStatus, PipelineCache};
use super::error::{Error, Result, check};
use super::family::{self, Choice, Queue};
use super::info::DeviceInfo;
use super::instance::Instance;
use super::memory::{Memory, Relabel};
use super::quirk::{self, Quirk, QuirkRow};
use super::raw::{Ownership, QueueUse, RawParts, RawQueue};
use super::requirements::{self, requirements};
use super::residents::Residents;
use super::select::Selector;

/// A Vulkan device that has passed the admission test; clones are the same one.
///
/// Buffers, pipelines and queues hold a clone, so the device goes last.
///
/// ```no_run
/// # fn main() -> Result<(), abide::device::Error> {
/// use abide::device::{Device, Selector};
///
/// let device = Device::open(&Selector::from_env()?)?;
/// println!("{}: {:?}, because {}", device.info(), device.report().mode, device.report().reason);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device(Arc<Shared>);

struct Shared {
    raw: ash::Device,
    info: DeviceInfo,
    compute: Queue,
    copy: Option<Queue>,
    /// Families of all queues that use buffers, each once.
    families: Vec<u32>,
    memory: Memory,
    cache: PipelineCache,
    report: Report,
    leaked: AtomicBool,
    residents: Residents,
    ownership: Option<Ownership>,
    instance: Instance,
}

/// Opens or adopts a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceBuilder {
    selector: Selector,
    cache: CacheFile,
    relabel: Relabel,
}

impl DeviceBuilder {
    /// Which device to open; [`Selector::Best`] by default.
    pub fn selector(mut self, selector: Selector) -> Self {
        self.selector = selector;
        self
    }

    /// Where pipelines are kept from one process to the next.
    pub fn pipeline_cache(mut self, file: CacheFile) -> Self {
        self.cache = file;
        self
    }

    /// Changes what memory types say of themselves: for tests of devices that aren't at hand.
    pub fn relabel(mut self, relabel: Relabel) -> Self {
        self.relabel = relabel;
        self
    }

    /// Opens the device with an instance of its own, and tests it.
    ///
    /// # Errors
    /// Those of [`Instance::new`] and of [`DeviceBuilder::open_on`].
    pub fn open(self) -> Result<Device> {
        self.open_on(&Instance::new()?)
    }

    /// Opens the device on an instance, and tests it.
    ///
    /// # Errors
    /// [`super::Error::NoMatch`], [`super::Error::Unsupported`], and what Vulkan reports while the device is made
    /// and tested.
    pub fn open_on(self, instance: &Instance) -> Result<Device> {
        let physical = instance.physical_devices()?;
        let infos = instance.devices()?;
        let info = self.selector.choose(&infos)?.clone();
        let physical = physical.get(info.index).copied().unwrap_or_default();
        // SAFETY: the instance is alive and the physical device is its own.
        let families = unsafe { instance.raw().get_physical_device_queue_family_properties(physical) };
        let Some(choice) = family::choose(&families) else {
            let missing = "a queue family for compute".to_owned();
            return Err(requirements::missing(&info, missing, "choose another device with ABIDE_DEVICE"));
        };
        let guard = Guard { raw: make(instance, physical, choice)?, ownership: Some(Ownership::Owned) };
        let queue = |place: family::Place| Queue {
            // SAFETY: the device was just made with this queue.
            raw: unsafe { guard.raw.get_device_queue(place.family, place.index) },
            family: place.family,
            lock: Arc::new(Mutex::new(())),
        };
        let queues = (queue(choice.compute), choice.copy.map(queue));
        let relabel = self.relabel;
        let made = Made { guard, info, queues, other_families: Vec::new() };
        self.assemble(instance.clone(), physical, made)?.admit(relabel, QueueUse::Exclusive)
    }

    /// Adopts an embedder's device, and tests it with short kernels on its queue.
    ///
    /// # Errors
    /// [`super::Error::Unsupported`] where the device can't be used, and what Vulkan reports while it is tested. What
    /// `parts` says of ownership holds then too.
    ///
    /// # Safety
    /// - All handles are valid, belong to one another, and stay so until the last clone of the device and of everything
    ///   made from it is gone; where a guard is given, until it is dropped.
    /// - The device was made with what [`requirements`] lists, on an instance of at least its version.
    /// - Each queue is of the family given with it, and that family can do compute (for copies: transfers).
    /// - Everyone who submits to a given queue, or waits for it or the device to be idle, holds the queue's lock then.
    /// - A queue that is given as [`QueueUse::Exclusive`] is used by no one else.
    pub unsafe fn adopt(self, parts: RawParts) -> Result<Device> {
        let guard = Guard { raw: parts.device, ownership: Some(parts.ownership) };
        let instance = Instance::borrowed(parts.entry, parts.instance);
        let info = DeviceInfo::read(instance.raw(), parts.physical_device, 0);
        requirements::check_enabled(&info, parts.api_version)?;
        let queue_use = parts.queue.queue_use;
        let queue = |raw: RawQueue| Queue { raw: raw.queue, family: raw.family, lock: raw.lock };
        let queues = (queue(parts.queue), parts.copy_queue.map(queue));
        let (relabel, other_families) = (self.relabel, parts.other_families);
        let made = Made { guard, info, queues, other_families };
        self.assemble(instance, parts.physical_device, made)?.admit(relabel, queue_use)
    }

    fn assemble(self, instance: Instance, physical: vk::PhysicalDevice, made: Made) -> Result<Device> {
        let Made { guard, info, queues: (compute, copy), other_families } = made;
        let cache = PipelineCache::new(&guard.raw, &info, &self.cache)?;
        let memory = Memory::new(instance.raw(), physical, &guard.raw, self.relabel);
        let memory = match memory {
            Ok(memory) => memory,
            Err(error) => {
                // SAFETY: nothing has used the cache yet.
                unsafe { cache.destroy(&guard.raw) };
                return Err(error);
            }
        };
        let mut families: Vec<_> = [compute.family].into_iter().chain(copy.as_ref().map(|copy| copy.family)).collect();
        families.extend(other_families);
        families.sort_unstable();
        families.dedup();
        let (raw, ownership) = guard.release();
        Ok(Device(Arc::new(Shared {
            raw,
            info,
            compute,
            copy,
            families,
            memory,
            cache,
            report: Report::untested(),
            leaked: AtomicBool::new(false),
            residents: Residents::default(),
            ownership,
            instance,
        })))
    }
}

/// A device's parts before it is assembled.
struct Made {
    guard: Guard,
    info: DeviceInfo,
    queues: (Queue, Option<Queue>),
    other_families: Vec<u32>,
}

/// Destroys a device that is abide's to destroy where assembling fails.
struct Guard {
    raw: ash::Device,
    ownership: Option<Ownership>,
}

impl Guard {
    fn release(mut self) -> (ash::Device, Option<Ownership>) {
        (self.raw.clone(), self.ownership.take())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(Ownership::Owned) = self.ownership {
            // SAFETY: nothing that was made from the device is left.
            unsafe { self.raw.destroy_device(None) };
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.0.info.name)
            .field("mode", &self.0.report.mode)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the device that a selector says, and tests it.
    ///
    /// # Errors
    /// Those of [`DeviceBuilder::open`].
    pub fn open(selector: &Selector) -> Result<Self> {
        Self::builder().selector(selector.clone()).open()
    }

    /// Starts opening or adopting a device with other than the default options.
    pub fn builder() -> DeviceBuilder {
        DeviceBuilder::default()
    }

    /// Adopts an embedder's device with the default options.
    ///
    /// # Errors
    /// Those of [`DeviceBuilder::adopt`].
    ///
    /// # Safety
    /// The duties of [`DeviceBuilder::adopt`].
    pub unsafe fn from_raw(parts: RawParts) -> Result<Self> {
        // SAFETY: the caller takes on the same duties.
        unsafe { Self::builder().adopt(parts) }
    }

    /// Identity, driver and limits.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// What the admission test found.
    pub fn report(&self) -> &Report {
        &self.0.report
    }

    /// The row of a quirk, where the device's driver has it.
    pub fn quirk(&self, quirk: Quirk) -> Option<&'static QuirkRow> {
        quirk::quirk(&self.0.info, quirk)
    }

    /// What became of the pipeline cache's file.
    pub fn cache_status(&self) -> &CacheStatus {
        self.0.cache.status()
    }

    /// Writes the pipeline cache's file where pipelines were made since the last time. Dropping the device does it too.
    ///
    /// # Errors
    /// [`super::Error::CacheFile`], and what Vulkan reports.
    pub fn save_pipeline_cache(&self) -> Result<()> {
        self.0.cache.save(&self.0.raw)
    }

    /// Destroys nothing of this device from now on: for a kernel that doesn't end, and may still write its memory.
    pub fn leak(&self) {
        // Whoever drops an object afterwards on another thread came by it through some synchronisation of its own.
        self.0.leaked.store(true, Ordering::Release);
    }

    /// Whether [`Device::leak`] was called.
    pub fn is_leaked(&self) -> bool {
        // Partner of the store in `leak`.
        self.0.leaked.load(Ordering::Acquire)
    }

    /// Whether both are the same opened device.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The Vulkan functions and the handle, valid while the device lives.
    pub fn raw(&self) -> &ash::Device {
        &self.0.raw
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    pub(super) fn cache(&self) -> &PipelineCache {
        &self.0.cache
    }

    pub(super) fn families(&self) -> &[u32] {
        &self.0.families
    }

    /// Those who keep kernels on the queue for kernels.
    pub(crate) fn residents(&self) -> &Residents {
        &self.0.residents
    }

    /// The queue for kernels, and the one for copies.
    pub(super) fn queues(&self) -> (&Queue, Option<&Queue>) {
        (&self.0.compute, self.0.copy.as_ref())
    }

    /// Runs the admission test on a device that nobody else has yet.
    fn admit(mut self, relabel: Relabel, queue_use: QueueUse) -> Result<Self> {
        let mut report = admission::report(&self, relabel)?;
        if queue_use == QueueUse::Shared && report.mode == Mode::Resident {
            report.mode = Mode::Epochs;
            report.reason = "the embedder uses the queue too, which a resident kernel would occupy".into();
        }
        // The test has dropped all that it made, unless a launch of it never ended.
        let shared = Arc::get_mut(&mut self.0);
        let hung = Error::Hung { what: "the admission test", patience: admission::PATIENCE };
        shared.ok_or(hung)?.report = report;
        Ok(self)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.leaked.load(Ordering::Acquire) {
            std::mem::forget(self.ownership.take());
            std::mem::forget(self.instance.clone());
            return;
        }
        if let Err(error) = self.cache.save(&self.raw) {
            log::warn!("{error}");
        }
        // SAFETY: everything made from the device holds a clone of it, so nothing of it is left but what is here.
        unsafe { self.cache.destroy(&self.raw) };
        // SAFETY: as above; this is the only call, and the last.
        unsafe { self.memory.destroy() };
        if let Some(Ownership::Owned) = self.ownership {
            // SAFETY: as above, and launch queues have waited for their submissions.
            unsafe { self.raw.destroy_device(None) };
        }
    }
}

fn make(instance: &Instance, physical: vk::PhysicalDevice, choice: Choice) -> Result<ash::Device> {
    // SAFETY: the instance is alive and the physical device is its own.
    let mut needs = unsafe { requirements(instance.raw(), physical) }?;
    // Kernels come before copies, and a second queue of the same family is made together with the first.
    let priorities = [1.0, 0.5];
    let info = |family, count: usize| {
        vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities[..count])
    };
    let queues = match choice.copy {
        Some(copy) if copy.family == choice.compute.family => vec![info(copy.family, 2)],
        Some(copy) => vec![info(choice.compute.family, 1), info(copy.family, 1)],
        None => vec![info(choice.compute.family, 1)],
    };
    let extensions: Vec<_> = needs.extensions.iter().map(|name| name.as_ptr()).collect();
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions)
        .push_next(&mut needs.features);
    // SAFETY: the structures live until the call returns, and the device has what is asked for, as `requirements`
    // found.
    check("vkCreateDevice", unsafe { instance.raw().create_device(physical, &info, None) })
}
