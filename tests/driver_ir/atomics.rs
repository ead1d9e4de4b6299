//! Atomics: each operation alone, and all lanes at once.

use abide::ir::{Access, AtomicOp, Buffer, Builder, Order, Place, Scope, UnaryOp};

use crate::compute::{Gpu, Job};
use crate::{ACCESSES, global_index, run, run_on};

/// What an atomic leaves and gives.
fn atomic_model(op: AtomicOp, before: u32, value: u32, expected: u32) -> (u32, u32) {
    let after = match op {
        AtomicOp::Load => before,
        AtomicOp::Store | AtomicOp::Exchange => value,
        AtomicOp::Add => before.wrapping_add(value),
        AtomicOp::Min => before.min(value),
        AtomicOp::Max => before.max(value),
        AtomicOp::And => before & value,
        AtomicOp::Or => before | value,
        AtomicOp::CompareExchange => {
            if before == expected {
                value
            } else {
                before
            }
        }
    };
    (after, before)
}

/// Runs every operation in every legal order at one place, and gives what the kernel has to write into `out`.
fn sequence(b: &mut Builder, out: Buffer, place: Place, scope: Scope) -> Vec<u32> {
    use AtomicOp::*;
    const STEPS: [(AtomicOp, u32); 10] = [
        (Load, 0),
        (Store, 77),
        (Exchange, 0xffff_fff0),
        (Add, 0x25),
        (Min, 9),
        (Max, 0x8000_0000),
        (Or, 0xff),
        (And, 0xf0),
        (CompareExchange, 3),
        (CompareExchange, 4),
    ];
    let (mut expected, mut now) = (Vec::new(), 1000u32);
    b.store(place, now);
    for order in [Order::Relaxed, Order::Acquire, Order::Release, Order::AcquireRelease] {
        for (op, value) in STEPS {
            let result = match op {
                Load if matches!(order, Order::Relaxed | Order::Acquire) => Some(b.atomic_load(place, scope, order)),
                Store if matches!(order, Order::Relaxed | Order::Release) => {
                    b.atomic_store(place, value, scope, order);
                    None
                }
                Load | Store => continue,
                CompareExchange => Some(b.compare_exchange(place, 0xf0u32, value, scope, order)),
                _ => Some(b.atomic(op, place, value, scope, order)),
            };
            let (after, before) = atomic_model(op, now, value, 0xf0);
            now = after;
            let seen = b.load(place);
            for (value, want) in result.map(|result| (result, before)).into_iter().chain([(seen, after)]) {
                let target = b.at(out, expected.len() as u32);
                b.store(target, value);
                expected.push(want);
            }
        }
    }
    expected
}

/// Kinds of places that atomics reach.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Buffer(Access),
    Address,
    Shared,
}

#[test]
fn atomics_of_each_operation_order_scope_and_place() {
    let Some(gpu) = Gpu::open() else { return };
    let kinds = ACCESSES.map(Kind::Buffer).into_iter().chain([Kind::Address, Kind::Shared]);
    for (kind, scope) in kinds.flat_map(|kind| [(kind, Scope::Workgroup), (kind, Scope::Device)]) {
        let mut b = Builder::new("atomics", 2);
        let out = b.buffer("out", 0, Access::Private);
        let place = match kind {
            Kind::Buffer(access) => {
                let words = b.buffer("words", 1, access);
                b.at(words, 5u32)
            }
            Kind::Address => {
                let (low, high, zero) = (b.param(0), b.param(1), b.value(0u32));
                b.address_at(low, high, zero, Access::Coherent)
            }
            Kind::Shared => {
                let shared = b.shared("shared", 1);
                b.shared_at(shared, 0u32)
            }
        };
        let expected = sequence(&mut b, out, place, scope);
        let job = Job {
            buffers: vec![vec![0; expected.len()], vec![0; 8]],
            addressed: vec![0; 4],
            params: vec![0; 2],
            width: 1,
            groups: 1,
        };
        let outcome = run_on(&gpu, &b.finish(), &job);
        assert_eq!(outcome.buffers[0], expected, "{kind:?}, {scope:?}");
    }
}

