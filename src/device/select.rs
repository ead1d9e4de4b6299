//! Which device of several: by index, by a part of its name, or by UUID.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use super::error::{Error, Result};
use super::info::DeviceInfo;

/// Environment variable that [`Selector::from_env`] reads.
pub const DEVICE_VARIABLE: &str = "ABIDE_DEVICE";

/// Says which device to open.
///
/// ```
/// use abide::device::Selector;
///
/// assert_eq!("1".parse(), Ok(Selector::Index(1)));
/// assert_eq!("llvmpipe".parse(), Ok(Selector::Name("llvmpipe".into())));
/// assert!(matches!("6D657361-3234-0000-0000-000000000000".parse(), Ok(Selector::Uuid(_))));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selector {
    /// The best: discrete before integrated, virtual and CPU; the first of equals.
    #[default]
    Best,
    /// The device at this place of the loader's list.
    Index(usize),
    /// The best device whose name contains this text, in upper or lower case.
    Name(String),
    /// The device with this UUID.
    Uuid([u8; 16]),
}

impl Selector {
    /// Reads `ABIDE_DEVICE`; where it isn't set or empty, this is [`Selector::Best`].
    ///
    /// # Errors
    /// [`Error::BadSelector`] where the variable isn't Unicode.
    pub fn from_env() -> Result<Self> {
        match std::env::var(DEVICE_VARIABLE) {
            Ok(text) => Ok(text.parse().unwrap_or_default()),
            Err(std::env::VarError::NotPresent) => Ok(Self::Best),
            Err(std::env::VarError::NotUnicode(value)) => Err(Error::BadSelector { name: DEVICE_VARIABLE, value }),
        }
    }

    /// Finds the device in a list.
    ///
    /// # Errors
    /// [`Error::NoMatch`], with the list.
    pub fn choose<'a>(&self, devices: &'a [DeviceInfo]) -> Result<&'a DeviceInfo> {
        let fits = |device: &&DeviceInfo| match self {
            Self::Best => true,
            Self::Index(index) => device.index == *index,
            Self::Name(part) => device.name.to_lowercase().contains(&part.to_lowercase()),
            Self::Uuid(uuid) => device.uuid == *uuid,
        };
        let best = devices.iter().filter(fits).min_by_key(|device| (device.device_type, device.index));
        best.ok_or_else(|| Error::NoMatch { selector: self.clone(), devices: devices.to_vec() })
    }
}

impl FromStr for Selector {
    type Err = Infallible;

    /// Digits are an index, 32 hexadecimal digits (dashes don't count) a UUID, anything else a part of a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::Best);
        }
        if let Some(uuid) = parse_uuid(text) {
            return Ok(Self::Uuid(uuid));
        }
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Index))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => write!(f, "the default choice"),
            Self::Index(index) => write!(f, "index {index}"),
            Self::Name(part) => write!(f, "a name with {part:?} in it"),
            Self::Uuid(uuid) => write!(f, "UUID {}", format_uuid(uuid)),
        }
    }
}

/// A UUID in its usual form, 8-4-4-4-12 hexadecimal digits.
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Option<Vec<u8>> =
        text.chars().filter(|&c| c != '-').map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() == 32)?;
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::info::{DeviceType, sample as device};

    fn chosen(text: &str, devices: &[DeviceInfo]) -> Option<usize> {
        let selector: Selector = text.parse().unwrap_or_default();
        selector.choose(devices).ok().map(|device| device.index)
    }

    #[test]
    fn chooses_as_documented() {
        let devices = [
            device(0, "llvmpipe (LLVM 15.0.6, 256 bits)", DeviceType::Cpu),
            device(1, "Virtio-GPU", DeviceType::Virtual),
            device(2, "NVIDIA H200", DeviceType::Discrete),
            device(3, "NVIDIA H200", DeviceType::Discrete),
            device(4, "Intel UHD", DeviceType::Integrated),
        ];
        assert_eq!(chosen("", &devices), Some(2));
        assert_eq!(chosen("3", &devices), Some(3));
        assert_eq!(chosen("h200", &devices), Some(2));
        assert_eq!(chosen("LLVMPIPE", &devices), Some(0));
        assert_eq!(chosen("04040404-0404-0404-0404-040404040404", &devices), Some(4));
        assert_eq!(chosen("7", &devices), None);
        assert_eq!(chosen("", &[devices[0].clone(), devices[4].clone(), devices[1].clone()]), Some(4));
    }

    #[test]
    fn error_lists_what_exists() {
        let error = Selector::Name("radeon".into()).choose(&[device(0, "llvmpipe", DeviceType::Cpu)]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("\"radeon\"") && text.contains("0: llvmpipe (cpu, driver 1.0)"), "{text}");
    }

    #[test]
    fn uuids_go_there_and_back() {
        let uuid = [0xab; 16];
        assert_eq!(format_uuid(&uuid).parse(), Ok(Selector::Uuid(uuid)));
    }
}
