//! A storage buffer with a device address, in memory of an admitted type.

use std::fmt;
use std::sync::Arc;

use ash::vk;
use gpu_allocator::vulkan::Allocation;

use super::error::{Error, Result, check};
use super::logical::Device;
use super::mapped::Mapped;
use super::memory::{MemoryType, Placement};

/// Buffers start at a multiple of this, on the host and on the device: no two share a line of any cache.
const ALIGNMENT: u64 = 256;

/// A buffer; clones are the same one. It lives until the last clone and the last launch that uses it are gone.
///
/// ```no_run
/// # fn main() -> Result<(), abide::device::Error> {
/// use abide::device::{Device, Placement, Selector};
///
/// let device = Device::open(&Selector::from_env()?)?;
/// let buffer = device.buffer("texels", 4096, Placement::Inlet)?;
/// if let Some(words) = buffer.mapped() {
///     words.write(0, &[1, 2, 3]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

struct Inner {
    name: String,
    raw: vk::Buffer,
    size: u64,
    address: u64,
    memory: MemoryType,
    mapped: Option<Mapped>,
    allocation: Option<Allocation>,
    device: Device,
}

impl Device {
    /// Makes a buffer of at least `bytes` bytes (whole words) where the admission test says. Mapped words start as
    /// zero, others as anything: see [`super::LaunchQueue::fill`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and [`Error::Limit`] where there isn't room, [`Error::DeviceLost`].
    pub fn buffer(&self, name: &str, bytes: u64, placement: Placement) -> Result<Buffer> {
        let report = self.report();
        let memory = match placement {
            Placement::Inlet => report.inlet,
            Placement::Outlet => report.outlet,
            Placement::State => report.state,
        };
        self.buffer_in(name, bytes, memory)
    }

    /// Makes a buffer in memory of one type.
    pub(super) fn buffer_in(&self, name: &str, bytes: u64, memory: MemoryType) -> Result<Buffer> {
        let limit = self.info().max_allocation;
        let size = bytes.max(4).checked_next_multiple_of(4).filter(|&size| size <= limit);
        let Some(size) = size else {
            return Err(Error::Limit { name: name.into(), what: "the size in bytes", value: bytes, limit });
        };
        let raw = self.make_buffer(size)?;
        let allocation = self.allocate_for(name, raw, memory.index);
        let allocation = match allocation {
            Ok(allocation) => allocation,
            Err(error) => {
                // SAFETY: the buffer was just made, has no memory and is used by nothing.
                unsafe { self.raw().destroy_buffer(raw, None) };
                return Err(error);
            }
        };
        let info = vk::BufferDeviceAddressInfo::default().buffer(raw);
        // SAFETY: the buffer was made for device addresses, and its memory is bound.
        let address = unsafe { self.raw().get_buffer_device_address(&info) };
        debug_assert_eq!(address % 64, 0, "{name} starts inside a line");
        let base = allocation.mapped_ptr().map(|base| base.cast::<u32>());
        // SAFETY: the allocation is mapped while it lives, at least `size` bytes long and not used by anyone yet.
        let mapped = base.map(|base| unsafe { Mapped::zeroed(base, (size / 4) as usize) });
        let allocation = Some(allocation);
        let name = name.to_owned();
        Ok(Buffer(Arc::new(Inner { name, raw, size, address, memory, mapped, allocation, device: self.clone() })))
    }

    /// Memory types that buffers can lie in.
    pub(super) fn buffer_memory_types(&self) -> Result<Vec<MemoryType>> {
        let raw = self.make_buffer(ALIGNMENT)?;
        // SAFETY: the buffer was just made by this device.
        let bits = unsafe { self.raw().get_buffer_memory_requirements(raw) }.memory_type_bits;
        // SAFETY: the buffer has no memory and is used by nothing.
        unsafe { self.raw().destroy_buffer(raw, None) };
        Ok(self.memory().types(bits).collect())
    }

    fn make_buffer(&self, size: u64) -> Result<vk::Buffer> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let families = self.families();
        let mut info = vk::BufferCreateInfo::default().size(size).usage(usage);
        if families.len() > 1 {
            info = info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(families);
        }
        // SAFETY: the device is alive and the structure lives until the call returns.
        check("vkCreateBuffer", unsafe { self.raw().create_buffer(&info, None) })
    }

    fn allocate_for(&self, name: &str, raw: vk::Buffer, memory_type: u32) -> Result<Allocation> {
        // SAFETY: the buffer was just made by this device.
        let mut needs = unsafe { self.raw().get_buffer_memory_requirements(raw) };
        needs.alignment = needs.alignment.max(ALIGNMENT);
        let allocation = self.memory().allocate(name, needs, memory_type)?;
        // SAFETY: the allocation owns the memory object, which outlives this block.
        let memory = unsafe { allocation.memory() };
        // SAFETY: the buffer has no memory yet, and the allocation fits its requirements.
        let bound = unsafe { self.raw().bind_buffer_memory(raw, memory, allocation.offset()) };
        match check("vkBindBufferMemory", bound) {
            Ok(()) => Ok(allocation),
            Err(error) => {
                self.memory().free(allocation);
                Err(error)
            }
        }
    }
}

impl Buffer {
    /// The buffer's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Size in bytes, a multiple of four.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// The device address of the first byte, a multiple of 64.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// The memory type that it lies in.
    pub fn memory_type(&self) -> MemoryType {
        self.0.memory
    }

    /// Its words as the host sees them; none where the host can't map the memory.
    pub fn mapped(&self) -> Option<&Mapped> {
        self.0.mapped.as_ref()
    }

    /// The Vulkan handle, valid while the buffer lives.
    pub fn raw(&self) -> vk::Buffer {
        self.0.raw
    }

    /// Keeps the buffer and its device for the rest of the process: for memory that a hung kernel may still write.
    pub fn leak(self) {
        std::mem::forget(self);
    }

    /// The device that it was made on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("name", &self.0.name)
            .field("size", &self.0.size)
            .field("address", &self.0.address)
            .field("memory", &self.0.memory)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.device.is_leaked() {
            return;
        }
        // SAFETY: launches hold clones of the buffers that they use, so none does any more.
        unsafe { self.device.raw().destroy_buffer(self.raw, None) };
        if let Some(allocation) = self.allocation.take() {
            self.device.memory().free(allocation);
        }
    }
}
