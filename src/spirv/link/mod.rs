//! Merges handlers, ordinary compute shaders, into a kernel.
//!
//! A handler is a module like any that vkCmdDispatch runs. The linker takes its entry point with all that it reaches
//! into the kernel and puts it where a task finds it: the switch over opcodes. On the way
//!
//! * buffers and push constants become device addresses that the task's words give, so that each task binds its own;
//! * built-in inputs become private variables that a wrapper sets from the task and the invocation's index;
//! * memory accesses, atomics and barriers are raised from the GLSL450 memory model to the Vulkan one;
//! * types and constants are shared with the kernel's and other handlers'.
//!
//! What can't be hosted is refused here, with the instruction, its place and the reason, and never later. Accepted is
//! what naga emits for compute shaders. Words in, words out: no Vulkan object is known here.
//!
//! Bound buffers and payloads start at multiples of 16 bytes: accesses are declared so.

mod accept;
mod body;
mod dispatch;
mod error;
mod handler;
mod import;
mod memory;
mod merge;
mod pointer;
mod types;

pub use error::{LinkError, Reason, Refusal};
pub use rspirv::spirv::Capability;

use rustc_hash::FxHashMap;

use super::check::check;
use super::module::Module;
use super::{Interface, Lowered};
use handler::{Handler, Role};
use import::{Import, Pool};
use merge::Merger;

/// Alignment in bytes that bound buffers and payloads need.
pub const BASE_ALIGNMENT: u32 = pointer::BASE_ALIGNMENT;

/// A compute shader to be linked.
#[derive(Clone, Copy, Debug)]
pub struct HandlerModule<'a> {
    /// The module.
    pub words: &'a [u32],
    /// Name of its entry point.
    pub entry: &'a str,
    /// Opcode of the tasks that run it.
    pub opcode: u32,
}

/// What a linked kernel may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of workgroup memory: the device's `maxComputeSharedMemorySize`.
    pub workgroup_bytes: u32,
}

/// A kernel with handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The module.
    pub words: Vec<u32>,
    /// Invocations of a workgroup, the same for all handlers: the kernel's width. None where there are no handlers.
    pub invocations: Option<u32>,
    /// The handlers, in the order in which they were given.
    pub handlers: Vec<LinkedHandler>,
    /// Bytes of workgroup memory of kernel and handlers.
    pub workgroup_bytes: u64,
    /// Capabilities that the kernel did not need without its handlers.
    pub capabilities: Vec<Capability>,
}

/// What a linked handler needs of its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedHandler {
    /// Opcode of its tasks.
    pub opcode: u32,
    /// Name of the entry point.
    pub entry: String,
    /// Sides of a workgroup.
    pub workgroup_size: [u32; 3],
    /// Buffers, by set and binding.
    pub bindings: Vec<Binding>,
    /// Words of the block of push constants, which the payload must have.
    pub payload_words: u32,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u64,
}

/// A buffer of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Descriptor set in the shader.
    pub set: u32,
    /// Binding in the shader.
    pub binding: u32,
    /// Entry of the task's binding table.
    pub entry: u32,
    /// Kind of buffer in the shader.
    pub kind: BindingKind,
    /// Whether the handler never writes it.
    pub read_only: bool,
}

/// Kinds of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingKind {
    /// Storage buffer.
    Storage,
    /// Uniform buffer.
    Uniform,
}

