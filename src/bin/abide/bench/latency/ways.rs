//! The ways of a round trip, each checked: what comes back is what was sent.

use std::time::{Duration, Instant};

use abide::device::{Buffer, Device, Kernel, LaunchQueue, Ping, Pipeline, PipelineDesc, Placement};
use abide::ir::{Access, Builder};
use abide::protocol::opcode;
use abide::queue::{CompletionQueue, Outcome, SubmissionQueue, Task};
use abide::runtime::Runtime;
use anyhow::{Result, anyhow, ensure};

/// How long one round trip may take: CPU drivers compile a kernel at its first launch, for seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the bare kernel stays, if it is not told to leave.
const STAY: Duration = Duration::from_secs(1);
/// Looks at the counter after which a CPU driver is offered the core.
const LOOKS: u32 = 1_024;

/// One way of a round trip.
pub trait Way {
    /// Takes the device, which nothing else uses from here on.
    fn begin(&mut self) -> Result<()>;

    /// Makes a round trip and gives the time that it took; none where it has to begin anew.
    fn round_trip(&mut self) -> Result<Option<Duration>>;

    /// Leaves the device.
    fn end(&mut self) -> Result<()>;
}

/// A bare resident kernel replies to a request.
pub struct Floor(Ping);

impl Floor {
    /// Makes the kernel.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self(Ping::new(device)?))
    }
}

impl Way for Floor {
    fn begin(&mut self) -> Result<()> {
        Ok(self.0.launch(STAY)?)
    }

    fn round_trip(&mut self) -> Result<Option<Duration>> {
        Ok(self.0.round_trip()?)
    }

    fn end(&mut self) -> Result<()> {
        Ok(self.0.stop()?)
    }
}

/// How the end of a dispatch is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// vkWaitSemaphores.
    Semaphore,
    /// vkGetSemaphoreCounterValue, again and again.
    Counter,
}

/// A dispatch of one workgroup, which writes one word, is submitted.
pub struct Submit {
    queue: LaunchQueue,
    kernel: Kernel,
    reply: Buffer,
    wait: Wait,
    number: u32,
}

impl Submit {
    /// Makes the kernel.
    pub fn new(device: &Device, wait: Wait) -> Result<Self> {
        let mut b = Builder::new("reply", 1);
        let buffer = b.buffer("reply", 0, Access::Private);
        let (to, number) = (b.at(buffer, 0), b.param(0));
        b.store(to, number);
        let words = abide::spirv::lower(&b.finish())?.words;
        let reply = device.buffer("reply", 64, Placement::Outlet)?;
        let desc = PipelineDesc { name: "reply", words: &words, entry: c"main", width: 1, params: 1, buffers: 1 };
        // SAFETY: the lowering gives valid words, and the kernel writes the first word of a buffer that has 16.
        let kernel = unsafe { Pipeline::new(device, &desc) }?.bind(&[&reply])?;
        Ok(Self { queue: device.launch_queue()?, kernel, reply, wait, number: 0 })
    }

    /// Submits so many dispatches, one after another, and waits for the last alone; gives the time of all.
    pub fn burst(&mut self, count: u32) -> Result<Duration> {
        let began = Instant::now();
        let mut last = 0;
        for _ in 0..count {
            self.number += 1;
            last = self.queue.launch(&self.kernel, [1, 1, 1], &[self.number])?;
        }
        ensure!(self.queue.wait(last, PATIENCE)?, "{count} dispatches have not ended within {PATIENCE:?}");
        Ok(began.elapsed())
    }

    fn ends(&self, launch: u64) -> Result<bool> {
        if self.wait == Wait::Semaphore {
            return Ok(self.queue.wait(launch, PATIENCE)?);
        }
        let mut looks = 0_u32;
        while self.queue.reached()? < launch {
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                if self.queue.submitted().elapsed() > PATIENCE {
                    return Ok(false);
                }
                std::thread::yield_now();
            }
        }
        Ok(true)
    }
}

impl Way for Submit {
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn round_trip(&mut self) -> Result<Option<Duration>> {
        self.number += 1;
        let launch = self.queue.launch(&self.kernel, [1, 1, 1], &[self.number])?;
        ensure!(self.ends(launch)?, "a dispatch of one workgroup has not ended within {PATIENCE:?}");
        // From the submission on: a program can record commands beforehand.
        let took = self.queue.submitted().elapsed();
        let reply = self.reply.mapped().map(|words| words.load(0));
        ensure!(reply == Some(self.number), "dispatch {} wrote {reply:?}", self.number);
        Ok(Some(took))
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A NOP task is published to a resident kernel.
pub struct Tasks {
    runtime: Runtime,
    submission: SubmissionQueue,
    completion: CompletionQueue,
    number: u32,
}

impl Tasks {
    /// Takes a runtime with its queues, as its builder gives it.
    pub fn new((runtime, submission, completion): (Runtime, SubmissionQueue, CompletionQueue)) -> Self {
        Self { runtime, submission, completion, number: 0 }
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl Way for Tasks {
    fn begin(&mut self) -> Result<()> {
        Ok(self.runtime.resume()?)
    }

    fn round_trip(&mut self) -> Result<Option<Duration>> {
        self.number += 1;
        let payload = [self.number];
        let task = Task::new(opcode::NOP).payload(&payload);
        let began = Instant::now();
        let ticket = self.submission.push(task).map_err(|error| anyhow!("{error}"))?;
        self.submission.publish()?;
        let done = self.completion.wait(ticket, PATIENCE)?;
        let took = began.elapsed();
        let sound = done.outcome == Outcome::Done && done.result == self.number;
        ensure!(sound, "task {} came back as {done:?}", self.number);
        Ok(Some(took))
    }

    fn end(&mut self) -> Result<()> {
        Ok(self.runtime.quiesce(PATIENCE)?)
    }
}
