//! The shaders that the binary ships are valid by themselves, and link into each baked kernel.
#![cfg(feature = "cli")]

#[path = "../src/bin/abide/shader.rs"]
mod shader;
#[path = "common/spirv_val.rs"]
mod spirv_val;

use abide::baked;
use abide::protocol::{MAX_LEVELS, opcode};
use abide::spirv::Lowered;
use abide::spirv::link::{HandlerModule, Limits, link};

#[test]
fn shipped_shaders_link_into_every_kernel() {
    // What Vulkan promises of workgroup memory.
    let limits = Limits { workgroup_bytes: 16 * 1024 };
    for shader in shader::SHADERS {
        spirv_val::validate(shader.name, shader.words);
    }
    let handlers: Vec<_> = (opcode::FIRST_HANDLER..)
        .zip(shader::SHADERS)
        .map(|(opcode, shader)| HandlerModule { words: shader.words, entry: shader.entry, opcode })
        .collect();
    for levels in 1..=MAX_LEVELS {
        let baked = baked::scan(levels).expect("each number of levels is baked");
        let kernel = Lowered { words: baked.words.to_vec(), interface: Some(baked.interface) };
        let linked = link(&kernel, &handlers, &limits).unwrap_or_else(|error| panic!("{levels} levels: {error}"));
        for (shader, handler) in shader::SHADERS.iter().zip(&linked.handlers) {
            assert_eq!(shader.workgroup_size, handler.workgroup_size, "{}", shader.name);
        }
        spirv_val::validate(&format!("{levels} levels"), &linked.words);
    }
}
