//! Faults of other schedulers that show in a kernel's structure: each check holds for the kernel that ships and fails for
//! the kernel with the fault planted.

use abide::ir::{Access, AtomicOp, BinaryOp, Block, MemoryClasses, Module, Node, Order, Place, Scope, Value};
use abide::protocol::MAX_LEVELS;
use abide::scheduler::fast::{self, Lanes};
use abide::scheduler::{Fences, Mutation, kernel};

/// Calls `each` for all nodes of a block and the blocks inside it, in program order.
fn walk(block: &Block, each: &mut impl FnMut(&Node)) {
    for node in &block.0 {
        each(node);
        match node {
            Node::If(_, then, otherwise) => {
                walk(then, each);
                walk(otherwise, each);
            }
            Node::Loop(body) => walk(body, each),
            Node::For(_, _, body) => walk(body, each),
            _ => {}
        }
    }
}

fn check_all_levels(check: impl Fn(&Module) -> Result<(), String>, fences: Fences, mutation: Option<Mutation>) {
    for levels in 1..=MAX_LEVELS {
        check(&kernel(levels, Fences::Full, None)).unwrap();
        let planted = check(&kernel(levels, fences, mutation));
        assert!(planted.is_err(), "{levels} levels: the planted fault went unnoticed");
    }
}

/// Completions of a kernel: a direct one and one in the queue, where a lone NOP is run on the spot and where all tasks are.
const COMPLETIONS: u32 = 4;

/// Completions of the fast policy's kernel: two of a lone NOP and of a range of one, one of a range, one of each task of a
/// range, and two of a task that isn't a plain NOP.
const FAST_COMPLETIONS: u32 = 8;

/// Words that another invocation or the host changes are read and written as what they are, claims acquire, and every lane's
/// release lies between what a task wrote and the completion that vouches for it.
fn ordered(module: &Module, expected: u32) -> Result<(), String> {
    if let Some(buffer) = module.buffers.iter().find(|buffer| buffer.access != Access::Volatile) {
        return Err(format!("buffer {} isn't volatile", buffer.name));
    }
    // Before the first task nothing is written that would have to be released.
    let (mut released, mut acquired, mut completions) = (true, false, 0);
    let mut fault = None;
    walk(&module.body, &mut |node| match node {
        Node::Atomic(atomic) if matches!(atomic.place, Place::Buffer { .. }) => {
            let acquires = matches!(atomic.order, Order::Acquire | Order::AcquireRelease);
            if atomic.op == AtomicOp::CompareExchange && !acquires {
                fault = Some("a claim doesn't acquire".to_owned());
            }
        }
        Node::Store(Place::Address { .. }, _) => released = false,
        Node::Atomic(atomic) if matches!(atomic.place, Place::Address { .. }) => released = false,
        Node::MemoryBarrier(_, Order::Acquire, MemoryClasses::BUFFERS) => acquired = true,
        Node::CallHandler(_) if !acquired => fault = Some("a handler runs without an acquire".to_owned()),
        Node::CallHandler(_) => released = false,
        Node::MemoryBarrier(_, Order::Release, MemoryClasses::BUFFERS) => released = true,
        Node::Store4(..) => {
            completions += 1;
            if !released {
                fault = Some("a completion isn't behind a release".to_owned());
            }
        }
        _ => {}
    });
    match fault {
        Some(fault) => Err(fault),
        None if completions != expected => Err(format!("{completions} completions, not {expected}")),
        None => Ok(()),
    }
}

#[test]
fn fault_b10_claims_acquire_and_completions_are_released() {
    check_all_levels(|module| ordered(module, COMPLETIONS), Fences::None, None);
    for lanes in [Lanes::Wide, Lanes::Few] {
        for levels in 1..=MAX_LEVELS {
            ordered(&fast::kernel(levels, lanes, Fences::Full, None), FAST_COMPLETIONS).unwrap();
            assert!(ordered(&fast::kernel(levels, lanes, Fences::None, None), FAST_COMPLETIONS).is_err());
        }
    }
}

