//! Which queues of a device are used: one for kernels, apart from graphics where possible, and one for copies.

use std::sync::Arc;

use ash::vk;
use parking_lot::Mutex;

/// A queue, and the lock that everyone who submits to it takes.
pub(super) struct Queue {
    pub(super) raw: vk::Queue,
    pub(super) family: u32,
    pub(super) lock: Arc<Mutex<()>>,
}

/// Place of a queue: its family, and its index in the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) family: u32,
    pub(super) index: u32,
}

/// Queues to make a device with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) compute: Place,
    pub(super) copy: Option<Place>,
}

/// Chooses queues; none where no family can compute.
///
/// Kernels get a family without graphics where there is one, since a resident kernel occupies its queue. Copies get
/// a family that can do nothing else, then another queue of the same family, then any other that can copy.
pub(super) fn choose(families: &[vk::QueueFamilyProperties]) -> Option<Choice> {
    let flags = |family: &vk::QueueFamilyProperties| family.queue_flags;
    let find = |fits: &dyn Fn(usize, vk::QueueFlags) -> bool| {
        let at = families.iter().enumerate().position(|(at, f)| f.queue_count > 0 && fits(at, flags(f)))?;
        Some(at as u32)
    };
    let (compute, graphics) = (vk::QueueFlags::COMPUTE, vk::QueueFlags::GRAPHICS);
    let video = vk::QueueFlags::VIDEO_DECODE_KHR | vk::QueueFlags::VIDEO_ENCODE_KHR | vk::QueueFlags::OPTICAL_FLOW_NV;
    let alone = find(&|_, f| f.contains(compute) && !f.contains(graphics));
    let family = alone.or_else(|| find(&|_, f| f.contains(compute)))?;
    let transfer = find(&|_, f| f.contains(vk::QueueFlags::TRANSFER) && !f.intersects(compute | graphics | video));
    let second = families.get(family as usize).is_some_and(|f| f.queue_count > 1);
    let other = || find(&|at, f| at as u32 != family && f.intersects(compute | graphics));
    let copy = match (transfer, second) {
        (Some(family), _) => Some(Place { family, index: 0 }),
        (None, true) => Some(Place { family, index: 1 }),
        (None, false) => other().map(|family| Place { family, index: 0 }),
    };
    Some(Choice { compute: Place { family, index: 0 }, copy })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(flags: vk::QueueFlags, queue_count: u32) -> vk::QueueFamilyProperties {
        vk::QueueFamilyProperties { queue_flags: flags, queue_count, ..Default::default() }
    }

    #[test]
    fn kernels_stay_apart_from_graphics_and_copies_from_kernels() {
        let all = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE | vk::QueueFlags::TRANSFER;
        let async_compute = vk::QueueFlags::COMPUTE | vk::QueueFlags::TRANSFER;
        let video = vk::QueueFlags::TRANSFER | vk::QueueFlags::VIDEO_DECODE_KHR;
        let place = |family, index| Place { family, index };

        let big = [family(all, 16), family(video, 1), family(vk::QueueFlags::TRANSFER, 2), family(async_compute, 8)];
        assert_eq!(choose(&big), Some(Choice { compute: place(3, 0), copy: Some(place(2, 0)) }));
        let no_transfer = [family(all, 1), family(async_compute, 2)];
        assert_eq!(choose(&no_transfer), Some(Choice { compute: place(1, 0), copy: Some(place(1, 1)) }));
        let single_each = [family(all, 1), family(async_compute, 1)];
        assert_eq!(choose(&single_each), Some(Choice { compute: place(1, 0), copy: Some(place(0, 0)) }));
        assert_eq!(choose(&[family(all, 1)]), Some(Choice { compute: place(0, 0), copy: None }));
        assert_eq!(choose(&[family(vk::QueueFlags::TRANSFER, 1)]), None);
    }
}
