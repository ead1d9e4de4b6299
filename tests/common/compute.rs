//! Dispatches one lowered kernel on the first Vulkan device, with given words in and the same words out.
//!
//! Small on purpose: it tests the lowering alone, without the library's device layer. Messages of the validation layer
//! fail the test. A machine without Vulkan skips, loudly; where a test driver is named its absence is a failure.

use std::ffi::{CStr, c_void};
use std::sync::Mutex;

use ash::{Device, Entry, Instance, ext, vk};

/// Bound of a dispatch, in nanoseconds.
const PATIENCE: u64 = 60_000_000_000;

/// Errors that the validation layer reported.
static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What a kernel is run with.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Contents of the buffers, by binding.
    pub buffers: Vec<Vec<u32>>,
    /// Contents of a buffer that is reached by address; the address replaces the first two parameters.
    pub addressed: Vec<u32>,
    /// Launch parameters.
    pub params: Vec<u32>,
    /// Invocations of a workgroup.
    pub width: u32,
    /// Workgroups.
    pub groups: u32,
}

/// What a kernel is run with beyond a [`Job`].
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Bindings that are uniform buffers.
    pub uniforms: Vec<u32>,
    /// Workgroups along y and z; 0 counts as 1.
    pub rows: [u32; 2],
    /// Contents of further buffers, and the word of buffer 0 where each one's address goes.
    pub pointed: Vec<(Vec<u32>, u32)>,
}

/// What a kernel left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Contents of the buffers, by binding.
    pub buffers: Vec<Vec<u32>>,
    /// Contents of the buffer that was reached by address.
    pub addressed: Vec<u32>,
}

/// A device with one queue.
pub struct Gpu {
    _entry: Entry,
    instance: Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    device: Device,
    queue: vk::Queue,
    family: u32,
    memory: vk::PhysicalDeviceMemoryProperties,
    subgroup: (u32, vk::SubgroupFeatureFlags),
}

