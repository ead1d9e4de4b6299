//! The tiles as tasks of abide: the shaders are handlers of a resident kernel, each tile one task.

use std::time::Duration;

use abide::device::Device;
use abide::protocol::opcode::NOP;
use abide::queue::{CompletionQueue, Outcome, PushError, SubmissionQueue, Task, WaitError};
use abide::runtime::{BindingTable, Runtime};
use anyhow::{Result, anyhow, bail};

use super::pyramid::Product;
use super::shaders::shader;
use super::store::Store;
use super::stream::{Job, Runner};

/// Tasks pushed before they are published together.
const BATCH: usize = 64;
/// How long a look for completions may last where there is none.
const LOOK: Duration = Duration::from_millis(1);
/// How long the first launch may take: software drivers compile the kernel in it.
const START: Duration = Duration::from_secs(60);
/// Tasks in flight of the tenant that fetches ahead: a level's whole window.
const CREDITS: u32 = 16_384;
/// How long the kernel may take to leave the device to others.
const LEAVE: Duration = Duration::from_secs(30);

/// A runtime with the shaders as handlers.
pub struct Tasks {
    runtime: Runtime,
    submission: SubmissionQueue,
    completion: CompletionQueue,
    opcodes: [u32; 3],
    /// By the plan's numbers.
    tenants: [u32; 2],
    /// Images so far: tells this image's completions from those that an image which failed left behind.
    images: u64,
}

impl Tasks {
    /// Links the shaders into a kernel; it is launched by the first tasks.
    ///
    /// # Errors
    /// A shader can't be hosted, or the device refuses.
    pub fn new(device: &Device) -> Result<Self> {
        let mut builder = Runtime::builder(device);
        let mut opcodes = [0; 3];
        for product in Product::ALL {
            let shader = shader(product)?;
            opcodes[product as usize] = builder.handler(shader.words, shader.entry);
        }
        let (runtime, submission, completion) = builder.tenants(2, CREDITS).build()?;
        let tenants = [0, runtime.tenants().register()?];
        Ok(Self { runtime, submission, completion, opcodes, tenants, images: 0 })
    }

    /// Resident or in epochs, as one lower-case word.
    pub fn mode(&self) -> &'static str {
        self.runtime.mode().name()
    }

    /// Takes the kernel off the device, so that others can use its queue.
    ///
    /// # Errors
    /// It doesn't leave.
    pub fn rest(&self) -> Result<()> {
        Ok(self.runtime.quiesce(LEAVE)?)
    }

    /// Lets the kernel run on an image's buffers, and waits until it does: drivers finish compiling at the first launch.
    ///
    /// # Errors
    /// The kernel can't run.
    pub fn on(&mut self, store: &Store) -> Result<OnImage<'_>> {
        self.runtime.resume()?;
        let bind = |product| self.runtime.bind(&[store.buffer(Product::Mip), store.buffer(product)]);
        let tables = [bind(Product::Mip)?, bind(Product::Bc1)?, bind(Product::Bc7)?];
        self.images += 1;
        let Self { submission, completion, opcodes, tenants, images, .. } = self;
        let ticket = submission.push(Task::new(NOP)).map_err(|error| anyhow!("{error}"))?;
        submission.publish()?;
        completion.wait(ticket, START)?;
        Ok(OnImage { tables, submission, completion, opcodes, tenants, image: *images })
    }
}

/// The kernel at work on one image.
pub struct OnImage<'a> {
    tables: [BindingTable; 3],
    submission: &'a mut SubmissionQueue,
    completion: &'a mut CompletionQueue,
    opcodes: &'a [u32; 3],
    tenants: &'a [u32; 2],
    image: u64,
}

impl Runner for OnImage<'_> {
    fn batch(&self) -> usize {
        BATCH
    }

    fn start(&mut self, jobs: &[Job<'_>]) -> Result<usize> {
        let mut started = 0;
        for job in jobs {
            let product = job.tile.product as usize;
            let task = Task::new(self.opcodes[product])
                .level(job.tile.urgency)
                .tenant(self.tenants[job.tile.tenant as usize])
                .bindings(self.tables[product].index())
                .user_data((self.image << 32) | u64::from(job.number))
                .payload(&job.parameters);
            match self.submission.push(task) {
                Ok(_) => started += 1,
                Err(PushError::Full(_) | PushError::NoCredit(_)) => break,
                Err(PushError::Invalid(error)) => return Err(error.into()),
                Err(PushError::Lost(error)) => return Err(error.into()),
            }
        }
        self.submission.publish()?;
        Ok(started)
    }

    fn collect(&mut self, completed: &mut Vec<u32>) -> Result<()> {
        let mut next = match self.completion.wait_any(LOOK) {
            Ok(completion) => Some(completion),
            Err(WaitError::Quiet { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        while let Some(completion) = next {
            let (image, number) = (completion.user_data >> 32, completion.user_data as u32);
            if image == self.image {
                if let Outcome::Fault(code) = completion.outcome {
                    bail!("tile {number} failed: {code}");
                }
                completed.push(number);
            }
            next = self.completion.poll();
        }
        Ok(())
    }
}
