//! Forms that naga doesn't emit: taken over where the linker knows how, else refused with the instruction.

#[expect(dead_code, reason = "shared with other tests: this one runs nothing")]
mod link;
#[path = "common/spirv_val.rs"]
mod spirv_val;

use abide::spirv::link::{HandlerModule, Limits, LinkError, Linked, Refusal};

use link::kernel::kernel;
use link::tools::assemble;

/// A small module with one buffer; what is in braces differs.
const FRAME: &str = r#"
    OpCapability Shader
    %glsl = OpExtInstImport "GLSL.std.450"
    {imports}
    OpMemoryModel Logical GLSL450
    OpEntryPoint GLCompute %main "main"
    {modes}
    {decorations}
    OpDecorate %words ArrayStride 4
    OpDecorate %buffer_t Block
    OpMemberDecorate %buffer_t 0 Offset 0
    OpDecorate %buffer DescriptorSet 0
    OpDecorate %buffer Binding 0
    %void = OpTypeVoid
    %proc = OpTypeFunction %void
    %uint = OpTypeInt 32 0
    %v3 = OpTypeVector %uint 3
    %0 = OpConstant %uint 0
    %1 = OpConstant %uint 1
    %4 = OpConstant %uint 4
    %words = OpTypeRuntimeArray %uint
    %buffer_t = OpTypeStruct %words
    %buffer_p = OpTypePointer StorageBuffer %buffer_t
    %word_p = OpTypePointer StorageBuffer %uint
    %shared_p = OpTypePointer Workgroup %uint
    %buffer = OpVariable %buffer_p StorageBuffer
    {globals}
    %main = OpFunction %void None %proc
    %start = OpLabel
    {body}
    OpReturn
    OpFunctionEnd
    {functions}
"#;

/// Parts of a module that differ.
#[derive(Default)]
struct Parts<'a> {
    imports: &'a str,
    modes: &'a str,
    decorations: &'a str,
    globals: &'a str,
    body: &'a str,
    functions: &'a str,
}

/// Links a module; none on a machine without the assembler.
fn link_parts(parts: &Parts<'_>) -> Option<Result<Linked, LinkError>> {
    let modes = if parts.modes.is_empty() { "OpExecutionMode %main LocalSize 64 1 1" } else { parts.modes };
    let text = FRAME
        .replace("{imports}", parts.imports)
        .replace("{modes}", modes)
        .replace("{decorations}", parts.decorations)
        .replace("{globals}", parts.globals)
        .replace("{body}", parts.body)
        .replace("{functions}", parts.functions);
    let words = assemble(&text)?;
    let handler = HandlerModule { words: &words, entry: "main", opcode: 16 };
    Some(abide::spirv::link::link(&kernel(), &[handler], &Limits { workgroup_bytes: 16 * 1024 }))
}

/// The linked kernel's text, validated.
fn text(parts: &Parts<'_>) -> Option<String> {
    let linked = link_parts(parts)?.unwrap_or_else(|error| panic!("{error}"));
    spirv_val::validate("linked", &linked.words);
    Some(spirv_val::disassemble(&linked.words))
}

/// Asserts that the module is refused for an instruction, with words that say why.
fn refused(parts: &Parts<'_>, instruction: &str, why: &str) {
    let Some(linked) = link_parts(parts) else { return };
    let error = linked.expect_err("refused");
    let LinkError::Handler { refusal: Refusal::Instruction { site, .. }, .. } = &error else { panic!("{error}") };
    let message = error.to_string();
    assert!(format!("Op{:?}", site.op) == instruction && message.contains(why), "{message}");
}

#[test]
fn a_pointer_to_a_buffer_as_argument() {
    let parts = Parts {
        globals: "%take_t = OpTypeFunction %uint %word_p",
        body: "%place = OpAccessChain %word_p %buffer %0 %4
               %got = OpFunctionCall %uint %take %place
               OpStore %place %got",
        functions: "%take = OpFunction %uint None %take_t
               %from = OpFunctionParameter %word_p
               %begin = OpLabel
               %value = OpLoad %uint %from
               OpReturnValue %value
               OpFunctionEnd",
        ..Parts::default()
    };
    let Some(text) = text(&parts) else { return };
    assert!(text.contains(" Aliased\n"), "{text}");
}

#[test]
fn recursion() {
    let parts = Parts {
        body: "%a = OpFunctionCall %void %one",
        functions: "%one = OpFunction %void None %proc
               %l1 = OpLabel
               %b = OpFunctionCall %void %two
               OpReturn
               OpFunctionEnd
               %two = OpFunction %void None %proc
               %l2 = OpLabel
               %c = OpFunctionCall %void %one
               OpReturn
               OpFunctionEnd",
        ..Parts::default()
    };
    refused(&parts, "OpFunction", "calls itself");
}

