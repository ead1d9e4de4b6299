// One tile of BC7: 32 x 32 texels to a workgroup, one block of 4 x 4 to a lane.
//
// Mode 6 (one line through colour and alpha, 16 steps) fits every block. Blocks that it leaves an error in are tried in
// another mode: opaque ones in mode 1 (two lines, 8 steps each), with the partitions whose halves lie nearest to lines;
// those with alpha in mode 5 (a line for colour and one for alpha, 4 steps each). Blocks beyond the image repeat its
// last texels.
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
// All texels of a block.
const WHOLE: u32 = 0xffffu;
// Partitions whose lines are fitted, of the 64 that are ranked.
const CANDIDATES: u32 = 2u;
// Squared error of a block below which another mode isn't worth its time: one step in each texel.
const GOOD: u32 = 16u;
// Rounds of least squares for a line, at most.
const ROUNDS: u32 = 4u;

// The format's partitions in two, 16 bits each: a set bit is a texel of the second half.
const PARTITIONS = array<u32, 32>(
    0x8888ccccu, 0xecc8eeeeu, 0xfeecc880u, 0xec80fec8u, 0xffecc800u, 0xe800fe80u, 0xff00ffe8u, 0xf000fff0u,
    0x008ef710u, 0x08ce7100u, 0x7310008cu, 0x8cce3100u, 0x3110088cu, 0x366c6666u, 0x0ff017e8u, 0x399c718eu,
    0xf0f0aaaau, 0x33cc5a5au, 0x55aa3c3cu, 0xa55a9696u, 0x13c873ceu, 0x3bdc324cu, 0xc33c6996u, 0x06609966u,
    0x04e40272u, 0x27204e40u, 0x936cc936u, 0x639c39c6u, 0x9cc69336u, 0xe718817eu, 0x0fccccf0u, 0xee227744u,
);
// The texel of the second half whose index lacks its top bit, 4 bits to a shape.
const ANCHORS = array<u32, 8>(
    0xffffffffu, 0xffffffffu, 0xf882282fu, 0x22882282u, 0xff8286ffu, 0x6ff22282u, 0x22ff8626u, 0xf22fffffu,
);

var<private> texels: array<vec4<i32>, 16>;
var<private> opaque: bool;

// A line of colours as tried: endpoint codes (in modes 1 and 6 the endpoint's own bit is the last one), and each texel's
// step along it, 4 bits each. The number of steps tells the modes apart: 15 in mode 6, 7 in mode 1, 3 in mode 5.
struct Line {
    error: u32,
    first: vec4<i32>,
    second: vec4<i32>,
    steps: vec2<u32>,
}

// Loads a block's channels that `view` has ones for, and zeros for the others.
fn load(column: u32, row: u32, view: vec4<i32>) {
    opaque = true;
    for (var i = 0u; i < 16u; i++) {
        let x = min(column * 4u + i % 4u, parameters.width - 1u);
        let y = min(row * 4u + i / 4u, parameters.height - 1u);
        let texel = source[parameters.source + y * parameters.width + x];
        texels[i] = vec4<i32>((vec4(texel) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u)) * view;
        opaque = opaque && texel >> 24u == 255u;
    }
}

