//! Describes a runtime and builds it.

use std::sync::Arc;
use std::time::Duration;

use super::bindings::Tables;
use super::epoch::Shadows;
use super::error::{Error, Result};
use super::keeper::Keeper;
use super::launcher::{LaunchPlan, Launcher};
use super::memory::{Buffers, words};
use super::{Copies, Runtime};
use crate::baked;
use crate::device::{Device, Mode, Pipeline, PipelineDesc, Quirk};
use crate::planner::{GridLimits, GridRequest, SizingPolicy};
use crate::protocol::{STARVATION_THRESHOLD, launch, opcode, slot};
use crate::queue::{self, CompletionQueue, Link, QueueConfig, SubmissionQueue};
use crate::scheduler::fast::{self, Lanes};
use crate::scheduler::{self, Fences, Mutation, PriorityOffsets, probe, quick};
use crate::spirv::link::{self, HandlerModule};
use crate::spirv::{self, Lowered};

/// Environment variable that forces a mode: `resident` or `epochs`.
pub const MODE_VARIABLE: &str = "ABIDE_MODE";
/// Environment variable that chooses the policy where the program doesn't: `scan` or `fast`.
pub const POLICY_VARIABLE: &str = "ABIDE_POLICY";

/// Slots of the default ring.
const SLOTS: u32 = 4096;
/// Binding tables of the default inlet.
const TABLES: u32 = 256;
/// Completions that the default queue holds: as many tasks can be in flight.
const ENTRIES: u32 = 1 << 16;
/// Passes from one sweep to the next where a pass looks at the levels' heads.
const SWEEP: u32 = 16;
/// Looks at the heads alone between two such passes.
const LOOKS: u32 = 512;
/// Looks of the fast policy's poller between two at what else there is: seldom enough that few tasks come meanwhile.
const POLLS: u32 = 1024;
/// The least and the most tasks that a worker of the fast policy claims at once, without handlers and with some.
const RANGE: (u32, u32) = (8, fast::MOST);
const HANDLER_RANGE: (u32, u32) = (1, 4);
/// Loop iterations that scanning may use up where the driver cuts loops short: the rest is the handler's.
const SCAN_SHARE: u32 = 4;
/// Turns of the canary loop: a loop that was cut short ends after one.
const CANARY: u32 = 2;
/// Passes after which a slice ends, so that no watchdog ends it: some tens of milliseconds.
const SLICE_PASSES: u32 = 20_000;

/// How the kernel finds and claims tasks. All policies keep to the same protocol and give the same results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The reference: workers scan the ring from the most urgent level down, and claim slots by compare-and-swap.
    #[default]
    Scan,
    /// One worker polls and runs lone NOPs; others claim ranges by two atomic adds.
    Fast,
}

impl Policy {
    /// The policy's name, as the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Fast => "fast",
        }
    }
}

/// How far a pass of the kernel's scan goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Over the whole ring where the workers' lanes cover it in one round, else as [`Reach::Heads`].
    #[default]
    Auto,
    /// Over the whole ring: the reference scan. A pass costs the more the longer the ring is.
    Whole,
    /// Over the next slots of each level, and over one round of the ring in each so many passes: a power of two, or `build`
    /// refuses it.
    Heads(u32),
}

/// Describes a [`Runtime`].
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use abide::device::{Device, Selector};
/// use abide::runtime::Runtime;
///
/// # let device = Device::open(&Selector::from_env()?)?;
/// let (runtime, submission, completion) = Runtime::builder(&device).levels(3).slots(1024).build()?;
/// # let _ = (runtime, submission, completion);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct RuntimeBuilder<'a> {
    device: &'a Device,
    levels: u32,
    slots: u32,
    offsets: Option<Vec<u32>>,
    entries: u32,
    tables: u32,
    workers: u32,
    width: Option<u32>,
    mode: Option<Mode>,
    policy: Option<Policy>,
    reach: Reach,
    park: Duration,
    stall: Duration,
    budget: u32,
    keeper: bool,
    starvation: Vec<(u32, u32)>,
    tenants: (u32, u32),
    handlers: Vec<(&'a [u32], &'a str)>,
    start: (u64, u32),
    fences: Fences,
    mutation: Option<Mutation>,
}

