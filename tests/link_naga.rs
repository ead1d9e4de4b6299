//! What compilers emit for compute shaders links into a kernel that spirv-val accepts, one by one and all together;
//! the linker says what each handler needs, and why it refuses others.

#[expect(dead_code, reason = "shared with other tests: this one runs nothing")]
mod link;
#[path = "common/spirv_val.rs"]
mod spirv_val;

use abide::spirv::Lowered;
use abide::spirv::link::{
    BindingKind, Capability, HandlerModule, Limits, LinkError, Linked, LinkedHandler, Reason, Refusal,
};

use link::compile::compile;
use link::kernel::kernel;
use link::shaders;

const LIMITS: Limits = Limits { workgroup_bytes: 16 * 1024 };
const OPCODE: u32 = 16;

fn link_all(kernel: &Lowered, modules: &[Vec<u32>]) -> Result<Linked, LinkError> {
    let handler = |(opcode, words)| HandlerModule { words, entry: "main", opcode };
    let handlers: Vec<_> = (OPCODE..).zip(modules.iter().map(Vec::as_slice)).map(handler).collect();
    abide::spirv::link::link(kernel, &handlers, &LIMITS)
}

fn words(name: &str, source: &str) -> Vec<u32> {
    compile(name, source).unwrap_or_else(|error| panic!("{name}: {error:#}")).words
}

/// What the linker says about one of the shared shaders.
fn described(name: &str) -> LinkedHandler {
    let shader = shaders::ALL.iter().find(|shader| shader.name == name).expect("there is such a shader");
    let linked = link_all(&kernel(), &[words(name, shader.source)]).unwrap_or_else(|error| panic!("{name}: {error}"));
    linked.handlers.into_iter().next().expect("one handler was linked")
}

/// Why the linker refuses WGSL.
fn refusal(source: &str) -> Refusal {
    match link_all(&kernel(), &[words("refused", source)]) {
        Err(LinkError::Handler { entry, opcode: OPCODE, refusal }) if entry == "main" => refusal,
        other => panic!("not refused as a handler: {other:?}"),
    }
}

#[test]
fn each_alone() {
    let kernel = kernel();
    spirv_val::validate("kernel", &kernel.words);
    for shader in shaders::ALL {
        let Some(words) = shader.words() else { continue };
        if !shader.glsl {
            spirv_val::validate(shader.name, &words);
        }
        let linked = link_all(&kernel, &[words]).unwrap_or_else(|error| panic!("{}: {error}", shader.name));
        spirv_val::validate(shader.name, &linked.words);
        assert_eq!(linked.invocations, Some(64), "{}", shader.name);
    }
}

#[test]
fn all_together_and_byte_stable() {
    let modules: Vec<_> = shaders::ALL.iter().filter_map(|shader| shader.words()).collect();
    let linked = link_all(&kernel(), &modules).unwrap_or_else(|error| panic!("{error}"));
    spirv_val::validate("all", &linked.words);
    assert_eq!(link_all(&kernel(), &modules).as_ref(), Ok(&linked), "the same words again");
    let alone: usize = modules.iter().map(|module| module.len()).sum();
    assert!(linked.words.len() < alone + kernel().words.len() + 300 * modules.len(), "types and constants are shared");
}

#[test]
fn a_linked_kernel_takes_more_handlers() {
    let (kernel, first) = (kernel(), shaders::ALL[0]);
    let linked = link_all(&kernel, &[words(first.name, first.source)]).expect("the first links");
    let kernel = Lowered { words: linked.words, interface: kernel.interface };
    let second = shaders::ALL[1];
    let words = words(second.name, second.source);
    let handler = HandlerModule { words: &words, entry: "main", opcode: OPCODE + 1 };
    let both = abide::spirv::link::link(&kernel, &[handler], &LIMITS).expect("the second links");
    spirv_val::validate("both", &both.words);
}

#[test]
fn no_handlers_leave_the_kernel_as_it_is() {
    let kernel = kernel();
    let linked = link_all(&kernel, &[]).expect("nothing links");
    assert_eq!((linked.words, linked.invocations), (kernel.words, None));
    assert_eq!(linked.capabilities, []);
}

#[test]
fn needs_are_described() {
    let storage = described("storage");
    let of = |handler: &LinkedHandler| -> Vec<_> {
        handler.bindings.iter().map(|b| (b.set, b.binding, b.entry, b.kind, b.read_only)).collect()
    };
    assert_eq!(of(&storage), [(0, 0, 0, BindingKind::Storage, true), (0, 1, 1, BindingKind::Storage, false)]);
    assert_eq!((storage.payload_words, storage.workgroup_bytes), (0, 0));
    assert_eq!(of(&described("uniforms"))[0], (0, 0, 0, BindingKind::Uniform, true));
    assert_eq!(described("immediates").payload_words, 8);
    // 64 words, and 8 pairs of 16 bytes.
    assert_eq!(described("workgroup").workgroup_bytes, 256 + 128);
    assert_eq!(described("built_ins").workgroup_size, [4, 8, 2]);
    let subgroups = shaders::ALL.iter().find(|shader| shader.subgroups).expect("one uses subgroups");
    let linked = link_all(&kernel(), &[words(subgroups.name, subgroups.source)]).expect("it links");
    assert!(linked.capabilities.contains(&Capability::GroupNonUniformArithmetic), "{:?}", linked.capabilities);
}

