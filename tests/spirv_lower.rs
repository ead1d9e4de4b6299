//! Each family of nodes lowers to a module that spirv-val accepts.

#[path = "common/spirv_val.rs"]
mod spirv_val;

use abide::ir::{Access, AtomicOp, BinaryOp, Builder, Input, MemoryClasses, Module, Order, Scope, SubgroupOp, UnaryOp};
use abide::protocol::task;
use abide::spirv::{Lowered, lower};

fn check(module: &Module) -> Lowered {
    let lowered = lower(module).unwrap_or_else(|error| panic!("{}: {error}", module.name));
    spirv_val::validate(&module.name, &lowered.words);
    assert_eq!(lower(module).as_ref(), Ok(&lowered), "{}: the same words again", module.name);
    lowered
}

const ACCESSES: [Access; 3] = [Access::Private, Access::Coherent, Access::Volatile];
const ORDERS: [Order; 4] = [Order::Relaxed, Order::Acquire, Order::Release, Order::AcquireRelease];
const SCOPES: [Scope; 2] = [Scope::Workgroup, Scope::Device];

#[test]
fn an_empty_kernel() {
    assert_eq!(check(&Builder::new("empty", 0).finish()).interface, None);
}

#[test]
fn values_and_inputs() {
    let mut b = Builder::new("values", 3);
    let out = b.buffer("out", 0, Access::Private);
    let mut last = b.param(2);
    for input in [
        Input::LocalIndex,
        Input::WorkgroupSize,
        Input::WorkgroupIndex,
        Input::WorkgroupCount,
        Input::SubgroupLane,
        Input::SubgroupSize,
    ] {
        let value = b.input(input);
        last = b.add(last, value);
    }
    for op in [UnaryOp::Not, UnaryOp::FindLsb, UnaryOp::CountOnes] {
        last = b.unary(op, last);
    }
    use BinaryOp::*;
    for op in [Add, Sub, Mul, Div, Rem, And, Or, Xor, Shl, Shr, Min, Max] {
        last = b.binary(op, last, 3);
    }
    let mut truth = b.value(true);
    for op in [Eq, Ne, Lt, Le, Gt, Ge] {
        let compared = b.binary(op, last, 3);
        for op in [And, Or, Xor, Eq, Ne] {
            truth = b.binary(op, truth, compared);
        }
    }
    let negated = b.unary(UnaryOp::Not, truth);
    let vector = b.compose([last.into(), 1.into(), 2.into(), 3.into()]);
    let other = b.compose([4.into(), 5.into(), 6.into(), 7.into()]);
    let chosen = b.select(negated, vector, other);
    let truth = b.select(negated, truth, false);
    let word = b.extract(chosen, 3);
    let (kept, flag, wide) = (b.var(word), b.var(truth), b.var(chosen));
    b.when(truth, |b| b.set(kept, 9));
    let (word, truth, vector) = (b.get(kept), b.get(flag), b.get(wide));
    let extracted = b.extract(vector, 0);
    let value = b.select(truth, word, extracted);
    let place = b.at(out, 0);
    b.store(place, value);
    check(&b.finish());
}

#[test]
fn plain_accesses_of_every_class() {
    for access in ACCESSES {
        let mut b = Builder::new(&format!("plain_{access:?}"), 2);
        let (from, to) = (b.buffer("from", 3, access), b.buffer("to", 1, access));
        let scratch = b.shared("scratch", 2);
        let source = b.at(from, 8);
        let (word, quad) = (b.load(source), b.load4(source));
        let target = b.at(to, word);
        b.store4(target, quad);
        let shared = b.shared_at(scratch, 1);
        b.store(shared, word);
        let word = b.load(shared);
        b.store(target, word);
        let (low, high) = (b.param(0), b.param(1));
        let at = b.address_at(low, high, 4, Access::Coherent);
        let (word, quad) = (b.load(at), b.load4(at));
        b.store(at, word);
        b.store4(at, quad);
        check(&b.finish());
    }
}