fn inner(a: vec4<i32>, b: vec4<i32>) -> i32 {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

fn within(mask: u32, i: u32) -> bool {
    return ((mask >> i) & 1u) == 1u;
}

// Shifts a vector so that its components' magnitudes have about `bits`.
fn shorten(v: vec4<i32>, bits: u32) -> vec4<i32> {
    let a = abs(v);
    let length = firstLeadingBit(u32(max(max(max(a.x, a.y), max(a.z, a.w)), 1))) + 1u;
    return v >> vec4(max(length, bits) - bits);
}

// A symmetric matrix of 4 x 4 by its columns.
struct Spread {
    x: vec4<i32>,
    y: vec4<i32>,
    z: vec4<i32>,
    w: vec4<i32>,
}

fn apply(m: Spread, v: vec4<i32>) -> vec4<i32> {
    return m.x * v.x + m.y * v.y + m.z * v.z + m.w * v.w;
}

// The column of the largest diagonal: a first guess at the main direction.
fn longest(m: Spread) -> vec4<i32> {
    var v = m.x;
    var most = m.x.x;
    if m.y.y > most {
        v = m.y;
        most = m.y.y;
    }
    if m.z.z > most {
        v = m.z;
        most = m.z.z;
    }
    if m.w.w > most {
        v = m.w;
    }
    return v;
}

// Direction in which some texels vary most, by power iteration.
fn axis(mask: u32) -> vec4<i32> {
    var sum = vec4(0);
    for (var i = 0u; i < 16u; i++) {
        if within(mask, i) {
            sum += texels[i];
        }
    }
    let count = i32(countOneBits(mask));
    let mean = (sum + count / 2) / count;
    var spread = Spread();
    for (var i = 0u; i < 16u; i++) {
        if within(mask, i) {
            let d = texels[i] - mean;
            spread.x += d * d.x;
            spread.y += d * d.y;
            spread.z += d * d.z;
            spread.w += d * d.w;
        }
    }
    // Down to 15 bits, so that a product with 12 bits can be summed.
    let most = max(max(spread.x.x, spread.y.y), max(spread.z.z, max(spread.w.w, 1)));
    let excess = vec4(max(firstLeadingBit(u32(most)), 14u) - 14u);
    spread = Spread(spread.x >> excess, spread.y >> excess, spread.z >> excess, spread.w >> excess);
    var v = longest(spread);
    for (var i = 0u; i < 4u; i++) {
        v = apply(spread, shorten(v, 12u));
    }
    return shorten(v, 12u);
}

// Endpoint as its mode has it: 7 bits (mode 6) or 6 (mode 1) and one bit that the channels share, or 7 for colours and 8
// for alpha (mode 5).
fn encode_end(colour: vec4<i32>, bit: i32, levels: u32) -> vec4<i32> {
    if levels == 15u {
        return (clamp((colour - bit + 1) >> vec4(1u), vec4(0), vec4(127)) << vec4(1u)) | vec4(bit);
    }
    if levels == 3u {
        return vec4((colour.xyz * 127 + 127) / 255, colour.w);
    }
    let code = (min((colour * 127 + (1 - bit) * 255) / 510, vec4(63)) << vec4(1u)) | vec4(bit);
    // Alpha isn't stored but full.
    return vec4(code.xyz, 127);
}

fn expand(code: vec4<i32>, levels: u32) -> vec4<i32> {
    let wide = (code << vec4(1u)) | (code >> vec4(6u));
    return select(wide, code, vec4(levels == 15u) | vec4(false, false, false, levels == 3u));
}

// The format's weights of 64, from a step: this many 64ths of them to a step, rounded.
fn share(levels: u32) -> i32 {
    return select(select(1365, 585, levels == 7u), 273, levels == 15u);
}

// Gives each texel the nearest step between two endpoints; the error is the decoder's, exactly.
fn evaluate(mask: u32, first: vec4<i32>, second: vec4<i32>, levels: u32) -> Line {
    let a = expand(first, levels);
    let b = expand(second, levels);
    let span = b - a;
    let length = inner(span, span);
    // Steps to a unit along the line, in 27 bits of fraction.
    let pace = (levels << 27u) / u32(max(length, 1));
    let share = share(levels);
    var error = 0;
    var steps = vec2(0u);
    for (var i = 0u; i < 16u; i++) {
        if within(mask, i) {
            let along = u32(clamp(inner(texels[i] - a, span), 0, length));
            let step = (along * pace + (1u << 26u)) >> 27u;
            let weight = (i32(step) * share + 32) >> 6u;
            let off = ((a * (64 - weight) + b * weight + 32) >> vec4(6u)) - texels[i];
            error += inner(off, off);
            steps |= select(vec2(0u, step), vec2(step, 0u), i < 8u) << vec2(i % 8u * 4u);
        }
    }
    return Line(u32(error), first, second, steps);
}

fn step_of(line: Line, i: u32) -> u32 {
    return (select(line.steps.y, line.steps.x, i < 8u) >> (i % 8u * 4u)) & 15u;
}

struct Ends {
    first: vec4<i32>,
    second: vec4<i32>,
}

// Endpoints in 8 bits that suit the texels' steps best: least squares.
fn solve(mask: u32, line: Line, levels: u32) -> Ends {
    let n = i32(levels);
    var aa = 0;
    var ab = 0;
    var bb = 0;
    var ax = vec4(0);
    var bx = vec4(0);
    for (var i = 0u; i < 16u; i++) {
        if within(mask, i) {
            let b = i32(step_of(line, i));
            let a = n - b;
            aa += a * a;
            ab += a * b;
            bb += b * b;
            ax += a * texels[i];
            bx += b * texels[i];
        }
    }
    let determinant = aa * bb - ab * ab;
    if determinant == 0 {
        return Ends(expand(line.first, levels), expand(line.second, levels));
    }
    // Held to what can be shown before the last product, which would overflow.
    let most = vec4(255 * determinant / n + 1);
    let first = clamp(bb * ax - ab * bx, vec4(0), most);
    let second = clamp(aa * bx - ab * ax, vec4(0), most);
    let half = determinant / 2;
    return Ends(
        min((first * n + half) / determinant, vec4(255)),
        min((second * n + half) / determinant, vec4(255)),
    );
}

fn better(a: Line, b: Line) -> Line {
    if b.error < a.error {
        return b;
    }
    return a;
}

// The best line through some texels: extremes along the axis, then least squares and reassignment in turn.
fn fit(mask: u32, levels: u32) -> Line {
    let direction = axis(mask);
    var ends = Ends();
    var lowest = 0x7fffffff;
    var highest = -0x7fffffff;
    for (var i = 0u; i < 16u; i++) {
        if within(mask, i) {
            let at = inner(texels[i], direction);
            if at < lowest {
                lowest = at;
                ends.first = texels[i];
            }
            if at > highest {
                highest = at;
                ends.second = texels[i];
            }
        }
    }
    var best = Line();
    best.error = 0xffffffffu;
    for (var round = 0u; round < ROUNDS; round++) {
        let before = best.error;
        // Own bits of the endpoints: any in mode 6 but set where alpha must stay full, the same in mode 1, none in 5.
        let first_bits = select(0, 3, levels == 3u || (levels == 15u && opaque));
        for (var bits = first_bits; bits < 4; bits += select(1, 3, levels == 7u)) {
            let first = encode_end(ends.first, bits & 1, levels);
            let second = encode_end(ends.second, bits >> 1u, levels);
            best = better(best, evaluate(mask, first, second, levels));
        }
        if best.error >= before {
            break;
        }
        ends = solve(mask, best, levels);
    }
    return best;
}

// First and second moments of some texels' colours: sums, squares and mixed products.
struct Moments {
    sum: vec3<i32>,
    square: vec3<i32>,
    mixed: vec3<i32>,
}

// Squared distance of `count` texels from their best line, by one step of power iteration. Ranks partitions only.
fn distance_from_line(moments: Moments, count: i32) -> u32 {
    // Scatter around the mean, times the count.
    let s = moments.sum;
    var diagonal = moments.square * count - s * s;
    var mixed = moments.mixed * count - s.xxy * s.yzz;
    let trace = diagonal.x + diagonal.y + diagonal.z;
    let excess = max(firstLeadingBit(u32(max(trace, 1))), 13u) - 13u;
    diagonal = diagonal >> vec3(excess);
    mixed = mixed >> vec3(excess);
    let m = Spread(
        vec4(diagonal.x, mixed.x, mixed.y, 0),
        vec4(mixed.x, diagonal.y, mixed.z, 0),
        vec4(mixed.y, mixed.z, diagonal.z, 0),
        vec4(0),
    );
    let v = shorten(apply(m, shorten(longest(m), 13u)), 13u);
    let stretched = apply(m, v) >> vec4(14u);
    let along = inner(v, stretched) / max(inner(v, v) >> 14u, 1);
    let rest = u32(max((trace >> excess) - along, 0));
    return (rest << excess) / u32(count);
}

// Line distance of every shape; the best ones, 8 bits each, the best first.
fn rank() -> u32 {
    var partitions = PARTITIONS;
    var sum = vec3(0);
    for (var i = 0u; i < 16u; i++) {
        sum += texels[i].xyz;
    }
    let mean = (sum + 8) / 16;
    var whole = Moments();
    for (var i = 0u; i < 16u; i++) {
        let d = texels[i].xyz - mean;
        whole.sum += d;
        whole.square += d * d;
        whole.mixed += d.xxy * d.yzz;
    }
    var best = vec2(0xffffffffu);
    var chosen = 0u;
    for (var p = 0u; p < 64u; p++) {
        let mask = (partitions[p / 2u] >> (p % 2u * 16u)) & WHOLE;
        var half = Moments();
        for (var i = 0u; i < 16u; i++) {
            if within(mask, i) {
                let d = texels[i].xyz - mean;
                half.sum += d;
                half.square += d * d;
                half.mixed += d.xxy * d.yzz;
            }
        }
        let count = i32(countOneBits(mask));
        let rest = Moments(whole.sum - half.sum, whole.square - half.square, whole.mixed - half.mixed);
        let error = distance_from_line(half, count) + distance_from_line(rest, 16 - count);
        if error < best.x {
            best = vec2(error, best.x);
            chosen = (chosen << 8u) | p;
        } else if error < best.y {
            best.y = error;
            chosen = (chosen & 0xffu) | (p << 8u);
        }
    }
    return chosen;
}

var<private> block: array<u32, 4>;
var<private> filled: u32;

// Appends bits to the block, the lowest first.
fn put(value: u32, bits: u32) {
    let word = filled / 32u;
    let shift = filled % 32u;
    block[word] |= value << shift;
    if shift + bits > 32u {
        block[word + 1u] |= value >> (32u - shift);
    }
    filled += bits;
}

// Turns a line round where its anchor's top bit would be set, since the format leaves that bit out.
fn anchored(line: Line, mask: u32, anchor: u32, levels: u32) -> Line {
    if step_of(line, anchor) * 2u < levels {
        return line;
    }
    var steps = vec2(0u);
    for (var i = 0u; i < 16u; i++) {
        if within(mask, i) {
            let step = levels - step_of(line, i);
            steps |= select(vec2(0u, step), vec2(step, 0u), i < 8u) << vec2(i % 8u * 4u);
        }
    }
    return Line(line.error, line.second, line.first, steps);
}

fn write_one_line(fitted: Line) {
    let line = anchored(fitted, WHOLE, 0u, 15u);
    put(1u << 6u, 7u);
    for (var c = 0u; c < 4u; c++) {
        put(u32(line.first[c]) >> 1u, 7u);
        put(u32(line.second[c]) >> 1u, 7u);
    }
    put(u32(line.first.x) & 1u, 1u);
    put(u32(line.second.x) & 1u, 1u);
    for (var i = 0u; i < 16u; i++) {
        put(step_of(line, i), select(4u, 3u, i == 0u));
    }
}

fn write_apart(colour: Line, alpha: Line) {
    let a = anchored(colour, WHOLE, 0u, 3u);
    let b = anchored(alpha, WHOLE, 0u, 3u);
    put(1u << 5u, 8u);
    for (var c = 0u; c < 4u; c++) {
        let bits = select(7u, 8u, c == 3u);
        put(u32(select(a.first[c], b.first.w, c == 3u)), bits);
        put(u32(select(a.second[c], b.second.w, c == 3u)), bits);
    }
    for (var i = 0u; i < 32u; i++) {
        let step = select(step_of(b, i % 16u), step_of(a, i % 16u), i < 16u);
        put(step, select(2u, 1u, i % 16u == 0u));
    }
}

fn write_two_lines(shape: u32, mask: u32, fitted: array<Line, 2>) {
    var anchors = ANCHORS;
    let anchor = (anchors[shape / 8u] >> (shape % 8u * 4u)) & 15u;
    let a = anchored(fitted[0], WHOLE ^ mask, 0u, 7u);
    let b = anchored(fitted[1], mask, anchor, 7u);
    put(1u << 1u, 2u);
    put(shape, 6u);
    for (var c = 0u; c < 3u; c++) {
        put(u32(a.first[c]) >> 1u, 6u);
        put(u32(a.second[c]) >> 1u, 6u);
        put(u32(b.first[c]) >> 1u, 6u);
        put(u32(b.second[c]) >> 1u, 6u);
    }
    put(u32(a.first.x) & 1u, 1u);
    put(u32(b.first.x) & 1u, 1u);
    for (var i = 0u; i < 16u; i++) {
        put(step_of(a, i) | step_of(b, i), select(3u, 2u, i == 0u || i == anchor));
    }
}

// Fills `block`.
fn encode(column: u32, row: u32) {
    var partitions = PARTITIONS;
    var chosen = 0u;
    var best = Line();
    var pair = array<Line, 2>();
    var best_pair = array<Line, 2>();
    // Partition of the best pair; 64 for a single line.
    var shape = 64u;
    // One line, then pairs of lines: a single loop keeps the code short.
    load(column, row, vec4(1));
    let solid = opaque;
    var jobs = 1u;
    for (var job = 0u; job < jobs; job++) {
        let second = job % 2u == 0u;
        let candidate = (chosen >> ((max(job, 1u) - 1u) / 2u * 8u)) & 63u;
        let part = (partitions[candidate / 2u] >> (candidate % 2u * 16u)) & WHOLE;
        var mask = WHOLE;
        var levels = 15u;
        if job > 0u && solid {
            mask = select(WHOLE ^ part, part, second);
            levels = 7u;
        } else if job > 0u {
            load(column, row, select(vec4(1, 1, 1, 0), vec4(0, 0, 0, 1), second));
            levels = 3u;
        }
        let line = fit(mask, levels);
        if job == 0u {
            best = line;
            if line.error > GOOD {
                jobs = 3u;
                if solid {
                    jobs = 1u + 2u * CANDIDATES;
                    chosen = rank();
                }
            }
        } else {
            pair[1u - job % 2u] = line;
            let error = pair[0].error + pair[1].error;
            if second && error < best.error {
                best.error = error;
                best_pair = pair;
                shape = candidate;
            }
        }
    }
    filled = 0u;
    block = array<u32, 4>();
    if shape == 64u {
        write_one_line(best);
    } else if solid {
        write_two_lines(shape, (partitions[shape / 2u] >> (shape % 2u * 16u)) & WHOLE, best_pair);
    } else {
        write_apart(best_pair[0], best_pair[1]);
    }
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
        encode(column, row);
        let at = parameters.destination + 4u * (row * width + column);
        for (var i = 0u; i < 4u; i++) {
            destination[at + i] = block[i];
        }
    }
}