#[test]
fn concurrent_atomics_lose_nothing() {
    let (width, groups) = (32u32, 16u32);
    let all = width * groups;
    let mut b = Builder::new("concurrent", 2);
    let (out, words) = (b.buffer("out", 0, Access::Private), b.buffer("words", 1, Access::Volatile));
    let (low, high) = (b.param(0), b.param(1));
    let index = global_index(&mut b);
    let (scope, order) = (Scope::Device, Order::AcquireRelease);
    let place = b.at(words, 0u32);
    let ticket = b.atomic(AtomicOp::Add, place, 1u32, scope, order);
    let target = b.at(out, ticket);
    b.atomic(AtomicOp::Add, target, 1u32, scope, Order::Relaxed);
    for (at, op) in [(1u32, AtomicOp::Max), (2, AtomicOp::Min)] {
        let place = b.at(words, at);
        b.atomic(op, place, index, scope, order);
    }
    let bits = b.and(index, 31u32);
    let one = b.value(1u32);
    let bits = b.shl(one, bits);
    let place = b.at(words, 3u32);
    b.atomic(AtomicOp::Or, place, bits, scope, order);
    let cleared = b.unary(UnaryOp::Not, bits);
    let place = b.at(words, 4u32);
    b.atomic(AtomicOp::And, place, cleared, scope, order);
    let zero = b.value(0u32);
    let place = b.address_at(low, high, zero, Access::Coherent);
    b.atomic(AtomicOp::Add, place, index, scope, Order::Relaxed);
    let job = Job {
        buffers: vec![vec![0; all as usize], vec![0, 0, u32::MAX, 0, u32::MAX]],
        addressed: vec![0; 4],
        params: vec![0; 2],
        width,
        groups,
    };
    let Some(outcome) = run(&b.finish(), &job) else { return };
    assert_eq!(outcome.buffers[0], vec![1; all as usize], "each ticket is given once");
    assert_eq!(outcome.buffers[1], [all, all - 1, 0, u32::MAX, 0]);
    assert_eq!(outcome.addressed[0], all * (all - 1) / 2);
}

/// Width of workgroups whose subgroups go round a loop with memory barriers differently often.
///
/// Mesa 22.3's lavapipe takes a memory barrier (that of a coherent access or an ordered atomic, too) for a wait of all
/// subgroups, and ends the workgroup when one of them has left the loop: there only workgroups of one subgroup do.
fn fenced_loop_width(gpu: &Gpu) -> u32 {
    let stock = std::env::var_os("ABIDE_TEST_DRIVER").is_some_and(|driver| driver == "mesa-stock");
    if stock { gpu.subgroup_size() } else { 32 }
}

#[test]
fn contended_compare_exchanges_lose_nothing() {
    let Some(gpu) = Gpu::open() else { return };
    let (width, groups) = (fenced_loop_width(&gpu), 16);
    let all = width * groups;
    for access in ACCESSES {
        let mut b = Builder::new("swaps", 0);
        let words = b.buffer("words", 0, access);
        let (scope, order) = (Scope::Device, Order::AcquireRelease);
        let place = b.at(words, 0u32);
        let seen = b.atomic_load(place, scope, Order::Relaxed);
        let seen = b.var(seen);
        // Bounded by the number of rivals: somebody wins every round.
        b.count(all * 4, |b, _| {
            let expected = b.get(seen);
            let next = b.add(expected, 3u32);
            let found = b.compare_exchange(place, expected, next, scope, order);
            b.set(seen, found);
            let won = b.eq(found, expected);
            b.break_if(won);
        });
        let job = Job { buffers: vec![vec![0]], width, groups, ..Job::default() };
        let outcome = run_on(&gpu, &b.finish(), &job);
        assert_eq!(outcome.buffers[0], [all * 3], "{access:?}");
    }
}
