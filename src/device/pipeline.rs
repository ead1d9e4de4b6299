//! A compute pipeline, and a kernel: a pipeline with its buffers, ready to launch.

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use ash::vk;

use super::buffer::Buffer;
use super::error::{Error, Result, check};
use super::logical::Device;
use super::quirk::Quirk;
use crate::spirv::WORKGROUP_SIZE_SPEC_ID;

/// What a pipeline is made of.
#[derive(Clone, Copy, Debug)]
pub struct PipelineDesc<'a> {
    /// Name, for errors.
    pub name: &'a str,
    /// SPIR-V.
    pub words: &'a [u32],
    /// Name of the entry point.
    pub entry: &'a CStr,
    /// Invocations of a workgroup, given to specialization constant 0; a module without one keeps its own size.
    pub width: u32,
    /// Words of push constants.
    pub params: u32,
    /// Storage buffers: bindings 0 up to this in set 0.
    pub buffers: u32,
}

/// A compute pipeline; clones are the same one.
#[derive(Clone)]
pub struct Pipeline(Arc<Inner>);

struct Inner {
    name: String,
    raw: vk::Pipeline,
    layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
    params: u32,
    buffers: u32,
    device: Device,
}

impl Pipeline {
    /// Makes a pipeline, through the device's pipeline cache.
    ///
    /// # Errors
    /// [`Error::Limit`] where the device doesn't allow it, and what Vulkan reports.
    ///
    /// # Safety
    /// - The words are valid SPIR-V for a Vulkan 1.2 device with the features of [`super::requirements()`].
    /// - Every kernel of it, with the parameters that it is launched with, accesses only the buffers bound to it
    ///   (within their sizes) and device addresses within buffers that live until the launch has ended.
    /// - Every launch ends by itself, or by what the caller does.
    pub unsafe fn new(device: &Device, desc: &PipelineDesc<'_>) -> Result<Self> {
        check_limits(device, desc)?;
        let mut inner = Inner {
            name: desc.name.to_owned(),
            raw: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layout: set_layout(device, desc.buffers)?,
            params: desc.params,
            buffers: desc.buffers,
            device: device.clone(),
        };
        // From here on, dropping `inner` destroys what there is.
        inner.layout = layout(device, inner.set_layout, desc.params)?;
        let hung = || Error::Hung { what: "a kernel on the device", patience: ROOM_PATIENCE };
        // SAFETY: the caller promises valid words.
        let made = alone(device, || unsafe { pipeline(device, inner.layout, desc) });
        inner.raw = made.ok_or_else(hung)??;
        Ok(Self(Arc::new(inner)))
    }

    /// Binds buffers, in the order of their bindings.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for another number of buffers than the pipeline takes, [`Error::Limit`] for a buffer that is
    /// too large for a binding, [`Error::ForeignObject`], and what Vulkan reports.
    pub fn bind(&self, buffers: &[&Buffer]) -> Result<Kernel> {
        let Inner { name, device, .. } = &*self.0;
        if buffers.len() != self.0.buffers as usize {
            let (expected, given) = (u64::from(self.0.buffers), buffers.len() as u64);
            return Err(Error::Mismatch { name: name.clone(), what: "buffers", expected, given });
        }
        let limit = u64::from(device.info().limits.max_storage_buffer_range);
        for buffer in buffers {
            if !buffer.device().is(device) {
                return Err(Error::ForeignObject { name: buffer.name().into(), other: name.clone() });
            }
            if buffer.size() > limit {
                let (name, value) = (buffer.name().to_owned(), buffer.size());
                return Err(Error::Limit { name, what: "the size in bytes of a bound buffer", value, limit });
            }
        }
        let pool = pool(device, self.0.buffers)?;
        let mut bound = Bound {
            pipeline: self.clone(),
            buffers: buffers.iter().map(|&buffer| buffer.clone()).collect(),
            pool,
            set: vk::DescriptorSet::null(),
        };
        let layouts = [self.0.set_layout];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: the pool was just made for one such set.
        let sets = check("vkAllocateDescriptorSets", unsafe { device.raw().allocate_descriptor_sets(&info) })?;
        bound.set = sets.first().copied().unwrap_or_default();
        bound.write();
        Ok(Kernel(Arc::new(bound)))
    }

