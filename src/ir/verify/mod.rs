//! Says what is wrong with a module, and where.
//!
//! What passes here can be lowered and interpreted without a further check: every id is declared, every value has its
//! type and is visible where it is used, every loop can be left and every node can be reached. What depends on values
//! (an index beyond a buffer, a division by zero, a barrier that only some invocations reach) is not checked.

mod error;
mod node;

use std::fmt::Write as _;

pub use error::{AtomicOperand, Fault, Types, VerifyError};

use super::{Block, Module, Node, Type, Value, Var};
use crate::protocol::task;

/// Bytes of workgroup memory that every Vulkan device has.
pub const MAX_SHARED_BYTES: u64 = 16_384;
/// Words of push constants that every Vulkan device has.
pub const MAX_PARAMS: u32 = 32;
/// How deeply blocks may lie within each other, so that walking a module never exhausts the stack.
pub const MAX_DEPTH: usize = 64;

/// Checks a module.
///
/// # Errors
/// The first fault found.
///
/// # Examples
/// ```
/// use abide::ir::{Access, Builder, verify};
///
/// let mut b = Builder::new("late", 0);
/// let out = b.buffer("out", 0, Access::Private);
/// let place = b.at(out, 0);
/// b.break_();
/// let error = verify(&b.finish()).unwrap_err();
/// assert_eq!(error.to_string(), "Break at body[1]: there is no loop around it");
/// ```
pub fn verify(module: &Module) -> Result<(), VerifyError> {
    declarations(module)?;
    let mut verifier = Verifier {
        module,
        values: vec![Definition::Ahead; module.values.len()],
        set: vec![false; module.vars.len()],
        path: Vec::new(),
        loops: Vec::new(),
    };
    verifier.block("body", &module.body, None)?;
    Ok(())
}

fn declarations(module: &Module) -> Result<(), VerifyError> {
    for (index, second) in module.buffers.iter().enumerate() {
        if let Some(first) = module.buffers[..index].iter().find(|first| first.binding == second.binding) {
            return Err(VerifyError::SharedBinding {
                first: first.name.clone(),
                second: second.name.clone(),
                binding: second.binding,
            });
        }
    }
    if let Some(empty) = module.shared.iter().find(|array| array.words == 0) {
        return Err(VerifyError::EmptyShared { name: empty.name.clone() });
    }
    let bytes = module.shared.iter().map(|array| u64::from(array.words) * 4).sum();
    if bytes > MAX_SHARED_BYTES {
        return Err(VerifyError::SharedTooLarge { bytes, limit: MAX_SHARED_BYTES });
    }
    if module.params > MAX_PARAMS {
        return Err(VerifyError::ParamsTooLarge { words: module.params, limit: MAX_PARAMS });
    }
    let Some(task) = module.task else { return Ok(()) };
    let Some(array) = module.shared.get(task.0 as usize) else {
        return Err(VerifyError::UnknownTask { task, declared: module.shared.len() });
    };
    if array.words < task::WORDS {
        let (name, words) = (array.name.clone(), array.words);
        return Err(VerifyError::TaskTooSmall { name, words, needed: task::WORDS });
    }
    Ok(())
}

/// How far the walk is with a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Definition {
    /// Not defined yet.
    Ahead,
    /// Defined, and visible.
    Visible,
    /// Defined in a block that has ended.
    Gone,
}

/// Whether control goes on behind a run of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoesOn,
    Leaves,
}

/// Names of a block: where the walk is in it.
struct Step {
    block: &'static str,
    index: usize,
}

/// The walk over a module, in program order.
struct Verifier<'m> {
    module: &'m Module,
    values: Vec<Definition>,
    /// Whether each variable is surely set here.
    set: Vec<bool>,
    path: Vec<Step>,
    /// For each loop around, whether a break that leaves it was met.
    loops: Vec<bool>,
}

/// What a block has defined, to be forgotten at its end.
#[derive(Default)]
struct Scope {
    values: Vec<Value>,
    vars: Vec<Var>,
}

