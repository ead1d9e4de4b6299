//! A device that the test makes as an embedder would.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide::device::{Device, Error, Mode, Ownership, QueueUse, RawParts, RawQueue, requirements};
use ash::vk;
use parking_lot::Mutex;

use super::{assert_valid, driver, launch, open};

/// An embedder's Vulkan objects.
struct Embedder {
    entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    family: u32,
    lock: Arc<Mutex<()>>,
}

impl Embedder {
    fn new() -> Self {
        // SAFETY: the driver's test environment has a sound loader.
        let entry = unsafe { ash::Entry::load() }.unwrap();
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live until the call returns.
        let instance = unsafe { entry.create_instance(&info, None) }.unwrap();
        // SAFETY: the instance is alive.
        let physical = unsafe { instance.enumerate_physical_devices() }.unwrap()[0];
        // SAFETY: the physical device is the instance's.
        let mut needs = unsafe { requirements(&instance, physical) }.unwrap();
        assert!(needs.api_version <= vk::API_VERSION_1_2 && needs.extensions.is_empty());
        // SAFETY: as above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let family = families.iter().position(|f| f.queue_flags.contains(vk::QueueFlags::COMPUTE)).unwrap() as u32;
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut needs.features);
        // SAFETY: the device has what is enabled, as `requirements` found.
        let device = unsafe { instance.create_device(physical, &info, None) }.unwrap();
        Self { entry, instance, physical, device, family, lock: Arc::default() }
    }

    fn parts(&self, queue_use: QueueUse, ownership: Ownership) -> RawParts {
        // SAFETY: the device was made with this queue.
        let queue = unsafe { self.device.get_device_queue(self.family, 0) };
        RawParts {
            entry: self.entry.clone(),
            instance: self.instance.clone(),
            api_version: vk::API_VERSION_1_2,
            physical_device: self.physical,
            device: self.device.clone(),
            ownership,
            queue: RawQueue { queue, family: self.family, lock: self.lock.clone(), queue_use },
            copy_queue: None,
            other_families: Vec::new(),
        }
    }

    fn destroy(self, with_device: bool) {
        if with_device {
            // SAFETY: abide has dropped all that it made from the device.
            unsafe { self.device.destroy_device(None) };
        }
        // SAFETY: the device is destroyed.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// Tells when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn borrowed_device_stays_the_embedders() {
    if driver().is_none() {
        return;
    }
    let embedder = Embedder::new();
    let dropped = Arc::new(AtomicBool::new(false));
    let ownership = Ownership::Borrowed(Some(Box::new(Flag(dropped.clone()))));
    // SAFETY: the embedder made the device by the requirements, and destroys it after abide has dropped it.
    let device = unsafe { Device::from_raw(embedder.parts(QueueUse::Exclusive, ownership)) }.unwrap();
    assert_eq!(device.report().mode, open().report().mode);
    launch::scales(&device);
    assert!(!dropped.load(Ordering::SeqCst));
    drop(device);
    assert!(dropped.load(Ordering::SeqCst), "the guard is dropped with the device");
    // SAFETY: the device is the embedder's, and nothing runs on it.
    unsafe { embedder.device.device_wait_idle() }.unwrap();
    embedder.destroy(true);
    assert_valid();
}

#[test]
fn shared_queue_means_epochs_under_its_lock() {
    if driver().is_none() {
        return;
    }
    let embedder = Embedder::new();
    let parts = embedder.parts(QueueUse::Shared, Ownership::Borrowed(None));
    // SAFETY: as above.
    let device = unsafe { Device::from_raw(parts) }.unwrap();
    let report = device.report().clone();
    assert_eq!(report.mode, Mode::Epochs);
    if report.loop_limit.is_none() {
        assert!(report.reason.contains("the embedder uses the queue too"), "{}", report.reason);
    }
    let held = embedder.lock.lock();
    let busy = device.clone();
    let thread = std::thread::spawn(move || launch::scales(&busy));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!thread.is_finished(), "a launch waits for the embedder's lock");
    drop(held);
    thread.join().unwrap();
    drop(device);
    embedder.destroy(true);
}

#[test]
fn owned_device_is_destroyed_by_abide() {
    if driver().is_none() {
        return;
    }
    let embedder = Embedder::new();
    let parts = embedder.parts(QueueUse::Exclusive, Ownership::Owned);
    // SAFETY: as above; abide destroys the device.
    let device = unsafe { Device::from_raw(parts) }.unwrap();
    launch::scales(&device);
    drop(device);
    embedder.destroy(false);
    assert_valid();
}

#[test]
fn old_instance_is_refused() {
    if driver().is_none() {
        return;
    }
    let embedder = Embedder::new();
    let mut parts = embedder.parts(QueueUse::Exclusive, Ownership::Borrowed(None));
    parts.api_version = vk::API_VERSION_1_1;
    // SAFETY: as above.
    let refused = unsafe { Device::from_raw(parts) }.err().unwrap();
    assert!(matches!(&refused, Error::Unsupported { missing, .. } if missing.contains("1.1")), "{refused}");
    embedder.destroy(true);
}
