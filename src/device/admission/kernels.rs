//! The admission test's kernels, as IR. Every loop has a bound that is given at launch.

use crate::ir::{Access, AtomicOp, Builder, Input, Module, Order, Scope};

/// The most invocations of a workgroup, the first of which does the work. A workgroup is never more than one subgroup:
/// see [`crate::device::Quirk::MemoryBarriersWait`].
pub(super) const WIDTH: u32 = 32;

/// Words of [`ping`]: what the host writes, what the kernel writes, and its launch parameters.
pub(super) mod ping {
    /// Inlet: the number of the request.
    pub const REQUEST: usize = 0;
    /// Outlet: 1 as soon as the kernel runs, written by an atomic exchange.
    pub const RUNNING: usize = 0;
    /// Outlet: counts up while the kernel polls.
    pub const BEAT: usize = 1;
    /// Outlet: number of the last request seen, written by a volatile store as soon as it was.
    pub const REPLY: usize = 2;
    /// Outlet: polls in all, written at the end.
    pub const POLLS: usize = 3;
    /// Outlet: how often a poll saw another request than the one before, written at the end.
    pub const CHANGES: usize = 4;
    /// Words of either buffer.
    pub const WORDS: usize = 16;
    /// Request after which the kernel leaves.
    pub const STOP: u32 = u32::MAX;
    /// Parameter: the most polls.
    pub const BUDGET: u32 = 0;
    /// Parameter: the kernel beats where this masks no bit of the poll's number.
    pub const BEAT_MASK: u32 = 1;
    /// Words of parameters.
    pub const PARAMS: u32 = 2;
}

/// Polls the request word and replies to each new value.
pub(super) fn ping() -> Module {
    let mut b = Builder::new("admission_ping", ping::PARAMS);
    let inlet = b.buffer("inlet", 0, Access::Volatile);
    let outlet = b.buffer("outlet", 1, Access::Volatile);
    let first = leader(&mut b);
    b.when(first, |b| {
        let (budget, mask) = (b.param(ping::BUDGET), b.param(ping::BEAT_MASK));
        let request = b.at(inlet, ping::REQUEST as u32);
        let before = b.load(request);
        let (seen, changes, polls) = (b.var(before), b.var(0_u32), b.var(0_u32));
        let running = b.at(outlet, ping::RUNNING as u32);
        // Relaxed: the host takes no other word on this one's word.
        b.atomic(AtomicOp::Exchange, running, 1_u32, Scope::Device, Order::Relaxed);
        b.count(budget, |b, turn| {
            let request = b.at(inlet, ping::REQUEST as u32);
            let (now, last) = (b.load(request), b.get(seen));
            let count = b.add(turn, 1_u32);
            b.set(polls, count);
            let changed = b.ne(now, last);
            b.when(changed, |b| {
                b.set(seen, now);
                let reply = b.at(outlet, ping::REPLY as u32);
                b.store(reply, now);
                let count = b.get(changes);
                let count = b.add(count, 1_u32);
                b.set(changes, count);
            });
            let stop = b.eq(now, ping::STOP);
            b.break_if(stop);
            let masked = b.and(turn, mask);
            let beats = b.eq(masked, 0_u32);
            b.when(beats, |b| {
                let beat = b.at(outlet, ping::BEAT as u32);
                b.store(beat, count);
            });
        });
        for (word, var) in [(ping::POLLS, polls), (ping::CHANGES, changes)] {
            let (place, value) = (b.at(outlet, word as u32), b.get(var));
            b.store(place, value);
        }
    });
    b.finish()
}

/// Words of [`turns`].
pub(super) mod turns {
    /// Outlet: turns that the loop took.
    pub const TURNS: usize = 0;
    /// Outlet: the result of the arithmetic, so that nothing can leave the loop out.
    pub const RESULT: usize = 1;
    /// Parameter: turns to take.
    pub const BOUND: u32 = 0;
    /// Words of parameters.
    pub const PARAMS: u32 = 1;
}