#[test]
fn sets_and_high_bindings_are_numbered_in_order() {
    let source = "@group(1) @binding(0) var<storage, read_write> c: array<u32>;
        @group(0) @binding(40) var<storage, read_write> b: array<u32>;
        @group(0) @binding(3) var<storage, read> a: array<u32>;
        @group(2) @binding(1) var<storage, read> unused: array<u32>;
        @compute @workgroup_size(64) fn main() { b[0] = a[1]; c[0] = 2u; }";
    let linked = link_all(&kernel(), &[words("sets", source)]).expect("it links");
    let entries: Vec<_> = linked.handlers[0].bindings.iter().map(|b| (b.set, b.binding, b.entry)).collect();
    assert_eq!(entries, [(0, 3, 0), (0, 40, 1), (1, 0, 2)]);
}

#[test]
fn an_entry_point_among_others() {
    let source = "@group(0) @binding(0) var<storage, read_write> a: array<u32>;
        @group(0) @binding(1) var<storage, read_write> b: array<u32>;
        @compute @workgroup_size(32) fn first() { a[0] = 1u; }
        @compute @workgroup_size(8, 4) fn second() { b[0] = 2u; }";
    let module = words("two", source);
    let handlers = [("second", 3), ("first", 4)].map(|(entry, opcode)| HandlerModule { words: &module, entry, opcode });
    let linked = abide::spirv::link::link(&kernel(), &handlers, &LIMITS).expect("both link");
    spirv_val::validate("two", &linked.words);
    let bindings = |at: usize| linked.handlers[at].bindings.iter().map(|b| b.binding).collect::<Vec<_>>();
    assert_eq!((bindings(0), bindings(1)), (vec![1], vec![0]));
    let missing = HandlerModule { words: &module, entry: "third", opcode: 5 };
    let error = abide::spirv::link::link(&kernel(), &[missing], &LIMITS).expect_err("there is no third");
    assert!(error.to_string().contains(r#"["first", "second"]"#), "{error}");
}

#[test]
fn handlers_that_do_not_go_together() {
    let small = words("small", "@compute @workgroup_size(32) fn main() {}");
    let large = words("large", "@compute @workgroup_size(8, 8) fn main() {}");
    let error = link_all(&kernel(), &[large, small.clone()]).expect_err("sizes differ");
    let LinkError::WorkgroupSizes { first_invocations: 64, second_invocations: 32, .. } = error else {
        panic!("{error:?}");
    };
    let twice = [1, 1].map(|opcode| HandlerModule { words: &small, entry: "main", opcode });
    let error = abide::spirv::link::link(&kernel(), &twice, &LIMITS).expect_err("opcodes clash");
    assert!(matches!(error, LinkError::OpcodeTwice { opcode: 1, .. }), "{error:?}");
    let memory = "var<workgroup> big: array<vec4<u32>, 1000>;
        @compute @workgroup_size(64) fn main() { big[3] = vec4<u32>(1u); }";
    let error = link_all(&kernel(), &[words("memory", memory), words("memory", memory)]).expect_err("too much");
    assert!(matches!(error, LinkError::WorkgroupMemory { handlers: 32_000, limit: 16_384, .. }), "{error:?}");
    let plain = Lowered { interface: None, ..kernel() };
    assert_eq!(link_all(&plain, &[]), Err(LinkError::NoInterface));
}

#[test]
fn images_are_refused_by_name() {
    let refusal = refusal(
        "@group(0) @binding(0) var image: texture_storage_2d<r32uint, write>;
         @compute @workgroup_size(64) fn main() { textureStore(image, vec2<i32>(0), vec4<u32>(1u)); }",
    );
    let Refusal::Instruction { site, reason: Reason::Storage(class) } = refusal else { panic!("{refusal:?}") };
    assert_eq!((format!("{:?}", site.op).as_str(), class.as_str()), ("Variable", "UniformConstant"));
    assert!(site.at > 5);
}

#[test]
fn arrays_of_buffers_are_refused() {
    let module = "struct B { x: array<u32, 4> }
        @group(0) @binding(0) var<storage, read_write> b: B;
        @compute @workgroup_size(64) fn main() { b.x[0] = 1u; }";
    let mut words = words("array", module);
    // Without its Block decoration the buffer is none.
    const DECORATE: u32 = 71;
    let mut at = 5;
    while words[at] & 0xffff != DECORATE || words[at + 2] != 2 {
        at += (words[at] >> 16) as usize;
    }
    words.drain(at..at + 3);
    let error = link_all(&kernel(), &[words]).expect_err("no block");
    assert!(error.to_string().contains("no Block"), "{error}");
}

#[test]
fn accesses_state_the_alignment_that_the_layout_gives() {
    let source = "struct S { a: f32, b: vec2<f32>, c: vec3<f32>, d: f32, e: vec4<f32>, f: mat2x2<f32> }
        @group(0) @binding(0) var<storage, read> s: array<S>;
        @group(0) @binding(1) var<storage, read_write> o: array<vec4<f32>>;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
            o[i] = vec4<f32>(s[i].a, s[i].b.x, s[i].c.z, s[i].d) + s[i].e + vec4<f32>(s[i].c, 1.0)
                + vec4<f32>(s[i].f[1], s[i].b);
        }";
    let linked = link_all(&kernel(), &[words("alignments", source)]).expect("it links");
    let text = spirv_val::disassemble(&linked.words);
    let stated = |bytes: u32| text.matches(&format!("Aligned|NonPrivatePointer {bytes}\n")).count();
    // Scalars: a, b.x, c.z and d. Pairs: the matrix column and b. The rest are c, e and what is stored.
    assert_eq!([stated(4), stated(8), stated(16)], [4, 2, 3], "{text}");
}
