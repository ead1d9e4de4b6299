//! The admission test: whether a kernel can be resident on a device, and where it meets the host.
//!
//! Vulkan doesn't promise that a running kernel sees host writes, nor that workgroups beyond the running ones ever
//! start. So both are tried, once per process and device, with kernels whose loops are bounded: for each memory type
//! whether a running kernel sees what the host writes and the host what the kernel writes, after how many iterations
//! loops are cut off, how many workgroups run at once, and how long a round trip takes.

mod kernels;
mod ping;
mod probe;
mod report;

use parking_lot::Mutex;

use super::error::{Error, Result};
use super::logical::Device;
use super::memory::{COHERENT, Relabel};
pub use ping::Ping;
pub(super) use probe::PATIENCE;
use probe::Probe;
use report::{Chosen, choose, flag_names};
pub use report::{Mode, PlacementReport, Report};

/// What a report depends on.
#[derive(PartialEq)]
struct Key {
    uuid: [u8; 16],
    name: String,
    driver: String,
    relabel: Relabel,
}

/// Reports of this process. Held while a device is tested, so that tests of several threads don't disturb one another.
static REPORTS: Mutex<Vec<(Key, Report)>> = Mutex::new(Vec::new());

/// The device's report: from an earlier test in this process, or from one made now.
pub(super) fn report(device: &Device, relabel: Relabel) -> Result<Report> {
    let info = device.info();
    let key = Key { uuid: info.uuid, name: info.name.clone(), driver: info.driver(), relabel };
    let mut reports = REPORTS.lock();
    if let Some((_, report)) = reports.iter().find(|(known, _)| *known == key) {
        return Ok(report.clone());
    }
    let report = test(device)?;
    log::debug!("{}: {}, since {}", info.name, report.mode.name(), report.reason);
    reports.push((key, report.clone()));
    Ok(report)
}

/// Times that the placements are looked at until a kernel can be resident: a busy machine may not run host and kernel at
/// once, and what was seen was seen.
const ATTEMPTS: u32 = 3;

fn test(device: &Device) -> Result<Report> {
    let types = device.buffer_memory_types()?;
    let mappable: Vec<_> = types.iter().copied().filter(|memory| memory.flags.contains(COHERENT)).collect();
    let nothing = || Error::NoMemoryType { name: "the admission test".into(), wanted: "host-visible and coherent" };
    let first = *mappable.first().ok_or_else(nothing)?;

    let mut probe = Probe::new(device)?;
    let loop_limit = probe.loop_limit(first)?;
    let mut look = || -> Result<_> {
        let placements: Vec<_> = mappable.iter().map(|&memory| probe.placement(memory)).collect::<Result<_>>()?;
        let chosen = choose(&types, &placements).ok_or_else(nothing)?;
        Ok((placements, chosen))
    };
    let (mut placements, mut chosen) = look()?;
    for _ in 1..ATTEMPTS {
        if chosen.obstacle.is_none() {
            break;
        }
        (placements, chosen) = look()?;
    }
    let pair = probe.pair(chosen.inlet, chosen.outlet)?;
    let trips = if chosen.obstacle.is_none() { probe.round_trips(&pair)? } else { Vec::new() };
    let floor_us = trips.get(trips.len() / 2).map(|trip| trip.as_nanos() as f64 / 1e3);
    let workers_at_once = probe.workers_at_once(chosen.state, chosen.outlet, pair.poll_ns)?;
    let (mode, reason) = decide(&chosen, loop_limit, floor_us);
    Ok(Report {
        placements,
        loop_limit,
        workers_at_once,
        floor_us,
        poll_ns: pair.poll_ns,
        mode,
        reason,
        inlet: chosen.inlet,
        outlet: chosen.outlet,
        state: chosen.state,
    })
}

fn decide(chosen: &Chosen, loop_limit: Option<u32>, floor_us: Option<f64>) -> (Mode, String) {
    if let Some(limit) = loop_limit {
        return (Mode::Epochs, format!("the driver cuts shaders off after {limit} loop iterations"));
    }
    if let Some(obstacle) = chosen.obstacle {
        return (Mode::Epochs, obstacle.into());
    }
    if floor_us.is_none() {
        return (Mode::Epochs, "no round trip succeeded between the memory types that were admitted".into());
    }
    let place = |memory: super::MemoryType| format!("{} ({})", memory.index, flag_names(memory.flags).join(" | "));
    let (inlet, outlet) = (place(chosen.inlet), place(chosen.outlet));
    let reason = format!(
        "a running kernel sees host writes in memory type {inlet}, and the host its writes in memory type {outlet}"
    );
    (Mode::Resident, reason)
}

#[cfg(test)]
mod tests {
    use ash::vk;

    use super::*;
    use crate::device::memory::MemoryType;

    #[test]
    fn every_obstacle_means_epochs() {
        let memory = MemoryType { index: 0, flags: vk::MemoryPropertyFlags::DEVICE_LOCAL | COHERENT };
        let good = Chosen { inlet: memory, outlet: memory, state: memory, obstacle: None };
        let bad = Chosen { obstacle: Some("it is not seen"), ..good.clone() };
        assert_eq!(decide(&good, None, Some(0.4)).0, Mode::Resident);
        let limited = decide(&good, Some(65_535), Some(0.4));
        assert_eq!(limited, (Mode::Epochs, "the driver cuts shaders off after 65535 loop iterations".into()));
        assert_eq!(decide(&bad, None, None), (Mode::Epochs, "it is not seen".into()));
        assert_eq!(decide(&good, None, None).0, Mode::Epochs);
    }
}
