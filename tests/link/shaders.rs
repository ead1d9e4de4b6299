//! Shaders, each for one family of what compilers emit: all that naga does for compute, and what old GLSL modules have
//! besides. All run with 64 invocations a workgroup.

use super::compile::compile;
use super::tools::glsl;

/// Data of a shader's buffer before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Small whole numbers as u32, different in each word.
    Words,
    /// Small fractions as f32.
    Floats,
}

/// A buffer of a shader in set 0; its binding is its place in the list.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Words.
    pub words: u32,
    /// Data.
    pub fill: Fill,
    /// Whether it is a uniform buffer.
    pub uniform: bool,
}

/// A shader with what it needs to run.
#[derive(Clone, Copy, Debug)]
pub struct Shader {
    /// Name.
    pub name: &'static str,
    /// WGSL, or GLSL where it says so.
    pub source: &'static str,
    /// Whether it is GLSL.
    pub glsl: bool,
    /// Grid in workgroups.
    pub grid: [u32; 3],
    /// Buffers, by binding.
    pub buffers: &'static [Buffer],
    /// Push constants.
    pub payload: &'static [u32],
    /// Whether it uses subgroup operations.
    pub subgroups: bool,
}

impl Shader {
    /// The SPIR-V module; none for GLSL on a machine without glslang.
    pub fn words(&self) -> Option<Vec<u32>> {
        if self.glsl {
            return glsl(self.source);
        }
        match compile(self.name, self.source) {
            Ok(compiled) => Some(compiled.words),
            Err(error) => panic!("{}: {error:#}", self.name),
        }
    }
}

const fn words(words: u32) -> Buffer {
    Buffer { words, fill: Fill::Words, uniform: false }
}

const fn floats(words: u32) -> Buffer {
    Buffer { words, fill: Fill::Floats, uniform: false }
}

const fn uniform(words: u32) -> Buffer {
    Buffer { words, fill: Fill::Floats, uniform: true }
}

const fn shader(name: &'static str, grid: [u32; 3], buffers: &'static [Buffer], source: &'static str) -> Shader {
    Shader { name, source, glsl: false, grid, buffers, payload: &[], subgroups: false }
}

