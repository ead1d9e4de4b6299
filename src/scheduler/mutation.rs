//! Faults that tests plant, so that a test that can't fail shows itself.

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
    /// Neither acquire nor release, and plain accesses where the other side writes.
    NoOrdering,
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
}
