//! Each fault that a module can have is found, and named with its place.

use abide::ir::{
    Access, Atomic, AtomicOp, AtomicOperand, BinaryOp, Block, Buffer, Builder, Fault, Input, MAX_DEPTH, MemoryClasses,
    Module, Node, Order, Place, Scope, Shared, SharedDecl, SubgroupOp, Type, Types, UnaryOp, Value, Var, VerifyError,
    verify,
};
use abide::protocol::task;

/// A kernel with one buffer, one workgroup array and one launch parameter; `build` gets a u32, a bool and a Vec4.
fn module(build: impl FnOnce(&mut Builder, [Value; 3])) -> Module {
    let mut b = Builder::new("test", 1);
    b.buffer("buffer", 0, Access::Private);
    b.shared("array", 4);
    let word = b.value(7);
    let truth = b.value(true);
    let vector = b.compose([word.into(); 4]);
    build(&mut b, [word, truth, vector]);
    b.finish()
}

/// A module whose body ends in these nodes, of which `fresh` values are new.
fn raw(fresh: &[Type], nodes: impl FnOnce([Value; 3], Value) -> Vec<Node>) -> Module {
    let mut module = module(|_, _| {});
    let next = Value(module.values.len() as u32);
    module.values.extend(fresh);
    module.body.0.extend(nodes([Value(0), Value(1), Value(2)], next));
    module
}

/// The fault of a module, with its place.
fn fault(module: &Module) -> (String, &'static str, Fault) {
    match verify(module) {
        Err(VerifyError::Node { path, node, fault }) => (path, node, fault),
        other => panic!("expected a fault of a node, got {other:?}"),
    }
}

fn expect(module: &Module, path: &str, node: &'static str, expected: Fault) {
    assert_eq!(fault(module), (path.to_owned(), node, expected));
}

const WORD: Types = Types(&[Type::U32]);
const TRUTH: Types = Types(&[Type::Bool]);
const VECTOR: Types = Types(&[Type::Vec4]);

#[test]
fn a_sound_module_passes() {
    let module = module(|b, [word, truth, vector]| {
        let kept = b.var(word);
        b.when(truth, |b| b.set(kept, 3));
        b.get(kept);
        b.extract(vector, 3);
        b.count(word, |b, index| b.set(kept, index));
    });
    assert_eq!(verify(&module), Ok(()));
}

#[test]
fn a_path_names_every_block_on_the_way() {
    let module = module(|b, [word, truth, _]| {
        b.repeat(|b| {
            b.branch(
                truth,
                |b| {
                    b.set(Var(9), word);
                },
                Builder::break_,
            );
        });
    });
    let error = verify(&module).unwrap_err();
    assert_eq!(error.to_string(), "Set at body[3].loop[0].if.then[0]: variable 9 is not declared: the module has 0");
}

#[test]
fn values_are_defined_once_before_their_use_and_inside_their_block() {
    let unknown = Fault::UnknownValue { value: Value(99), declared: 3 };
    expect(&raw(&[], |_, _| vec![Node::ConstU32(Value(99), 0)]), "body[3]", "ConstU32", unknown.clone());
    expect(&raw(&[], |_, _| vec![Node::CallHandler(Value(99))]), "body[3]", "CallHandler", unknown);
    let late = raw(&[Type::U32; 2], |_, next| {
        vec![Node::Unary(next, UnaryOp::Not, Value(next.0 + 1)), Node::ConstU32(Value(next.0 + 1), 1)]
    });
    expect(&late, "body[3]", "Unary", Fault::UsedBeforeDefinition(Value(4)));
    let own = raw(&[Type::U32], |_, next| vec![Node::Unary(next, UnaryOp::Not, next)]);
    expect(&own, "body[3]", "Unary", Fault::UsedBeforeDefinition(Value(3)));
    let twice = raw(&[], |[word, ..], _| vec![Node::ConstU32(word, 1)]);
    expect(&twice, "body[3]", "ConstU32", Fault::Redefined(Value(0)));
    let gone = module(|b, [word, truth, _]| {
        let mut inner = word;
        b.when(truth, |b| inner = b.add(word, word));
        b.add(inner, word);
    });
    expect(&gone, "body[4]", "Binary", Fault::OutOfScope(Value(3)));
    let index = module(|b, [word, ..]| {
        let mut inner = word;
        b.count(word, |_, index| inner = index);
        b.add(inner, word);
    });
    expect(&index, "body[4]", "Binary", Fault::OutOfScope(Value(3)));
    let other_arm = module(|b, [word, truth, _]| {
        let inner = std::cell::Cell::new(word);
        let kept = b.var(word);
        b.branch(truth, |b| inner.set(b.add(word, word)), |b| b.set(kept, inner.get()));
    });
    expect(&other_arm, "body[4].if.else[0]", "Set", Fault::OutOfScope(Value(3)));
}

