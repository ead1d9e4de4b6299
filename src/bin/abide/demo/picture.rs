//! Draws the image that the demo streams when it is given none.
//!
//! A landscape above a sheet of test panels: smooth gradients, soft and hard edges, text-like strokes, fine rings and
//! noise, so that an encoder meets a bit of everything. Integers only: the same picture everywhere, to the last bit.

use image::{Rgba, RgbaImage};

/// Steps of the blends below: the whole of a mix.
const ONE: i32 = 256;

type Colour = [i32; 3];

/// Draws the picture, `side` texels wide and high.
pub fn draw(side: u32) -> RgbaImage {
    RgbaImage::from_fn(side, side, |x, y| {
        // Coordinates on a sheet of 2048, whatever the side.
        let across = (u64::from(x) * 2048 / u64::from(side)) as i32;
        let down = (u64::from(y) * 2048 / u64::from(side)) as i32;
        let colour = if down < 1408 { landscape(across, down) } else { panel(across, down - 1408) };
        let [r, g, b] = colour.map(|c| c.clamp(0, 255) as u8);
        Rgba([r, g, b, 255])
    })
}

/// Sky, sun and two ranges of hills.
fn landscape(x: i32, y: i32) -> Colour {
    let mut colour = mix([58, 108, 186], [246, 214, 170], y * ONE / 1000);
    let cloud = fractal(x / 2, y, 6, 1) - 120;
    colour = mix(colour, [250, 248, 244], cloud * 3);
    let from_sun = (x - 1500).pow(2) + (y - 380).pow(2);
    colour = mix(colour, [255, 244, 200], edge(150 * 150 - from_sun, 300));
    let far = 760 + fractal(x, 40, 8, 2) / 2;
    colour = mix(colour, mix([96, 116, 140], [70, 92, 100], fractal(x, y, 4, 3)), edge(y - far, 2));
    let near = 980 + fractal(x, 90, 7, 4);
    let grass = mix([44, 74, 30], [128, 142, 66], fractal(x, y * 2, 3, 5));
    mix(colour, grass, edge(y - near, 2))
}

/// One of eight panels in two rows, 512 x 320 each.
fn panel(x: i32, y: i32) -> Colour {
    let (column, row) = (x / 512, y / 320);
    let (x, y) = (x % 512, y % 320);
    match (row, column) {
        (0, 0) => [x / 2, y * 255 / 320, 255 - x / 2],
        (0, 1) => text(x, y),
        (0, 2) => rings(x - 256, y - 160),
        (0, 3) => bars(x, y),
        (_, 0) => checks(x, y),
        (_, 1) => grain(x, y),
        (_, 2) => mix([30, 24, 60], [240, 170, 90], fractal(x, y, 7, 6)),
        _ => discs(x, y),
    }
}

/// Lines of strokes on paper, each line larger than the last.
fn text(x: i32, y: i32) -> Colour {
    let paper = [244, 240, 228];
    let (mut top, mut scale) = (8, 1);
    while y >= top + 10 * scale {
        top += 10 * scale;
        scale += i32::from(top > 40 * scale);
    }
    let (column, row) = ((x - 8) / scale, (y - top) / scale);
    let (glyph, within) = (column / 6, column % 6);
    if x < 8 || y < top || within == 5 || !(1..8).contains(&row) || hash(glyph, top, 10).is_multiple_of(6) {
        return paper;
    }
    // Strokes are rows and columns of a 5 x 7 cell, chosen by the glyph.
    let shape = hash(glyph, top, 11);
    let upright = shape >> within & 1 == 1 && within % 2 == 0;
    let level = shape >> (8 + row) & 1 == 1 && row % 3 == 1;
    if upright || level { [28, 26, 34] } else { paper }
}

/// Rings that get finer outwards, down to two texels.
fn rings(x: i32, y: i32) -> Colour {
    let phase = (x * x + y * y) / 6 % 512;
    let light = (phase - 256).abs();
    [light, (light * 3 + 64) / 4, 255 - light]
}

