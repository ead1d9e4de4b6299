// One tile of BC1: 32 x 32 texels to a workgroup, one block of 4 x 4 to a lane.
//
// Opaque blocks are tried with four colours and with three; a block with texels of alpha below 128 uses three colours
// and leaves those texels clear. Endpoints start at the extremes along the principal axis, are solved for by least
// squares, then moved in single steps while that helps. Blocks beyond the image repeat its last texels.
//
// All arithmetic is in integers: every driver and every compilation gives the same bytes.

struct Parameters {
    // First word of the level that is read, and of its blocks.
    source: u32,
    destination: u32,
    // Size in texels of the level.
    width: u32,
    height: u32,
    // Tile of the first workgroup, counted in rows of tiles.
    tile: u32,
}

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> destination: array<u32>;
var<immediate> parameters: Parameters;

// Blocks along a side of a tile.
const TILE: u32 = 8u;
const LARGEST: vec3<i32> = vec3(31, 63, 31);

// Colours of the block; a bit of `clear` for each texel that shows nothing.
var<private> texels: array<vec3<i32>, 16>;
var<private> clear: u32;

// A block as tried: endpoints in 5, 6 and 5 bits, `steps` between them, and each texel's steps from the first.
struct Fit {
    error: i32,
    steps: i32,
    first: vec3<i32>,
    second: vec3<i32>,
    weights: u32,
}

fn load(column: u32, row: u32) {
    clear = 0u;
    for (var i = 0u; i < 16u; i++) {
        let x = min(column * 4u + i % 4u, parameters.width - 1u);
        let y = min(row * 4u + i / 4u, parameters.height - 1u);
        let texel = source[parameters.source + y * parameters.width + x];
        texels[i] = vec3<i32>(vec3(texel, texel >> 8u, texel >> 16u) & vec3(255u));
        clear |= select(0u, 1u, (texel >> 24u) < 128u) << i;
    }
}

fn seen(i: u32) -> bool {
    return ((clear >> i) & 1u) == 0u;
}

