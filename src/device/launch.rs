//! Launches: command buffers recorded, submitted under the queue's lock, and used again once they have ended.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ash::vk;

use super::buffer::Buffer;
use super::error::{Error, Result, check};
use super::family::Queue;
use super::logical::Device;
use super::pipeline::Kernel;
use super::timeline::Timeline;

/// How long a dropped queue waits for its launches before it leaks the device.
const DROP_PATIENCE: Duration = Duration::from_secs(2);

/// Launches kernels and copies on one queue, one after another.
///
/// Each is a submission with a value of its own on the queue's [`Timeline`], and sees all memory that earlier ones and
/// the host have written. What it uses is kept alive until it has ended.
pub struct LaunchQueue {
    pool: vk::CommandPool,
    timeline: Timeline,
    running: VecDeque<Running>,
    free: Vec<vk::CommandBuffer>,
    last: u64,
    submitted: Instant,
    copies: bool,
    device: Device,
}

struct Running {
    value: u64,
    commands: vk::CommandBuffer,
    _kernel: Option<Kernel>,
    _buffers: [Option<Buffer>; 2],
}

/// What a submission waits for.
#[derive(Clone, Copy)]
enum Order {
    /// All earlier ones.
    AfterAll,
    /// Those up to a value on the timeline.
    After(u64),
}

/// Bytes to copy from one buffer to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyRegion {
    /// First byte in the source.
    pub from: u64,
    /// First byte in the destination.
    pub to: u64,
    /// How many.
    pub bytes: u64,
}

impl Device {
    /// Makes a launch queue on the queue for kernels.
    ///
    /// # Errors
    /// What Vulkan reports.
    pub fn launch_queue(&self) -> Result<LaunchQueue> {
        LaunchQueue::new(self, false)
    }

    /// Makes a launch queue for [`LaunchQueue::copy`] and [`LaunchQueue::fill`] beside the queue for kernels; none
    /// where the device has a single queue.
    ///
    /// # Errors
    /// What Vulkan reports.
    pub fn copy_queue(&self) -> Result<Option<LaunchQueue>> {
        self.queues().1.is_some().then(|| LaunchQueue::new(self, true)).transpose()
    }
}

impl LaunchQueue {
    fn new(device: &Device, copies: bool) -> Result<Self> {
        let timeline = Timeline::new(device)?;
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(pick(device, copies).family);
        // SAFETY: the device is alive and was made with this family.
        let pool = check("vkCreateCommandPool", unsafe { device.raw().create_command_pool(&info, None) })?;
        let (running, free) = (VecDeque::new(), Vec::new());
        let submitted = Instant::now();
        Ok(Self { pool, timeline, running, free, last: 0, submitted, copies, device: device.clone() })
    }

    /// Launches a kernel; gives the launch's value on the timeline.
    ///
    /// # Errors
    /// [`Error::Mismatch`] and [`Error::Limit`] where parameters or workgroups don't fit, [`Error::ForeignObject`],
    /// [`Error::DeviceLost`], [`Error::OutOfMemory`]. Nothing was launched then.
    pub fn launch(&mut self, kernel: &Kernel, workgroups: [u32; 3], params: &[u32]) -> Result<u64> {
        self.launch_ordered(kernel, workgroups, params, Order::AfterAll)
    }

    /// Launches a kernel that may run beside earlier launches: it waits for those up to the value `after` only, and sees
    /// what they have written. Later launches by [`LaunchQueue::launch`] wait for it as for any.
    ///
    /// # Errors
    /// Those of [`LaunchQueue::launch`]; [`Error::Limit`] where `after` isn't a launch of this queue.
    pub fn launch_beside(&mut self, kernel: &Kernel, workgroups: [u32; 3], params: &[u32], after: u64) -> Result<u64> {
        if after > self.last {
            let name = kernel.pipeline().name().into();
            return Err(Error::Limit { name, what: "the launch to wait for", value: after, limit: self.last });
        }
        self.launch_ordered(kernel, workgroups, params, Order::After(after))
    }

    fn launch_ordered(&mut self, kernel: &Kernel, workgroups: [u32; 3], params: &[u32], order: Order) -> Result<u64> {
        if self.copies || !kernel.device().is(&self.device) {
            let other = if self.copies { "a queue for copies" } else { "the launch queue's" };
            return Err(Error::ForeignObject { name: kernel.pipeline().name().into(), other: other.into() });
        }
        kernel.check_launch(workgroups, params)?;
        let held = (Some(kernel.clone()), [None, None]);
        // SAFETY: the kernel is held until the submission has ended.
        self.submit(order, held, |_, commands| unsafe { kernel.record(commands, workgroups, params) })
    }

