//! `abide doctor`: every device, what the admission test found on it, and the mode that follows.

use std::process::ExitCode;

use abide::device::{Device, DeviceInfo, Error, Instance, PlacementReport, Report, Selector, format_uuid};
use serde_json::{Value, json};

use crate::out;

/// What can be done where there is nothing to look at.
const NO_DRIVER: &str = "There is no Vulkan device to look at. A driver comes with your distribution (on Debian: apt \
    install libvulkan1 mesa-vulkan-drivers) or with your GPU; without either, scripts/with-driver.sh mesa COMMAND runs a \
    command on a CPU driver that it downloads and installs nowhere.";

/// Arguments of `abide doctor`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Prints all devices, whatever the environment chooses, or the one that `device` says.
    pub fn run(&self, device: Option<&Selector>) -> anyhow::Result<ExitCode> {
        let (instance, infos) = match devices() {
            Ok(found) => found,
            Err(error) => return self.no_devices(&error),
        };
        let infos = match device {
            Some(selector) => vec![selector.choose(&infos)?.clone()],
            None => infos,
        };
        let open = |info: DeviceInfo| {
            let opened = Device::builder().selector(Selector::Index(info.index)).open_on(&instance);
            (info, opened.map(|device| device.report().clone()))
        };
        let found: Vec<_> = infos.into_iter().map(open).collect();
        if self.json {
            let devices: Vec<_> = found.iter().map(|(info, report)| to_json(info, report)).collect();
            out::print(&format!("{:#}\n", json!({ "devices": devices })))?;
        } else {
            let texts: Vec<_> = found.iter().map(|(info, report)| to_text(info, report)).collect();
            out::print(&texts.join("\n"))?;
        }
        let usable = found.iter().any(|(_, report)| report.is_ok());
        Ok(if usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn no_devices(&self, error: &Error) -> anyhow::Result<ExitCode> {
        if self.json {
            out::print(&format!("{:#}\n", json!({ "devices": [], "error": error.to_string() })))?;
        }
        eprintln!("abide: {error}\n{NO_DRIVER}");
        Ok(ExitCode::FAILURE)
    }
}

fn devices() -> Result<(Instance, Vec<DeviceInfo>), Error> {
    let instance = Instance::new()?;
    let infos = instance.devices()?;
    Ok((instance, infos))
}

fn to_json(info: &DeviceInfo, report: &Result<Report, Error>) -> Value {
    let mut device = json!({
        "index": info.index,
        "name": info.name,
        "driver": info.driver(),
        "device_type": info.device_type.name(),
        "uuid": format_uuid(&info.uuid),
    });
    let rest = match report {
        Err(error) => json!({ "error": error.to_string() }),
        Ok(report) => json!({
            "mode": report.mode.name(),
            "reason": report.reason,
            "placements": report.placements.iter().map(placement).collect::<Vec<_>>(),
            "loop_limit": report.loop_limit,
            "workers_at_once": report.workers_at_once,
            "floor_us": report.floor_us,
        }),
    };
    if let (Some(device), Value::Object(rest)) = (device.as_object_mut(), rest) {
        device.extend(rest);
    }
    device
}

fn placement(seen: &PlacementReport) -> Value {
    json!({
        "memory_type": seen.memory_type,
        "flags": seen.flag_names(),
        "host_write_seen": seen.host_write_seen,
        "device_write_seen": seen.device_write_seen,
    })
}

fn to_text(info: &DeviceInfo, report: &Result<Report, Error>) -> String {
    let mut text = format!("{}: {}\n", info.index, info.name);
    let mut line = |name: &str, value: String| text.push_str(&format!("   {name:<16}{value}\n"));
    line("driver", info.driver());
    line("type", info.device_type.name().into());
    line("UUID", format_uuid(&info.uuid));
    let report = match report {
        Err(error) => {
            line("unusable", error.to_string());
            return text;
        }
        Ok(report) => report,
    };
    line("mode", format!("{}: {}", report.mode.name(), report.reason));
    line("round trip", report.floor_us.map_or("not measured".into(), |floor| format!("{floor:.2} µs")));
    line("workers at once", report.workers_at_once.to_string());
    line("loop limit", report.loop_limit.map_or("none found".into(), |limit| limit.to_string()));
    for seen in &report.placements {
        let yes = |yes| if yes { "seen" } else { "not seen" };
        let (host, kernel) = (yes(seen.host_write_seen), yes(seen.device_write_seen));
        let flags = seen.flag_names().join(" | ");
        let what = format!("host writes {host} by a running kernel, its writes {kernel} by the host: {flags}");
        line(&format!("memory type {}", seen.memory_type), what);
    }
    text
}