impl Gpu {
    /// Opens the first device; none on a machine without Vulkan.
    pub fn open() -> Option<Self> {
        let required = std::env::var_os("ABIDE_TEST_DRIVER").is_some();
        // SAFETY: the loader is an ordinary library, whose initialisation may run.
        let entry = match unsafe { Entry::load() } {
            Ok(entry) => entry,
            Err(error) => {
                assert!(!required, "ABIDE_TEST_DRIVER names a driver, and the Vulkan loader is missing: {error}");
                eprintln!("SKIPPED: no Vulkan loader ({error}); scripts/with-driver.sh brings one");
                return None;
            }
        };
        let (instance, messenger) = instance(&entry);
        // SAFETY: the instance is alive.
        let physical = unsafe { instance.enumerate_physical_devices() }.expect("devices are listed");
        let Some(&physical) = physical.first() else {
            assert!(!required, "ABIDE_TEST_DRIVER names a driver, and it has no device");
            eprintln!("SKIPPED: no Vulkan device; scripts/with-driver.sh brings one");
            return None;
        };
        let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut subgroup);
        // SAFETY: the device belongs to the instance, and the chain is well-formed.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let subgroup = (subgroup.subgroup_size, subgroup.supported_operations);
        // SAFETY: the device belongs to the instance.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        let (device, family) = device(&instance, physical);
        // SAFETY: the device was created with one queue of this family.
        let queue = unsafe { device.get_device_queue(family, 0) };
        Some(Self { _entry: entry, instance, messenger, device, queue, family, memory, subgroup })
    }

    /// Invocations of a subgroup.
    pub fn subgroup_size(&self) -> u32 {
        self.subgroup.0
    }

    /// Whether the device has these subgroup operations.
    pub fn has(&self, operations: vk::SubgroupFeatureFlags) -> bool {
        self.subgroup.1.contains(operations)
    }

    /// Runs a kernel to its end.
    pub fn run(&self, words: &[u32], job: &Job) -> Outcome {
        self.run_with(words, job, &Extra::default()).0
    }

    /// Runs a kernel to its end; gives the contents of the further buffers, too.
    pub fn run_with(&self, words: &[u32], job: &Job, extra: &Extra) -> (Outcome, Vec<Vec<u32>>) {
        let pointed: Vec<_> = extra.pointed.iter().map(|(words, _)| self.buffer(words)).collect();
        let mut contents = job.buffers.clone();
        for (memory, (_, at)) in pointed.iter().zip(&extra.pointed) {
            let address = self.address(memory);
            contents[0][*at as usize..][..2].copy_from_slice(&[address as u32, (address >> 32) as u32]);
        }
        let buffers: Vec<_> = contents.iter().map(|words| self.buffer(words)).collect();
        let addressed = (!job.addressed.is_empty()).then(|| self.buffer(&job.addressed));
        let mut params = job.params.clone();
        if let Some(addressed) = &addressed {
            let address = self.address(addressed);
            params[..2].copy_from_slice(&[address as u32, (address >> 32) as u32]);
        }
        let set = self.set(&buffers, &extra.uniforms);
        let pipeline = self.pipeline(words, job, set.layout);
        let [rows, layers] = extra.rows.map(|count| count.max(1));
        self.dispatch(&pipeline, &set, &params, [job.groups, rows, layers]);
        let outcome = Outcome {
            buffers: buffers.iter().map(|buffer| buffer.read()).collect(),
            addressed: addressed.as_ref().map_or_else(Vec::new, Memory::read),
        };
        let left = pointed.iter().map(Memory::read).collect();
        // SAFETY: the dispatch has ended, and no one else has the pipeline.
        unsafe { self.device.destroy_pipeline(pipeline.pipeline, None) };
        // SAFETY: as above, for its layout.
        unsafe { self.device.destroy_pipeline_layout(pipeline.layout, None) };
        // SAFETY: as above, for its module.
        unsafe { self.device.destroy_shader_module(pipeline.module, None) };
        // SAFETY: as above, for the pool and the sets in it.
        unsafe { self.device.destroy_descriptor_pool(set.pool, None) };
        // SAFETY: as above, for the layout of the set.
        unsafe { self.device.destroy_descriptor_set_layout(set.layout, None) };
        for memory in buffers.into_iter().chain(addressed).chain(pointed) {
            // SAFETY: as above, for the buffer.
            unsafe { self.device.destroy_buffer(memory.buffer, None) };
            // SAFETY: as above; freeing unmaps, and the pointer goes with its owner.
            unsafe { self.device.free_memory(memory.memory, None) };
        }
        let complaints = std::mem::take(&mut *COMPLAINTS.lock().expect("no test panics with the lock held"));
        assert!(complaints.is_empty(), "the validation layer complains:\n{}", complaints.join("\n"));
        (outcome, left)
    }

    fn address(&self, memory: &Memory) -> u64 {
        let info = vk::BufferDeviceAddressInfo::default().buffer(memory.buffer);
        // SAFETY: the buffer is alive and was created for its address to be taken.
        unsafe { self.device.get_buffer_device_address(&info) }
    }

    fn buffer(&self, words: &[u32]) -> Memory {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::UNIFORM_BUFFER
            | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        let info = vk::BufferCreateInfo::default().size(words.len() as u64 * 4).usage(usage);
        // SAFETY: the device is alive and the description is well-formed.
        let buffer = unsafe { self.device.create_buffer(&info, None) }.expect("a buffer is created");
        // SAFETY: the buffer is alive.
        let needs = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let types = self.memory.memory_types_as_slice();
        let index = (0..)
            .zip(types)
            .find(|(index, ty)| needs.memory_type_bits & (1 << index) != 0 && ty.property_flags.contains(wanted))
            .map(|(index, _)| index)
            .expect("the host sees some memory");
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(index)
            .push_next(&mut flags);
        // SAFETY: the device is alive and the description is well-formed.
        let memory = unsafe { self.device.allocate_memory(&info, None) }.expect("memory is allocated");
        // SAFETY: the memory is new and large enough.
        unsafe { self.device.bind_buffer_memory(buffer, memory, 0) }.expect("the buffer is bound");
        // SAFETY: the memory is visible to the host and not mapped yet.
        let mapped = unsafe { self.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) };
        let mapped: *mut u32 = mapped.expect("the memory is mapped").cast();
        // SAFETY: the mapping is as long as the words, aligned, and no one else uses it yet.
        unsafe { mapped.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        Memory { buffer, memory, mapped, words: words.len() }
    }

    fn set(&self, buffers: &[Memory], uniforms: &[u32]) -> Set {
        let ty = |binding| match uniforms.contains(&binding) {
            true => vk::DescriptorType::UNIFORM_BUFFER,
            false => vk::DescriptorType::STORAGE_BUFFER,
        };
        let bindings: Vec<_> = (0..buffers.len() as u32)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(ty(binding))
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the device is alive and the description is well-formed.
        let layout = unsafe { self.device.create_descriptor_set_layout(&info, None) }.expect("a layout is created");
        let descriptor_count = buffers.len().max(1) as u32;
        let sizes = [vk::DescriptorType::STORAGE_BUFFER, vk::DescriptorType::UNIFORM_BUFFER]
            .map(|ty| vk::DescriptorPoolSize { ty, descriptor_count });
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
        // SAFETY: as above.
        let pool = unsafe { self.device.create_descriptor_pool(&info, None) }.expect("a pool is created");
        let layouts = [layout];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: the pool has room for this one set.
        let set = unsafe { self.device.allocate_descriptor_sets(&info) }.expect("a set is allocated")[0];
        for (binding, memory) in (0..).zip(buffers) {
            let info = [vk::DescriptorBufferInfo { buffer: memory.buffer, offset: 0, range: vk::WHOLE_SIZE }];
            let write = vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(binding)
                .descriptor_type(ty(binding))
                .buffer_info(&info);
            // SAFETY: set and buffer are alive, and no work uses the set yet.
            unsafe { self.device.update_descriptor_sets(&[write], &[]) };
        }
        Set { layout, pool, set }
    }

    fn pipeline(&self, words: &[u32], job: &Job, layout: vk::DescriptorSetLayout) -> Pipeline {
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: the words are a SPIR-V module; tests validate it.
        let module = unsafe { self.device.create_shader_module(&info, None) }.expect("a shader module is created");
        let layouts = [layout];
        let range = [vk::PushConstantRange {
            stage_flags: vk::ShaderStageFlags::COMPUTE,
            offset: 0,
            size: job.params.len() as u32 * 4,
        }];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&layouts)
            .push_constant_ranges(if job.params.is_empty() { &[] } else { &range });
        // SAFETY: the set's layout is alive.
        let layout = unsafe { self.device.create_pipeline_layout(&info, None) }.expect("a layout is created");
        let entries =
            [vk::SpecializationMapEntry { constant_id: abide::spirv::WORKGROUP_SIZE_SPEC_ID, offset: 0, size: 4 }];
        let width = job.width.to_ne_bytes();
        let width = vk::SpecializationInfo::default().map_entries(&entries).data(&width);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(c"main")
            .specialization_info(&width);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
        // SAFETY: module and layout are alive and fit each other.
        let pipelines = unsafe { self.device.create_compute_pipelines(vk::PipelineCache::null(), &info, None) };
        Pipeline { pipeline: pipelines.expect("a pipeline is created")[0], layout, module }
    }

    fn dispatch(&self, pipeline: &Pipeline, set: &Set, params: &[u32], groups: [u32; 3]) {
        let device = &self.device;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(self.family);
        // SAFETY: the device is alive.
        let pool = unsafe { device.create_command_pool(&info, None) }.expect("a pool is created");
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: the pool is alive.
        let commands = unsafe { device.allocate_command_buffers(&info) }.expect("a buffer is allocated")[0];
        // SAFETY: the command buffer is new.
        unsafe { device.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default()) }.expect("it begins");
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the command buffer records, and the pipeline outlives the dispatch.
        unsafe { device.cmd_bind_pipeline(commands, point, pipeline.pipeline) };
        // SAFETY: as above, for the set.
        unsafe { device.cmd_bind_descriptor_sets(commands, point, pipeline.layout, 0, &[set.set], &[]) };
        if !params.is_empty() {
            let bytes: Vec<u8> = params.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let stage = vk::ShaderStageFlags::COMPUTE;
            // SAFETY: the layout has a range of this length.
            unsafe { device.cmd_push_constants(commands, pipeline.layout, stage, 0, &bytes) };
        }
        // SAFETY: all that the kernel uses is bound.
        unsafe { device.cmd_dispatch(commands, groups[0], groups[1], groups[2]) };
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::SHADER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ)];
        let (from, to) = (vk::PipelineStageFlags::COMPUTE_SHADER, vk::PipelineStageFlags::HOST);
        // SAFETY: the command buffer records.
        unsafe { device.cmd_pipeline_barrier(commands, from, to, vk::DependencyFlags::empty(), &barrier, &[], &[]) };
        // SAFETY: as above.
        unsafe { device.end_command_buffer(commands) }.expect("it ends");
        // SAFETY: the device is alive.
        let fence = unsafe { device.create_fence(&vk::FenceCreateInfo::default(), None) }.expect("a fence is created");
        let commands = [commands];
        let submit = [vk::SubmitInfo::default().command_buffers(&commands)];
        // SAFETY: this thread alone uses the queue.
        unsafe { device.queue_submit(self.queue, &submit, fence) }.expect("the dispatch is submitted");
        // SAFETY: the fence is alive.
        unsafe { device.wait_for_fences(&[fence], true, PATIENCE) }.expect("the dispatch ends in time");
        // SAFETY: the fence was signalled.
        unsafe { device.destroy_fence(fence, None) };
        // SAFETY: the dispatch has ended.
        unsafe { device.destroy_command_pool(pool, None) };
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: every dispatch was waited for, and every object of the device is destroyed.
        unsafe { self.device.destroy_device(None) };
        if let Some((loader, messenger)) = &self.messenger {
            // SAFETY: the messenger belongs to the instance, which is alive.
            unsafe { loader.destroy_debug_utils_messenger(*messenger, None) };
        }
        // SAFETY: nothing of the instance is left.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// A buffer in mapped memory.
