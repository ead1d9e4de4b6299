//! What the admission test found, and what follows from it.

use ash::vk;

use crate::device::memory::{COHERENT, MemoryType};

/// How a kernel stays on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It runs until it is told to stop, and sees what the host writes meanwhile.
    Resident,
    /// It runs in bounded slices; what the host wrote reaches it between two of them.
    Epochs,
}

impl Mode {
    /// The mode as one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resident => "resident",
            Self::Epochs => "epochs",
        }
    }
}

/// What was seen in one memory type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementReport {
    /// Number of the memory type.
    pub memory_type: u32,
    /// Its properties.
    pub flags: vk::MemoryPropertyFlags,
    /// Whether a running kernel saw what the host wrote there.
    pub host_write_seen: bool,
    /// Whether the host saw what a running kernel wrote there, by volatile stores and by atomic exchange.
    pub device_write_seen: bool,
}

impl PlacementReport {
    /// Names of the properties.
    pub fn flag_names(&self) -> Vec<&'static str> {
        flag_names(self.flags)
    }
}

/// What the admission test found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Each memory type that the host can map coherently.
    pub placements: Vec<PlacementReport>,
    /// Loop iterations after which the driver cuts shaders off, where it does so within the 200,000 that were tried.
    pub loop_limit: Option<u32>,
    /// The most workgroups of one subgroup (at most 32 invocations) seen running at once; 4,096 means so many or more.
    pub workers_at_once: u32,
    /// Median round trip in microseconds: the host writes a request, a running kernel replies, the host sees it.
    pub floor_us: Option<f64>,
    /// Nanoseconds of one poll of the inlet by one workgroup.
    pub poll_ns: f64,
    /// The best mode that the device can do.
    pub mode: Mode,
    /// Why, as a sentence without a full stop.
    pub reason: String,
    /// Memory for what the host writes and kernels read.
    pub inlet: MemoryType,
    /// Memory for what kernels write and the host reads.
    pub outlet: MemoryType,
    /// Memory for kernels alone.
    pub state: MemoryType,
}

impl Report {
    /// Stands in until the test has run.
    pub(in crate::device) fn untested() -> Self {
        let memory = MemoryType { index: 0, flags: vk::MemoryPropertyFlags::empty() };
        Self {
            placements: Vec::new(),
            loop_limit: None,
            workers_at_once: 0,
            floor_us: None,
            poll_ns: 0.0,
            mode: Mode::Epochs,
            reason: "the admission test has not run".into(),
            inlet: memory,
            outlet: memory,
            state: memory,
        }
    }
}

/// Memory types for the three placements, and whether a resident kernel and the host can meet in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub inlet: MemoryType,
    pub outlet: MemoryType,
    pub state: MemoryType,
    /// Why a kernel can't be resident in them; none where it can.
    pub obstacle: Option<&'static str>,
}

