//! `abide demo`: streams textures, tile by tile, as tasks of a resident kernel.
//!
//! Owns the order of things for each image: cut into tiles, streamed through abide, through a submission for each tile
//! and through a dispatch for each mip level, compared byte for byte, decoded, measured and written.

mod decode;
mod dispatch;
mod files;
mod picture;
mod plan;
mod pyramid;
mod report;
mod shaders;
mod store;
mod stream;
mod tasks;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use abide::device::{Device, LaunchQueue, Selector};
use anyhow::{Context as _, Result, bail, ensure};
use image::RgbaImage;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use crate::out;
use dispatch::{Pipelines, Submissions, batched};
use plan::{Plan, Rect};
use pyramid::{LONGEST_SIDE, Product, Pyramid};
use report::{ImageReport, Report};
use store::{Products, Store};
use stream::{Timing, stream};
use tasks::Tasks;

/// Arguments of `abide demo`.
#[derive(clap::Args)]
pub struct Arguments {
    /// PNG or JPEG files; with none, a test image is drawn, and written too
    #[arg(value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// Where to write; files of the same names are replaced
    #[arg(long, value_name = "DIR", default_value = "abide-demo")]
    out: PathBuf,
    /// What is seen of the image, and so streamed first; by default a quarter of each side around the middle
    #[arg(long, value_name = "X,Y,WIDTH,HEIGHT", value_parser = parse_rect)]
    visible: Option<Rect>,
    /// Side of the drawn image, in texels
    #[arg(long, value_name = "TEXELS", default_value_t = 2048)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST_SIDE)))]
    side: u32,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Words that each way's buffers hold before it runs: a tile that one of them leaves out differs from the others'.
const POISON: [u32; 3] = [0xdead_0001, 0xdead_0002, 0xdead_0003];

impl Arguments {
    /// Streams all images; what goes wrong with one is reported, and the others are still done.
    ///
    /// # Errors
    /// There is no device that can do it, the output directory can't be made, or standard output can't be written.
    pub fn run(&self, device: Option<&Selector>) -> Result<ExitCode> {
        files::make_directory(&self.out)?;
        let mut demo = Demo::new(&device.map_or_else(Selector::from_env, |selector| Ok(selector.clone()))?)?;
        let mut report = demo.report();
        if !self.json {
            out::print(&format!("{} ({}), {}\n", report.device, report.driver, report.mode))?;
        }
        let mut names = files::Names::new(&self.out, &self.images);
        let drawn = self.images.is_empty().then(|| PathBuf::from("drawn"));
        for path in self.images.iter().chain(&drawn) {
            let name = names.of(path);
            match demo.image(self, path, &name) {
                Ok(image) => {
                    if !self.json {
                        out::print(&image.text())?;
                    }
                    report.images.push(image);
                }
                Err(error) => {
                    eprintln!("abide: {error:#}");
                    report.errors.push(format!("{error:#}"));
                }
            }
        }
        if self.json {
            out::print(&format!("{:#}\n", report.json()))?;
        }
        Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The device and what all images use on it.
struct Demo {
    tasks: Tasks,
    pipelines: Pipelines,
    queue: LaunchQueue,
    device: Device,
}

/// An image after its journey.
struct Streamed {
    pyramid: Pyramid,
    products: Products,
    tasks: Timing,
    submissions: Timing,
    batched: Duration,
    /// Tiles of the other two ways that differ from abide's.
    differing: u64,
}

impl Demo {
    fn new(selector: &Selector) -> Result<Self> {
        let device = Device::open(selector)?;
        let queue = device.launch_queue()?;
        let pipelines = Pipelines::new(&device)?;
        let tasks = Tasks::new(&device)?;
        Ok(Self { tasks, pipelines, queue, device })
    }

    fn report(&self) -> Report {
        let info = self.device.info();
        let driver = format!("{} {}", info.driver_name, info.driver_info);
        Report { device: info.name.clone(), driver, mode: self.tasks.mode(), ..Report::default() }
    }

    /// Reads or draws an image, streams it and writes what came of it.
    fn image(&mut self, arguments: &Arguments, path: &Path, name: &str) -> Result<ImageReport> {
        let drawn = arguments.images.is_empty();
        let image = if drawn { picture::draw(arguments.side) } else { files::read(path)? };
        let streamed = self.stream(&image, arguments.visible, name)?;
        let mut files = Vec::new();
        if drawn {
            files.push(files::write_png(&arguments.out, name, &image)?);
        }
        let opaque = decode::is_opaque(&image);
        let mut psnr = [(Product::Bc1, None), (Product::Bc7, None)];
        for (product, psnr) in &mut psnr {
            let blocks = streamed.products.of(*product);
            files.push(files::write_dds(&arguments.out, name, *product, &streamed.pyramid, blocks, opaque)?);
            let level = &streamed.pyramid.levels()[0];
            let decoded = decode::decode(*product, level, &blocks[level.range(*product)]);
            *psnr = decode::psnr(&image, &decoded);
            let name = format!("{name}.{}", product.name());
            files.push(files::write_png(&arguments.out, &name, &decoded)?);
        }
        let Streamed { pyramid, tasks, submissions, batched, differing, .. } = streamed;
        let (size, mips) = (image.dimensions().into(), pyramid.levels().len());
        Ok(ImageReport { name: name.to_owned(), size, mips, tasks, submissions, batched, differing, psnr, files })
    }

    /// Streams an image in all three ways.
    fn stream(&mut self, image: &RgbaImage, visible: Option<Rect>, name: &str) -> Result<Streamed> {
        let (width, height) = image.dimensions();
        let pyramid = Pyramid::new(width, height);
        let plan = Plan::new(&pyramid, &visible.unwrap_or_else(|| Rect::centre(width, height)));
        let texels: &[u32] = bytemuck::cast_slice(image.as_raw());
        let progress = progress(name, 2 * plan.tiles.len() as u64);

        // The kernel rests wherever the queue is used without it: most CPU drivers have a single one.
        self.tasks.rest()?;
        let room = || format!("no room on {} for {name} ({width} x {height})", self.device.info().name);
        let store = Store::new(&self.device, &pyramid).with_context(room)?;
        let kernels = self.pipelines.bind(&store).with_context(room)?;
        kernels.warm_up(&mut self.queue, &pyramid)?;

        store.reset(&mut self.queue, texels, POISON[0])?;
        let tasks = stream(&plan, &pyramid, &mut self.tasks.on(&store)?, &progress)?;
        self.tasks.rest()?;
        let products = store.fetch(&mut self.queue, &pyramid)?;

        store.reset(&mut self.queue, texels, POISON[1])?;
        let submissions = stream(&plan, &pyramid, &mut Submissions::new(&mut self.queue, &kernels), &progress)?;
        let others = store.fetch(&mut self.queue, &pyramid)?;
        let mut differing = products.differing_tiles(&others, &pyramid);

        store.reset(&mut self.queue, texels, POISON[2])?;
        let batched = batched(&mut self.queue, &kernels, &pyramid)?;
        let others = store.fetch(&mut self.queue, &pyramid)?;
        differing += products.differing_tiles(&others, &pyramid);
        Ok(Streamed { pyramid, products, tasks, submissions, batched, differing })
    }
}

/// A bar on the terminal, and nothing where there is none.
fn progress(name: &str, tiles: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // Cleared when it is dropped, by an error too.
    let bar = ProgressBar::new(tiles).with_message(name.to_owned()).with_finish(ProgressFinish::AndClear);
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} tiles") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn parse_rect(text: &str) -> Result<Rect> {
    let numbers: Vec<u32> = text.split(',').map(|number| number.trim().parse()).collect::<Result<_, _>>()?;
    let [left, top, width, height] = numbers[..] else {
        bail!("give four numbers, X,Y,WIDTH,HEIGHT");
    };
    ensure!(width > 0 && height > 0, "a rectangle of {width} x {height} texels shows nothing");
    Ok(Rect { left, top, width, height })
}