/// All of them.
pub const ALL: &[Shader] = &[
    shader(
        "storage",
        [4, 1, 1],
        &[words(256), words(257)],
        "@group(0) @binding(0) var<storage, read> a: array<u32>;
         @group(0) @binding(1) var<storage, read_write> b: array<u32>;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             b[id.x] = b[id.x] + a[id.x] * 3u + a[id.x * 1000u];
             if id.x == 7u { b[100000u] = 1u; }
         }",
    ),
    shader(
        "atomics",
        [3, 1, 1],
        &[words(16), words(16)],
        // One kind of operation on each word: they run in any order, and two kinds don't commute.
        "struct Counters {
             sum: atomic<u32>, low: atomic<i32>, bits: array<atomic<u32>, 4>, swapped: atomic<u32>, flips: atomic<u32>
         }
         @group(0) @binding(0) var<storage, read_write> all: Counters;
         @group(0) @binding(1) var<storage, read_write> out: array<atomic<u32>>;
         var<workgroup> most: atomic<u32>;
         var<workgroup> down: atomic<u32>;
         @compute @workgroup_size(64)
         fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
             atomicAdd(&all.sum, lane + 1u);
             atomicMin(&all.low, i32(lane) - 9);
             atomicOr(&all.bits[lane % 4u], 1u << (lane / 4u));
             atomicXor(&all.flips, lane + 1u);
             atomicMax(&most, lane * 2u);
             atomicSub(&down, lane);
             workgroupBarrier();
             if lane == 0u {
                 atomicStore(&out[group.x], atomicLoad(&most) + atomicLoad(&down));
                 let r = atomicCompareExchangeWeak(&out[8u + group.x], atomicLoad(&out[8u + group.x]), 77u);
                 if r.exchanged { atomicAdd(&out[15], 1u); }
                 atomicAnd(&all.swapped, 0xffu);
                 atomicExchange(&out[4u + group.x], 9u);
             }
         }",
    ),
    shader(
        "uniforms",
        [1, 1, 1],
        &[uniform(64), floats(64)],
        "struct Block { scale: vec3<f32>, bias: f32, rows: mat4x4<f32>, list: array<vec4<f32>, 4>, flip: u32 }
         @group(0) @binding(0) var<uniform> u: Block;
         @group(0) @binding(1) var<storage, read_write> out: array<f32>;
         @compute @workgroup_size(64)
         fn main(@builtin(local_invocation_index) i: u32) {
             let v = u.rows * vec4<f32>(u.scale, u.bias);
             out[i] = out[i] + v[i % 4u] + u.list[i % 4u].z + u.rows[i % 4u][2];
             let whole = u;
             if whole.flip != 0u { out[i] = out[i] - whole.list[1].x; }
         }",
    ),
    Shader {
        payload: &[5, 7, 0x4040_0000, 11, 1, 2, 3, 4],
        ..shader(
            "immediates",
            [2, 1, 1],
            &[words(128)],
            "struct Parameters { add: u32, mul: u32, f: f32, last: u32, four: vec4<u32> }
             var<immediate> p: Parameters;
             @group(0) @binding(0) var<storage, read_write> out: array<u32>;
             fn twice() -> u32 { return p.add * 2u; }
             @compute @workgroup_size(64)
             fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                 out[id.x] = out[id.x] * p.mul + twice() + u32(p.f) + p.last + p.four[id.x % 4u] + p.four.z;
             }",
        )
    },
    shader(
        "workgroup",
        [3, 1, 1],
        &[words(192), words(3)],
        "@group(0) @binding(0) var<storage, read> a: array<u32>;
         @group(0) @binding(1) var<storage, read_write> sums: array<u32>;
         struct Pair { a: vec3<u32>, b: u32 }
         var<workgroup> tile: array<u32, 64>;
         var<workgroup> pairs: array<Pair, 8>;
         @compute @workgroup_size(64)
         fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
             tile[lane] = a[group.x * 64u + lane];
             workgroupBarrier();
             for (var step = 32u; step > 0u; step = step / 2u) {
                 if lane < step { tile[lane] = tile[lane] + tile[lane + step]; }
                 workgroupBarrier();
             }
             if lane < 8u { pairs[lane].a = vec3<u32>(lane); pairs[lane].b += tile[0]; }
             workgroupBarrier();
             let shared_value = workgroupUniformLoad(&tile[0]);
             if lane == 0u { sums[group.x] = shared_value + pairs[3].b + pairs[5].a.y; }
         }",
    ),
    shader(
        "privates",
        [4, 1, 1],
        &[words(256)],
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
         var<private> count: u32 = 40u;
         var<private> seen: array<vec2<u32>, 3> = array<vec2<u32>, 3>(vec2(1u, 2u), vec2(3u, 4u), vec2(5u, 6u));
         var<private> plain: u32;
         fn bump(p: ptr<private, u32>, q: ptr<function, u32>) -> u32 { *p += *q; *q = *p; return *p; }
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             var local = id.x;
             let got = bump(&count, &local);
             seen[id.x % 3u].y += local;
             plain += got;
             out[id.x] = count + seen[id.x % 3u].y * 2u + plain + seen[1].x;
         }",
    ),
    shader(
        "structs",
        [1, 1, 1],
        &[floats(256), floats(2048)],
        "struct Inner { a: vec3<f32>, b: f32, c: vec2<f32> }
         struct Item { id: u32, inner: array<Inner, 2>, m: mat3x3<f32>, n: mat2x2<f32>, tail: vec3<u32> }
         @group(0) @binding(0) var<storage, read> items: array<Item, 4>;
         @group(0) @binding(1) var<storage, read_write> out: array<Item>;
         @compute @workgroup_size(8, 8)
         fn main(@builtin(local_invocation_index) i: u32) {
             if i >= 4u { return; }
             var item = items[i];
             item.inner[1].a = item.m * item.inner[0].a + vec3<f32>(item.n * item.inner[1].c, item.inner[0].b);
             item.m[2] = vec3<f32>(f32(i), item.m[1].y, 2.0);
             item.n = transpose(item.n) * 2.0;
             out[i] = item;
             out[i].inner[0].a.z = items[3u - i].inner[1].a.y;
             out[i].m[i % 3u][1] = 5.0;
             out[i].tail.y = arrayLength(&out) + i;
         }",
    ),
    shader(
        "lengths",
        [1, 1, 1],
        &[words(100), words(37), words(10)],
        "struct Head { count: u32, other: vec2<u32>, list: array<vec2<u32>> }
         @group(0) @binding(0) var<storage, read> head: Head;
         @group(0) @binding(1) var<storage, read> list: array<u32>;
         @group(0) @binding(2) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(64)
         fn main(@builtin(local_invocation_index) i: u32) {
             if i != 0u { return; }
             out[0] = arrayLength(&head.list);
             out[1] = arrayLength(&list);
             out[2] = arrayLength(&out);
             out[3] = head.list[arrayLength(&head.list) - 1u].y;
             out[4] = head.list[arrayLength(&head.list) + 5u].x;
             out[99] = 3u;
         }",
    ),
    shader(
        "control",
        [2, 1, 1],
        &[words(128), words(128)],
        "@group(0) @binding(0) var<storage, read> a: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         fn collatz(start: u32) -> u32 {
             var n = start;
             var steps = 0u;
             loop {
                 if n <= 1u || steps > 200u { break; }
                 if n % 2u == 0u { n = n / 2u; } else { n = 3u * n + 1u; }
                 continuing { steps += 1u; }
             }
             return steps;
         }
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             var total = 0u;
             for (var i = 0u; i < 10u; i++) {
                 switch (a[id.x] + i) % 5u {
                     case 0u: { continue; }
                     case 1u, 2u: { total += collatz(a[id.x] + i); }
                     default: { if i > 8u { break; } total += i; }
                 }
                 if total > 500u { break; }
             }
             while total % 7u != 3u { total += 1u; }
             out[id.x] = total / (a[id.x] % 3u) + u32(-17 % (i32(id.x) - 5));
         }",
    ),
    shader(
        "built_ins",
        [2, 3, 2],
        &[words(12 * 64 * 4)],
        "@group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
         @compute @workgroup_size(4, 8, 2)
         fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>,
                 @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>,
                 @builtin(local_invocation_index) index: u32) {
             let linear = (group.z * groups.y + group.y) * groups.x + group.x;
             out[linear * 64u + index] = vec4<u32>(
                 id.x + id.y * 100u + id.z * 10000u, group.x + group.y * 10u + group.z * 100u,
                 groups.x + groups.y * 10u + groups.z * 100u, local.x + local.y * 100u + local.z * 10000u);
         }",
    ),
    Shader {
        subgroups: true,
        ..shader(
            "subgroups",
            [2, 1, 1],
            &[words(128), words(128 * 4)],
            "@group(0) @binding(0) var<storage, read> a: array<u32>;
             @group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
             @compute @workgroup_size(64)
             fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(subgroup_size) size: u32,
                     @builtin(subgroup_invocation_id) lane: u32) {
                 let v = a[id.x];
                 let sum = subgroupAdd(v);
                 let most = subgroupMax(v) + subgroupExclusiveAdd(v);
                 let bits = subgroupBallot(v % 2u == 0u).x;
                 let other = subgroupShuffle(v, (lane + 1u) % size) + subgroupBroadcastFirst(v);
                 let any_big = select(0u, 1000u, subgroupAny(v > 90u));
                 subgroupBarrier();
                 out[id.x] = vec4<u32>(sum + any_big, most + size, bits, other);
             }",
        )
    },
    shader(
        "maths",
        [1, 1, 1],
        &[floats(64), words(64 * 4)],
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<vec4<i32>>;
         @compute @workgroup_size(16, 4)
         fn main(@builtin(local_invocation_index) i: u32) {
             let x = a[i];
             let v = vec3<f32>(x, x * 0.5, 1.0 - x);
             let k = i32(floor(clamp(x, -4.0, 4.0) * 8.0));
             let packed = pack4x8unorm(vec4<f32>(fract(abs(x)), 0.25, 0.5, 1.0));
             out[i] = vec4<i32>(i32(packed), i32(dot(v, v.zyx) * 16.0), firstTrailingBit(k | 64) + countOneBits(k),
                 select(extractBits(k, 1u, 3u), insertBits(k, 5, 2u, 4u), x > 0.5) + reverseBits(k));
         }",
    ),
    shader(
        "pointers",
        [2, 1, 1],
        &[words(128), words(128)],
        "struct Node { value: vec4<u32>, links: array<u32, 4> }
         @group(0) @binding(0) var<storage, read> nodes: array<Node>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         var<workgroup> scratch: array<u32, 64>;
         fn fill(p: ptr<function, array<u32, 4>>, at: u32) {
             for (var i = 0u; i < 4u; i++) { (*p)[i] = nodes[at % arrayLength(&nodes)].links[i] + i; }
         }
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
             var links: array<u32, 4>;
             fill(&links, id.x);
             let node = &nodes[id.x % 16u];
             let row = &(*node).value;
             scratch[lane] = links[id.x % 4u] + (*row).y;
             workgroupBarrier();
             out[id.x] = scratch[63u - lane] + (*node).value[lane % 4u];
         }",
    ),
    shader(
        "coherent",
        [1, 1, 1],
        &[words(64), words(64)],
        "@group(0) @binding(0) @coherent var<storage, read_write> a: array<u32>;
         @group(0) @binding(1) @volatile var<storage, read_write> b: array<vec2<u32>>;
         @compute @workgroup_size(64)
         fn main(@builtin(local_invocation_index) i: u32) {
             a[i] = a[i] + 5u;
             storageBarrier();
             if i < 32u { b[i] = vec2<u32>(a[63u - i], b[i].x); }
         }",
    ),
    Shader {
        glsl: true,
        payload: &[3, 0, 0, 0, 0x4000_0000, 0x3f80_0000],
        ..shader(
            "old_glsl",
            [2, 2, 1],
            &[uniform(64), words(256), words(260), floats(256)],
            "#version 450
             layout(local_size_x = 16, local_size_y = 4) in;
             layout(constant_id = 7) const uint FACTOR = 3;
             layout(set = 0, binding = 0, std140, row_major) uniform U { mat3x4 m; float list[3]; mat2 n; } u;
             layout(set = 0, binding = 1) coherent buffer A { uint a[]; };
             layout(set = 0, binding = 2) volatile buffer B { uint count; uint pad[3]; uint b[256]; };
             layout(set = 0, binding = 3, row_major) buffer C { mat4x3 c[5]; vec3 v; float out_[]; };
             layout(push_constant) uniform P { uint start; layout(offset = 16) vec2 scale; } p;
             shared uint tile[gl_WorkGroupSize.x * gl_WorkGroupSize.y];
             uint kept = 9;
             void bump(inout uint value) { value += kept; kept += 1; }
             void main() {
                 uint i = gl_LocalInvocationIndex;
                 uvec3 g = gl_WorkGroupID;
                 uint at = (g.y * gl_NumWorkGroups.x + g.x) * 64 + i;
                 tile[i] = a[at] * FACTOR + p.start;
                 memoryBarrierShared();
                 barrier();
                 uint value = tile[63 - i];
                 bump(value);
                 a[at] = value;
                 memoryBarrierBuffer();
                 barrier();
                 b[at] = b[at] + a[(at & ~63u) | (i ^ 1u)] + uint(a.length()) + gl_GlobalInvocationID.y;
                 atomicAdd(count, kept);
                 vec3 row = vec3(u.m * vec3(p.scale, 1.0)) + c[i % 4][i % 3] * u.list[i % 3];
                 c[4][i % 4][2] = 1.5;
                 if (i < 16 && g.xy == uvec2(1)) out_[i] = row[i % 3] + v.y + u.n[1][0] + float(out_.length());
             }",
        )
    },
];