#[test]
fn what_the_workgroup_size_can_be() {
    let size =
        |parts: &Parts<'_>| link_parts(parts).map(|linked| linked.map(|linked| linked.handlers[0].workgroup_size));
    let constants = "%5 = OpSpecConstant %uint 5
                     %size = OpSpecConstantComposite %v3 %5 %4 %1";
    let by_id = Parts { modes: "OpExecutionModeId %main LocalSizeId %5 %4 %1", globals: constants, ..Parts::default() };
    let Some(found) = size(&by_id) else { return };
    assert_eq!(found, Ok([5, 4, 1]));
    let decorations = "OpDecorate %5 SpecId 9
                       OpDecorate %size BuiltIn WorkgroupSize";
    let by_constant = Parts { decorations, globals: constants, ..Parts::default() };
    assert_eq!(size(&by_constant), Some(Ok([5, 4, 1])));
    let two = format!("{decorations}\nOpDecorate %other BuiltIn WorkgroupSize");
    let globals = format!("{constants}\n%other = OpConstantComposite %v3 %1 %1 %1");
    refused(
        &Parts { decorations: &two, globals: &globals, ..Parts::default() },
        "OpConstantComposite",
        "a second WorkgroupSize",
    );
    refused(
        &Parts { modes: "OpExecutionMode %main LocalSize 0 1 1", ..Parts::default() },
        "OpExecutionMode",
        "no invocations",
    );
    let mode = "OpExecutionMode %main LocalSize 1 1 1\nOpExecutionMode %main SubgroupUniformControlFlowKHR";
    refused(&Parts { modes: mode, ..Parts::default() }, "OpExecutionMode", "SubgroupUniformControlFlow");
}

#[test]
fn specialization_constants_keep_their_defaults() {
    let parts = Parts {
        decorations: "OpDecorate %5 SpecId 0",
        globals: "%5 = OpSpecConstant %uint 1234",
        body: "%place = OpAccessChain %word_p %buffer %0 %5
               OpStore %place %5",
        ..Parts::default()
    };
    let Some(text) = text(&parts) else { return };
    // The kernel's own stays the only one.
    assert_eq!(text.matches("OpSpecConstant ").count(), 1, "{text}");
    assert!(text.contains("OpConstant  %3  1234"), "{text}");
}

#[test]
fn debug_instructions_are_dropped() {
    let parts = Parts {
        imports: r#"%debug = OpExtInstImport "NonSemantic.Anything""#,
        globals: "%note = OpExtInst %void %debug 1 %uint",
        body: "%inner = OpExtInst %void %debug 2 %main",
        ..Parts::default()
    };
    let Some(text) = text(&parts) else { return };
    assert!(!text.contains("NonSemantic"), "{text}");
}

#[test]
fn semantics_of_atomics_and_barriers_are_raised() {
    let parts = Parts {
        globals: "%all = OpConstant %uint 0x148
                  %strict = OpConstant %uint 0x50",
        body: "%place = OpAccessChain %word_p %buffer %0 %1
               %old = OpAtomicIAdd %uint %place %1 %strict %4
               %seen = OpAtomicLoad %uint %place %1 %strict
               OpMemoryBarrier %1 %all
               OpMemoryBarrier %1 %0",
        ..Parts::default()
    };
    let Some(text) = text(&parts) else { return };
    // Acquire and release of buffers (0x48), acquire of buffers (0x42), with availability (0x2000), visibility (0x4000).
    for semantics in [0x6048, 0x4042, 0x6148] {
        assert!(text.contains(&format!("OpConstant  %3  {semantics}\n")), "{semantics:#x}\n{text}");
    }
    assert_eq!(text.matches("OpMemoryBarrier").count(), 2, "the kernel's and one of the handler's\n{text}");
}

#[test]
fn refused_by_instruction() {
    let body = |body| Parts { body, ..Parts::default() };
    let place = "%place = OpAccessChain %word_p %buffer %0 %1\n%other = OpAccessChain %word_p %buffer %0 %4\n";
    let copy = format!("{place}OpCopyMemory %place %other");
    refused(&body(&copy), "OpCopyMemory", "can't use this instruction");
    let chosen = format!("{place}%copy = OpCopyObject %word_p %place");
    refused(&body(&chosen), "OpCopyObject", "pointers may be");
    let constant = "%null = OpConstantNull %uint\n%shared = OpVariable %shared_p Workgroup %null";
    let parts = Parts { globals: constant, body: "OpStore %shared %1", ..Parts::default() };
    refused(&parts, "OpVariable", "initial value");
    let many = format!("{place}%old = OpAtomicIAdd %uint %place %0 %0 %4");
    refused(&body(&many), "OpAtomicIAdd", "a scope that kernels don't have");
    let parts = Parts { decorations: "OpDecorate %buffer Location 3", ..body(&copy) };
    refused(&parts, "OpDecorate", "Location");
    let parts = Parts { imports: r#"%std = OpExtInstImport "OpenCL.std""#, ..Parts::default() };
    refused(&parts, "OpExtInstImport", "OpenCL.std");
}
