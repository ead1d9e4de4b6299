//! The same tiles without abide: a queue submission for each, or one dispatch for a whole level.

use std::collections::VecDeque;
use std::ffi::CString;
use std::time::{Duration, Instant};

use abide::device::{Device, Kernel, LaunchQueue, Pipeline, PipelineDesc};
use anyhow::{Context as _, Result, ensure};

use super::plan::{PARAMETERS, parameters};
use super::pyramid::{Product, Pyramid};
use super::shaders::shader;
use super::store::Store;
use super::stream::{Job, Runner};

/// Submissions under way at a time.
const WINDOW: usize = 256;
/// How long a batch of dispatches may take before the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// The shaders as pipelines.
pub struct Pipelines {
    pipelines: [Pipeline; 3],
    most_groups: u32,
}

/// The pipelines with an image's buffers.
pub struct Kernels {
    kernels: [Kernel; 3],
    /// Workgroups that a dispatch may have.
    most_groups: u32,
}

impl Pipelines {
    /// Makes them.
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(device: &Device) -> Result<Self> {
        let pipeline = |product: Product| -> Result<Pipeline> {
            let shader = shader(product)?;
            let entry = CString::new(shader.entry)?;
            let desc = PipelineDesc {
                name: product.name(),
                words: shader.words,
                entry: &entry,
                width: shader.workgroup_size.iter().product(),
                params: PARAMETERS as u32,
                buffers: 2,
            };
            // SAFETY: naga made the words from the shaders next door, which are given offsets within their buffers and
            // whose loops are bounded.
            let pipeline = unsafe { Pipeline::new(device, &desc) };
            pipeline.with_context(|| format!("the shader {} can't be used on this device", product.name()))
        };
        let pipelines = [pipeline(Product::Mip)?, pipeline(Product::Bc1)?, pipeline(Product::Bc7)?];
        Ok(Self { pipelines, most_groups: device.info().limits.max_compute_work_group_count[0] })
    }

    /// Binds an image's buffers.
    ///
    /// # Errors
    /// The image is too large for a binding.
    pub fn bind(&self, store: &Store) -> Result<Kernels> {
        let bind = |product: Product| {
            let (texels, products) = (store.buffer(Product::Mip), store.buffer(product));
            self.pipelines[product as usize].bind(&[texels, products])
        };
        let kernels = [bind(Product::Mip)?, bind(Product::Bc1)?, bind(Product::Bc7)?];
        Ok(Kernels { kernels, most_groups: self.most_groups })
    }
}

impl Kernels {
    /// Runs each pipeline once: drivers finish compiling at the first dispatch, which is nobody's running time.
    ///
    /// # Errors
    /// The device fails, or hasn't ended for too long.
    pub fn warm_up(&self, queue: &mut LaunchQueue, pyramid: &Pyramid) -> Result<()> {
        let last = pyramid.levels().len() as u32 - 1;
        for product in Product::ALL.into_iter().skip(usize::from(last == 0)) {
            queue.launch(self.of(product), [1, 1, 1], &parameters(pyramid, product, last, 0))?;
        }
        let ended = queue.wait(queue.last(), PATIENCE)?;
        ensure!(ended, "the first dispatches haven't ended within {PATIENCE:?}");
        Ok(())
    }

    fn of(&self, product: Product) -> &Kernel {
        &self.kernels[product as usize]
    }
}

/// A queue submission for each tile.
pub struct Submissions<'a> {
    queue: &'a mut LaunchQueue,
    kernels: &'a Kernels,
    running: VecDeque<(u64, u32)>,
    /// The last launch known to have ended: all that a tile reads is from launches up to it.
    reached: u64,
}

impl<'a> Submissions<'a> {
    /// Nothing is submitted yet; tiles see what earlier launches have written.
    pub fn new(queue: &'a mut LaunchQueue, kernels: &'a Kernels) -> Self {
        let reached = queue.last();
        Self { queue, kernels, running: VecDeque::new(), reached }
    }
}

impl Runner for Submissions<'_> {
    fn batch(&self) -> usize {
        1
    }

    fn start(&mut self, jobs: &[Job<'_>]) -> Result<usize> {
        let room = jobs.len().min(WINDOW - self.running.len());
        for job in jobs.iter().take(room) {
            let kernel = self.kernels.of(job.tile.product);
            let launch = self.queue.launch_beside(kernel, [1, 1, 1], &job.parameters, self.reached)?;
            self.running.push_back((launch, job.number));
        }
        Ok(room)
    }

    fn collect(&mut self, completed: &mut Vec<u32>) -> Result<()> {
        self.reached = self.queue.reached()?;
        while let Some(&(_, number)) = self.running.front().filter(|(launch, _)| *launch <= self.reached) {
            completed.push(number);
            self.running.pop_front();
        }
        Ok(())
    }
}

/// Runs everything as one dispatch for each product of each level, without waiting in between; gives the time it took.
///
/// # Errors
/// The device fails, or hasn't ended for too long.
pub fn batched(queue: &mut LaunchQueue, kernels: &Kernels, pyramid: &Pyramid) -> Result<Duration> {
    let start = Instant::now();
    let mut last = queue.last();
    for (number, level) in (0..).zip(pyramid.levels()) {
        for product in Product::ALL.into_iter().skip(usize::from(number == 0)) {
            for first in (0..level.tiles()).step_by(kernels.most_groups as usize) {
                let groups = kernels.most_groups.min(level.tiles() - first);
                let parameters = parameters(pyramid, product, number, first);
                last = queue.launch(kernels.of(product), [groups, 1, 1], &parameters)?;
            }
        }
    }
    ensure!(queue.wait(last, PATIENCE)?, "the batched dispatches haven't ended within {PATIENCE:?}");
    Ok(start.elapsed())
}