    /// Sets every word of a buffer.
    ///
    /// # Errors
    /// [`Error::ForeignObject`], [`Error::DeviceLost`], [`Error::OutOfMemory`]. Nothing was launched then.
    pub fn fill(&mut self, buffer: &Buffer, word: u32) -> Result<u64> {
        self.check_owner(buffer)?;
        let (held, raw) = ((None, [Some(buffer.clone()), None]), buffer.raw());
        self.submit(Order::AfterAll, held, |device, commands| {
            // SAFETY: the buffer is held until the submission has ended, and was made to be written by transfers.
            unsafe { device.cmd_fill_buffer(commands, raw, 0, vk::WHOLE_SIZE, word) };
        })
    }

    /// Copies from one buffer to another. The regions don't overlap where both are the same buffer.
    ///
    /// # Errors
    /// [`Error::Limit`] for a region beyond the end of a buffer, [`Error::ForeignObject`], [`Error::DeviceLost`],
    /// [`Error::OutOfMemory`]. Nothing was launched then.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer, regions: &[CopyRegion]) -> Result<u64> {
        for buffer in [from, to] {
            self.check_owner(buffer)?;
        }
        for region in regions {
            for (buffer, start) in [(from, region.from), (to, region.to)] {
                let value = start.saturating_add(region.bytes);
                if value > buffer.size() {
                    let (name, limit) = (buffer.name().to_owned(), buffer.size());
                    return Err(Error::Limit { name, what: "the end of a copied region", value, limit });
                }
            }
        }
        let region = |r: &CopyRegion| vk::BufferCopy { src_offset: r.from, dst_offset: r.to, size: r.bytes };
        let regions: Vec<_> = regions.iter().filter(|region| region.bytes > 0).map(region).collect();
        let (source, destination) = (from.raw(), to.raw());
        self.submit(Order::AfterAll, (None, [Some(from.clone()), Some(to.clone())]), |device, commands| {
            if !regions.is_empty() {
                // SAFETY: both buffers are held until the submission has ended, and the regions lie within them.
                unsafe { device.cmd_copy_buffer(commands, source, destination, &regions) };
            }
        })
    }

    /// The timeline, to wait on from other threads.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The last launch's value; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// When the last launch was handed to the driver, its commands recorded; when the queue was made, before the first.
    pub fn submitted(&self) -> Instant {
        self.submitted
    }

    /// The last launch that has ended, with all before it.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn reached(&self) -> Result<u64> {
        self.timeline.reached()
    }

    /// Waits until a launch has ended, but not longer than `patience`; says whether it has.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn wait(&self, value: u64, patience: Duration) -> Result<bool> {
        self.timeline.wait(value, patience)
    }

    /// Leaves everything as it is for the rest of the process: for a kernel that doesn't end. See [`Device::leak`].
    pub fn leak(self) {
        self.device.leak();
    }

    fn check_owner(&self, buffer: &Buffer) -> Result<()> {
        if buffer.device().is(&self.device) {
            return Ok(());
        }
        Err(Error::ForeignObject { name: buffer.name().into(), other: "the launch queue's".into() })
    }

    fn submit(
        &mut self,
        order: Order,
        held: (Option<Kernel>, [Option<Buffer>; 2]),
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<u64> {
        let commands = self.command_buffer()?;
        let submitted = self.record_and_submit(order, commands, record);
        match submitted {
            Ok((value, submitted)) => {
                let (_kernel, _buffers) = held;
                self.running.push_back(Running { value, commands, _kernel, _buffers });
                (self.last, self.submitted) = (value, submitted);
                Ok(value)
            }
            Err(error) => {
                self.free.push(commands);
                Err(error)
            }
        }
    }

    /// A command buffer that no submission uses.
    fn command_buffer(&mut self) -> Result<vk::CommandBuffer> {
        let reached = self.timeline.reached()?;
        let ended = self.running.iter().take_while(|running| running.value <= reached).count();
        self.free.extend(self.running.drain(..ended).map(|running| running.commands));
        if let Some(commands) = self.free.pop() {
            return Ok(commands);
        }
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
        // SAFETY: the pool is alive and only used through this value.
        let made = unsafe { self.device.raw().allocate_command_buffers(&info) };
        Ok(check("vkAllocateCommandBuffers", made)?.first().copied().unwrap_or_default())
    }

    fn record_and_submit(
        &self,
        order: Order,
        commands: vk::CommandBuffer,
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<(u64, Instant)> {
        let device = self.device.raw();
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: no submission uses the command buffer, and its pool allows resetting it.
        check("vkBeginCommandBuffer", unsafe { device.begin_command_buffer(commands, &info) })?;
        match order {
            Order::AfterAll => {
                barrier(device, commands, HOST_AND_DEVICE_WRITES, DEVICE_ACCESS);
                record(device, commands);
                barrier(device, commands, DEVICE_WRITES, HOST_AND_DEVICE_ACCESS);
            }
            // The semaphore orders it behind earlier launches, and submitting behind the host's writes.
            Order::After(_) => {
                record(device, commands);
                barrier(device, commands, DEVICE_WRITES, HOST_ACCESS);
            }
        }
        // SAFETY: the command buffer is recording.
        check("vkEndCommandBuffer", unsafe { device.end_command_buffer(commands) })?;
        let value = self.last + 1;
        let (buffers, semaphore, values) = ([commands], [self.timeline.raw()], [value]);
        let after = match order {
            Order::After(value) if value > 0 => Some(value),
            Order::After(_) | Order::AfterAll => None,
        };
        let stage = after.map(|_| DEVICE);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(after.as_slice())
            .signal_semaphore_values(&values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&semaphore[..after.as_slice().len()])
            .wait_dst_stage_mask(stage.as_slice())
            .command_buffers(&buffers)
            .signal_semaphores(&semaphore)
            .push_next(&mut timeline);
        let queue = pick(&self.device, self.copies);
        let _others_wait = queue.lock.lock();
        let now = Instant::now();
        // SAFETY: the queue's lock is held, and everything that is submitted lives until the submission has ended.
        let submitted = unsafe { device.queue_submit(queue.raw, &[info], vk::Fence::null()) };
        check("vkQueueSubmit", submitted)?;
        Ok((value, now))
    }
}

impl Drop for LaunchQueue {
    fn drop(&mut self) {
        if self.device.is_leaked() {
            return;
        }
        match self.timeline.wait(self.last, DROP_PATIENCE) {
            Ok(true) => {}
            Ok(false) => {
                log::error!("launch {} has not ended within {DROP_PATIENCE:?}: leaking its device", self.last);
                self.device.leak();
                return;
            }
            // A lost device runs nothing any more, so destroying is right.
            Err(error) => log::error!("dropping a launch queue: {error}"),
        }
        // SAFETY: no submission uses the pool's command buffers any more.
        unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
    }
}

fn pick(device: &Device, copies: bool) -> &Queue {
    let (compute, copy) = device.queues();
    copy.filter(|_| copies).unwrap_or(compute)
}

type Side = (vk::PipelineStageFlags, vk::AccessFlags);

const HOST: vk::PipelineStageFlags = vk::PipelineStageFlags::HOST;
/// Transfers and kernels; on a queue for copies this is transfers alone.
const DEVICE: vk::PipelineStageFlags = vk::PipelineStageFlags::ALL_COMMANDS;
const HOST_DEVICE: vk::PipelineStageFlags = vk::PipelineStageFlags::from_raw(HOST.as_raw() | DEVICE.as_raw());
const READ_WRITE: vk::AccessFlags =
    vk::AccessFlags::from_raw(vk::AccessFlags::MEMORY_READ.as_raw() | vk::AccessFlags::MEMORY_WRITE.as_raw());

const HOST_AND_DEVICE_WRITES: Side = (HOST_DEVICE, vk::AccessFlags::MEMORY_WRITE);
const DEVICE_ACCESS: Side = (DEVICE, READ_WRITE);
const DEVICE_WRITES: Side = (DEVICE, vk::AccessFlags::MEMORY_WRITE);
const HOST_ACCESS: Side = (HOST, READ_WRITE);
const HOST_AND_DEVICE_ACCESS: Side = (HOST_DEVICE, READ_WRITE);

/// Records a barrier over all memory: `after` waits for `before` and sees what it wrote.
fn barrier(device: &ash::Device, commands: vk::CommandBuffer, before: Side, after: Side) {
    let memory = [vk::MemoryBarrier::default().src_access_mask(before.1).dst_access_mask(after.1)];
    // SAFETY: the command buffer is recording, and every queue has these stages.
    unsafe {
        device.cmd_pipeline_barrier(commands, before.0, after.0, vk::DependencyFlags::empty(), &memory, &[], &[]);
    }
}