impl<'a> RuntimeBuilder<'a> {
    pub(super) fn new(device: &'a Device) -> Self {
        Self {
            device,
            levels: crate::protocol::PRIORITY_LEVELS,
            slots: SLOTS,
            offsets: None,
            entries: ENTRIES,
            tables: TABLES,
            workers: 0,
            width: None,
            mode: None,
            policy: None,
            reach: Reach::Auto,
            park: Duration::from_millis(200),
            stall: Duration::from_secs(2),
            budget: 0,
            keeper: false,
            starvation: Vec::new(),
            tenants: (1, 1),
            handlers: Vec::new(),
            start: (0, 0),
            fences: Fences::Full,
            mutation: None,
        }
    }

    /// Priority levels, 1 to 8; 5 by default.
    pub fn levels(mut self, levels: u32) -> Self {
        self.levels = levels;
        self
    }

    /// Slots of the ring, shared out evenly among the levels; 4,096 by default.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Splits the ring as given: the first slot of each level, then the number of slots. Overrides levels and slots.
    pub fn split(mut self, offsets: &[u32]) -> Self {
        self.offsets = Some(offsets.to_vec());
        self
    }

    /// How often a level's waiting tasks are passed over for more urgent ones before one of them goes first;
    /// [`STARVATION_THRESHOLD`](crate::protocol::STARVATION_THRESHOLD) by default. 0: they run only when nothing more urgent
    /// waits.
    pub fn starvation_threshold(mut self, level: u32, claims: u32) -> Self {
        self.starvation.push((level, claims));
        self
    }

    /// How many tenants there can be, tenant 0 included (1 to 256), and how many tasks each of the others may have in flight (a
    /// power of two). Each such task takes 256 bytes of device memory for when its tenant is blocked. No tenant but 0 by
    /// default.
    pub fn tenants(mut self, tenants: u32, credits: u32) -> Self {
        self.tenants = (tenants, credits);
        self
    }

    /// The most tasks in flight, shared out evenly among the levels: a power of two; 65,536 by default.
    pub fn in_flight(mut self, tasks: u32) -> Self {
        self.entries = tasks;
        self
    }

    /// Binding tables that can exist at once; 256 by default.
    pub fn tables(mut self, tables: u32) -> Self {
        self.tables = tables;
        self
    }

    /// Workers: workgroups that stay resident. 0, the default, lets the planner choose. More than
    /// [run at once](crate::device::Report::workers_at_once) make tasks wait: the others' parts of the ring are visited seldom.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Invocations of a worker. By default those of the handlers' workgroups, or a subgroup's where there are none. Rounded
    /// up to whole subgroups and cut to what the device can do; with handlers it must be theirs.
    pub fn width(mut self, width: u32) -> Self {
        self.width = Some(width);
        self
    }

    /// Forces a mode; by default [`MODE_VARIABLE`] or else the admission test chooses.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// How the kernel finds and claims tasks; by default [`POLICY_VARIABLE`] or else [`Policy::default`] says. The scan takes the place of [`Policy::Fast`] on drivers that cut loops short, whose
    /// kernels can't poll, where there are other tenants than 0, and for workers of fewer than 4 lanes, or half as many as there
    /// are levels.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// How far a pass of the scan goes.
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// How long, roughly, a resident kernel stays without work before it parks: 200 ms by default; zero keeps it for ever.
    ///
    /// It stays at least until it has looked at every slot. A task that is published while it parks is not lost: a publish or
    /// a poll notices at once, a wait within a millisecond and the keeper within two, and then the task waits for a launch.
    pub fn park_after(mut self, idle: Duration) -> Self {
        self.park = idle;
        self
    }

    /// How long the kernel may show no sign of life while tasks wait, before waits say that it stalls: 2 s by default. All
    /// workers in handlers show none, so it should be longer than the longest handler.
    pub fn stall_after(mut self, quiet: Duration) -> Self {
        self.stall = quiet;
        self
    }

    /// Passes after which a launch ends, to be started again where work is left; 0, the default, leaves it unbounded in
    /// resident mode, and to the mode in epochs. For tests, and for drivers that end long launches.
    pub fn pass_budget(mut self, passes: u32) -> Self {
        self.budget = passes;
        self
    }

    /// Starts a thread that looks after the kernel: for programs that publish tasks and never poll or wait.
    pub fn keeper(mut self, keeper: bool) -> Self {
        self.keeper = keeper;
        self
    }

    /// Adds a handler: the entry point of a compute shader, as SPIR-V. Gives the opcode of its tasks.
    pub fn handler(&mut self, words: &'a [u32], entry: &'a str) -> u32 {
        self.handlers.push((words, entry));
        opcode::FIRST_HANDLER + self.handlers.len() as u32 - 1
    }

