//! The pipeline cache, and the file that keeps it from one process to the next.
//!
//! The file is a header of this module's own (so that a damaged file never reaches the driver) and the driver's data.

use std::ffi::OsString;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ash::vk;

use super::error::{Error, Result, check};
use super::info::DeviceInfo;

/// First bytes of a cache file.
const MAGIC: &[u8; 8] = b"abidepc1";
/// Magic, checksum.
const HEADER: usize = 16;
/// Vulkan's header, version one.
const VULKAN_HEADER: usize = 32;
/// Larger files are not read.
const LARGEST: u64 = 64 << 20;

/// Where pipelines are kept from one process to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CacheFile {
    /// A file for each device and driver in `$XDG_CACHE_HOME/abide`, or else `~/.cache/abide`; none without a home.
    #[default]
    Default,
    /// This file.
    At(PathBuf),
    /// Nowhere.
    Off,
}

/// What became of the cache file when the device was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheStatus {
    /// There is none, by choice or for want of a home.
    Off,
    /// It didn't exist yet.
    New,
    /// So many bytes of it were given to the driver.
    Loaded(usize),
    /// It was ignored, for this reason.
    Ignored(String),
}

/// A device's pipeline cache.
pub(super) struct PipelineCache {
    raw: vk::PipelineCache,
    path: Option<PathBuf>,
    status: CacheStatus,
    /// Whether pipelines were made since the file was written.
    used: AtomicBool,
}

impl PipelineCache {
    /// Makes the cache from the file, or empty where there is none that fits.
    pub(super) fn new(device: &ash::Device, info: &DeviceInfo, file: &CacheFile) -> Result<Self> {
        let path = match file {
            CacheFile::Default => home(|name| std::env::var_os(name)).map(|folder| folder.join(file_name(info))),
            CacheFile::At(path) => Some(path.clone()),
            CacheFile::Off => None,
        };
        let (status, data) = match &path {
            None => (CacheStatus::Off, Vec::new()),
            Some(path) => load(path, info),
        };
        if let (CacheStatus::Ignored(reason), Some(path)) = (&status, &path) {
            log::warn!("ignoring the pipeline cache {}: {reason}", path.display());
        }
        let create = vk::PipelineCacheCreateInfo::default().initial_data(&data);
        // SAFETY: the device is alive, and the data is of this device and driver and has the checksum it was written
        // with.
        let raw = check("vkCreatePipelineCache", unsafe { device.create_pipeline_cache(&create, None) })?;
        Ok(Self { raw, path, status, used: AtomicBool::new(false) })
    }

    /// The handle, for making a pipeline.
    pub(super) fn for_pipeline(&self) -> vk::PipelineCache {
        // Only a hint of whether saving is worth while: nothing is ordered by it.
        self.used.store(true, Ordering::Relaxed);
        self.raw
    }

    pub(super) fn status(&self) -> &CacheStatus {
        &self.status
    }

    /// Writes the file where pipelines were made since the last time. A reader sees the old file or the new one.
    pub(super) fn save(&self, device: &ash::Device) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if !self.used.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: the cache was made by this device, which is alive.
        let data = check("vkGetPipelineCacheData", unsafe { device.get_pipeline_cache_data(self.raw) })?;
        write(path, &data).map_err(|source| Error::CacheFile { path: path.clone(), source })
    }

    /// Destroys the cache.
    ///
    /// # Safety
    /// The device is alive, and this is called once and last.
    pub(super) unsafe fn destroy(&self, device: &ash::Device) {
        // SAFETY: the caller promises that nothing uses the cache any more.
        unsafe { device.destroy_pipeline_cache(self.raw, None) };
    }
}

fn home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // Relative paths are to be ignored, says the XDG base directory specification.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("abide"))
}

fn file_name(info: &DeviceInfo) -> String {
    let uuid = super::select::format_uuid(&info.cache_uuid);
    format!("pipelines-{:04x}-{:04x}-{uuid}", info.vendor, info.device)
}