    /// The pipeline's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// A pipeline with its buffers bound; clones are the same one. It keeps its buffers alive.
#[derive(Clone)]
pub struct Kernel(Arc<Bound>);

struct Bound {
    pipeline: Pipeline,
    buffers: Vec<Buffer>,
    pool: vk::DescriptorPool,
    set: vk::DescriptorSet,
}

impl Bound {
    fn write(&self) {
        let whole = |buffer: &Buffer| [vk::DescriptorBufferInfo::default().buffer(buffer.raw()).range(vk::WHOLE_SIZE)];
        let infos: Vec<_> = self.buffers.iter().map(whole).collect();
        let writes: Vec<_> = infos
            .iter()
            .zip(0..)
            .map(|(info, binding)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(self.set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(info)
            })
            .collect();
        // SAFETY: the set is new, so no launch uses it, and the buffers are alive.
        unsafe { self.pipeline.0.device.raw().update_descriptor_sets(&writes, &[]) };
    }
}

impl Kernel {
    /// The pipeline.
    pub fn pipeline(&self) -> &Pipeline {
        &self.0.pipeline
    }

    /// The bound buffers.
    pub fn buffers(&self) -> &[Buffer] {
        &self.0.buffers
    }

    pub(super) fn device(&self) -> &Device {
        &self.0.pipeline.0.device
    }

    /// Checks what a launch passes.
    pub(super) fn check_launch(&self, workgroups: [u32; 3], params: &[u32]) -> Result<()> {
        let Inner { name, params: expected, device, .. } = &*self.0.pipeline.0;
        if params.len() != *expected as usize {
            let (expected, given) = (u64::from(*expected), params.len() as u64);
            return Err(Error::Mismatch { name: name.clone(), what: "words of parameters", expected, given });
        }
        let most = device.info().limits.max_compute_work_group_count;
        match workgroups.into_iter().zip(most).find(|(count, most)| count > most) {
            Some((value, limit)) => Err(Error::Limit {
                name: name.clone(),
                what: "the number of workgroups in one direction",
                value: value.into(),
                limit: limit.into(),
            }),
            None => Ok(()),
        }
    }

