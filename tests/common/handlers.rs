//! Handlers for tests of the runtime, as WGSL, and what the host expects of them.

#[path = "../../shaders/compile.rs"]
mod compile;

use std::sync::OnceLock;

use abide::device::DeviceType;

use crate::common::device;

/// Words that a task of [`fill`] writes: 64 KiB.
pub const FILL_WORDS: u32 = 16 * 1024;

/// Words of the longest payload, all of which a task of [`echo`] copies.
pub const ECHO_WORDS: u32 = abide::protocol::slot::MAX_PAYLOAD;

/// A handler's words, compiled once a process.
fn compiled(place: &'static OnceLock<Vec<u32>>, name: &str, body: &str) -> &'static [u32] {
    place.get_or_init(|| {
        // On CPU drivers one subgroup or two, so that a workgroup costs little; on a GPU two and more.
        let width = if device().info().device_type == DeviceType::Cpu { 8 } else { 64 };
        let source = format!("const WIDTH = {width}u;\n{body}").replace("WIDTH)", &format!("{width})"));
        compile::compile(name, &source).unwrap_or_else(|error| panic!("{error:#}")).words
    })
}

/// Writes [`fill_word`] of its seed to [`FILL_WORDS`] words. Payload: first word, seed. Binding 0: the words.
pub fn fill() -> &'static [u32] {
    static WORDS: OnceLock<Vec<u32>> = OnceLock::new();
    let body = "
        struct Parameters { first: u32, seed: u32 }
        var<immediate> p: Parameters;
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(WIDTH)
        fn main(@builtin(local_invocation_index) lane: u32) {
            for (var i = lane; i < 16384u; i += WIDTH) {
                let mixed = (p.seed ^ (i * 0x9e3779b9u)) * 0x85ebca6bu;
                out[p.first + i] = mixed ^ (mixed >> 15u);
            }
        }";
    compiled(&WORDS, "fill", body)
}

/// What [`fill`] writes to its word `index`.
pub fn fill_word(seed: u32, index: u32) -> u32 {
    let mixed = (seed ^ index.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    mixed ^ (mixed >> 15)
}

/// Copies its whole payload, whose first word is where to. Binding 0: the copies.
pub fn echo() -> &'static [u32] {
    static WORDS: OnceLock<Vec<u32>> = OnceLock::new();
    let body = "
        struct Parameters { words: array<u32, 54> }
        var<immediate> p: Parameters;
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(WIDTH)
        fn main(@builtin(local_invocation_index) lane: u32) {
            let first = p.words[0];
            for (var i = lane; i < 54u; i += WIDTH) { out[first + i] = p.words[i]; }
        }";
    compiled(&WORDS, "echo", body)
}

/// Turns a loop so often, inner times outer, and stores what came of it. Payload: outer, inner, word. Binding 0: the words.
pub fn spin() -> &'static [u32] {
    static WORDS: OnceLock<Vec<u32>> = OnceLock::new();
    let body = "
        struct Parameters { outer: u32, inner: u32, word: u32 }
        var<immediate> p: Parameters;
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(WIDTH)
        fn main(@builtin(local_invocation_index) lane: u32) {
            var x = p.outer + lane + 1u;
            for (var i = 0u; i < p.outer; i++) {
                for (var j = 0u; j < p.inner; j++) { x ^= x << 13u; x ^= x >> 17u; x ^= x << 5u; }
            }
            if lane == 0u { out[p.word] = x | 1u; }
        }";
    compiled(&WORDS, "spin", body)
}