#[test]
fn operands_have_their_types() {
    let mismatch = |value: u32, found, expected| Fault::Type { value: Value(value), found, expected };
    let either = Types(&[Type::Bool, Type::U32]);
    let shuffled = Types(&[Type::U32, Type::Vec4]);
    let place = |index| Place::Buffer { buffer: Buffer(0), index };
    let cases: Vec<(Node, &'static str, Fault)> = {
        let ([word, truth, vector], next) = ([Value(0), Value(1), Value(2)], Value(3));
        vec![
            (Node::Unary(next, UnaryOp::FindLsb, truth), "Unary", mismatch(1, Type::Bool, WORD)),
            (Node::Unary(next, UnaryOp::CountOnes, vector), "Unary", mismatch(2, Type::Vec4, WORD)),
            (Node::Unary(next, UnaryOp::Not, vector), "Unary", mismatch(2, Type::Vec4, either)),
            (Node::Binary(next, BinaryOp::Add, truth, truth), "Binary", mismatch(1, Type::Bool, WORD)),
            (Node::Binary(next, BinaryOp::And, vector, vector), "Binary", mismatch(2, Type::Vec4, either)),
            (Node::Binary(next, BinaryOp::Eq, word, truth), "Binary", mismatch(1, Type::Bool, WORD)),
            (Node::Binary(next, BinaryOp::Lt, truth, truth), "Binary", mismatch(1, Type::Bool, WORD)),
            (Node::Select(next, word, word, word), "Select", mismatch(0, Type::U32, TRUTH)),
            (Node::Select(next, truth, word, vector), "Select", mismatch(2, Type::Vec4, WORD)),
            (Node::Compose(next, [word, word, truth, word]), "Compose", mismatch(1, Type::Bool, WORD)),
            (Node::Extract(next, word, 0), "Extract", mismatch(0, Type::U32, VECTOR)),
            (Node::Load(next, place(truth)), "Load", mismatch(1, Type::Bool, WORD)),
            (Node::Store(place(word), vector), "Store", mismatch(2, Type::Vec4, WORD)),
            (Node::Store4(place(word), word), "Store4", mismatch(0, Type::U32, VECTOR)),
            (
                Node::Load(next, Place::Address { low: word, high: truth, index: word, access: Access::Coherent }),
                "Load",
                mismatch(1, Type::Bool, WORD),
            ),
            (Node::Subgroup(next, SubgroupOp::Any(word)), "Subgroup", mismatch(0, Type::U32, TRUTH)),
            (Node::Subgroup(next, SubgroupOp::Ballot(word)), "Subgroup", mismatch(0, Type::U32, TRUTH)),
            (Node::Subgroup(next, SubgroupOp::Shuffle(truth, word)), "Subgroup", mismatch(1, Type::Bool, shuffled)),
            (Node::Subgroup(next, SubgroupOp::Shuffle(word, truth)), "Subgroup", mismatch(1, Type::Bool, WORD)),
            (Node::Subgroup(next, SubgroupOp::BroadcastFirst(truth)), "Subgroup", mismatch(1, Type::Bool, shuffled)),
            (Node::Subgroup(next, SubgroupOp::Add(vector)), "Subgroup", mismatch(2, Type::Vec4, WORD)),
            (Node::If(word, Block::default(), Block::default()), "If", mismatch(0, Type::U32, TRUTH)),
            (Node::For(next, truth, Block::default()), "For", mismatch(1, Type::Bool, WORD)),
            (Node::CallHandler(truth), "CallHandler", mismatch(1, Type::Bool, WORD)),
        ]
    };
    for (node, kind, fault) in cases {
        expect(&raw(&[Type::U32], |_, _| vec![node]), "body[3]", kind, fault);
    }
}