/// Saturated bars above steps of grey.
fn bars(x: i32, y: i32) -> Colour {
    if y >= 200 {
        return [x / 16 * 8; 3];
    }
    let bar = 7 - x / 64;
    [bar & 2, bar & 4, bar & 1].map(|on| if on == 0 { 16 } else { 235 })
}

/// Checks of several sizes, and slanted stripes.
fn checks(x: i32, y: i32) -> Colour {
    if y >= 220 {
        return if (x + 3 * y) / 11 % 2 == 0 { [190, 30, 40] } else { [250, 236, 214] };
    }
    let size = 2 << (x / 128);
    if (x / size + y / size) % 2 == 0 { [20, 60, 110] } else { [236, 196, 64] }
}

/// Grey under strong grain of light and weaker grain of colour.
fn grain(x: i32, y: i32) -> Colour {
    let dice = hash(x, y, 9).to_le_bytes().map(i32::from);
    std::array::from_fn(|i| 96 + dice[3] / 3 + dice[i] / 10)
}

/// Soft-edged discs of many colours that overlap.
fn discs(x: i32, y: i32) -> Colour {
    let mut colour = [70, 70, 76];
    for i in 0..24 {
        let dice = hash(i, 0, 12);
        let (cx, cy) = ((dice & 511) as i32, (dice >> 9 & 255) as i32 + 32);
        let radius = (dice >> 17 & 31) as i32 + 12;
        let tint = hash(i, 1, 12).to_le_bytes();
        let tint = [tint[0], tint[1], tint[2]].map(i32::from);
        colour = mix(colour, tint, edge(radius * radius - (x - cx).pow(2) - (y - cy).pow(2), 2 * radius));
    }
    colour
}

/// Blend of two colours, `share` of the second in parts of [`ONE`], held to its range.
fn mix(a: Colour, b: Colour, share: i32) -> Colour {
    let share = share.clamp(0, ONE);
    std::array::from_fn(|i| (a[i] * (ONE - share) + b[i] * share) / ONE)
}

/// Coverage at a signed distance from an edge that is `softness` wide.
fn edge(distance: i32, softness: i32) -> i32 {
    (distance.clamp(-softness, softness) + softness) * ONE / (2 * softness)
}

/// Noise of many octaves, 0 to 255: cells of 2^`octaves` texels and finer.
fn fractal(x: i32, y: i32, octaves: u32, seed: u32) -> i32 {
    let (mut sum, mut whole) = (0, 0);
    for octave in (0..octaves).rev() {
        let cell = 1 << (octave + 1);
        sum += smooth(x, y, cell, seed * 16 + octave) * cell;
        whole += cell;
    }
    sum / whole
}

/// Noise on a grid of cells, blended between its corners.
fn smooth(x: i32, y: i32, cell: i32, seed: u32) -> i32 {
    let (column, row) = (x.div_euclid(cell), y.div_euclid(cell));
    let ease = |t: i32| {
        let t = t * ONE / cell;
        t * t * (3 * ONE - 2 * t) / (ONE * ONE)
    };
    let (u, v) = (ease(x.rem_euclid(cell)), ease(y.rem_euclid(cell)));
    let corner = |dx, dy| (hash(column + dx, row + dy, seed) & 255) as i32;
    let along = |dy| corner(0, dy) * (ONE - u) + corner(1, dy) * u;
    (along(0) * (ONE - v) + along(1) * v) / (ONE * ONE)
}

/// Well-mixed bits for a place.
fn hash(x: i32, y: i32, seed: u32) -> u32 {
    let mut h =
        (x as u32).wrapping_mul(0x9e37_79b1) ^ (y as u32).wrapping_mul(0x85eb_ca77) ^ seed.wrapping_mul(0xc2b2_ae3d);
    h = (h ^ h >> 15).wrapping_mul(0x2c1b_3c6d);
    h = (h ^ h >> 12).wrapping_mul(0x297a_2d39);
    h ^ h >> 15
}
