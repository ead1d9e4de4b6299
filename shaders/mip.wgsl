// One tile of the next mip level: a box filter over linear light, 32 x 32 texels of the new level to a workgroup.
//
// Texels are RGBA, 8 bits each, colour in sRGB and alpha straight. Even sizes halve exactly. Odd sizes 2m + 1 shrink to
// m by a polyphase box: each new texel covers (2m + 1) / m old ones, so three taps with weights m - i, m and i + 1.
// Colour is weighted by alpha, so that what can't be seen doesn't bleed into what can.
//
// All arithmetic is in integers: every driver and every compilation gives the same bytes.

struct Parameters {
    // First word of the level that is read, and of the one that is written.
    source: u32,
    destination: u32,
    // Size in texels of the level that is read.
    width: u32,
    height: u32,
    // Tile of the first workgroup, counted in rows of tiles over the level that is written.
    tile: u32,
}

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> destination: array<u32>;
var<immediate> parameters: Parameters;

const TILE: u32 = 32u;
const LANES: u32 = 64u;
// The weights along one axis add up to 1 << WEIGHT_BITS.
const WEIGHT_BITS: u32 = 7u;

// Taps along one axis: old texels from `first` on, `weights` of them.
struct Taps {
    first: u32,
    count: u32,
    weights: vec3<u32>,
}

fn taps(size: u32, at: u32) -> Taps {
    let one = 1u << WEIGHT_BITS;
    if size == 1u {
        return Taps(0u, 1u, vec3(one, 0u, 0u));
    }
    if (size & 1u) == 0u {
        return Taps(2u * at, 2u, vec3(one / 2u, one / 2u, 0u));
    }
    let before = ((size / 2u - at) * one + size / 2u) / size;
    let after = ((at + 1u) * one + size / 2u) / size;
    return Taps(2u * at, 3u, vec3(before, one - before - after, after));
}

// sRGB codes to linear light in 16 bits: the linear piece, then a polynomial within 0.06 % of full scale.
fn linear(code: vec3<i32>) -> vec3<i32> {
    var light = vec3(-113220);
    light = ((light * code) >> vec3(8u)) + 536628;
    light = ((light * code) >> vec3(8u)) + 605424;
    light = ((light * code) >> vec3(8u)) + 27316;
    light = ((light * code) >> vec3(8u)) + 1218;
    return select(light >> vec3(4u), (code * 1273) >> vec3(6u), code <= vec3(10));
}

// The codes whose light is nearest, found bit by bit: the inverse of `linear` by construction.
fn encode(light: vec3<i32>) -> vec3<i32> {
    var code = vec3(0);
    for (var bit = 128; bit > 0; bit = bit >> 1u) {
        let above = code | vec3(bit);
        code = select(code, above, linear(above) <= light);
    }
    let next = min(code + 1, vec3(255));
    return select(code, next, linear(next) - light < light - linear(code));
}

fn shrink(x: u32, y: u32) -> u32 {
    let across = taps(parameters.width, x);
    let down = taps(parameters.height, y);
    var colour = vec3(0u);
    var alpha = 0u;
    // Sum of the weights that the colours had: alpha, but at least 1 so that clear texels still average.
    var presence = 0u;
    for (var j = 0u; j < down.count; j++) {
        let row = parameters.source + (down.first + j) * parameters.width + across.first;
        var row_colour = vec3(0u);
        var row_alpha = 0u;
        var row_presence = 0u;
        for (var i = 0u; i < across.count; i++) {
            let texel = source[row + i];
            let weight = across.weights[i];
            let opacity = texel >> 24u;
            let visible = max(opacity, 1u) * weight;
            row_colour += vec3<u32>(linear(unpack(texel))) * visible;
            row_alpha += opacity * weight;
            row_presence += visible;
        }
        let weight = down.weights[j];
        colour += ((row_colour + 128u) >> vec3(8u)) * weight;
        alpha += row_alpha * weight;
        presence += row_presence * weight;
    }
    let unit = presence >> 8u;
    let light = (colour + unit / 2u) / unit;
    let code = vec3<u32>(encode(vec3<i32>(light)));
    let half = 1u << (2u * WEIGHT_BITS - 1u);
    return code.x | (code.y << 8u) | (code.z << 16u) | (((alpha + half) >> (2u * WEIGHT_BITS)) << 24u);
}

fn unpack(texel: u32) -> vec3<i32> {
    return vec3<i32>(vec3(texel, texel >> 8u, texel >> 16u) & vec3(255u));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let width = max(parameters.width / 2u, 1u);
    let height = max(parameters.height / 2u, 1u);
    let columns = (width + TILE - 1u) / TILE;
    let tile = parameters.tile + group.x;
    let left = tile % columns * TILE;
    let top = tile / columns * TILE;
    for (var i = lane; i < TILE * TILE; i += LANES) {
        let x = left + i % TILE;
        let y = top + i / TILE;
        if x < width && y < height {
            destination[parameters.destination + y * width + x] = shrink(x, y);
        }
    }
}