impl Verifier<'_> {
    /// Walks a block; `index` is the value that a For defines in it.
    fn block(&mut self, name: &'static str, block: &Block, index: Option<Value>) -> Result<Flow, VerifyError> {
        let mut scope = Scope::default();
        self.path.push(Step { block: name, index: 0 });
        scope.values.extend(index);
        let mut flow = Flow::GoesOn;
        for (index, node) in block.0.iter().enumerate() {
            if let Some(step) = self.path.last_mut() {
                step.index = index;
            }
            if flow == Flow::Leaves {
                return Err(self.error(node, Fault::Unreachable));
            }
            flow = self.node(node, &mut scope)?;
        }
        self.path.pop();
        for value in scope.values {
            self.values[value.0 as usize] = Definition::Gone;
        }
        for var in scope.vars {
            self.set[var.0 as usize] = false;
        }
        Ok(flow)
    }

    fn node(&mut self, node: &Node, scope: &mut Scope) -> Result<Flow, VerifyError> {
        self.shallow(node, scope).map_err(|fault| self.error(node, fault))?;
        match node {
            Node::If(_, then, otherwise) => {
                self.depth(node)?;
                let then = self.block("if.then", then, None)?;
                let otherwise = self.block("if.else", otherwise, None)?;
                Ok(if then == otherwise { then } else { Flow::GoesOn })
            }
            Node::Loop(body) => {
                self.depth(node)?;
                self.loops.push(false);
                self.block("loop", body, None)?;
                match self.loops.pop() {
                    Some(true) => Ok(Flow::GoesOn),
                    _ => Err(self.error(node, Fault::EndlessLoop)),
                }
            }
            Node::For(index, _, body) => {
                self.depth(node)?;
                self.loops.push(false);
                self.block("for", body, Some(*index))?;
                self.loops.pop();
                Ok(Flow::GoesOn)
            }
            Node::Break | Node::Continue => {
                let Some(left) = self.loops.last_mut() else { return Err(self.error(node, Fault::OutsideLoop)) };
                *left |= *node == Node::Break;
                Ok(Flow::Leaves)
            }
            _ => Ok(Flow::GoesOn),
        }
    }

    fn depth(&self, node: &Node) -> Result<(), VerifyError> {
        match self.path.len() < MAX_DEPTH {
            true => Ok(()),
            false => Err(self.error(node, Fault::TooDeep { limit: MAX_DEPTH })),
        }
    }

    fn error(&self, node: &Node, fault: Fault) -> VerifyError {
        let mut path = String::new();
        for (depth, step) in self.path.iter().enumerate() {
            let dot = if depth == 0 { "" } else { "." };
            // Writing to a string can't fail.
            let _ = write!(path, "{dot}{}[{}]", step.block, step.index);
        }
        VerifyError::Node { path, node: node::kind(node), fault }
    }

    /// Type of a value that is listed, whether it is visible or not.
    fn listed(&self, value: Value) -> Result<Type, Fault> {
        let unknown = Fault::UnknownValue { value, declared: self.module.values.len() };
        self.module.values.get(value.0 as usize).copied().ok_or(unknown)
    }

    /// Type of a value that is used here.
    fn used(&self, value: Value) -> Result<Type, Fault> {
        let ty = self.listed(value)?;
        match self.values[value.0 as usize] {
            Definition::Visible => Ok(ty),
            Definition::Ahead => Err(Fault::UsedBeforeDefinition(value)),
            Definition::Gone => Err(Fault::OutOfScope(value)),
        }
    }

    /// Makes a value visible.
    fn define(&mut self, value: Value) -> Result<Type, Fault> {
        let ty = self.listed(value)?;
        match std::mem::replace(&mut self.values[value.0 as usize], Definition::Visible) {
            Definition::Ahead => Ok(ty),
            Definition::Visible | Definition::Gone => Err(Fault::Redefined(value)),
        }
    }

    fn var(&self, var: Var) -> Result<Type, Fault> {
        let unknown = Fault::UnknownVar { var, declared: self.module.vars.len() };
        self.module.vars.get(var.0 as usize).copied().ok_or(unknown)
    }
}