    /// Starts with so many laps behind each level and so many completions behind the queue: for tests of the wrap.
    pub fn start_at(mut self, first_lap: u64, first_ticket: u32) -> Self {
        self.start = (first_lap, first_ticket);
        self
    }

    /// Leaves the kernel's fences away: for tests that must fail.
    pub fn fences(mut self, fences: Fences) -> Self {
        self.fences = fences;
        self
    }

    /// Plants a fault in the kernel: for tests that must fail.
    pub fn mutation(mut self, mutation: Mutation) -> Self {
        self.mutation = Some(mutation);
        self
    }

    /// Links the handlers into a kernel, makes its pipeline and memory, and gives the runtime with its queues. The kernel is
    /// launched by the first publish.
    ///
    /// # Errors
    /// What can't be built, with the value and what to do about it.
    pub fn build(self) -> Result<(Runtime, SubmissionQueue, CompletionQueue)> {
        let device = self.device;
        let offsets = match &self.offsets {
            Some(offsets) => PriorityOffsets::custom(offsets, offsets.last().copied().unwrap_or(0))?,
            None => PriorityOffsets::even(self.slots, self.levels)?,
        };
        let mut config = QueueConfig::even(offsets.as_slice(), self.entries, self.tables);
        (config.first_lap, config.first_ticket) = self.start;
        (config.tenants, config.credits) = self.tenants;
        config.check()?;
        if let Reach::Heads(passes) = self.reach
            && !passes.is_power_of_two()
        {
            return Err(Error::Sweep(passes));
        }
        let thresholds = self.thresholds(offsets.levels())?;
        let mode = self.chosen_mode()?;

        let fences = self.chosen_fences(mode);
        let handlers = self.handler_modules()?;
        // Handlers bring their own width, which decides whether and how the fast policy's lanes are dealt out.
        let width = link::invocations(&handlers)?;
        let plan = self.plan(width, offsets.slots())?;
        let lanes = self.fast_lanes(plan.geometry.width, offsets.levels())?;
        let kernel = self.kernel(offsets.levels(), lanes, fences)?;
        let linked = link::link(&kernel, &handlers, &self.link_limits())?;
        let (width, workers) = (plan.geometry.width, plan.worker_groups);

        let mut queue = device.launch_queue()?;
        let buffers = Buffers::new(device, &mut queue, (&offsets, &thresholds, config.clone()), workers)?;
        let desc = PipelineDesc {
            name: "abide kernel",
            words: &linked.words,
            entry: c"main",
            width,
            params: launch::WORDS,
            buffers: 3,
        };
        // SAFETY: the words were emitted by the lowering and the linker, which check them. The kernel stays inside the
        // three buffers, whose sizes its parameters say; built-ins and handlers reach other memory only through binding
        // tables, whose buffers live until no unfinished task names them. It leaves when the stop word says so, which
        // the runtime sets before it goes.
        let pipeline = unsafe { Pipeline::new(device, &desc) }?;
        let kernel = pipeline.bind(&[&buffers.inlet, &buffers.outlet, &buffers.state])?;

        let params = self.params(mode, &offsets, &buffers, (workers, width), lanes.is_some());
        let looks = f64::from(params[launch::LOOKS as usize]);
        let launch_plan = LaunchPlan {
            mode,
            workers,
            // A look at the heads takes an eighth of the shortest round trip; a pass of the poller is one look.
            pass_floors: if lanes.is_some() { 0.4 } else { 1.0 + looks / 8.0 },
            params,
            stall: self.stall,
            park: self.park,
        };
        let (memory, shadows) = if mode == Mode::Resident {
            // SAFETY: the launcher keeps the buffers, and the queues keep the launcher.
            (unsafe { buffers.mapped_words() }?, None)
        } else {
            // SAFETY: the launcher keeps both the shadows and the buffers, and drops the shadows without using them.
            let inlet = unsafe { words(&buffers.inlet) }?;
            // SAFETY: as above.
            let outlet = unsafe { words(&buffers.outlet) }?;
            let shadows = Shadows::new(&config, inlet, outlet);
            (shadows.memory(), Some(shadows))
        };
        let launcher = Arc::new(Launcher::new(device, queue, (kernel, buffers), shadows, launch_plan));
        let as_resident = Arc::downgrade(&launcher);
        device.residents().enter(as_resident);
        let link: Arc<dyn Link> = launcher.clone();
        let (submission, completion) = queue::pair(&config, memory.0, memory.1, link)?;
        let tables = Tables::new(launcher.clone(), submission.in_flight_view());
        let copies = if mode == Mode::Resident { Copies::new(device)? } else { None };
        let keeper = self.keeper.then(|| Keeper::new(submission.in_flight_view()));
        let keeper = keeper.transpose().map_err(Error::Keeper)?;
        let policy = if lanes.is_some() { Policy::Fast } else { Policy::Scan };
        let runtime = Runtime { launcher, policy, handlers: linked.handlers, plan, tables, copies, _keeper: keeper };
        Ok((runtime, submission, completion))
    }