#[test]
fn results_have_their_types() {
    let ([word, truth, vector], next) = ([Value(0), Value(1), Value(2)], Value(3));
    let place = Place::Buffer { buffer: Buffer(0), index: word };
    let mismatch = |found, expected| Fault::Type { value: next, found, expected };
    for (node, kind, found, expected) in [
        (Node::ConstU32(next, 0), "ConstU32", Type::Bool, WORD),
        (Node::ConstBool(next, true), "ConstBool", Type::U32, TRUTH),
        (Node::Input(next, Input::LocalIndex), "Input", Type::Vec4, WORD),
        (Node::Unary(next, UnaryOp::Not, truth), "Unary", Type::U32, TRUTH),
        (Node::Binary(next, BinaryOp::Lt, word, word), "Binary", Type::U32, TRUTH),
        (Node::Select(next, truth, vector, vector), "Select", Type::U32, VECTOR),
        (Node::Compose(next, [word; 4]), "Compose", Type::U32, VECTOR),
        (Node::Extract(next, vector, 1), "Extract", Type::Vec4, WORD),
        (Node::Load(next, place), "Load", Type::Vec4, WORD),
        (Node::Load4(next, place), "Load4", Type::U32, VECTOR),
        (Node::Subgroup(next, SubgroupOp::Elect), "Subgroup", Type::U32, TRUTH),
        (Node::Subgroup(next, SubgroupOp::Shuffle(vector, word)), "Subgroup", Type::U32, VECTOR),
        (Node::For(next, word, Block::default()), "For", Type::Bool, WORD),
    ] {
        expect(&raw(&[found], |_, _| vec![node]), "body[3]", kind, mismatch(found, expected));
    }
}

#[test]
fn what_is_used_is_declared() {
    let word = Value(0);
    let load = |place| raw(&[Type::U32], |_, next| vec![Node::Load(next, place)]);
    let buffer = Place::Buffer { buffer: Buffer(1), index: word };
    expect(&load(buffer), "body[3]", "Load", Fault::UnknownBuffer { buffer: Buffer(1), declared: 1 });
    let shared = Place::Shared { shared: Shared(2), index: word };
    expect(&load(shared), "body[3]", "Load", Fault::UnknownShared { shared: Shared(2), declared: 1 });
    let get = raw(&[Type::U32], |_, next| vec![Node::Get(next, Var(0))]);
    expect(&get, "body[3]", "Get", Fault::UnknownVar { var: Var(0), declared: 0 });
    let param = raw(&[Type::U32], |_, next| vec![Node::Input(next, Input::Param(1))]);
    expect(&param, "body[3]", "Input", Fault::UnknownParam { word: 1, declared: 1 });
}

#[test]
fn variables_are_set_before_they_are_read() {
    let module = module(|b, [word, truth, _]| {
        let mut inner = Var(0);
        b.when(truth, |b| inner = b.var(word));
        b.get(inner);
    });
    expect(&module, "body[4]", "Get", Fault::UnsetVar(Var(0)));
    let mut wrong = module;
    wrong.vars[0] = Type::Bool;
    let mismatch = Fault::Type { value: Value(0), found: Type::U32, expected: TRUTH };
    expect(&wrong, "body[3].if.then[0]", "Set", mismatch);
}

