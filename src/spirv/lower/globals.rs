//! Types, workgroup width and module-scope variables.

use std::collections::BTreeMap;

use rspirv::dr::{Builder, Operand};
use rspirv::spirv::{BuiltIn, Decoration, StorageClass, Word};

use super::needs::Needs;
use super::{Constants, WORKGROUP_SIZE, WORKGROUP_SIZE_SPEC_ID};
use crate::ir::{Input, Module};

/// A buffer's variables: the same memory, seen as words and as groups of four.
pub struct BufferVars {
    pub words: Word,
    pub quads: Option<Word>,
}

/// Ids of what is declared at module scope.
pub struct Globals {
    pub void: Word,
    pub bool: Word,
    pub uint: Word,
    pub uvec4: Word,
    /// Block `{ uint[] }`, with a stride of 4 bytes.
    pub words: Word,
    /// Block `{ uvec4[] }`, with a stride of 16 bytes.
    pub quads: Word,
    /// The workgroup's width, a specialization constant.
    pub width: Word,
    /// Variables by [`crate::ir::Buffer`].
    pub buffers: Vec<BufferVars>,
    /// Variables by [`crate::ir::Shared`].
    pub shared: Vec<Word>,
    /// Built-in inputs.
    pub inputs: BTreeMap<Input, Word>,
    /// The push constants; none without parameters.
    pub params: Option<Word>,
    /// The GLSL.std.450 instructions; none where unused.
    pub glsl: Option<Word>,
    /// All variables, for the entry point.
    pub interface: Vec<Word>,
}

impl Globals {
    /// Declares everything, in one fixed order.
    pub fn declare(builder: &mut Builder, constants: &mut Constants, module: &Module, needs: &Needs) -> Self {
        let glsl = needs.glsl.then(|| builder.ext_inst_import("GLSL.std.450"));
        let (void, bool, uint) = (builder.type_void(), builder.type_bool(), builder.type_int(32, 0));
        let uvec4 = builder.type_vector(uint, 4);
        let width = workgroup_width(builder, constants, uint);
        let (words, quads) = (builder.type_runtime_array(uint), builder.type_runtime_array(uvec4));
        let (words, quads) = (block(builder, words, "Words", 4), block(builder, quads, "Quads", 16));
        let mut globals = Self {
            void,
            bool,
            uint,
            uvec4,
            words,
            quads,
            width,
            buffers: Vec::new(),
            shared: Vec::new(),
            inputs: BTreeMap::new(),
            params: None,
            glsl,
            interface: Vec::new(),
        };
        globals.buffers(builder, module, needs);
        for array in &module.shared {
            let length = constants.word(builder, array.words);
            let ty = builder.type_array(uint, length);
            let variable = globals.variable(builder, StorageClass::Workgroup, ty, &array.name);
            globals.shared.push(variable);
        }
        for &input in &needs.inputs {
            globals.input(builder, input);
        }
        globals.params(builder, constants, module.params);
        globals
    }

    fn variable(&mut self, builder: &mut Builder, class: StorageClass, ty: Word, name: &str) -> Word {
        let pointer = builder.type_pointer(None, class, ty);
        let variable = builder.variable(pointer, None, class, None);
        builder.name(variable, name);
        self.interface.push(variable);
        variable
    }

    /// Declares the buffers. Both views of one buffer, and accesses by address, may reach the same words, so every view
    /// is decorated Aliased.
    fn buffers(&mut self, builder: &mut Builder, module: &Module, needs: &Needs) {
        let class = StorageClass::StorageBuffer;
        for (index, buffer) in (0..).zip(&module.buffers) {
            let words = self.variable(builder, class, self.words, &buffer.name);
            bind(builder, words, buffer.binding);
            let quads = needs.quads.contains(&crate::ir::Buffer(index)).then(|| {
                let quads = self.variable(builder, class, self.quads, &format!("{}_quads", buffer.name));
                bind(builder, quads, buffer.binding);
                quads
            });
            self.buffers.push(BufferVars { words, quads });
        }
    }

    fn input(&mut self, builder: &mut Builder, input: Input) {
        let (built_in, width, name) = match input {
            Input::LocalIndex => (BuiltIn::LocalInvocationIndex, 1, "local_index"),
            Input::WorkgroupIndex => (BuiltIn::WorkgroupId, 3, "workgroup_id"),
            Input::WorkgroupCount => (BuiltIn::NumWorkgroups, 3, "workgroup_count"),
            Input::SubgroupLane => (BuiltIn::SubgroupLocalInvocationId, 1, "subgroup_lane"),
            Input::SubgroupSize => (BuiltIn::SubgroupSize, 1, "subgroup_size"),
            Input::SubgroupCount => (BuiltIn::NumSubgroups, 1, "subgroup_count"),
            // Neither is a variable: one is a constant, the other lies in the push constants.
            Input::WorkgroupSize | Input::Param(_) => return,
        };
        let ty = if width == 1 { self.uint } else { builder.type_vector(self.uint, width) };
        let variable = self.variable(builder, StorageClass::Input, ty, name);
        builder.decorate(variable, Decoration::BuiltIn, [Operand::BuiltIn(built_in)]);
        self.inputs.insert(input, variable);
    }

    fn params(&mut self, builder: &mut Builder, constants: &mut Constants, words: u32) {
        if words == 0 {
            return;
        }
        let length = constants.word(builder, words);
        // A type of its own: a workgroup array of the same length must not have its stride.
        let array = builder.id();
        builder.type_array_id(Some(array), self.uint, length);
        let ty = block(builder, array, "Params", 4);
        self.params = Some(self.variable(builder, StorageClass::PushConstant, ty, "params"));
    }
}

/// Makes an array the only member of a block.
fn block(builder: &mut Builder, array: Word, name: &str, stride: u32) -> Word {
    builder.decorate(array, Decoration::ArrayStride, [Operand::LiteralBit32(stride)]);
    let id = builder.id();
    let ty = builder.type_struct_id(Some(id), [array]);
    builder.decorate(ty, Decoration::Block, []);
    builder.member_decorate(ty, 0, Decoration::Offset, [Operand::LiteralBit32(0)]);
    builder.name(ty, name);
    ty
}

fn bind(builder: &mut Builder, variable: Word, binding: u32) {
    builder.decorate(variable, Decoration::DescriptorSet, [Operand::LiteralBit32(0)]);
    builder.decorate(variable, Decoration::Binding, [Operand::LiteralBit32(binding)]);
    builder.decorate(variable, Decoration::Aliased, []);
}

/// Declares the workgroup's width as a specialization constant.
fn workgroup_width(builder: &mut Builder, constants: &mut Constants, uint: Word) -> Word {
    let width = builder.spec_constant_bit32(uint, WORKGROUP_SIZE);
    builder.name(width, "workgroup_width");
    builder.decorate(width, Decoration::SpecId, [Operand::LiteralBit32(WORKGROUP_SIZE_SPEC_ID)]);
    let one = constants.word(builder, 1);
    let uvec3 = builder.type_vector(uint, 3);
    let size = builder.spec_constant_composite(uvec3, [width, one, one]);
    builder.name(size, "workgroup_size");
    builder.decorate(size, Decoration::BuiltIn, [Operand::BuiltIn(BuiltIn::WorkgroupSize)]);
    width
}
