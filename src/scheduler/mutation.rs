//! What a kernel can be built with: its fences, and faults that tests plant.

/// Whether a kernel orders its accesses to buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fences {
    /// By the Vulkan memory model.
    #[default]
    Full,
    /// Not at all: for drivers on the CPU whose memory barriers, and accesses that imply them, wait for the whole workgroup
    /// as control barriers do. Right there in epochs alone, where the host changes nothing while a kernel runs and the CPU
    /// keeps what its cores share coherent.
    None,
}

/// A known fault of other schedulers (or a missing fence), planted into a kernel.
///
/// Every builder of this module takes an `Option<Mutation>`; what ships is built with `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Every task counts as NORMAL, whatever its slot says.
    IgnoreLevel,
    /// Each lane probes one slot of a level, however many the level has.
    OneProbe,
    /// Probes that run past the end of a level start again at its front.
    WrapProbes,
    /// A slot is schedulable whenever something was ever published in it.
    NoGeneration,
    /// Built-ins take their index as it comes.
    UncheckedIndex,
    /// Every idle pass counts itself with a read-modify-write.
    IdleAtomics,
    /// The kernel leaves as soon as it finds nothing to do.
    LeaveAtOnce,
    /// A slot counts as taken before its payload has been copied.
    TakenEarly,
    /// Levels count as passed over whether they have work or not, and one that is due shuts all others out.
    GuardShutsOut,
    /// A claim at LOW or IDLE counts for both of them.
    GuardAsClass,
    /// A task's tenant is not checked: any is let in.
    AnyTenant,
    /// Blocked tenants' tasks run all the same.
    IgnoreMask,
    /// A task whose tenant is blocked stays claimed, and nobody comes back to it.
    ParkForgets,
    /// Fast policy: a poller that goes leaves its place taken.
    PlaceKept,
    /// Fast policy: a worker reads what it claimed without an acquire.
    TicketUnacquired,
    /// Fast policy: a worker claims as many tasks as it likes, whether they are there or not.
    RangeOverrun,
    /// Fast policy: a doorbell that is behind counts as far ahead.
    DoorbellUnsigned,
}