#[test]
fn atomics_of_every_class_order_and_scope() {
    for access in ACCESSES {
        let mut b = Builder::new(&format!("atomics_{access:?}"), 2);
        let buffer = b.buffer("words", 0, access);
        let shared = b.shared("shared", 4);
        let (low, high) = (b.param(0), b.param(1));
        let places = [b.at(buffer, 1), b.shared_at(shared, 2), b.address_at(low, high, 3, Access::Coherent)];
        for place in places {
            for scope in SCOPES {
                for order in ORDERS {
                    if matches!(order, Order::Relaxed | Order::Acquire) {
                        b.atomic_load(place, scope, order);
                    }
                    if matches!(order, Order::Relaxed | Order::Release) {
                        b.atomic_store(place, 7, scope, order);
                    }
                    use AtomicOp::*;
                    for op in [Exchange, Add, Min, Max, And, Or] {
                        b.atomic(op, place, 3, scope, order);
                    }
                    b.compare_exchange(place, 1, 2, scope, order);
                }
            }
        }
        check(&b.finish());
    }
}

#[test]
fn barriers_of_every_kind() {
    let mut b = Builder::new("barriers", 0);
    for classes in [MemoryClasses::BUFFERS, MemoryClasses::SHARED, MemoryClasses::ALL] {
        b.control_barrier(classes);
        for scope in SCOPES {
            for order in &ORDERS[1..] {
                b.memory_barrier(scope, *order, classes);
            }
        }
    }
    check(&b.finish());
}

#[test]
fn subgroup_operations() {
    let mut b = Builder::new("subgroup", 0);
    let out = b.buffer("out", 0, Access::Private);
    let lane = b.input(Input::SubgroupLane);
    let even = b.lt(lane, 2);
    let any = b.subgroup(SubgroupOp::Any(even));
    let all = b.subgroup(SubgroupOp::All(any));
    let ballot = b.subgroup(SubgroupOp::Ballot(all));
    let zero = b.value(0);
    let shuffled = b.subgroup(SubgroupOp::Shuffle(ballot, zero));
    let first = b.subgroup(SubgroupOp::BroadcastFirst(shuffled));
    let sum = b.subgroup(SubgroupOp::Add(lane));
    let elect = b.subgroup(SubgroupOp::Elect);
    b.when(elect, |b| {
        let place = b.at(out, 0);
        b.store4(place, first);
        let place = b.at(out, 4);
        b.store(place, sum);
    });
    check(&b.finish());
}

#[test]
fn control_flow_in_every_shape() {
    let mut b = Builder::new("flow", 1);
    let out = b.buffer("out", 0, Access::Private);
    let bound = b.param(0);
    let place = b.at(out, 0);
    b.count(bound, |b, turn| {
        let odd = b.and(turn, 1);
        let odd = b.ne(odd, 0);
        b.branch(odd, Builder::continue_, |_| {});
        b.repeat(|b| {
            b.branch(
                odd,
                |b| {
                    b.store(place, turn);
                    b.count(3, |b, _| b.break_());
                    b.break_();
                },
                Builder::continue_,
            );
        });
        b.branch(odd, |_| {}, |b| b.store(place, 5));
        b.when(odd, |_| {});
        b.break_if(odd);
    });
    b.repeat(Builder::break_);
    check(&b.finish());
}

#[test]
fn a_kernel_that_calls_handlers_says_where_they_attach() {
    let mut b = Builder::new("calls", 0);
    let words = b.task("task", task::WORDS);
    let place = b.shared_at(words, task::SLOT);
    let opcode = b.load(place);
    b.call_handler(opcode);
    let lowered = check(&b.finish());
    let interface = lowered.interface.expect("handlers are called");
    let text = spirv_val::disassemble(&lowered.words);
    assert!(text.contains(&format!("OpName %{} \"abide_dispatch\"", interface.dispatch)), "{text}");
    assert!(text.contains(&format!("OpName %{} \"task\"", interface.task)), "{text}");
    assert!(text.contains(&format!("OpName %{} \"local_index\"", interface.local_index)), "{text}");
    assert!(text.contains("OpMemoryModel PhysicalStorageBuffer64 Vulkan"), "{text}");
}