fn inner(a: vec3<i32>, b: vec3<i32>) -> i32 {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

// Largest of the components' magnitudes, at least 1.
fn magnitude(v: vec3<i32>) -> i32 {
    let a = abs(v);
    return max(max(a.x, a.y), max(a.z, 1));
}

// Shifts a vector so that its components fit in `bits`.
fn shorten(v: vec3<i32>, bits: u32) -> vec3<i32> {
    let length = firstLeadingBit(u32(magnitude(v))) + 1u;
    return v >> vec3(max(length, bits) - bits);
}

// Direction in which the colours vary most, by power iteration.
fn axis() -> vec3<i32> {
    var sum = vec3(0);
    var count = 0;
    for (var i = 0u; i < 16u; i++) {
        if seen(i) {
            sum += texels[i];
            count++;
        }
    }
    let mean = (sum + count / 2) / max(count, 1);
    var diagonal = vec3(0);
    // Products of red and green, red and blue, green and blue.
    var mixed = vec3(0);
    for (var i = 0u; i < 16u; i++) {
        if seen(i) {
            let d = texels[i] - mean;
            diagonal += d * d;
            mixed += d.xxy * d.yzz;
        }
    }
    // Down to 15 bits, so that a product with 12 bits can be summed.
    let excess = max(firstLeadingBit(u32(magnitude(diagonal))), 14u) - 14u;
    diagonal = diagonal >> vec3(excess);
    mixed = mixed >> vec3(excess);
    var v = vec3(diagonal.x, mixed.x, mixed.y);
    if diagonal.y > diagonal.x && diagonal.y >= diagonal.z {
        v = vec3(mixed.x, diagonal.y, mixed.z);
    } else if diagonal.z > diagonal.x {
        v = vec3(mixed.y, mixed.z, diagonal.z);
    }
    for (var i = 0u; i < 4u; i++) {
        v = shorten(v, 12u);
        v = vec3(
            diagonal.x * v.x + mixed.x * v.y + mixed.y * v.z,
            mixed.x * v.x + diagonal.y * v.y + mixed.z * v.z,
            mixed.y * v.x + mixed.z * v.y + diagonal.z * v.z,
        );
    }
    return shorten(v, 12u);
}

fn quantise(colour: vec3<i32>) -> vec3<i32> {
    return (clamp(colour, vec3(0), vec3(255)) * LARGEST + 127) / 255;
}

fn expand(end: vec3<i32>) -> vec3<i32> {
    return vec3((end.x << 3u) | (end.x >> 2u), (end.y << 2u) | (end.y >> 4u), (end.z << 3u) | (end.z >> 2u));
}

// Gives each texel the nearest of the colours between two endpoints. Errors of three and of two steps compare.
fn evaluate(first: vec3<i32>, second: vec3<i32>, steps: i32) -> Fit {
    let a = expand(first);
    let span = expand(second) - a;
    let length = inner(span, span);
    var weights = 0u;
    var error = 0;
    for (var i = 0u; i < 16u; i++) {
        if seen(i) {
            let d = texels[i] - a;
            let along = 2 * steps * inner(d, span);
            var weight = select(0, 1, along > length) + select(0, 1, along > 3 * length);
            weight = min(weight + select(0, 1, along > 5 * length), steps);
            let off = steps * d - weight * span;
            error += inner(off, off);
            weights |= u32(weight) << (2u * i);
        }
    }
    return Fit(error * select(9, 4, steps == 3), steps, first, second, weights);
}

// Endpoints that suit the texels' weights best, before rounding: least squares.
fn solve(fit: Fit) -> array<vec3<i32>, 2> {
    var aa = 0;
    var ab = 0;
    var bb = 0;
    var ax = vec3(0);
    var bx = vec3(0);
    for (var i = 0u; i < 16u; i++) {
        if seen(i) {
            let b = i32((fit.weights >> (2u * i)) & 3u);
            let a = fit.steps - b;
            aa += a * a;
            ab += a * b;
            bb += b * b;
            ax += a * texels[i];
            bx += b * texels[i];
        }
    }
    let determinant = aa * bb - ab * ab;
    if determinant == 0 {
        return array(expand(fit.first), expand(fit.second));
    }
    let first = fit.steps * (bb * ax - ab * bx);
    let second = fit.steps * (aa * bx - ab * ax);
    let half = determinant / 2;
    return array((max(first, vec3(0)) + half) / determinant, (max(second, vec3(0)) + half) / determinant);
}

fn better(a: Fit, b: Fit) -> Fit {
    if b.error < a.error {
        return b;
    }
    return a;
}

// Least squares and reassignment in turn, from given endpoints.
fn refine(first: vec3<i32>, second: vec3<i32>, steps: i32) -> Fit {
    var best = Fit();
    best.error = 0x7fffffff;
    var ends = array(first, second);
    for (var round = 0u; round < 5u; round++) {
        let fit = evaluate(quantise(ends[0]), quantise(ends[1]), steps);
        if fit.error >= best.error {
            break;
        }
        best = fit;
        ends = solve(best);
    }
    return best;
}

// Moves one component of one endpoint by one step at a time while that helps.
fn polish(start: Fit) -> Fit {
    var best = start;
    for (var round = 0u; round < 2u && best.error > 0; round++) {
        let before = best.error;
        for (var step = 0u; step < 12u; step++) {
            let one = vec3<i32>(vec3(step % 3u) == vec3(0u, 1u, 2u)) * select(-1, 1, step % 6u < 3u);
            let first = clamp(best.first + select(vec3(0), one, step < 6u), vec3(0), LARGEST);
            let second = clamp(best.second + select(one, vec3(0), step < 6u), vec3(0), LARGEST);
            best = better(best, evaluate(first, second, best.steps));
        }
        if best.error == before {
            break;
        }
    }
    return best;
}

fn encode() -> Fit {
    let direction = axis();
    var low = vec3(0);
    var high = vec3(0);
    var lowest = 0x7fffffff;
    var highest = -0x7fffffff;
    for (var i = 0u; i < 16u; i++) {
        if seen(i) {
            let at = inner(texels[i], direction);
            if at < lowest {
                lowest = at;
                low = texels[i];
            }
            if at > highest {
                highest = at;
                high = texels[i];
            }
        }
    }
    var best = Fit();
    best.error = 0x7fffffff;
    for (var steps = select(2, 3, clear == 0u); steps > 1; steps--) {
        best = better(best, refine(high, low, steps));
    }
    return polish(best);
}

fn pack(end: vec3<i32>) -> u32 {
    return u32((end.x << 11u) | (end.y << 5u) | end.z);
}

// Four colours need the larger endpoint first, three colours the smaller or an equal one.
fn blocks(fit: Fit) -> vec2<u32> {
    let first = pack(fit.first);
    let second = pack(fit.second);
    let four = fit.steps == 3;
    let swap = select(first > second, first < second, four);
    var indices = 0u;
    for (var i = 0u; i < 16u; i++) {
        var weight = i32((fit.weights >> (2u * i)) & 3u);
        weight = select(weight, fit.steps - weight, swap);
        // Along the line: first, the colours between, second. In the block's order: first, second, between.
        var index = select(u32(weight) + 1u, 0u, weight == 0);
        index = select(index, 1u, weight == fit.steps);
        index = select(index, 3u, !seen(i));
        // Equal endpoints mean three colours, of which the last is clear.
        index = select(index, 0u, first == second && seen(i));
        indices |= index << (2u * i);
    }
    return vec2(select(first | (second << 16u), second | (first << 16u), swap), indices);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let width = (parameters.width + 3u) / 4u;
    let height = (parameters.height + 3u) / 4u;
    let columns = (width + TILE - 1u) / TILE;
    let tile = parameters.tile + group.x;
    let column = tile % columns * TILE + lane % TILE;
    let row = tile / columns * TILE + lane / TILE;
    if column < width && row < height {
        load(column, row);
        let block = blocks(encode());
        let at = parameters.destination + 2u * (row * width + column);
        destination[at] = block.x;
        destination[at + 1u] = block.y;
    }
}
