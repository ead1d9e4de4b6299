//! Subgroup operations against a model of their lanes.

use abide::ir::{Access, Builder, Input, SubgroupOp};
use ash::vk::SubgroupFeatureFlags;

use crate::compute::{Gpu, Job};
use crate::{bit, emit, run_on};

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
