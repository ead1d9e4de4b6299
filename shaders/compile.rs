//! How the shaders of this folder become SPIR-V: included by the build script and by tests.
//!
//! Every option of naga's writer is set here, so that neither its defaults nor the build profile show in the words.
//! The words are whole modules: the linker takes them as handlers, and vkCmdDispatch runs them as they are.

use anyhow::Context as _;
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// A compiled WGSL file.
pub struct Compiled {
    /// The SPIR-V module.
    pub words: Vec<u32>,
    /// Its compute entry points, with the sides of their workgroups.
    pub entries: Vec<(String, [u32; 3])>,
}

/// Compiles WGSL.
pub fn compile(name: &str, source: &str) -> anyhow::Result<Compiled> {
    let explain = |error: naga::front::wgsl::ParseError| anyhow::anyhow!(error.emit_to_string_with_path(source, name));
    let module = naga::front::wgsl::parse_str(source).map_err(explain)?;
    let capabilities = Capabilities::IMMEDIATES
        | Capabilities::SUBGROUP
        | Capabilities::SUBGROUP_BARRIER
        | Capabilities::MEMORY_DECORATION_COHERENT
        | Capabilities::MEMORY_DECORATION_VOLATILE;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| anyhow::anyhow!(error.emit_to_string_with_path(source, name)))?;
    let words = spv::write_vec(&module, &info, &options(&module), None)
        .with_context(|| format!("{name} can't be written as SPIR-V"))?;
    let compute = module.entry_points.iter().filter(|entry| entry.stage == naga::ShaderStage::Compute);
    Ok(Compiled { words, entries: compute.map(|entry| (entry.name.clone(), entry.workgroup_size)).collect() })
}

fn options(module: &naga::Module) -> spv::Options<'static> {
    // Sets and bindings as the shader says; without the map naga would call that fake.
    let binding = |binding: naga::ResourceBinding| {
        let info =
            spv::BindingInfo { descriptor_set: binding.group, binding: binding.binding, binding_array_size: None };
        (binding, info)
    };
    let bindings = module.global_variables.iter().filter_map(|(_, variable)| variable.binding);
    spv::Options {
        // From 1.3 on there are storage buffers and subgroup operations; later versions change nothing for compute.
        lang_version: (1, 3),
        // No names: the words must not depend on the build profile.
        flags: spv::WriterFlags::empty(),
        fake_missing_bindings: false,
        binding_map: bindings.map(binding).collect(),
        capabilities: None,
        bounds_check_policies: BoundsCheckPolicies {
            // Variables of an invocation: staying inside is the shader author's duty.
            index: BoundsCheckPolicy::Unchecked,
            // A handler's buffers are device addresses, which no driver's robustness guards, and its indices come
            // from payloads: a wrong payload must not write over other tasks' memory. An index too large becomes the
            // last one; naga can't skip atomics, as its other policy would have to. It takes a buffer of at least
            // one element.
            buffer: BoundsCheckPolicy::Restrict,
            image_load: BoundsCheckPolicy::Unchecked,
            binding_array: BoundsCheckPolicy::Unchecked,
        },
        // Assignments and a barrier: zero-initialised workgroup memory is an extension, and once per launch, not task.
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::Polyfill,
        // A counter of 2^32 turns in every loop would cost more than the loops; kernels are bounded by their budget.
        force_loop_bounding: false,
        ray_query_initialization_tracking: false,
        trace_ray_argument_validation: false,
        use_storage_input_output_16: false,
        debug_info: None,
        task_dispatch_limits: None,
        mesh_shader_primitive_indices_clamp: false,
        // Division by zero is defined in WGSL, and the same on every driver only with the check.
        emit_int_div_checks: true,
    }
}