/// Behind a ticket, what the poller left in the state buffer is read after an acquire.
fn tickets_acquire(block: &Block) -> Result<(), String> {
    let mut ticket = false;
    for node in &block.0 {
        match node {
            Node::Atomic(atomic) if read_modify_write(node) == Some(AtomicOp::Add) && atomic.result.is_some() => {
                ticket = true;
            }
            Node::MemoryBarrier(Scope::Device, Order::Acquire, MemoryClasses::BUFFERS) => ticket = false,
            Node::Load(_, Place::Buffer { .. }) if ticket => return Err("a load behind a ticket isn't acquired".into()),
            Node::If(_, then, otherwise) => {
                tickets_acquire(then)?;
                tickets_acquire(otherwise)?;
            }
            Node::Loop(body) | Node::For(_, _, body) => tickets_acquire(body)?,
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn fault_b10_a_ticket_acquires() {
    for lanes in [Lanes::Wide, Lanes::Few] {
        for levels in 1..=MAX_LEVELS {
            tickets_acquire(&fast::kernel(levels, lanes, Fences::Full, None).body).unwrap();
            let planted = fast::kernel(levels, lanes, Fences::Full, Some(Mutation::TicketUnacquired));
            assert!(tickets_acquire(&planted.body).is_err(), "{levels} levels: the planted fault went unnoticed");
        }
    }
}

/// A pass that finds nothing loads, and stores now and then, but does no read-modify-write on a buffer. The claims themselves
/// are some, behind the condition that something was found; what is behind a claim that was won is no idle pass's.
fn idle_pass_only_loads(module: &Module) -> Result<(), String> {
    let main = module.body.0.iter().find_map(|node| match node {
        Node::Loop(body) => Some(body),
        _ => None,
    });
    let mut found = Vec::new();
    for node in &main.ok_or("no main loop")?.0 {
        let idle = match node {
            // What a claim leads to; an idle pass runs the second block.
            Node::If(_, then, otherwise) if runs_tasks(then) => otherwise.clone(),
            node => Block(vec![node.clone()]),
        };
        walk(&without_won(&idle, &mut Vec::new()), &mut |node| {
            if let Some(op) = read_modify_write(node).filter(|&op| op != AtomicOp::CompareExchange) {
                found.push(op);
            }
        });
    }
    if found.is_empty() { Ok(()) } else { Err(format!("an idle pass does {found:?}")) }
}

/// The block without what runs only where a compare-exchange on a buffer found what it expected. `won` holds, pair by pair,
/// what was expected and what was found, and then the comparisons of the two.
fn without_won(block: &Block, won: &mut Vec<(Value, Option<Value>)>) -> Block {
    let mut rest = Vec::new();
    for node in &block.0 {
        match node {
            Node::Atomic(atomic) if read_modify_write(node) == Some(AtomicOp::CompareExchange) => {
                won.extend(atomic.result.map(|found| (found, atomic.expected)));
            }
            Node::Binary(result, BinaryOp::Eq, left, right) if won.contains(&(*left, Some(*right))) => {
                won.push((*result, None));
            }
            _ => {}
        }
        rest.push(match node {
            Node::If(condition, then, otherwise) => {
                let then = if won.contains(&(*condition, None)) { Block::default() } else { without_won(then, won) };
                Node::If(*condition, then, without_won(otherwise, won))
            }
            Node::Loop(body) => Node::Loop(without_won(body, won)),
            Node::For(index, bound, body) => Node::For(*index, *bound, without_won(body, won)),
            node => node.clone(),
        });
    }
    Block(rest)
}

fn runs_tasks(block: &Block) -> bool {
    let mut found = false;
    walk(block, &mut |node| found |= matches!(node, Node::CallHandler(_)));
    found
}

/// The read-modify-write that a node does to a buffer, if any.
fn read_modify_write(node: &Node) -> Option<AtomicOp> {
    match node {
        Node::Atomic(atomic) if matches!(atomic.place, Place::Buffer { .. }) => {
            Some(atomic.op).filter(|op| !matches!(op, AtomicOp::Load | AtomicOp::Store))
        }
        _ => None,
    }
}

#[test]
fn fault_b14_an_idle_pass_does_no_read_modify_write() {
    check_all_levels(idle_pass_only_loads, Fences::Full, Some(Mutation::IdleAtomics));
}
