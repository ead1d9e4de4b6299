//! Every kind of node computes what it says, on the driver at hand.

#[path = "common/compute.rs"]
mod compute;

use abide::ir::{
    Access, AtomicOp, BinaryOp, Builder, Input, MemoryClasses, Module, Order, Place, Scope, SubgroupOp, UnaryOp, Value,
};
use abide::protocol::{completion, task};
use ash::vk::SubgroupFeatureFlags;
use compute::{Gpu, Job, Outcome};

const ACCESSES: [Access; 3] = [Access::Private, Access::Coherent, Access::Volatile];
const EDGES: [u32; 9] = [0, 1, 2, 31, 32, 0x1234_5678, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// Runs a kernel, or gives none on a machine without Vulkan.
fn run(module: &Module, job: &Job) -> Option<Outcome> {
    Some(run_on(&Gpu::open()?, module, job))
}

fn run_on(gpu: &Gpu, module: &Module, job: &Job) -> Outcome {
    let lowered = abide::spirv::lower(module).unwrap_or_else(|error| panic!("{}: {error}", module.name));
    gpu.run(&lowered.words, job)
}

/// The invocation's index in the launch.
fn global_index(b: &mut Builder) -> Value {
    let (group, width, local) =
        (b.input(Input::WorkgroupIndex), b.input(Input::WorkgroupSize), b.input(Input::LocalIndex));
    let first = b.mul(group, width);
    b.add(first, local)
}

/// 1 for true, 0 for false.
fn bit(b: &mut Builder, truth: Value) -> Value {
    b.select(truth, 1u32, 0u32)
}

/// Stores values one after the other, from `first` on, in a buffer.
fn emit(b: &mut Builder, out: abide::ir::Buffer, first: Value, values: &[Value]) {
    for (offset, &value) in (0u32..).zip(values) {
        let index = b.add(first, offset);
        let place = b.at(out, index);
        b.store(place, value);
    }
}

#[test]
fn arithmetic_on_edge_values() {
    use BinaryOp::*;
    const OPS: [BinaryOp; 18] = [Add, Sub, Mul, Div, Rem, And, Or, Xor, Shl, Shr, Min, Max, Eq, Ne, Lt, Le, Gt, Ge];
    let model = |op, l: u32, r: u32| match op {
        Add => l.wrapping_add(r),
        Sub => l.wrapping_sub(r),
        Mul => l.wrapping_mul(r),
        Div => l / r.max(1),
        Rem => l % r.max(1),
        And => l & r,
        Or => l | r,
        Xor => l ^ r,
        Shl => l << (r & 31),
        Shr => l >> (r & 31),
        Min => l.min(r),
        Max => l.max(r),
        Eq => u32::from(l == r),
        Ne => u32::from(l != r),
        Lt => u32::from(l < r),
        Le => u32::from(l <= r),
        Gt => u32::from(l > r),
        Ge => u32::from(l >= r),
    };
    let pairs: Vec<(u32, u32)> = EDGES.iter().flat_map(|&l| EDGES.map(|r| (l, r))).collect();
    let mut b = Builder::new("arithmetic", 0);
    let (input, out) = (b.buffer("input", 0, Access::Private), b.buffer("out", 1, Access::Private));
    let index = global_index(&mut b);
    let pair = b.mul(index, 2u32);
    let place = b.at(input, pair);
    let left = b.load(place);
    let second = b.add(pair, 1u32);
    let place = b.at(input, second);
    let right = b.load(place);
    let results: Vec<Value> = OPS
        .iter()
        .map(|&op| {
            let right = match op {
                Div | Rem => b.max(right, 1u32),
                Shl | Shr => b.and(right, 31u32),
                _ => right,
            };
            let result = b.binary(op, left, right);
            if matches!(op, Eq | Ne | Lt | Le | Gt | Ge) { bit(&mut b, result) } else { result }
        })
        .collect();
    let first = b.mul(index, OPS.len() as u32);
    emit(&mut b, out, first, &results);
    let job = Job {
        buffers: vec![pairs.iter().flat_map(|&(l, r)| [l, r]).collect(), vec![0; pairs.len() * OPS.len()]],
        width: EDGES.len() as u32,
        groups: EDGES.len() as u32,
        ..Job::default()
    };
    let Some(outcome) = run(&b.finish(), &job) else { return };
    for (results, (l, r)) in outcome.buffers[1].chunks(OPS.len()).zip(pairs) {
        for (&result, op) in results.iter().zip(OPS) {
            assert_eq!(result, model(op, l, r), "{op:?} of {l:#x} and {r:#x}");
        }
    }
}

#[test]
fn unary_operations_and_truth_values() {
    let mut b = Builder::new("unary", 0);
    let (input, out) = (b.buffer("input", 0, Access::Private), b.buffer("out", 1, Access::Private));
    let index = global_index(&mut b);
    let place = b.at(input, index);
    let word = b.load(place);
    let mut results = [UnaryOp::Not, UnaryOp::FindLsb, UnaryOp::CountOnes].map(|op| b.unary(op, word)).to_vec();
    let (odd, large) = (b.and(word, 1u32), b.gt(word, 31u32));
    let odd = b.eq(odd, 1u32);
    for op in [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor, BinaryOp::Eq, BinaryOp::Ne] {
        let truth = b.binary(op, odd, large);
        results.push(bit(&mut b, truth));
    }
    let even = b.unary(UnaryOp::Not, odd);
    results.push(bit(&mut b, even));
    let (one, two) = (b.compose([1.into(), 2.into(), 3.into(), word.into()]), b.compose([4.into(); 4]));
    let chosen = b.select(odd, one, two);
    for index in 0..4 {
        results.push(b.extract(chosen, index));
    }
    let truth = b.select(large, odd, true);
    results.push(bit(&mut b, truth));
    let (flag, wide) = (b.var(even), b.var(chosen));
    b.when(large, |b| b.set(flag, true));
    b.when(odd, |b| b.set(wide, two));
    let (flag, wide) = (b.get(flag), b.get(wide));
    results.push(bit(&mut b, flag));
    results.push(b.extract(wide, 2));
    let count = results.len();
    let first = b.mul(index, count as u32);
    emit(&mut b, out, first, &results);
    let job = Job {
        buffers: vec![EDGES.to_vec(), vec![0; EDGES.len() * count]],
        width: EDGES.len() as u32,
        groups: 1,
        ..Job::default()
    };
    let Some(outcome) = run(&b.finish(), &job) else { return };
    for (results, word) in outcome.buffers[1].chunks(count).zip(EDGES) {
        let (odd, large) = (word % 2 == 1, word > 31);
        let lsb = if word == 0 { u32::MAX } else { word.trailing_zeros() };
        let truths = [odd && large, odd || large, odd != large, odd == large, odd != large, !odd];
        let mut expected = vec![!word, lsb, word.count_ones()];
        expected.extend(truths.map(u32::from));
        expected.extend(if odd { [1, 2, 3, word] } else { [4; 4] });
        expected.push(u32::from(if large { odd } else { true }));
        expected.push(u32::from(!odd || large));
        expected.push(4);
        assert_eq!(results, expected, "of {word:#x}");
    }
}

#[test]
fn inputs_and_parameters() {
    let Some(gpu) = Gpu::open() else { return };
    let (width, groups) = (48u32, 3u32);
    let mut b = Builder::new("inputs", 32);
    let out = b.buffer("out", 0, Access::Private);
    let index = global_index(&mut b);
    let inputs = [
        Input::LocalIndex,
        Input::WorkgroupSize,
        Input::WorkgroupIndex,
        Input::WorkgroupCount,
        Input::Param(0),
        Input::Param(31),
        Input::SubgroupLane,
        Input::SubgroupSize,
    ];
    let values = inputs.map(|input| b.input(input));
    let first = b.mul(index, 8u32);
    emit(&mut b, out, first, &values);
    let params: Vec<u32> = (100..132).collect();
    let job = Job { buffers: vec![vec![0; (width * groups * 8) as usize]], params, width, groups, ..Job::default() };
    let outcome = run_on(&gpu, &b.finish(), &job);
    for (index, words) in (0..).zip(outcome.buffers[0].chunks(8)) {
        assert_eq!(words[..6], [index % width, width, index / width, groups, 100, 131]);
        assert_eq!(words[7], gpu.subgroup_size());
        assert!(words[6] < words[7], "lane {} of {}", words[6], words[7]);
    }
}

#[test]
fn loops_breaks_and_continues() {
    let mut b = Builder::new("loops", 0);
    let out = b.buffer("out", 0, Access::Private);
    let index = global_index(&mut b);
    // Steps of the Collatz sequence from index + 1.
    let (number, steps) = (b.add(index, 1u32), b.var(0u32));
    let number = b.var(number);
    b.repeat(|b| {
        let now = b.get(number);
        let done = b.eq(now, 1u32);
        b.break_if(done);
        let (half, odd) = (b.shr(now, 1u32), b.and(now, 1u32));
        let odd = b.eq(odd, 1u32);
        let triple = b.mul(now, 3u32);
        let triple = b.add(triple, 1u32);
        b.branch(odd, |b| b.set(number, triple), |b| b.set(number, half));
        let taken = b.get(steps);
        let taken = b.add(taken, 1u32);
        b.set(steps, taken);
    });
    // Pairs (outer, inner) with an odd sum, where the inner loop is cut at the outer index and the outer one at 7.
    let pairs = b.var(0u32);
    b.count(index, |b, outer| {
        let late = b.gt(outer, 7u32);
        b.break_if(late);
        b.count(index, |b, inner| {
            let cut = b.gt(inner, outer);
            let sum = b.add(outer, inner);
            let odd = b.and(sum, 1u32);
            let even = b.eq(odd, 0u32);
            b.branch(cut, Builder::break_, |b| b.when(even, Builder::continue_));
            let counted = b.get(pairs);
            let counted = b.add(counted, 1u32);
            b.set(pairs, counted);
        });
    });
    // A bound is read once: the variable it came from may change.
    let (limit, turns) = (b.var(index), b.var(0u32));
    let bound = b.get(limit);
    b.count(bound, |b, _| {
        b.set(limit, 0u32);
        let turned = b.get(turns);
        let turned = b.add(turned, 1u32);
        b.set(turns, turned);
    });
    // Loops that never come round again.
    let once = b.var(0u32);
    b.repeat(|b| {
        b.count(3u32, |b, turn| {
            b.set(once, turn);
            b.break_();
        });
        let odd = b.and(index, 1u32);
        let odd = b.eq(odd, 1u32);
        b.branch(
            odd,
            |b| {
                b.set(once, 5u32);
                b.break_();
            },
            |b| {
                b.set(once, 6u32);
                b.break_();
            },
        );
    });
    let results = [steps, pairs, turns, once].map(|var| b.get(var));
    let first = b.mul(index, 4u32);
    emit(&mut b, out, first, &results);
    let (width, groups) = (16, 2);
    let job = Job { buffers: vec![vec![9; 128]], width, groups, ..Job::default() };
    let Some(outcome) = run(&b.finish(), &job) else { return };
    for (index, results) in (0u32..).zip(outcome.buffers[0].chunks(4)) {
        let (mut number, mut steps) = (index + 1, 0);
        while number != 1 {
            number = if number % 2 == 1 { number * 3 + 1 } else { number / 2 };
            steps += 1;
        }
        let pairs = (0..index.min(8)).flat_map(|outer| (0..=outer).map(move |inner| outer + inner));
        let pairs = pairs.filter(|sum| sum % 2 == 1).count() as u32;
        assert_eq!(results, [steps, pairs, index, if index % 2 == 1 { 5 } else { 6 }], "of {index}");
    }
}

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

#[test]
fn atomics_of_each_operation_order_scope_and_place() {
    use AtomicOp::*;
    let Some(gpu) = Gpu::open() else { return };
    for access in ACCESSES {
        let mut b = Builder::new("atomics", 2);
        let (out, words) = (b.buffer("out", 0, Access::Private), b.buffer("words", 1, access));
        let shared = b.shared("shared", 1);
        let (low, high, zero) = (b.param(0), b.param(1), b.value(0u32));
        let places = [b.at(words, 5u32), b.shared_at(shared, 0u32), b.address_at(low, high, zero)];
        let (mut expected, mut at) = (Vec::new(), 0u32);
        for place in places {
            b.store(place, 1000u32);
            let mut now = 1000u32;
            for scope in [Scope::Workgroup, Scope::Device] {
                for order in [Order::Relaxed, Order::Acquire, Order::Release, Order::AcquireRelease] {
                    for (op, value) in [
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
                    ] {
                        let legal = match op {
                            Load => matches!(order, Order::Relaxed | Order::Acquire),
                            Store => matches!(order, Order::Relaxed | Order::Release),
                            _ => true,
                        };
                        if !legal {
                            continue;
                        }
                        let (after, before) = atomic_model(op, now, value, 0xf0);
                        let result = match op {
                            Load => Some(b.atomic_load(place, scope, order)),
                            Store => {
                                b.atomic_store(place, value, scope, order);
                                None
                            }
                            CompareExchange => Some(b.compare_exchange(place, 0xf0u32, value, scope, order)),
                            _ => Some(b.atomic(op, place, value, scope, order)),
                        };
                        now = after;
                        let seen = b.load(place);
                        for (value, want) in result.map(|r| (r, before)).into_iter().chain([(seen, after)]) {
                            let target = b.at(out, at);
                            b.store(target, value);
                            expected.push(want);
                            at += 1;
                        }
                    }
                }
            }
        }
        let job = Job {
            buffers: vec![vec![0; expected.len()], vec![0; 8]],
            addressed: vec![0; 4],
            params: vec![0; 2],
            width: 1,
            groups: 1,
        };
        let outcome = run_on(&gpu, &b.finish(), &job);
        assert_eq!(outcome.buffers[0], expected, "{access:?}");
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
    let place = b.address_at(low, high, zero);
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

#[test]
fn workgroup_memory_between_barriers() {
    let (width, groups) = (64u32, 4u32);
    let mut b = Builder::new("reverse", 0);
    let out = b.buffer("out", 0, Access::Private);
    let (array, sum) = (b.shared("array", width), b.shared("sum", 2));
    let (local, index) = (b.input(Input::LocalIndex), global_index(&mut b));
    let mine = b.shared_at(array, local);
    let square = b.mul(index, index);
    b.store(mine, square);
    let total = b.shared_at(sum, 1u32);
    let leader = b.eq(local, 0u32);
    b.when(leader, |b| b.store(total, 0u32));
    b.control_barrier(MemoryClasses::SHARED);
    let last = b.value(width - 1);
    let other = b.sub(last, local);
    let theirs = b.shared_at(array, other);
    let reversed = b.load(theirs);
    b.atomic(AtomicOp::Add, total, local, Scope::Workgroup, Order::Relaxed);
    b.control_barrier(MemoryClasses::ALL);
    let total = b.load(total);
    let both = b.add(reversed, total);
    let place = b.at(out, index);
    b.store(place, both);
    let job = Job { buffers: vec![vec![0; (width * groups) as usize]], width, groups, ..Job::default() };
    let Some(outcome) = run(&b.finish(), &job) else { return };
    let total = width * (width - 1) / 2;
    let expected: Vec<u32> = (0..width * groups)
        .map(|index| {
            let other = index / width * width + (width - 1 - index % width);
            other * other + total
        })
        .collect();
    assert_eq!(outcome.buffers[0], expected);
}

#[test]
fn what_is_released_is_acquired_across_workgroups() {
    let (width, groups) = (16u32, 32u32);
    let all = width * groups;
    let Some(gpu) = Gpu::open() else { return };
    for fences in [false, true] {
        let mut b = Builder::new("last", 0);
        let (out, parts) = (b.buffer("out", 0, Access::Private), b.buffer("parts", 1, Access::Private));
        let count = b.buffer("count", 2, Access::Coherent);
        let last = b.shared("last", 1);
        let (local, index) = (b.input(Input::LocalIndex), global_index(&mut b));
        let part = b.at(parts, index);
        let value = b.mul(index, 3u32);
        b.store(part, value);
        b.control_barrier(MemoryClasses::ALL);
        let leader = b.eq(local, 0u32);
        let flag = b.shared_at(last, 0u32);
        b.when(leader, |b| {
            let place = b.at(count, 0u32);
            let arrived = if fences {
                b.memory_barrier(Scope::Device, Order::Release, MemoryClasses::BUFFERS);
                let arrived = b.atomic(AtomicOp::Add, place, 1u32, Scope::Device, Order::Relaxed);
                b.memory_barrier(Scope::Device, Order::Acquire, MemoryClasses::BUFFERS);
                arrived
            } else {
                b.atomic(AtomicOp::Add, place, 1u32, Scope::Device, Order::AcquireRelease)
            };
            b.store(flag, arrived);
        });
        b.control_barrier(MemoryClasses::ALL);
        let arrived = b.load(flag);
        let groups_value = b.input(Input::WorkgroupCount);
        let before_last = b.sub(groups_value, 1u32);
        let is_last = b.eq(arrived, before_last);
        b.when(is_last, |b| {
            // The workgroup that arrived last sums every part, each lane its own columns.
            let sum = b.var(0u32);
            b.count(groups, |b, group| {
                let at = b.mul(group, width);
                let at = b.add(at, local);
                let place = b.at(parts, at);
                let part = b.load(place);
                let so_far = b.get(sum);
                let so_far = b.add(so_far, part);
                b.set(sum, so_far);
            });
            let place = b.at(out, local);
            let sum = b.get(sum);
            b.store(place, sum);
        });
        let job = Job {
            buffers: vec![vec![0; width as usize], vec![0; all as usize], vec![0]],
            width,
            groups,
            ..Job::default()
        };
        let outcome = run_on(&gpu, &b.finish(), &job);
        let expected: Vec<u32> =
            (0..width).map(|local| (0..groups).map(|group| (group * width + local) * 3).sum()).collect();
        assert_eq!(outcome.buffers[0], expected, "fences: {fences}");
    }
}

#[test]
fn subgroups_agree_with_a_model_of_their_lanes() {
    let Some(gpu) = Gpu::open() else { return };
    let size = gpu.subgroup_size();
    // Two whole subgroups and half of one.
    let width = size * 2 + size / 2;
    let shuffles = gpu.has(SubgroupFeatureFlags::SHUFFLE);
    let mut b = Builder::new("subgroup", 0);
    let out = b.buffer("out", 0, Access::Private);
    let (local, lane) = (b.input(Input::LocalIndex), b.input(Input::SubgroupLane));
    let (third, zero) = (b.rem(local, 3u32), b.value(0u32));
    let (chosen, low) = (b.eq(third, 1u32), b.lt(local, size));
    let mut results = vec![lane];
    for op in [SubgroupOp::Any(low), SubgroupOp::All(low), SubgroupOp::Any(chosen), SubgroupOp::All(chosen)] {
        let truth = b.subgroup(op);
        results.push(bit(&mut b, truth));
    }
    let elected = b.subgroup(SubgroupOp::Elect);
    results.push(bit(&mut b, elected));
    results.push(b.subgroup(SubgroupOp::Add(local)));
    results.push(b.subgroup(SubgroupOp::BroadcastFirst(local)));
    let quad = b.compose([local.into(), 1.into(), 2.into(), third.into()]);
    let first_quad = b.subgroup(SubgroupOp::BroadcastFirst(quad));
    results.push(b.extract(first_quad, 3));
    let ballot = b.subgroup(SubgroupOp::Ballot(chosen));
    results.extend([0, 1, 2, 3].map(|word| b.extract(ballot, word)));
    // Only the chosen lanes take part here.
    let (count, first) = (b.var(0u32), b.var(0u32));
    b.when(chosen, |b| {
        let one = b.value(1u32);
        let active = b.subgroup(SubgroupOp::Add(one));
        b.set(count, active);
        let elected = b.subgroup(SubgroupOp::Elect);
        let elected = bit(b, elected);
        b.set(first, elected);
    });
    results.extend([count, first].map(|var| b.get(var)));
    if shuffles {
        let from = b.xor(lane, 1u32);
        results.push(b.subgroup(SubgroupOp::Shuffle(local, from)));
        let shuffled = b.subgroup(SubgroupOp::Shuffle(quad, zero));
        results.push(b.extract(shuffled, 0));
    } else {
        eprintln!("SKIPPED: this driver shuffles nothing");
    }
    let columns = results.len();
    let at = b.mul(local, columns as u32);
    emit(&mut b, out, at, &results);
    let job = Job { buffers: vec![vec![0; columns * width as usize]], width, groups: 1, ..Job::default() };
    let outcome = run_on(&gpu, &b.finish(), &job);
    for (local, results) in (0u32..).zip(outcome.buffers[0].chunks(columns)) {
        let lanes = local / size * size..(local / size * size + size).min(width);
        let (start, lane) = (lanes.start, local % size);
        let chosen: Vec<u32> = lanes.clone().filter(|lane| lane % 3 == 1).collect();
        let ballot = chosen.iter().fold(0u128, |bits, lane| bits | 1 << (lane - start));
        let mine = local % 3 == 1;
        let mut expected = vec![
            lane,
            u32::from(lanes.clone().any(|lane| lane < size)),
            u32::from(lanes.clone().all(|lane| lane < size)),
            u32::from(!chosen.is_empty()),
            u32::from(chosen.len() == lanes.len()),
            u32::from(lane == 0),
            lanes.clone().sum(),
            start,
            start % 3,
        ];
        expected.extend([0, 32, 64, 96].map(|shift| (ballot >> shift) as u32));
        expected.push(if mine { chosen.len() as u32 } else { 0 });
        expected.push(u32::from(mine && chosen[0] == local));
        if shuffles {
            expected.extend([local ^ 1, start]);
        }
        assert_eq!(results, expected, "invocation {local} of {width}, subgroups of {size}");
    }
}

/// Moves words and quads through a place and back; `at` points at a word.
fn mix(b: &mut Builder, out: abide::ir::Buffer, mut at: impl FnMut(&mut Builder, u32) -> Place) {
    for offset in 0..4u32 {
        let place = at(b, 8 + offset);
        b.store(place, 100 + offset);
    }
    let place = at(b, 8);
    let quad = b.load4(place);
    let words = [3, 2, 1, 0].map(|index| b.extract(quad, index));
    let reversed = b.compose(words.map(Into::into));
    let place = at(b, 4);
    b.store4(place, reversed);
    let place = at(b, 5);
    let word = b.load(place);
    let place = at(b, 0);
    b.store(place, word);
    let zero = b.value(0u32);
    emit(b, out, zero, &words);
}

#[test]
fn words_and_quads_of_one_buffer_are_the_same_memory() {
    let Some(gpu) = Gpu::open() else { return };
    for access in ACCESSES {
        let mut b = Builder::new("quads", 0);
        let (out, words) = (b.buffer("out", 0, Access::Private), b.buffer("words", 1, access));
        mix(&mut b, out, |b, index| b.at(words, index));
        let job = Job { buffers: vec![vec![0; 4], vec![0; 12]], width: 1, groups: 1, ..Job::default() };
        let outcome = run_on(&gpu, &b.finish(), &job);
        assert_eq!(outcome.buffers[0], [103, 102, 101, 100], "{access:?}");
        assert_eq!(outcome.buffers[1], [102, 0, 0, 0, 103, 102, 101, 100, 100, 101, 102, 103], "{access:?}");
    }
}

#[test]
fn words_and_quads_behind_an_address() {
    let mut b = Builder::new("addresses", 2);
    let out = b.buffer("out", 0, Access::Private);
    let (low, high) = (b.param(0), b.param(1));
    mix(&mut b, out, |b, index| {
        let index = b.value(index);
        b.address_at(low, high, index)
    });
    let job = Job { buffers: vec![vec![0; 4]], addressed: vec![0; 12], params: vec![0; 2], width: 1, groups: 1 };
    let Some(outcome) = run(&b.finish(), &job) else { return };
    assert_eq!(outcome.buffers[0], [103, 102, 101, 100]);
    assert_eq!(outcome.addressed, [102, 0, 0, 0, 103, 102, 101, 100, 100, 101, 102, 103]);
}

#[test]
fn a_call_without_handlers_is_a_fault() {
    let (width, marked) = (8u32, 0xabcd_u32);
    let mut b = Builder::new("calls", 0);
    let out = b.buffer("out", 0, Access::Private);
    let words = b.task("task", task::WORDS);
    let local = b.input(Input::LocalIndex);
    let leader = b.eq(local, 0u32);
    b.when(leader, |b| {
        b.count(task::WORDS, |b, index| {
            let place = b.shared_at(words, index);
            b.store(place, marked);
        });
    });
    b.control_barrier(MemoryClasses::SHARED);
    b.call_handler(17u32);
    b.control_barrier(MemoryClasses::SHARED);
    b.when(leader, |b| {
        b.count(task::WORDS, |b, index| {
            let place = b.shared_at(words, index);
            let word = b.load(place);
            let place = b.at(out, index);
            b.store(place, word);
        });
    });
    let job = Job { buffers: vec![vec![0; task::WORDS as usize]], width, groups: 1, ..Job::default() };
    let Some(outcome) = run(&b.finish(), &job) else { return };
    for (index, word) in (0..).zip(&outcome.buffers[0]) {
        let expected = if index == task::FAULT { completion::fault::NO_HANDLER } else { marked };
        assert_eq!(*word, expected, "word {index}");
    }
}
