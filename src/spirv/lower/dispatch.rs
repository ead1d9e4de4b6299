//! The function that runs the handler with a task's opcode.
//!
//! The kernel knows no handlers: as lowered the function says that there is none. The linker replaces its body.

use rspirv::spirv::{FunctionControl, MemoryAccess, Op, SelectionControl};

use super::memory::Rule;
use super::{Emitter, Interface, LowerError};
use crate::ir::{Input, Value};
use crate::protocol::{completion, task};

impl Emitter<'_> {
    /// Writes the function where the kernel calls handlers.
    pub(super) fn dispatch_function(&mut self, calls: bool) -> Result<Option<Interface>, LowerError> {
        let Some(words) = self.module.task.filter(|_| calls) else { return Ok(None) };
        let words = self.globals.shared[words.0 as usize];
        let local_index = self.input_variable(Input::LocalIndex)?;
        let (void, bool, uint) = (self.globals.void, self.globals.bool, self.globals.uint);
        let ty = self.builder.type_function(void, [uint]);
        let dispatch = self.builder.begin_function(void, None, FunctionControl::NONE, ty)?;
        self.builder.name(dispatch, "abide_dispatch");
        let opcode = self.builder.function_parameter(uint)?;
        self.builder.name(opcode, "opcode");
        self.builder.begin_block(None)?;
        let zero = self.word(0);
        let local = self.builder.load(uint, None, local_index, None, [])?;
        let first = self.op(Op::IEqual, bool, &[local, zero])?;
        let (then, merge) = (self.builder.id(), self.builder.id());
        self.builder.selection_merge(merge, SelectionControl::NONE)?;
        self.builder.branch_conditional(first, then, merge, [])?;
        self.builder.begin_block(Some(then))?;
        let (at, fault) = (self.word(task::FAULT), self.word(completion::fault::NO_HANDLER));
        let at = self.task_word(words, at)?;
        let (access, operands) = self.memory_operands(Rule::Shared, MemoryAccess::NONE);
        self.builder.store(at, fault, access, operands)?;
        self.builder.branch(merge)?;
        self.builder.begin_block(Some(merge))?;
        self.builder.ret()?;
        self.builder.end_function()?;
        self.dispatch = Some(dispatch);
        Ok(Some(Interface { dispatch, task: words, local_index }))
    }

    pub(super) fn call_handler(&mut self, opcode: Value) -> Result<(), LowerError> {
        let dispatch =
            self.dispatch.ok_or_else(|| LowerError::Structure("a handler is called without a task".to_owned()))?;
        let (void, opcode) = (self.globals.void, self.id(opcode));
        self.builder.function_call(void, None, dispatch, [opcode])?;
        Ok(())
    }
}
