//! Every kind of node computes what it says, on the driver at hand.

#[path = "driver_ir/atomics.rs"]
mod atomics;
#[path = "common/compute.rs"]
mod compute;
#[path = "driver_ir/memory.rs"]
mod memory;
#[path = "driver_ir/subgroup.rs"]
mod subgroup;
#[path = "driver_ir/values.rs"]
mod values;

use abide::ir::{Access, Buffer, Builder, Input, Module, Value};
use compute::{Gpu, Job, Outcome};

const ACCESSES: [Access; 3] = [Access::Private, Access::Coherent, Access::Volatile];
const EDGES: [u32; 9] = [0, 1, 2, 31, 32, 0x1234_5678, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// Runs a kernel, or gives none on a machine without Vulkan.
fn run(module: &Module, job: &Job) -> Option<Outcome> {
    Some(run_on(&Gpu::open()?, module, job))
}

fn run_on(gpu: &Gpu, module: &Module, job: &Job) -> Outcome {
    let lowered = abide::spirv::lower(module).unwrap_or_else(|error| panic!("{}: {error}", module.name));
    gpu.run(&lowered.words, job)
}

/// The invocation's index in the launch.
fn global_index(b: &mut Builder) -> Value {
    let (group, width, local) =
        (b.input(Input::WorkgroupIndex), b.input(Input::WorkgroupSize), b.input(Input::LocalIndex));
    let first = b.mul(group, width);
    b.add(first, local)
}

/// 1 for true, 0 for false.
fn bit(b: &mut Builder, truth: Value) -> Value {
    b.select(truth, 1u32, 0u32)
}

/// Stores values one after the other, from `first` on, in a buffer.
fn emit(b: &mut Builder, out: Buffer, first: Value, values: &[Value]) {
    for (offset, &value) in (0u32..).zip(values) {
        let index = b.add(first, offset);
        let place = b.at(out, index);
        b.store(place, value);
    }
}