    /// The starvation guard's threshold of each level.
    fn thresholds(&self, levels: u32) -> Result<Vec<u32>> {
        let mut thresholds = vec![STARVATION_THRESHOLD; levels as usize];
        for &(level, claims) in &self.starvation {
            let threshold = thresholds.get_mut(level as usize).ok_or(Error::StarvationLevel { level, levels })?;
            *threshold = claims;
        }
        Ok(thresholds)
    }

    fn chosen_mode(&self) -> Result<Mode> {
        let report = self.device.report();
        let asked = match self.mode {
            Some(mode) => Some(mode),
            None => mode_from_env()?,
        };
        if asked == Some(Mode::Resident) && report.mode != Mode::Resident {
            let (device, reason) = (self.device.info().name.clone(), report.reason.clone());
            return Err(Error::NotResident { device, reason });
        }
        Ok(asked.unwrap_or(report.mode))
    }

    /// Fences, but for workers of several subgroups where the driver has them wait for the whole workgroup.
    fn chosen_fences(&self, mode: Mode) -> Fences {
        let info = self.device.info();
        let several = !self.handlers.is_empty() || self.width.is_some_and(|width| width > info.subgroup_size);
        let waits = self.device.quirk(Quirk::MemoryBarriersWait).is_some();
        if waits && several && mode == Mode::Epochs { Fences::None } else { self.fences }
    }

    /// How the fast policy deals its lanes out; none where the scan runs.
    fn fast_lanes(&self, width: u32, levels: u32) -> Result<Option<Lanes>> {
        let policy = match self.policy {
            Some(policy) => policy,
            None => policy_from_env()?,
        };
        let polls = policy == Policy::Fast && self.tenants.0 <= 1 && self.device.report().loop_limit.is_none();
        let lanes = width.min(self.device.info().subgroup_size);
        Ok(if polls { Lanes::of(lanes, levels) } else { None })
    }

    fn kernel(&self, levels: u32, lanes: Option<Lanes>, fences: Fences) -> Result<Lowered> {
        let baked = lanes.map_or_else(|| baked::scan(levels), |lanes| baked::fast(levels, lanes));
        if let (Some(baked), Fences::Full, None) = (baked, fences, self.mutation) {
            return Ok(Lowered { words: baked.words.to_vec(), interface: Some(baked.interface) });
        }
        let module = match lanes {
            Some(lanes) => scheduler::fast::kernel(levels, lanes, fences, self.mutation),
            None => scheduler::kernel(levels, fences, self.mutation),
        };
        Ok(spirv::lower(&module)?)
    }