#[test]
fn control_flow_is_structured() {
    expect(&module(|b, _| b.break_()), "body[3]", "Break", Fault::OutsideLoop);
    expect(
        &module(|b, [_, truth, _]| b.when(truth, Builder::continue_)),
        "body[3].if.then[0]",
        "Continue",
        Fault::OutsideLoop,
    );
    let after = module(|b, [word, ..]| {
        b.repeat(|b| {
            b.break_();
            b.add(word, word);
        });
    });
    expect(&after, "body[3].loop[1]", "Binary", Fault::Unreachable);
    let after_both = module(|b, [word, truth, _]| {
        b.count(word, |b, _| {
            b.branch(truth, Builder::break_, Builder::continue_);
            b.break_();
        });
    });
    expect(&after_both, "body[3].for[1]", "Break", Fault::Unreachable);
    let endless = module(|b, [word, ..]| {
        b.repeat(|b| {
            b.count(word, |b, _| b.break_());
        });
    });
    expect(&endless, "body[3]", "Loop", Fault::EndlessLoop);
}

#[test]
fn nesting_is_bounded() {
    fn nest(b: &mut Builder, truth: Value, depth: usize) {
        if depth > 0 {
            b.when(truth, |b| nest(b, truth, depth - 1));
        }
    }
    let deep = |depth| module(|b, [_, truth, _]| nest(b, truth, depth));
    assert_eq!(verify(&deep(MAX_DEPTH - 1)), Ok(()));
    let (path, node, too_deep) = fault(&deep(MAX_DEPTH));
    assert_eq!((node, too_deep), ("If", Fault::TooDeep { limit: MAX_DEPTH }));
    assert_eq!(path.matches("if.then").count(), MAX_DEPTH - 1);
}

#[test]
fn a_vec4_has_four_words_and_workgroup_memory_none() {
    let extract = raw(&[Type::U32], |[.., vector], next| vec![Node::Extract(next, vector, 4)]);
    expect(&extract, "body[3]", "Extract", Fault::ExtractIndex(4));
    let place = Place::Shared { shared: Shared(0), index: Value(0) };
    let load = raw(&[Type::Vec4], |_, next| vec![Node::Load4(next, place)]);
    expect(&load, "body[3]", "Load4", Fault::QuadInShared(Shared(0)));
    expect(&module(|b, [.., vector]| b.store4(place, vector)), "body[3]", "Store4", Fault::QuadInShared(Shared(0)));
}

#[test]
fn handlers_need_a_task() {
    expect(&module(|b, [word, ..]| b.call_handler(word)), "body[3]", "CallHandler", Fault::NoTask);
    let mut short = module(|_, _| {});
    short.task = Some(Shared(0));
    let too_small = VerifyError::TaskTooSmall { name: "array".to_owned(), words: 4, needed: task::WORDS };
    assert_eq!(verify(&short), Err(too_small));
    short.task = Some(Shared(1));
    assert_eq!(verify(&short), Err(VerifyError::UnknownTask { task: Shared(1), declared: 1 }));
}

