//! What an embedder hands over so that abide works on its device.

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use parking_lot::Mutex;

/// An embedder's Vulkan objects, for [`super::DeviceBuilder::adopt`].
pub struct RawParts {
    /// The loader; kept so that its library stays in the process.
    pub entry: ash::Entry,
    /// The instance.
    pub instance: ash::Instance,
    /// The Vulkan version that the instance was made with (`VkApplicationInfo::apiVersion`).
    pub api_version: u32,
    /// The physical device.
    pub physical_device: vk::PhysicalDevice,
    /// The device.
    pub device: ash::Device,
    /// Who destroys the device.
    pub ownership: Ownership,
    /// The queue for kernels.
    pub queue: RawQueue,
    /// A queue for copies that is another one than `queue`.
    pub copy_queue: Option<RawQueue>,
    /// Further queue families that will use abide's buffers.
    pub other_families: Vec<u32>,
}

/// An embedder's queue.
pub struct RawQueue {
    /// The queue.
    pub queue: vk::Queue,
    /// Its family.
    pub family: u32,
    /// The lock that everyone takes who submits to the queue or waits for it to be idle.
    pub lock: Arc<Mutex<()>>,
    /// Who else uses the queue.
    pub queue_use: QueueUse,
}

/// Who uses an adopted queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueUse {
    /// Abide alone: a resident kernel may occupy it.
    Exclusive,
    /// The embedder too: kernels leave after short slices, so that its submissions get their turn.
    Shared,
}

/// Who destroys an adopted instance and device.
pub enum Ownership {
    /// Abide destroys the device when the last clone of it is gone; the instance stays the embedder's.
    Owned,
    /// The embedder, once abide has dropped the guard, if there is one. Where a hung kernel makes abide leak the
    /// device, the guard is never dropped.
    Borrowed(Option<Box<dyn Any + Send + Sync>>),
}
