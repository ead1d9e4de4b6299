//! All of Vulkan: instances, devices of its own or adopted, memory, pipelines, launches, and the admission test.
//!
//! Knows nothing of rings, tasks or schedulers. Whoever launches a kernel that stays says what it stays for; this layer
//! says whether it can stay ([`Report`]), and in which memory host and kernel meet ([`Placement`]).

pub mod admission;

mod buffer;
mod cache;
mod error;
mod family;
mod info;
mod instance;
mod launch;
mod logical;
mod mapped;
mod memory;
mod messenger;
mod pipeline;
mod quirk;
mod raw;
mod requirements;
mod residents;
mod select;
mod timeline;

pub use admission::{Mode, Ping, PlacementReport, Report};
pub use buffer::Buffer;
pub use cache::{CacheFile, CacheStatus};
pub use error::{Error, Result};
pub use info::{DeviceInfo, DeviceType};
pub use instance::{API_VERSION, Instance};
pub use launch::{CopyRegion, LaunchQueue};
pub use logical::{Device, DeviceBuilder};
pub use mapped::Mapped;
pub use memory::{MemoryType, Placement, Relabel};
pub use messenger::{VALIDATION_VARIABLE, validation_errors};
pub use pipeline::{Kernel, Pipeline, PipelineDesc};
pub use quirk::{NOISE, NoiseRow, QUIRKS, Quirk, QuirkRow, quirk};
pub use raw::{Ownership, QueueUse, RawParts, RawQueue};
pub use requirements::{Requirements, requirements};
pub(crate) use residents::Resident;
pub use select::{DEVICE_VARIABLE, Selector, format_uuid};
pub use timeline::Timeline;
