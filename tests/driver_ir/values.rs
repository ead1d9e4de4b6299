//! Arithmetic, truth values, inputs and control flow.

use abide::ir::{Access, BinaryOp, Builder, Input, UnaryOp, Value};

use crate::compute::{Gpu, Job};
use crate::{EDGES, bit, emit, global_index, run, run_on};

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
