//! Launch parameters: the kernel's push constants, the same for all workers of a launch.

/// Number of the launch; counts on from 1.
pub const LAUNCH: u32 = 0;
/// Passes after which a worker leaves, or 0 for no bound.
pub const BUDGET: u32 = 1;
/// Passes without a claim after which a worker leaves, or 0 for never.
pub const IDLE_LIMIT: u32 = 2;
/// Slots of the ring.
pub const SLOTS: u32 = 3;
/// Binding tables of the inlet.
pub const TABLES: u32 = 4;
/// Entries of the completion queue: a power of two.
pub const ENTRIES: u32 = 5;
/// Device address of the state buffer, low word.
pub const STATE_LOW: u32 = 6;
/// Device address of the state buffer, high word.
pub const STATE_HIGH: u32 = 7;
/// Iterations of the canary loop that runs after each handler: 0 where loops are not cut short.
pub const CANARY: u32 = 8;
/// How the scan goes over the ring: 0 for all of it in each pass; a power of two for the levels' heads in each pass and one
/// round of the rest in each so many passes.
pub const SWEEP: u32 = 9;
/// Scan: looks at the levels' heads alone that a worker of one subgroup takes between two passes; 0 for none. Fast policy:
/// looks of the poller between two at what else there is.
pub const LOOKS: u32 = 10;
/// Claims since the state buffer was cleared, modulo 2^32, after which a worker that finds nothing ends the launch: all that
/// was published before it. 0 for none.
pub const TARGET: u32 = 11;
/// Tenants that can be registered, tenant 0 included: 1 where there is no other.
pub const TENANTS: u32 = 12;
/// Entries of each tenant's queue: a power of two.
pub const CREDITS: u32 = 13;
/// Fast policy: the least and the most tasks that a worker claims at once, where so many are there.
pub const RANGE_LEAST: u32 = 14;
/// See [`RANGE_LEAST`].
pub const RANGE_MOST: u32 = 15;
/// Words of the parameters.
pub const WORDS: u32 = 16;

const _: () = assert!(WORDS * 4 <= 128, "Vulkan promises 128 bytes of push constants");
