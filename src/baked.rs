//! Kernels that the build script lowered, so that a program that uses them lowers nothing at run time.

use crate::protocol::MAX_LEVELS;
use crate::scheduler::fast::Lanes;
use crate::spirv::Interface;

/// A kernel for one number of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baked {
    /// Priority levels.
    pub levels: u32,
    /// Where handlers attach.
    pub interface: Interface,
    /// The SPIR-V module.
    pub words: &'static [u32],
}

/// The scan kernels, from one level on.
static SCAN: [Baked; MAX_LEVELS as usize] = include!(concat!(env!("OUT_DIR"), "/scan.rs"));

/// The kernels of the fast policy, by how their lanes are dealt out.
static FAST_WIDE: [Baked; MAX_LEVELS as usize] = include!(concat!(env!("OUT_DIR"), "/fast_wide.rs"));
static FAST_FEW: [Baked; MAX_LEVELS as usize] = include!(concat!(env!("OUT_DIR"), "/fast_few.rs"));

/// The kernel of the fast policy for a number of levels; none where it is 0 or above [`MAX_LEVELS`].
pub fn fast(levels: u32, lanes: Lanes) -> Option<&'static Baked> {
    let kernels = match lanes {
        Lanes::Wide => &FAST_WIDE,
        Lanes::Few => &FAST_FEW,
    };
    kernels.get(levels.checked_sub(1)? as usize)
}

/// The scan kernel for a number of levels; none where it is 0 or above [`MAX_LEVELS`].
///
/// # Examples
/// ```
/// let baked = abide::baked::scan(5).expect("5 levels are baked");
/// assert_eq!(baked.levels, 5);
/// assert_eq!(abide::baked::scan(9), None);
/// ```
pub fn scan(levels: u32) -> Option<&'static Baked> {
    SCAN.get(levels.checked_sub(1)? as usize)
}