    fn handler_modules(&self) -> Result<Vec<HandlerModule<'a>>> {
        let limit = (slot::HANDLER_MASK - opcode::FIRST_HANDLER + 1) as usize;
        if self.handlers.len() > limit {
            return Err(Error::Handlers { count: self.handlers.len(), limit });
        }
        let opcodes = opcode::FIRST_HANDLER..;
        Ok(self
            .handlers
            .iter()
            .zip(opcodes)
            .map(|(&(words, entry), opcode)| HandlerModule { words, entry, opcode })
            .collect())
    }

    fn link_limits(&self) -> link::Limits {
        link::Limits { workgroup_bytes: self.device.info().limits.max_compute_shared_memory_size }
    }

    fn plan(&self, invocations: Option<u32>, slots: u32) -> Result<crate::planner::GridPlan> {
        let info = self.device.info();
        let width = match (invocations, self.width) {
            (Some(handlers), Some(width)) if handlers != width => return Err(Error::Width { handlers, width }),
            (Some(width), _) | (None, Some(width)) => width,
            (None, None) => info.subgroup_size,
        };
        let limits = GridLimits {
            max_workgroup_size_x: info.limits.max_compute_work_group_size[0],
            max_workgroups_per_dimension: info.limits.max_compute_work_group_count[0],
            max_invocations_per_workgroup: info.limits.max_compute_work_group_invocations,
        };
        let policy = SizingPolicy {
            // A handler's workgroup need not be whole subgroups; the plan must keep its size.
            subgroup: if invocations.is_some() { 1 } else { info.subgroup_size },
            width,
            workers_at_once: self.device.report().workers_at_once,
            ..SizingPolicy::STANDARD
        };
        Ok(policy.recommend(GridRequest { queue_length: slots, worker_groups: self.workers }, limits)?)
    }

    /// Everything of the launch parameters but the launch's number.
    fn params(
        &self,
        mode: Mode,
        offsets: &PriorityOffsets,
        buffers: &Buffers,
        (workers, width): (u32, u32),
        polls: bool,
    ) -> [u32; launch::WORDS as usize] {
        let longest = (0..offsets.levels()).map(|level| offsets.slots_of(level)).max().unwrap_or(0);
        let rounds = probe::probe_count(longest, workers.saturating_mul(width));
        let sweep = match self.reach {
            Reach::Whole => 0,
            Reach::Auto if rounds <= 1 => 0,
            Reach::Auto => SWEEP,
            Reach::Heads(passes) => passes,
        };
        // Where a pass is long, its worker looks at heads alone in between, if it can. In epochs nothing arrives meanwhile.
        let one_subgroup = (quick::least_width(offsets.levels())..=self.device.info().subgroup_size).contains(&width);
        let looks = if sweep == 0 || mode == Mode::Epochs || !one_subgroup { 0 } else { LOOKS };
        // What a pass loops at most: rounds or heads, and the turns of taking a task in.
        let pass_turns = if sweep == 0 { rounds } else { 1 } + 64 + looks;
        let limit = self.device.report().loop_limit;
        let budget = match (mode, limit, self.budget) {
            (_, Some(limit), _) => (limit / SCAN_SHARE / pass_turns).max(1),
            (Mode::Epochs, None, 0) => SLICE_PASSES,
            (_, None, budget) => budget,
        };
        // Long enough for one worker to have gone over the whole ring: parts, laps to each, rounds of a lap, passes of a
        // round. An idle worker that looks at the heads in between sweeps in each pass.
        let laps = if workers > 1 { workers.saturating_mul(scheduler::VISIT_LAPS) } else { 1 };
        let passes = match sweep {
            0 => 1,
            _ if looks > 0 => rounds,
            _ => rounds.saturating_mul(sweep),
        };
        let idle_limit = if polls { POLLS } else { laps.saturating_mul(passes) };
        let looks = match (polls, mode) {
            (false, _) => looks,
            (true, Mode::Resident) => POLLS,
            // Nothing arrives during a slice: the first look that finds nothing may be its last.
            (true, Mode::Epochs) => 1,
        };
        let address = buffers.state.address();
        let mut params = [0; launch::WORDS as usize];
        let mut set = |word: u32, value: u32| params[word as usize] = value;
        set(launch::BUDGET, budget);
        set(launch::IDLE_LIMIT, idle_limit);
        set(launch::SLOTS, offsets.slots());
        set(launch::TABLES, self.tables);
        set(launch::ENTRIES, self.entries);
        set(launch::STATE_LOW, address as u32);
        set(launch::STATE_HIGH, (address >> 32) as u32);
        set(launch::CANARY, if limit.is_some() { CANARY } else { 0 });
        set(launch::SWEEP, sweep);
        set(launch::LOOKS, looks);
        set(launch::TENANTS, self.tenants.0);
        set(launch::CREDITS, self.tenants.1);
        // A worker runs a range's handlers one after another, whatever comes meanwhile.
        let (least, most) = if self.handlers.is_empty() { RANGE } else { HANDLER_RANGE };
        set(launch::RANGE_LEAST, least);
        set(launch::RANGE_MOST, most.min(width));
        params
    }
}

fn mode_from_env() -> Result<Option<Mode>> {
    let Some(value) = std::env::var_os(MODE_VARIABLE) else { return Ok(None) };
    match value.to_str() {
        Some("resident") => Ok(Some(Mode::Resident)),
        Some("epochs") => Ok(Some(Mode::Epochs)),
        Some("") => Ok(None),
        _ => Err(Error::BadMode { name: MODE_VARIABLE, value: value.to_string_lossy().into_owned() }),
    }
}

fn policy_from_env() -> Result<Policy> {
    let Some(value) = std::env::var_os(POLICY_VARIABLE) else { return Ok(Policy::default()) };
    match value.to_str() {
        Some("scan") => Ok(Policy::Scan),
        Some("fast") => Ok(Policy::Fast),
        Some("") => Ok(Policy::default()),
        _ => Err(Error::BadPolicy { name: POLICY_VARIABLE, value: value.to_string_lossy().into_owned() }),
    }
}