/// Links handlers into a kernel.
///
/// Binding b of set 0 becomes entry b of the task's table. A handler with other sets, or bindings beyond the table,
/// has its pairs of set and binding numbered in their order.
///
/// # Errors
/// The first thing that can't be linked, with the handler, the instruction and the reason.
pub fn link(kernel: &Lowered, handlers: &[HandlerModule<'_>], limits: &Limits) -> Result<Linked, LinkError> {
    let interface = kernel.interface.ok_or(LinkError::NoInterface)?;
    let module = Module::parse(&kernel.words).map_err(LinkError::Kernel)?;
    let kernel_bytes = handler::workgroup_bytes(&module);
    let mut merger = Merger::new(module)?;
    let read = read(handlers)?;
    let own = read.iter().fold(0_u64, |sum, handler| sum.saturating_add(handler.workgroup_bytes));
    let workgroup_bytes = kernel_bytes.saturating_add(own);
    if workgroup_bytes > limits.workgroup_bytes.into() {
        let limit = limits.workgroup_bytes;
        return Err(LinkError::WorkgroupMemory { kernel: kernel_bytes, handlers: own, limit });
    }
    let mut pool = Pool::default();
    let (mut cases, mut linked) = (Vec::new(), Vec::new());
    for handler in &read {
        let (wrapper, done) = take(handler, &mut merger, &mut pool, interface).map_err(|refusal| {
            let HandlerModule { entry, opcode, .. } = handler.source;
            LinkError::Handler { entry: entry.to_owned(), opcode, refusal }
        })?;
        cases.push((handler.source.opcode, wrapper));
        linked.push(done);
    }
    if !cases.is_empty() {
        dispatch::switch(&mut merger, interface, &cases)?;
    }
    let (module, capabilities) = merger.finish();
    check(&module).map_err(LinkError::Unsound)?;
    let words = module.assemble().map_err(LinkError::Unsound)?;
    let invocations = read.first().map(Handler::invocations);
    Ok(Linked { words, invocations, handlers: linked, workgroup_bytes, capabilities })
}

/// Invocations of the handlers' workgroups; none where there are no handlers.
///
/// # Errors
/// Those of [`link`] that show without a kernel.
pub fn invocations(handlers: &[HandlerModule<'_>]) -> Result<Option<u32>, LinkError> {
    Ok(read(handlers)?.first().map(Handler::invocations))
}

/// Reads the handlers and checks that they go together.
fn read<'a>(handlers: &[HandlerModule<'a>]) -> Result<Vec<Handler<'a>>, LinkError> {
    let mut opcodes = FxHashMap::default();
    let mut read: Vec<Handler<'a>> = Vec::new();
    for source in handlers {
        let HandlerModule { entry, opcode, .. } = *source;
        if let Some(first) = opcodes.insert(opcode, entry) {
            return Err(LinkError::OpcodeTwice { opcode, first: first.to_owned(), second: entry.to_owned() });
        }
        let handler = Handler::read(*source).map_err(|refusal| LinkError::Handler {
            entry: entry.to_owned(),
            opcode,
            refusal,
        })?;
        if let Some(first) = read.first().filter(|first| first.invocations() != handler.invocations()) {
            return Err(LinkError::WorkgroupSizes {
                first: first.source.entry.to_owned(),
                first_opcode: first.source.opcode,
                first_invocations: first.invocations(),
                second: entry.to_owned(),
                second_opcode: opcode,
                second_invocations: handler.invocations(),
            });
        }
        read.push(handler);
    }
    Ok(read)
}

/// Takes one handler into the kernel; gives its wrapper and what its tasks need.
fn take(
    handler: &Handler<'_>,
    merger: &mut Merger,
    pool: &mut Pool,
    interface: Interface,
) -> Result<(u32, LinkedHandler), Refusal> {
    let mut import = Import::new(handler, merger, pool);
    import.globals()?;
    for function in handler.functions.iter().filter_map(|index| handler.module.functions.get(*index)) {
        let function = body::rewrite(&mut import, function)?;
        import.merger.module.functions.push(function);
    }
    import.annotate();
    let wrapper = dispatch::wrapper(&mut import, interface);
    let bindings = handler.slots.iter().map(|slot| binding(handler, &import, *slot)).collect();
    let done = LinkedHandler {
        opcode: handler.source.opcode,
        entry: handler.source.entry.to_owned(),
        workgroup_size: handler.workgroup_size,
        bindings,
        payload_words: handler.payload_words,
        workgroup_bytes: handler.workgroup_bytes,
    };
    Ok((wrapper, done))
}

/// A buffer by its names; two variables may share them.
fn binding(handler: &Handler<'_>, import: &Import<'_>, slot: handler::Slot) -> Binding {
    let (mut kind, mut read_only) = (BindingKind::Uniform, true);
    for (id, variable) in &handler.variables {
        if let Role::Buffer { entry, uniform } = variable.role
            && entry == slot.entry
        {
            if !uniform {
                kind = BindingKind::Storage;
            }
            read_only &= uniform || !import.written.contains(id);
        }
    }
    Binding { set: slot.set, binding: slot.binding, entry: slot.entry, kind, read_only }
}
