//! What naga emits for compute shaders links into a kernel that spirv-val accepts: one by one and all together.

mod link;
#[path = "common/spirv_val.rs"]
mod spirv_val;

use abide::spirv::link::{HandlerModule, Limits, link};

use link::compile::compile;
use link::kernel::kernel;
use link::shaders;

const LIMITS: Limits = Limits { workgroup_bytes: 16 * 1024 };

#[test]
fn each_alone() {
    let kernel = kernel();
    spirv_val::validate("kernel", &kernel.words);
    for shader in shaders::ALL {
        let compiled = compile(shader.name, shader.source).unwrap_or_else(|error| panic!("{}: {error:#}", shader.name));
        spirv_val::validate(shader.name, &compiled.words);
        let handler = HandlerModule { words: &compiled.words, entry: "main", opcode: 16 };
        let linked = link(&kernel, &[handler], &LIMITS).unwrap_or_else(|error| panic!("{}: {error}", shader.name));
        spirv_val::validate(shader.name, &linked.words);
    }
}

#[test]
fn dump() {
    let kernel = kernel();
    for name in ["lengths", "coherent"] {
        let shader = shaders::ALL.iter().find(|s| s.name == name).unwrap();
        let compiled = compile(shader.name, shader.source).unwrap();
        let handler = HandlerModule { words: &compiled.words, entry: "main", opcode: 16 };
        let linked = link(&kernel, &[handler], &LIMITS).unwrap();
        println!("{}", spirv_val::disassemble(&linked.words));
        println!("{:#?}", (&linked.handlers, linked.invocations, linked.workgroup_bytes, &linked.capabilities));
    }
}