/// Chooses memory types by what was seen; none where no type is both mappable and coherent.
///
/// The inlet must be device-local, so that the kernel polls its own memory and not the host's across a bus. Where
/// nothing is admitted, slices still need memory: then the same preferences hold without the requirements.
pub(super) fn choose(types: &[MemoryType], placements: &[PlacementReport]) -> Option<Chosen> {
    let (local, cached) = (vk::MemoryPropertyFlags::DEVICE_LOCAL, vk::MemoryPropertyFlags::HOST_CACHED);
    let best = |fits: &dyn Fn(&PlacementReport) -> bool, penalty: &dyn Fn(vk::MemoryPropertyFlags) -> u32| {
        let best =
            placements.iter().filter(|seen| fits(seen)).min_by_key(|seen| (penalty(seen.flags), seen.memory_type));
        best.map(|seen| MemoryType { index: seen.memory_type, flags: seen.flags })
    };
    // The host only writes to the inlet: write-combined memory is the best for that.
    let for_inlet =
        |flags: vk::MemoryPropertyFlags| 2 * u32::from(!flags.contains(local)) + u32::from(flags.contains(cached));
    // The host polls the outlet: from its own cache where it can.
    let for_outlet =
        |flags: vk::MemoryPropertyFlags| 2 * u32::from(!flags.contains(cached)) + u32::from(flags.contains(local));
    let inlet = best(&|seen| seen.host_write_seen && seen.flags.contains(local), &for_inlet);
    let outlet = best(&|seen| seen.device_write_seen, &for_outlet);
    let obstacle = match (inlet, outlet) {
        (Some(_), Some(_)) => None,
        (None, _) if placements.iter().any(|seen| seen.flags.contains(local)) => {
            Some("a running kernel sees host writes in no device-local memory type")
        }
        (None, _) => Some("the device has no device-local memory that the host can write"),
        (Some(_), None) => Some("the writes of a running kernel reach the host in no memory type"),
    };
    let state_penalty = |memory: &&MemoryType| {
        let flags = memory.flags;
        (2 * u32::from(!flags.contains(local)) + u32::from(!flags.contains(COHERENT)), memory.index)
    };
    Some(Chosen {
        inlet: inlet.or_else(|| best(&|_| true, &for_inlet))?,
        outlet: outlet.or_else(|| best(&|_| true, &for_outlet))?,
        state: *types.iter().min_by_key(state_penalty)?,
        obstacle,
    })
}

/// Names of memory properties, in the order of their bits.
pub(super) fn flag_names(flags: vk::MemoryPropertyFlags) -> Vec<&'static str> {
    let names = [
        (vk::MemoryPropertyFlags::DEVICE_LOCAL, "DEVICE_LOCAL"),
        (vk::MemoryPropertyFlags::HOST_VISIBLE, "HOST_VISIBLE"),
        (vk::MemoryPropertyFlags::HOST_COHERENT, "HOST_COHERENT"),
        (vk::MemoryPropertyFlags::HOST_CACHED, "HOST_CACHED"),
    ];
    names.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    const CACHED: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::HOST_CACHED;

    fn seen(
        memory_type: u32,
        flags: vk::MemoryPropertyFlags,
        host_write_seen: bool,
        device_write_seen: bool,
    ) -> PlacementReport {
        PlacementReport { memory_type, flags: flags | COHERENT, host_write_seen, device_write_seen }
    }

    fn chosen(placements: &[PlacementReport]) -> (u32, u32, u32, Option<&'static str>) {
        let mut types = vec![MemoryType { index: 9, flags: LOCAL }];
        types.extend(placements.iter().map(|seen| MemoryType { index: seen.memory_type, flags: seen.flags }));
        let chosen = choose(&types, placements).expect("there are types");
        (chosen.inlet.index, chosen.outlet.index, chosen.state.index, chosen.obstacle)
    }

    #[test]
    fn discrete_gpu_with_a_window() {
        let none = vk::MemoryPropertyFlags::empty();
        let types = [seen(2, none, false, true), seen(3, CACHED, false, true), seen(4, LOCAL, true, true)];
        assert_eq!(chosen(&types), (4, 3, 4, None));
    }

    #[test]
    fn host_memory_alone_is_no_inlet_even_where_its_writes_are_seen() {
        let types = [seen(2, vk::MemoryPropertyFlags::empty(), true, true), seen(3, CACHED, true, true)];
        let why = Some("the device has no device-local memory that the host can write");
        assert_eq!(chosen(&types), (2, 3, 9, why));
    }

    #[test]
    fn unseen_writes_are_an_obstacle() {
        let why = Some("a running kernel sees host writes in no device-local memory type");
        assert_eq!(chosen(&[seen(0, LOCAL | CACHED, false, true)]), (0, 0, 0, why));
        let why = Some("the writes of a running kernel reach the host in no memory type");
        assert_eq!(chosen(&[seen(0, LOCAL | CACHED, true, false)]), (0, 0, 0, why));
    }

    #[test]
    fn nothing_mappable_is_no_choice() {
        assert_eq!(choose(&[MemoryType { index: 0, flags: LOCAL }], &[]), None);
    }
}
