//! What a kernel uses, found before its first instruction is written: capabilities, inputs, views of its buffers.

use std::collections::BTreeSet;

use rspirv::dr::Builder;
use rspirv::spirv::{AddressingModel, Capability, MemoryModel};

use crate::ir::{BinaryOp, Block, Buffer, Input, Module, Node, Place, SubgroupOp, UnaryOp};

/// What a kernel uses.
pub struct Needs {
    /// Capabilities, in numeric order.
    capabilities: BTreeSet<Capability>,
    /// Built-in inputs.
    pub inputs: BTreeSet<Input>,
    /// Buffers with accesses of four words.
    pub quads: BTreeSet<Buffer>,
    /// Whether words, and whether four words, are reached by address.
    pub address: [bool; 2],
    /// Whether an instruction of GLSL.std.450 is used.
    pub glsl: bool,
    /// Whether handlers are called.
    pub calls: bool,
}

impl Needs {
    /// Walks a kernel.
    pub fn of(module: &Module) -> Self {
        let mut needs = Self {
            capabilities: BTreeSet::from([
                Capability::Shader,
                Capability::VulkanMemoryModel,
                Capability::VulkanMemoryModelDeviceScope,
            ]),
            inputs: BTreeSet::new(),
            quads: BTreeSet::new(),
            address: [false; 2],
            glsl: false,
            calls: false,
        };
        needs.block(&module.body);
        if needs.calls {
            needs.inputs.insert(Input::LocalIndex);
        }
        if needs.physical() {
            needs.capabilities.insert(Capability::PhysicalStorageBufferAddresses);
        }
        needs
    }

    /// Declares capabilities and the memory model.
    pub fn declare(&self, builder: &mut Builder) {
        for &capability in &self.capabilities {
            builder.capability(capability);
        }
        let addressing = match self.physical() {
            true => AddressingModel::PhysicalStorageBuffer64,
            false => AddressingModel::Logical,
        };
        builder.memory_model(addressing, MemoryModel::Vulkan);
    }

    /// Whether memory is reached by address, by the kernel or by the handlers that are linked to it later.
    fn physical(&self) -> bool {
        self.calls || self.address.contains(&true)
    }

    fn block(&mut self, block: &Block) {
        for node in &block.0 {
            self.node(node);
        }
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Input(_, input) => self.input(*input),
            Node::Unary(_, UnaryOp::FindLsb, _) | Node::Binary(_, BinaryOp::Min | BinaryOp::Max, ..) => {
                self.glsl = true;
            }
            Node::Load(_, place) | Node::Store(place, _) => self.place(place, false),
            Node::Load4(_, place) | Node::Store4(place, _) => self.place(place, true),
            Node::Atomic(atomic) => self.place(&atomic.place, false),
            Node::Subgroup(_, op) => self.subgroup(op),
            Node::If(_, then, otherwise) => {
                self.block(then);
                self.block(otherwise);
            }
            Node::Loop(body) | Node::For(_, _, body) => self.block(body),
            Node::CallHandler(_) => self.calls = true,
            _ => {}
        }
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Param(_) | Input::WorkgroupSize => return,
            Input::SubgroupLane | Input::SubgroupSize | Input::SubgroupCount => {
                self.capabilities.insert(Capability::GroupNonUniform);
            }
            Input::LocalIndex | Input::WorkgroupIndex | Input::WorkgroupCount => {}
        }
        self.inputs.insert(input);
    }

    fn place(&mut self, place: &Place, quad: bool) {
        match place {
            Place::Buffer { buffer, .. } if quad => {
                self.quads.insert(*buffer);
            }
            Place::Address { .. } => self.address[usize::from(quad)] = true,
            Place::Buffer { .. } | Place::Shared { .. } => {}
        }
    }

    fn subgroup(&mut self, op: &SubgroupOp) {
        self.capabilities.insert(Capability::GroupNonUniform);
        let more = match op {
            SubgroupOp::Any(_) | SubgroupOp::All(_) => Capability::GroupNonUniformVote,
            SubgroupOp::Ballot(_) | SubgroupOp::BroadcastFirst(_) => Capability::GroupNonUniformBallot,
            SubgroupOp::Shuffle(..) => Capability::GroupNonUniformShuffle,
            SubgroupOp::Add(_) => Capability::GroupNonUniformArithmetic,
            SubgroupOp::Elect => return,
        };
        self.capabilities.insert(more);
    }
}