struct Memory {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    mapped: *mut u32,
    words: usize,
}

impl Memory {
    fn read(&self) -> Vec<u32> {
        let mut words = vec![0; self.words];
        // SAFETY: the mapping is this long, and the device is done with it.
        unsafe { self.mapped.copy_to_nonoverlapping(words.as_mut_ptr(), self.words) };
        words
    }
}

struct Set {
    layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    set: vk::DescriptorSet,
}

struct Pipeline {
    pipeline: vk::Pipeline,
    layout: vk::PipelineLayout,
    module: vk::ShaderModule,
}

type Messenger = (ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT);

fn instance(entry: &Entry) -> (Instance, Option<Messenger>) {
    // SAFETY: no layer is named.
    let extensions = unsafe { entry.enumerate_instance_extension_properties(None) }.expect("extensions are listed");
    let debug = extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(ext::debug_utils::NAME));
    let names = [ext::debug_utils::NAME.as_ptr()];
    let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
    let info = vk::InstanceCreateInfo::default().application_info(&application).enabled_extension_names(if debug {
        &names
    } else {
        &[]
    });
    // SAFETY: the description is well-formed, and the entry outlives the instance.
    let instance = unsafe { entry.create_instance(&info, None) }.expect("an instance is created");
    let messenger = debug.then(|| {
        let loader = ext::debug_utils::Instance::new(entry, &instance);
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
            .pfn_user_callback(Some(complain));
        // SAFETY: the extension is enabled, and the callback lives as long as the program.
        let messenger = unsafe { loader.create_debug_utils_messenger(&info, None) }.expect("a messenger is created");
        (loader, messenger)
    });
    (instance, messenger)
}

fn device(instance: &Instance, physical: vk::PhysicalDevice) -> (Device, u32) {
    // SAFETY: the device belongs to the instance.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let family = families
        .iter()
        .position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE))
        .expect("some queue computes") as u32;
    let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let mut features = vk::PhysicalDeviceVulkan12Features::default()
        .vulkan_memory_model(true)
        .vulkan_memory_model_device_scope(true)
        .buffer_device_address(true);
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut features);
    // SAFETY: the family is one of the device's, and every driver that abide runs on has the features.
    let device = unsafe { instance.create_device(physical, &info, None) }.expect("a device is created");
    (device, family)
}

/// Notes what the validation layer reports.
unsafe extern "system" fn complain(
    _: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a message that is valid for the call.
    let message = unsafe { (*data).p_message };
    // SAFETY: as above: its text ends in a zero.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    if let Ok(mut complaints) = COMPLAINTS.lock() {
        complaints.push(message);
    }
    vk::FALSE
}