/// Takes a number of turns that is known at run time only, and says how many it took.
pub(super) fn turns() -> Module {
    let mut b = Builder::new("admission_turns", turns::PARAMS);
    let outlet = b.buffer("outlet", 0, Access::Volatile);
    let first = leader(&mut b);
    b.when(first, |b| {
        let bound = b.param(turns::BOUND);
        let (state, taken) = (b.var(1_u32), b.var(0_u32));
        b.count(bound, |b, _| {
            let x = b.get(state);
            let scaled = b.mul(x, 1_664_525_u32);
            let sum = b.add(scaled, 1_013_904_223_u32);
            // Breaks the closed form that a compiler could find.
            let high = b.shr(sum, 7_u32);
            let mixed = b.xor(sum, high);
            b.set(state, mixed);
            let count = b.get(taken);
            let count = b.add(count, 1_u32);
            b.set(taken, count);
        });
        for (word, var) in [(turns::TURNS, taken), (turns::RESULT, state)] {
            let (place, value) = (b.at(outlet, word as u32), b.get(var));
            b.store(place, value);
        }
    });
    b.finish()
}

/// Words of [`gather`].
pub(super) mod gather {
    /// State: workgroups that have begun.
    pub const ARRIVED: u32 = 0;
    /// State: workgroups that have begun and not left.
    pub const INSIDE: u32 = 16;
    /// State: the largest that `INSIDE` was.
    pub const MOST: u32 = 32;
    /// State: turns that a workgroup waited.
    pub const WAITED: u32 = 33;
    /// Words of the state.
    pub const WORDS: u32 = 48;
    /// Parameter: the most turns of waiting.
    pub const BUDGET: u32 = 0;
    /// Parameter: workgroups of the launch.
    pub const TOTAL: u32 = 1;
    /// Words of parameters.
    pub const PARAMS: u32 = 2;
    /// Polls in a turn: several, so that loops that are cut off wait long enough too.
    pub const POLLS: u32 = 8;
}

/// Each workgroup counts itself in and waits, within bounds, until all are in.
pub(super) fn gather() -> Module {
    let mut b = Builder::new("admission_gather", gather::PARAMS);
    let state = b.buffer("state", 0, Access::Volatile);
    let first = leader(&mut b);
    b.when(first, |b| {
        let (budget, total) = (b.param(gather::BUDGET), b.param(gather::TOTAL));
        // Relaxed throughout: each word is counted for itself, and the host reads them after the launch.
        let (device, relaxed) = (Scope::Device, Order::Relaxed);
        let inside = b.at(state, gather::INSIDE);
        let before = b.atomic(AtomicOp::Add, inside, 1_u32, device, relaxed);
        let here = b.add(before, 1_u32);
        let most = b.at(state, gather::MOST);
        b.atomic(AtomicOp::Max, most, here, device, relaxed);
        let arrived = b.at(state, gather::ARRIVED);
        b.atomic(AtomicOp::Add, arrived, 1_u32, device, relaxed);
        let waited = b.var(0_u32);
        b.count(budget, |b, turn| {
            b.set(waited, turn);
            for _ in 0..gather::POLLS {
                let arrived = b.at(state, gather::ARRIVED);
                let count = b.load(arrived);
                let all = b.ge(count, total);
                b.break_if(all);
            }
        });
        // Something has to come of the loop: see `crate::device::Quirk::IdleLoopsVanish`.
        let (place, turns) = (b.at(state, gather::WAITED), b.get(waited));
        b.store(place, turns);
        b.atomic(AtomicOp::Add, inside, u32::MAX, device, relaxed);
    });
    b.finish()
}

fn leader(b: &mut Builder) -> crate::ir::Value {
    let index = b.input(Input::LocalIndex);
    b.eq(index, 0_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_well_formed() {
        for module in [ping(), turns(), gather()] {
            assert_eq!(crate::ir::verify(&module), Ok(()), "{}", module.name);
        }
    }
}
