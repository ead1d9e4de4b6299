//! `abide demo` on real files: what it writes is read back by crates that it doesn't use itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use ddsfile::{Dds, DxgiFormat};
use image::{Rgba, RgbaImage};
use serde_json::Value;

/// One run of the demo on several files.
struct Run {
    directory: PathBuf,
    output: Output,
    report: Value,
}

impl Run {
    /// Runs the demo; none on a machine without Vulkan.
    fn new(name: &str, arguments: &[&str]) -> Option<Self> {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{name}"));
        // Or the one that was packed beside the test.
        let built = || env!("CARGO_BIN_EXE_abide").into();
        let mut command = Command::new(std::env::var_os("ABIDE_BIN").unwrap_or_else(built));
        command.args(["demo", "--json", "--out"]).arg(&directory).args(arguments);
        let output = command.output().expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("no Vulkan loader") || errors.contains("finds no driver") {
            assert!(std::env::var_os("ABIDE_TEST_DRIVER").is_none(), "a driver is named, but: {errors}");
            eprintln!("SKIPPED: {errors}");
            return None;
        }
        assert!(!errors.contains("Validation Error"), "{errors}");
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("no report ({error}), but {}: {errors}", output.status));
        Some(Self { directory, output, report })
    }

    fn errors(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn image(&self, name: &str) -> &Value {
        let images = self.report["images"].as_array().expect("the report has images");
        images.iter().find(|image| image["name"] == name).unwrap_or_else(|| panic!("no {name}: {}", self.errors()))
    }

    fn dds(&self, name: &str, format: &str) -> Dds {
        let path = self.directory.join(format!("{name}.{format}.dds"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Dds::read(&bytes[..]).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// Texels along the side of the drawn image: small, since CPU drivers run this.
const SIDE: u32 = 512;

static DRAWN: LazyLock<Option<Run>> = LazyLock::new(|| Run::new("drawn", &["--side", "512"]));

/// Sizes that don't fit tiles or blocks.
const ODD: [(u32, u32); 4] = [(1, 1), (3, 5), (17, 1), (1000, 333)];

/// One run for all other files, good and bad: making the kernel takes a CPU driver longer than the images.
static FILES: LazyLock<Option<Run>> = LazyLock::new(|| {
    let inputs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo-inputs");
    std::fs::create_dir_all(inputs.join("again")).expect("the folder is made");
    let mut paths = Vec::new();
    let mut path = |name: &str| {
        let path = inputs.join(name);
        paths.push(path.to_str().expect("the target folder's name is Unicode").to_owned());
        path
    };
    path("missing.png");
    noise().save(path("noise.png")).expect("a PNG is written");
    std::fs::write(path("broken.png"), b"\x89PNG\r\n\x1a\n, and then nothing of the kind").expect("a file is written");
    for (width, height) in ODD {
        waves(width, height).save(path(&format!("odd-{width}x{height}.png"))).expect("a PNG is written");
    }
    faded().save(path("faded.png")).expect("a PNG is written");
    image::DynamicImage::from(waves(64, 48)).into_rgb8().save(path("photo.jpg")).expect("a JPEG is written");
    waves(5, 4).save(path("again/photo.png")).expect("a PNG is written");
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    Run::new("files", &paths)
});

/// Independent bytes in all colours.
fn noise() -> RgbaImage {
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    RgbaImage::from_fn(256, 256, |_, _| Rgba([byte(), byte(), byte(), 255]))
}

/// Smooth waves between two colours, which blocks can follow closely.
fn waves(width: u32, height: u32) -> RgbaImage {
    RgbaImage::from_fn(width, height, |x, y| {
        let wave = (x as f32 / 150.0).sin() + (y as f32 / 110.0 + x as f32 / 400.0).cos();
        let light = (128.0 + 30.0 * wave) as u8;
        Rgba([light, 40 + light / 2, 255 - light, 255])
    })
}

/// Colours under an alpha that has nothing to do with them.
fn faded() -> RgbaImage {
    let mut image = waves(70, 70);
    image.enumerate_pixels_mut().for_each(|(x, y, texel)| texel.0[3] = (x * 3 + y / 2).min(255) as u8);
    image
}

/// Decodes one level by a crate that the demo doesn't use.
fn decode(dds: &Dds, format: &str, wanted: u32) -> RgbaImage {
    let (mut width, mut height, mut at) = (dds.get_width(), dds.get_height(), 0);
    let block = if format == "bc1" { 8 } else { 16 };
    let bytes = |width: u32, height: u32| (width.div_ceil(4) * height.div_ceil(4)) as usize * block;
    for _ in 0..wanted {
        at += bytes(width, height);
        (width, height) = ((width / 2).max(1), (height / 2).max(1));
    }
    let blocks = &dds.data[at..at + bytes(width, height)];
    let mut texels = vec![0; (width * height) as usize];
    let (w, h) = (width as usize, height as usize);
    match format {
        "bc1" => texture2ddecoder::decode_bc1a(blocks, w, h, &mut texels),
        _ => texture2ddecoder::decode_bc7(blocks, w, h, &mut texels),
    }
    .expect("the decoder takes the blocks");
    let bgra = |texel: u32| {
        let [b, g, r, a] = texel.to_le_bytes();
        Rgba([r, g, b, a])
    };
    RgbaImage::from_fn(width, height, |x, y| bgra(texels[(y * width + x) as usize]))
}

/// Noise ratio in decibels over the first `channels`; 99 where nothing differs.
fn psnr(a: &RgbaImage, b: &RgbaImage, channels: usize) -> f64 {
    assert_eq!(a.dimensions(), b.dimensions());
    let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
    let texels = a.pixels().zip(b.pixels());
    let sum: f64 = texels.map(|(a, b)| a.0.iter().zip(&b.0).take(channels).map(square).sum::<f64>()).sum();
    let samples = f64::from(a.width() * a.height()) * channels as f64;
    if sum == 0.0 { 99.0 } else { 10.0 * (255.0 * 255.0 * samples / sum).log10() }
}

/// BC1 by texpresso at its best for this measure, decoded again.
fn texpresso(image: &RgbaImage) -> RgbaImage {
    let (width, height) = (image.width() as usize, image.height() as usize);
    let bc1 = texpresso::Format::Bc1;
    let params = texpresso::Params {
        algorithm: texpresso::Algorithm::ClusterFit,
        weights: texpresso::COLOUR_WEIGHTS_UNIFORM,
        weigh_colour_by_alpha: false,
    };
    let mut blocks = vec![0; bc1.compressed_size(width, height)];
    bc1.compress(image.as_raw(), width, height, params, &mut blocks);
    let mut texels = vec![0; width * height * 4];
    bc1.decompress(&blocks, width, height, &mut texels);
    RgbaImage::from_raw(image.width(), image.height(), texels).expect("as many texels as before")
}

fn assert_bc1_holds_against_texpresso(run: &Run, name: &str, image: &RgbaImage) {
    let ours = psnr(image, &decode(&run.dds(name, "bc1"), "bc1", 0), 3);
    let theirs = psnr(image, &texpresso(image), 3);
    println!("{name}: BC1 {ours:.3} dB, texpresso {theirs:.3} dB");
    assert!(ours >= theirs - 0.5, "{name}: BC1 has {ours:.2} dB, texpresso {theirs:.2} dB");
}

/// A mip level by its definition: the mean of linear light over the area that each texel covers.
fn shrink(image: &RgbaImage) -> RgbaImage {
    let (width, height) = image.dimensions();
    let (w, h) = ((width / 2).max(1), (height / 2).max(1));
    let light = |c: u8| {
        let c = f64::from(c) / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    };
    let code = |l: f64| {
        let c = if l <= 0.003_130_8 { l * 12.92 } else { 1.055 * l.powf(1.0 / 2.4) - 0.055 };
        (c * 255.0).round() as u8
    };
    // Old texels under a new one, each with the share of its length that it covers.
    let cover = |at: u32, new: u32, old: u32| {
        let (from, to) = (f64::from(at * old) / f64::from(new), f64::from((at + 1) * old) / f64::from(new));
        let share = move |texel: u32| (to.min(f64::from(texel + 1)) - from.max(f64::from(texel))).max(0.0);
        (from as u32..old.min(to.ceil() as u32)).map(move |texel| (texel, share(texel) / (to - from)))
    };
    RgbaImage::from_fn(w, h, |x, y| {
        let mut sum = [0.0; 3];
        for (from_y, part_y) in cover(y, h, height) {
            for (from_x, part_x) in cover(x, w, width) {
                let texel = image.get_pixel(from_x, from_y);
                sum.iter_mut().zip(texel.0).for_each(|(sum, c)| *sum += light(c) * part_x * part_y);
            }
        }
        let [r, g, b] = sum.map(code);
        Rgba([r, g, b, 255])
    })
}

#[test]
fn drawn_image_streams_with_good_quality() {
    let Some(run) = &*DRAWN else { return };
    assert!(run.output.status.success(), "{}", run.errors());
    let report = run.image("drawn");
    assert_eq!(report["differing"], 0);
    assert_eq!(report["tiles"], 782, "a tile was left out");
    let image = image::open(run.directory.join("drawn.png")).expect("the drawn image is written").into_rgba8();
    assert_eq!(image.dimensions(), (SIDE, SIDE));
    assert_bc1_holds_against_texpresso(run, "drawn", &image);
    for format in ["bc1", "bc7"] {
        let decoded = decode(&run.dds("drawn", format), format, 0);
        let (said, is) = (report["psnr"][format].as_f64().expect("a number"), psnr(&image, &decoded, 3));
        assert!((said - is).abs() < 0.05, "{format}: {said} dB reported, {is} dB by another decoder");
        let png = image::open(run.directory.join(format!("drawn.{format}.png"))).expect("the PNG opens").into_rgba8();
        assert!(psnr(&png, &decoded, 4) > 50.0, "{format}: the PNG isn't what the blocks say");
    }
    let [bc1, bc7] = ["bc1", "bc7"].map(|format| report["psnr"][format].as_f64().expect("a number"));
    assert!(bc7 >= bc1 + 3.0, "BC7 has {bc7} dB, BC1 {bc1} dB");
}

/// The shaders compute in integers, so every driver must give these bytes. A change of a shader changes them too.
#[test]
fn every_driver_gives_the_same_bytes() {
    let Some(run) = &*DRAWN else { return };
    let hash = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    };
    let hashes = ["bc1", "bc7"].map(|format| format!("{format} {:016x}", hash(&run.dds("drawn", format).data)));
    assert_eq!(hashes, ["bc1 5b0aa18abff9a1b9", "bc7 32ee08ad2d39fefb"]);
}

#[test]
fn tasks_are_spread_over_priority_levels() {
    let Some(run) = &*DRAWN else { return };
    let report = run.image("drawn");
    let levels = report["levels"].as_array().expect("levels");
    let tasks = |level: &str| {
        let level = levels.iter().find(|l| l["level"] == level).expect("the level is there");
        level["tasks"].as_u64().expect("a number")
    };
    for level in ["CRITICAL", "HIGH", "NORMAL", "IDLE"] {
        assert!(tasks(level) > 0, "no tile is {level}");
    }
    let sum: u64 = ["CRITICAL", "HIGH", "NORMAL", "LOW", "IDLE"].map(tasks).iter().sum();
    assert_eq!(Some(sum), report["tiles"].as_u64());
}

#[test]
fn noise_holds_against_texpresso() {
    let Some(run) = &*FILES else { return };
    assert_bc1_holds_against_texpresso(run, "noise", &noise());
}

#[test]
fn odd_sizes_have_all_their_mips() {
    let Some(run) = &*FILES else { return };
    for (width, height) in ODD {
        let name = format!("odd-{width}x{height}");
        let mips = u32::BITS - width.max(height).leading_zeros();
        let mut expected = waves(width, height);
        for (format, dxgi) in [("bc1", DxgiFormat::BC1_UNorm_sRGB), ("bc7", DxgiFormat::BC7_UNorm_sRGB)] {
            let dds = run.dds(&name, format);
            assert_eq!((dds.get_width(), dds.get_height(), dds.get_num_mipmap_levels()), (width, height, mips));
            assert_eq!(dds.get_dxgi_format(), Some(dxgi));
        }
        let dds = run.dds(&name, "bc7");
        for level in 0..mips {
            let decoded = decode(&dds, "bc7", level);
            let quality = psnr(&expected, &decoded, 3);
            assert!(quality > 38.0, "{name}: mip {level} is {quality} dB from its definition");
            expected = shrink(&expected);
        }
    }
}

#[test]
fn alpha_survives() {
    let Some(run) = &*FILES else { return };
    let image = faded();
    let bc7 = decode(&run.dds("faded", "bc7"), "bc7", 0);
    assert!(psnr(&image, &bc7, 4) > 35.0, "BC7 has {} dB", psnr(&image, &bc7, 4));
    let bc1 = decode(&run.dds("faded", "bc1"), "bc1", 0);
    for (texel, decoded) in image.pixels().zip(bc1.pixels()) {
        assert_eq!(decoded.0[3] == 255, texel.0[3] >= 128, "{texel:?} became {decoded:?}");
    }
}

#[test]
fn jpeg_and_equal_names_work() {
    let Some(run) = &*FILES else { return };
    assert_eq!(run.dds("photo", "bc7").get_width(), 64);
    assert_eq!(run.dds("photo-2", "bc1").get_width(), 5);
}

#[test]
fn bad_files_are_named_and_the_others_done() {
    let Some(run) = &*FILES else { return };
    assert_eq!(run.output.status.code(), Some(1));
    let errors = run.errors();
    for name in ["missing.png", "broken.png"] {
        assert!(errors.contains(name), "{name} isn't named in: {errors}");
    }
    assert_eq!(run.report["errors"].as_array().map(Vec::len), Some(2), "{errors}");
    let images = run.report["images"].as_array().expect("images");
    assert_eq!(images.len(), ODD.len() + 4);
    assert!(images.iter().all(|image| image["differing"] == 0), "{}", run.report);
}