#[test]
fn atomics_have_the_operands_and_orders_that_they_can_have() {
    let (op, swap) = (AtomicOp::Add, AtomicOp::CompareExchange);
    let case = |op, result: bool, value: bool, expected: bool, order| {
        raw(&[Type::U32], |[word, ..], next| {
            let place = Place::Buffer { buffer: Buffer(0), index: word };
            vec![Node::Atomic(Atomic {
                result: result.then_some(next),
                op,
                place,
                value: value.then_some(word),
                expected: expected.then_some(word),
                scope: Scope::Device,
                order,
            })]
        })
    };
    let missing = |op, operand| Fault::MissingOperand { op, operand };
    let extra = |op, operand| Fault::ExtraOperand { op, operand };
    let relaxed = Order::Relaxed;
    let (load, store) = (AtomicOp::Load, AtomicOp::Store);
    for (module, fault) in [
        (case(op, false, true, false, relaxed), missing(op, AtomicOperand::Result)),
        (case(op, true, false, false, relaxed), missing(op, AtomicOperand::Value)),
        (case(op, true, true, true, relaxed), extra(op, AtomicOperand::Expected)),
        (case(swap, true, true, false, relaxed), missing(swap, AtomicOperand::Expected)),
        (case(load, true, true, false, relaxed), extra(load, AtomicOperand::Value)),
        (case(store, true, true, false, relaxed), extra(store, AtomicOperand::Result)),
        (case(store, false, false, false, relaxed), missing(store, AtomicOperand::Value)),
        (case(load, true, false, false, Order::Release), Fault::IllegalOrder { op: load, order: Order::Release }),
        (
            case(load, true, false, false, Order::AcquireRelease),
            Fault::IllegalOrder { op: load, order: Order::AcquireRelease },
        ),
        (case(store, false, true, false, Order::Acquire), Fault::IllegalOrder { op: store, order: Order::Acquire }),
    ] {
        expect(&module, "body[3]", "Atomic", fault);
    }
    let typed = raw(&[Type::U32], |[word, truth, _], next| {
        let place = Place::Buffer { buffer: Buffer(0), index: word };
        vec![Node::Atomic(Atomic {
            result: Some(next),
            op,
            place,
            value: Some(truth),
            expected: None,
            scope: Scope::Device,
            order: relaxed,
        })]
    });
    let mismatch = Fault::Type { value: Value(1), found: Type::Bool, expected: WORD };
    expect(&typed, "body[3]", "Atomic", mismatch);
}

#[test]
fn barriers_order_something() {
    let none = MemoryClasses { buffers: false, shared: false };
    let relaxed = module(|b, _| b.memory_barrier(Scope::Device, Order::Relaxed, MemoryClasses::ALL));
    expect(&relaxed, "body[3]", "MemoryBarrier", Fault::OrdersNothing);
    let empty = module(|b, _| b.memory_barrier(Scope::Device, Order::Acquire, none));
    expect(&empty, "body[3]", "MemoryBarrier", Fault::OrdersNothing);
    expect(&module(|b, _| b.control_barrier(none)), "body[3]", "ControlBarrier", Fault::OrdersNothing);
    expect(&module(|b, _| b.subgroup_barrier(none)), "body[3]", "ControlBarrier", Fault::OrdersNothing);
    let mut device = module(|b, _| b.subgroup_barrier(MemoryClasses::ALL));
    device.body.0[3] = Node::ControlBarrier(Scope::Device, MemoryClasses::ALL);
    expect(&device, "body[3]", "ControlBarrier", Fault::ControlScope);
}

#[test]
fn declarations_fit_every_device() {
    let mut two = module(|b, _| {
        b.buffer("other", 0, Access::Private);
    });
    let shared = VerifyError::SharedBinding { first: "buffer".to_owned(), second: "other".to_owned(), binding: 0 };
    assert_eq!(verify(&two), Err(shared));
    two.buffers[1].binding = 1;
    assert_eq!(verify(&two), Ok(()));

    let mut arrays = module(|_, _| {});
    arrays.shared.push(SharedDecl { name: "more".to_owned(), words: 4093 });
    let error = verify(&arrays).unwrap_err();
    assert_eq!(error, VerifyError::SharedTooLarge { bytes: 16_388, limit: 16_384 });
    assert!(error.to_string().contains("16388 bytes, and Vulkan promises 16384"), "{error}");
    arrays.shared[1].words = 4092;
    assert_eq!(verify(&arrays), Ok(()));
    arrays.shared[1].words = 0;
    assert_eq!(verify(&arrays), Err(VerifyError::EmptyShared { name: "more".to_owned() }));

    let mut params = module(|_, _| {});
    params.params = 33;
    assert_eq!(verify(&params), Err(VerifyError::ParamsTooLarge { words: 33, limit: 32 }));
}
