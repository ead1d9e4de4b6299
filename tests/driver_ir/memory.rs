//! Workgroup memory, ordering across workgroups, words and quads, addresses, and calls without handlers.

use abide::ir::{Access, AtomicOp, Buffer, Builder, Input, MemoryClasses, Order, Place, Scope};
use abide::protocol::{completion, task};

use crate::compute::{Gpu, Job};
use crate::{ACCESSES, emit, global_index, run, run_on};

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

/// Moves words and quads through a place and back; `at` points at a word.
fn mix(b: &mut Builder, out: Buffer, mut at: impl FnMut(&mut Builder, u32) -> Place) {
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
        b.address_at(low, high, index, Access::Coherent)
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