    /// Records binding and dispatch.
    ///
    /// # Safety
    /// The command buffer is recording, and its submission has ended before the kernel is dropped.
    pub(super) unsafe fn record(&self, commands: vk::CommandBuffer, workgroups: [u32; 3], params: &[u32]) {
        let Inner { device, raw, layout, .. } = &*self.0.pipeline.0;
        let (device, point) = (device.raw(), vk::PipelineBindPoint::COMPUTE);
        // SAFETY: the command buffer is recording and the pipeline is alive.
        unsafe { device.cmd_bind_pipeline(commands, point, *raw) };
        // SAFETY: the set was made for this layout.
        unsafe { device.cmd_bind_descriptor_sets(commands, point, *layout, 0, &[self.0.set], &[]) };
        if !params.is_empty() {
            let bytes = bytemuck::cast_slice(params);
            // SAFETY: check_launch found as many bytes as the layout has.
            unsafe { device.cmd_push_constants(commands, *layout, vk::ShaderStageFlags::COMPUTE, 0, bytes) };
        }
        let [x, y, z] = workgroups;
        // SAFETY: everything that the pipeline needs is bound.
        unsafe { device.cmd_dispatch(commands, x, y, z) };
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let device = &self.pipeline.0.device;
        if !device.is_leaked() {
            // SAFETY: launches hold clones of their kernels, so none uses the set any more.
            unsafe { device.raw().destroy_descriptor_pool(self.pool, None) };
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.device.is_leaked() {
            return;
        }
        let device = self.device.raw();
        // SAFETY: launches hold clones of their kernels, which hold the pipeline: none uses it any more.
        if alone(&self.device, || unsafe { device.destroy_pipeline(self.raw, None) }).is_none() {
            log::error!("a kernel hasn't left within {ROOM_PATIENCE:?}: leaking the pipeline {}", self.name);
            return;
        }
        // SAFETY: as above.
        unsafe { device.destroy_pipeline_layout(self.layout, None) };
        // SAFETY: as above.
        unsafe { device.destroy_descriptor_set_layout(self.set_layout, None) };
    }
}

/// How long kernels of runtimes may take to leave where the driver makes a call wait for them.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// Makes a call that some drivers make wait for kernels; none where they don't leave.
fn alone<T>(device: &Device, call: impl FnOnce() -> T) -> Option<T> {
    match device.quirk(Quirk::CallsWaitForKernels) {
        Some(_) => device.residents().without_kernels(ROOM_PATIENCE, call),
        None => Some(call()),
    }
}

fn check_limits(device: &Device, desc: &PipelineDesc<'_>) -> Result<()> {
    let limits = &device.info().limits;
    let widest = limits.max_compute_work_group_invocations.min(limits.max_compute_work_group_size[0]);
    let checks = [
        ("the invocations of a workgroup", desc.width, widest),
        ("the bytes of push constants", desc.params.saturating_mul(4), limits.max_push_constants_size),
        ("the number of storage buffers", desc.buffers, limits.max_per_stage_descriptor_storage_buffers),
    ];
    match checks.into_iter().find(|(_, value, limit)| value > limit) {
        Some((what, value, limit)) => {
            Err(Error::Limit { name: desc.name.into(), what, value: value.into(), limit: limit.into() })
        }
        None => Ok(()),
    }
}

fn set_layout(device: &Device, buffers: u32) -> Result<vk::DescriptorSetLayout> {
    let binding = |binding| {
        vk::DescriptorSetLayoutBinding::default()
            .binding(binding)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1)
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
    };
    let bindings: Vec<_> = (0..buffers).map(binding).collect();
    let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
    // SAFETY: the device is alive and the structures live until the call returns.
    check("vkCreateDescriptorSetLayout", unsafe { device.raw().create_descriptor_set_layout(&info, None) })
}

fn layout(device: &Device, set_layout: vk::DescriptorSetLayout, params: u32) -> Result<vk::PipelineLayout> {
    let sets = [set_layout];
    let range = vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(params * 4);
    let ranges = if params == 0 { Vec::new() } else { vec![range] };
    let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(&ranges);
    // SAFETY: the device is alive and the structures live until the call returns.
    check("vkCreatePipelineLayout", unsafe { device.raw().create_pipeline_layout(&info, None) })
}

/// # Safety
/// The words are valid for the device.
unsafe fn pipeline(device: &Device, layout: vk::PipelineLayout, desc: &PipelineDesc<'_>) -> Result<vk::Pipeline> {
    let info = vk::ShaderModuleCreateInfo::default().code(desc.words);
    // SAFETY: the caller promises valid words.
    let module = check("vkCreateShaderModule", unsafe { device.raw().create_shader_module(&info, None) })?;
    let width = desc.width.to_ne_bytes();
    let entries = [vk::SpecializationMapEntry { constant_id: WORKGROUP_SIZE_SPEC_ID, offset: 0, size: width.len() }];
    let constants = vk::SpecializationInfo::default().map_entries(&entries).data(&width);
    let stage = vk::PipelineShaderStageCreateInfo::default()
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(module)
        .name(desc.entry)
        .specialization_info(&constants);
    let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
    // SAFETY: the module and the layout are alive and fit each other, as the caller promises.
    let made = unsafe { device.raw().create_compute_pipelines(device.cache().for_pipeline(), &info, None) };
    // SAFETY: pipelines don't need their modules once they are made.
    unsafe { device.raw().destroy_shader_module(module, None) };
    let made = check("vkCreateComputePipelines", made.map_err(|(_, result)| result))?;
    Ok(made.first().copied().unwrap_or_default())
}

fn pool(device: &Device, buffers: u32) -> Result<vk::DescriptorPool> {
    let size = vk::DescriptorPoolSize::default().ty(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(buffers);
    let sizes = if buffers == 0 { Vec::new() } else { vec![size] };
    let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
    // SAFETY: the device is alive and the structures live until the call returns.
    check("vkCreateDescriptorPool", unsafe { device.raw().create_descriptor_pool(&info, None) })
}