fn load(path: &Path, info: &DeviceInfo) -> (CacheStatus, Vec<u8>) {
    match read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => (CacheStatus::New, Vec::new()),
        Err(error) => (CacheStatus::Ignored(error.to_string()), Vec::new()),
        Ok(bytes) => match validate(&bytes, info) {
            Ok(data) => (CacheStatus::Loaded(data.len()), data.to_vec()),
            Err(reason) => (CacheStatus::Ignored(reason.into()), Vec::new()),
        },
    }
}

fn read(path: &Path) -> Result<Vec<u8>, IoError> {
    let size = std::fs::metadata(path)?.len();
    if size > LARGEST {
        return Err(IoError::other(format!("it has {size} bytes, more than {LARGEST}")));
    }
    std::fs::read(path)
}

/// The driver's data in a file's bytes, or why they are of no use.
fn validate<'a>(bytes: &'a [u8], info: &DeviceInfo) -> Result<&'a [u8], &'static str> {
    let (header, data) = bytes.split_at_checked(HEADER).ok_or("it is cut off")?;
    let (magic, sum) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err("it is no pipeline cache of this version");
    }
    if sum != checksum(data).to_le_bytes() {
        return Err("it is damaged");
    }
    let vulkan = data.get(..VULKAN_HEADER).ok_or("Vulkan's header is cut off")?;
    let word = |at: usize| vulkan[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    if (word(0), word(4)) != (VULKAN_HEADER as u32, vk::PipelineCacheHeaderVersion::ONE.as_raw() as u32) {
        return Err("Vulkan's header has another version");
    }
    if (word(8), word(12)) != (info.vendor, info.device) || vulkan[16..] != info.cache_uuid {
        return Err("it is of another device or driver");
    }
    Ok(data)
}

fn write(path: &Path, data: &[u8]) -> Result<(), IoError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Only has to differ from other writers' names: nothing is ordered by it.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{number}", std::process::id()));
    let mut bytes = Vec::with_capacity(HEADER + data.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&checksum(data).to_le_bytes());
    bytes.extend_from_slice(data);
    let written = std::fs::write(&name, bytes).and_then(|()| std::fs::rename(&name, path));
    if written.is_err() {
        // What can't be written often can't be removed either; the first error says why.
        let _ = std::fs::remove_file(&name);
    }
    written
}

/// FNV-1a, 64 bits: against damage, not against intent.
fn checksum(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::info::{DeviceType, sample};

    /// A file with the header of a device and no pipelines.
    fn file(info: &DeviceInfo) -> Vec<u8> {
        let version = vk::PipelineCacheHeaderVersion::ONE.as_raw() as u32;
        let words = [VULKAN_HEADER as u32, version, info.vendor, info.device];
        let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        data.extend_from_slice(&info.cache_uuid);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&checksum(&data).to_le_bytes());
        bytes.extend_from_slice(&data);
        bytes
    }

    #[test]
    fn file_must_be_whole_and_of_this_device() {
        let info = sample(0, "one", DeviceType::Cpu);
        let good = file(&info);
        assert_eq!(validate(&good, &info).map(<[u8]>::len), Ok(VULKAN_HEADER));
        let other = DeviceInfo { cache_uuid: [9; 16], ..info.clone() };
        assert_eq!(validate(&file(&other), &info), Err("it is of another device or driver"));
        let other = DeviceInfo { vendor: 9, ..info.clone() };
        assert_eq!(validate(&file(&other), &info), Err("it is of another device or driver"));
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 0x10;
            assert!(validate(&damaged, &info).is_err(), "byte {at}");
            assert!(validate(&good[..at], &info).is_err(), "cut off at {at}");
        }
    }

    #[test]
    fn home_follows_the_base_directory_specification() {
        let at = |pairs: &'static [(&str, &str)]| {
            home(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| OsString::from(pair.1)))
        };
        assert_eq!(at(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some("/c/abide".into()));
        assert_eq!(at(&[("XDG_CACHE_HOME", "c"), ("HOME", "/h")]), Some("/h/.cache/abide".into()));
        assert_eq!(at(&[("HOME", "")]), None);
        assert_eq!(at(&[]), None);
    }

    #[test]
    fn checksum_is_the_published_function() {
        assert_eq!(checksum(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(checksum(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
