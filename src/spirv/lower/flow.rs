//! The entry point and structured control flow.

use rspirv::spirv::{
    ExecutionMode, ExecutionModel, FunctionControl, LoopControl, Op, SelectionControl, StorageClass, Word,
};

use super::memory::Span;
use super::{Emitter, LowerError, Targets, WORKGROUP_SIZE};
use crate::ir::{Block, Node, Value};

/// Where control is after a run of nodes.
#[derive(Clone, Copy)]
pub enum Flow {
    /// In the open block with this label.
    Open(Word),
    /// Elsewhere: a break or a continue has closed the block.
    Ended,
}

impl Emitter<'_> {
    /// Writes the kernel's only entry point.
    pub(super) fn entry_point(&mut self) -> Result<(), LowerError> {
        let void = self.globals.void;
        let ty = self.builder.type_function(void, []);
        let main = self.builder.begin_function(void, None, FunctionControl::NONE, ty)?;
        self.builder.name(main, self.module.name.clone());
        let label = self.builder.begin_block(None)?;
        for (index, &ty) in self.module.vars.iter().enumerate() {
            let ty = self.type_id(ty);
            let pointer = self.builder.type_pointer(None, StorageClass::Function, ty);
            let var = self.builder.variable(pointer, None, StorageClass::Function, None);
            self.builder.name(var, format!("var{index}"));
            self.vars.push(var);
        }
        if let Flow::Open(_) = self.block(&self.module.body, label)? {
            self.builder.ret()?;
        }
        self.builder.end_function()?;
        let interface = self.globals.interface.clone();
        self.builder.entry_point(ExecutionModel::GLCompute, main, "main", interface);
        self.builder.execution_mode(main, ExecutionMode::LocalSize, [WORKGROUP_SIZE, 1, 1]);
        Ok(())
    }

    /// Writes a run of nodes from the open block `label` on.
    fn block(&mut self, block: &Block, mut label: Word) -> Result<Flow, LowerError> {
        for node in &block.0 {
            match node {
                Node::If(condition, then, otherwise) => match self.branch(*condition, then, otherwise, label)? {
                    Flow::Open(next) => label = next,
                    Flow::Ended => return Ok(Flow::Ended),
                },
                Node::Loop(body) => label = self.repeat(body)?,
                Node::For(index, bound, body) => label = self.count(*index, *bound, body, label)?,
                Node::Break => return self.leave(|targets| targets.merge),
                Node::Continue => return self.leave(|targets| targets.next),
                _ => self.straight(node)?,
            }
        }
        Ok(Flow::Open(label))
    }

    /// Writes a node that stays in its block.
    fn straight(&mut self, node: &Node) -> Result<(), LowerError> {
        match node {
            Node::ConstU32(result, value) => self.const_u32(*result, *value),
            Node::ConstBool(result, value) => self.const_bool(*result, *value),
            Node::Input(result, input) => self.input(*result, *input)?,
            Node::Unary(result, op, operand) => self.unary(*result, *op, *operand)?,
            Node::Binary(result, op, left, right) => self.binary(*result, *op, *left, *right)?,
            Node::Select(result, condition, yes, no) => self.select(*result, *condition, *yes, *no)?,
            Node::Compose(result, words) => self.compose(*result, *words)?,
            Node::Extract(result, vector, index) => self.extract(*result, *vector, *index)?,
            Node::Get(result, var) => self.get(*result, *var)?,
            Node::Set(var, value) => self.set(*var, *value)?,
            Node::Load(result, place) => self.load(*result, place, Span::Word)?,
            Node::Store(place, value) => self.store(place, *value, Span::Word)?,
            Node::Load4(result, place) => self.load(*result, place, Span::Quad)?,
            Node::Store4(place, value) => self.store(place, *value, Span::Quad)?,
            Node::Atomic(atomic) => self.atomic(atomic)?,
            Node::MemoryBarrier(scope, order, classes) => self.memory_barrier(*scope, *order, *classes)?,
            Node::ControlBarrier(scope, classes) => self.control_barrier(*scope, *classes)?,
            Node::Subgroup(result, op) => self.subgroup(*result, op)?,
            Node::CallHandler(opcode) => self.call_handler(*opcode)?,
            Node::If(..) | Node::Loop(_) | Node::For(..) | Node::Break | Node::Continue => {
                return Err(LowerError::Structure("control flow inside a straight run".to_owned()));
            }
        }
        Ok(())
    }

    fn leave(&mut self, target: impl Fn(&Targets) -> Word) -> Result<Flow, LowerError> {
        let target = self
            .loops
            .last()
            .map(target)
            .ok_or_else(|| LowerError::Structure("break or continue outside a loop".to_owned()))?;
        self.builder.branch(target)?;
        Ok(Flow::Ended)
    }

    fn branch(&mut self, condition: Value, then: &Block, otherwise: &Block, label: Word) -> Result<Flow, LowerError> {
        if then.0.is_empty() && otherwise.0.is_empty() {
            // SPIR-V 1.6 refuses a conditional branch with equal targets.
            return Ok(Flow::Open(label));
        }
        let merge = self.builder.id();
        let mut arms = Vec::new();
        let mut targets = [merge; 2];
        for (target, arm) in targets.iter_mut().zip([then, otherwise]) {
            if !arm.0.is_empty() {
                *target = self.builder.id();
                arms.push((*target, arm));
            }
        }
        self.builder.selection_merge(merge, SelectionControl::NONE)?;
        self.builder.branch_conditional(self.id(condition), targets[0], targets[1], [])?;
        let mut reached = targets.contains(&merge);
        for (target, arm) in arms {
            self.builder.begin_block(Some(target))?;
            if let Flow::Open(_) = self.block(arm, target)? {
                self.builder.branch(merge)?;
                reached = true;
            }
        }
        self.builder.begin_block(Some(merge))?;
        if reached {
            return Ok(Flow::Open(merge));
        }
        self.builder.unreachable()?;
        Ok(Flow::Ended)
    }

    fn repeat(&mut self, body: &Block) -> Result<Word, LowerError> {
        let [header, start, next, merge] = std::array::from_fn(|_| self.builder.id());
        self.builder.branch(header)?;
        self.builder.begin_block(Some(header))?;
        self.builder.loop_merge(merge, next, LoopControl::NONE, [])?;
        self.builder.branch(start)?;
        self.turn(body, start, Targets { merge, next })?;
        self.builder.begin_block(Some(next))?;
        self.builder.branch(header)?;
        Ok(self.builder.begin_block(Some(merge))?)
    }

    fn count(&mut self, index: Value, bound: Value, body: &Block, before: Word) -> Result<Word, LowerError> {
        let (bool, uint) = (self.globals.bool, self.globals.uint);
        let (zero, one, bound) = (self.word(0), self.word(1), self.id(bound));
        let [header, test, start, next, merge, count, increment] = std::array::from_fn(|_| self.builder.id());
        self.builder.branch(header)?;
        self.builder.begin_block(Some(header))?;
        self.builder.phi(uint, Some(count), [(zero, before), (increment, next)])?;
        self.builder.loop_merge(merge, next, LoopControl::NONE, [])?;
        self.builder.branch(test)?;
        self.builder.begin_block(Some(test))?;
        let more = self.op(Op::ULessThan, bool, &[count, bound])?;
        self.builder.branch_conditional(more, start, merge, [])?;
        self.define(index, count);
        self.turn(body, start, Targets { merge, next })?;
        self.builder.begin_block(Some(next))?;
        self.builder.i_add(uint, Some(increment), count, one)?;
        self.builder.branch(header)?;
        Ok(self.builder.begin_block(Some(merge))?)
    }

    /// Writes a loop's body.
    fn turn(&mut self, body: &Block, start: Word, targets: Targets) -> Result<(), LowerError> {
        self.loops.push(targets);
        self.builder.begin_block(Some(start))?;
        if let Flow::Open(_) = self.block(body, start)? {
            self.builder.branch(targets.next)?;
        }
        self.loops.pop();
        Ok(())
    }
}
