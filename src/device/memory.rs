//! Memory types, and the allocator over them.
//!
//! gpu-allocator would fall back from one memory type to another in silence; here the type is always given.

use std::mem::ManuallyDrop;

use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationError, AllocationSizes, MemoryLocation};
use parking_lot::Mutex;

use super::error::{Error, Result};

const MIB: u64 = 1 << 20;

/// Memory types that need a feature or a use of their own.
const SPECIAL: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::PROTECTED.as_raw()
        | vk::MemoryPropertyFlags::LAZILY_ALLOCATED.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_COHERENT_AMD.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_UNCACHED_AMD.as_raw()
        | vk::MemoryPropertyFlags::RDMA_CAPABLE_NV.as_raw(),
);

/// Memory that the host can map and that needs no flushes.
pub(super) const COHERENT: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw() | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);

/// What a buffer is for. The admission test decides in which memory it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Written by the host, read by kernels.
    Inlet,
    /// Written by kernels, read by the host.
    Outlet,
    /// For kernels alone; mapped too where the device has such memory.
    State,
}

/// A memory type that buffers can lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryType {
    /// Its number on the device.
    pub index: u32,
    /// Its properties.
    pub flags: vk::MemoryPropertyFlags,
}

/// The allocator and the types that it may use.
pub(super) struct Memory {
    allocator: Mutex<ManuallyDrop<Allocator>>,
    types: Vec<MemoryType>,
}

impl Memory {
    /// Makes the allocator, over memory types that say of themselves what `relabel` leaves of it.
    pub(super) fn new(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        device: &ash::Device,
        relabel: Relabel,
    ) -> Result<Self> {
        // SAFETY: the instance is alive and the physical device is its own.
        let properties = unsafe { instance.get_physical_device_memory_properties(physical) };
        let types = properties.memory_types_as_slice().iter().zip(0..);
        let types = types.map(|(raw, index)| MemoryType { index, flags: relabel.apply(raw.property_flags) });
        let types = types.filter(|memory| !memory.flags.intersects(SPECIAL)).collect();
        let desc = AllocatorCreateDesc {
            instance: instance.clone(),
            device: device.clone(),
            physical_device: physical,
            debug_settings: Default::default(),
            buffer_device_address: true,
            allocation_sizes: AllocationSizes::new(8 * MIB, 8 * MIB)
                .with_max_device_memblock_size(256 * MIB)
                .with_max_host_memblock_size(64 * MIB),
        };
        let allocator = Allocator::new(&desc).map_err(|source| refusal("the allocator", 0, source))?;
        Ok(Self { allocator: Mutex::new(ManuallyDrop::new(allocator)), types })
    }

    /// Memory types that buffers may lie in, of those in `bits`.
    pub(super) fn types(&self, bits: u32) -> impl Iterator<Item = MemoryType> + '_ {
        self.types.iter().copied().filter(move |memory| bits & (1 << memory.index) != 0)
    }

    /// Allocates memory of exactly the given type.
    pub(super) fn allocate(&self, name: &str, needs: vk::MemoryRequirements, memory_type: u32) -> Result<Allocation> {
        let bits = needs.memory_type_bits & (1 << memory_type);
        if bits == 0 {
            return Err(Error::NoMemoryType { name: name.into(), wanted: "the admitted type can't hold this buffer" });
        }
        let requirements = vk::MemoryRequirements { memory_type_bits: bits, ..needs };
        let desc = AllocationCreateDesc {
            name,
            requirements,
            // Asks for no property, so that the mask alone decides.
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        self.allocator.lock().allocate(&desc).map_err(|source| refusal(name, needs.size, source))
    }

    /// Gives memory back.
    pub(super) fn free(&self, allocation: Allocation) {
        if let Err(error) = self.allocator.lock().free(allocation) {
            log::error!("gpu-allocator can't take memory back: {error}");
        }
    }

    /// Frees every block of memory.
    ///
    /// # Safety
    /// - The device is alive and nothing on it uses the memory.
    /// - This is called once, and nothing else is called afterwards.
    pub(super) unsafe fn destroy(&mut self) {
        // SAFETY: the caller promises that this is called once, and last.
        unsafe { ManuallyDrop::drop(self.allocator.get_mut()) };
    }
}

/// A change of what memory types say of themselves, so that tests can simulate other devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Relabel {
    /// As the device says.
    #[default]
    Nothing,
    /// Memory that the host can map is not device-local: a device without a window into its memory.
    NoSharedMemory,
}

impl Relabel {
    fn apply(self, flags: vk::MemoryPropertyFlags) -> vk::MemoryPropertyFlags {
        match self {
            Self::NoSharedMemory if flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE) => {
                flags & !vk::MemoryPropertyFlags::DEVICE_LOCAL
            }
            _ => flags,
        }
    }
}

fn refusal(name: &str, bytes: u64, source: AllocationError) -> Error {
    match source {
        AllocationError::OutOfMemory => Error::OutOfMemory { memory: "device", name: name.into(), bytes },
        source => Error::Allocation { name: name.into(), bytes, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relabelling_takes_the_window_away() {
        let window = vk::MemoryPropertyFlags::DEVICE_LOCAL | COHERENT;
        assert_eq!(Relabel::NoSharedMemory.apply(window), COHERENT);
        assert_eq!(Relabel::Nothing.apply(window), window);
        let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
        assert_eq!(Relabel::NoSharedMemory.apply(local), local);
    }
    #[test]
    fn running_out_is_told_from_other_refusals() {
        let out = refusal("tile", 64, AllocationError::OutOfMemory);
        assert_eq!(out.to_string(), "out of device memory for tile (64 bytes): free some, or ask for less");
        let other = refusal("tile", 64, AllocationError::NoCompatibleMemoryTypeFound);
        assert!(matches!(other, Error::Allocation { bytes: 64, .. }), "{other}");
    }
}
