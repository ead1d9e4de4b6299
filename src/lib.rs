//! A Vulkan runtime that keeps one compute kernel resident on the GPU and feeds it tasks through memory.
//!
//! [`device::Device`] opens or adopts a Vulkan device and tests what it can do. [`runtime::Runtime`] links handlers, which are
//! ordinary compute shaders, into a kernel, keeps that on the device, and comes with the two halves of its queues:
//! [`queue::SubmissionQueue`] and [`queue::CompletionQueue`]. The README has the first program, `docs/architecture.md` says how
//! the parts fit, and `docs/protocol.md` what travels between host and kernel.
//!
//! ```no_run
//! use std::time::Duration;
//! use abide::device::{Device, Selector};
//! use abide::protocol::opcode;
//! use abide::queue::Task;
//! use abide::runtime::Runtime;
//!
//! let device = Device::open(&Selector::from_env()?)?;
//! let (_runtime, mut submission, mut completion) = Runtime::builder(&device).build()?;
//! let ticket = submission.push(Task::new(opcode::NOP).payload(&[42]))?;
//! submission.publish()?;
//! assert_eq!(completion.wait(ticket, Duration::from_secs(1))?.result, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod baked;
pub mod device;
pub mod ir;
pub mod planner;
pub mod protocol;
pub mod queue;
pub mod runtime;
pub mod scheduler;
pub mod spirv;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
