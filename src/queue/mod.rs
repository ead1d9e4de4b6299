//! The host halves of the queues: tasks are pushed to one and completions taken from the other, in the manner of
//! io_uring.
//!
//! Owns tickets, generations, the table of tasks in flight and who may write which slot when. Sees memory through
//! [`Words`] and the kernel's launches through [`Link`], and knows nothing of Vulkan. Pushing, publishing and polling
//! neither allocate nor lock nor call the system while the launch lives.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use abide::protocol::{inlet, opcode, outlet};
//! use abide::queue::{self, HeapWords, Link, LinkError, QueueConfig, Task, model::ModelKernel};
//!
//! struct AlwaysUp;
//! impl Link for AlwaysUp {
//!     fn launch(&self) -> u32 {
//!         1
//!     }
//!     fn turn(&self, _patience: Duration, _waiting: bool) -> Result<(), LinkError> {
//!         Ok(())
//!     }
//! }
//!
//! let config = QueueConfig::even(&[0, 8, 16, 24], 32, 0);
//! let inlet = Arc::new(HeapWords::new(inlet::words(24, 0)));
//! let outlet = Arc::new(HeapWords::new(outlet::words(24, 32)));
//! let mut kernel = ModelKernel::new(&config, inlet.clone(), outlet.clone());
//! let (mut submission, mut completion) = queue::pair(&config, inlet, outlet, Arc::new(AlwaysUp))?;
//!
//! let ticket = submission.push(Task::new(opcode::NOP).user_data(7).payload(&[42]))?;
//! submission.publish()?;
//! kernel.run_one();
//! let done = completion.wait(ticket, Duration::from_secs(1))?;
//! assert_eq!((done.user_data, done.result), (7, 42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod completion;
mod config;
mod doorbell;
mod error;
mod in_flight;
mod link;
mod mapped;
pub mod model;
mod outcome;
mod patience;
mod ready;
mod ring;
mod shared;
mod submission;
mod sync;
mod table;
mod task;
mod tenants;
mod ticket;
mod words;

use std::sync::Arc;

pub use completion::CompletionQueue;
pub use config::QueueConfig;
pub use error::{BatchError, ConfigError, PushError, TaskError, WaitError};
pub use in_flight::InFlight;
pub use link::{ExitReason, Link, LinkError};
pub use mapped::MappedWords;
pub use outcome::{Completion, FaultCode, Outcome};
pub use submission::SubmissionQueue;
pub use task::Task;
pub(crate) use tenants::parked_work;
pub use tenants::{TenantError, Tenants};
pub use ticket::{Ticket, Tickets};
pub use words::{HeapWords, Memory, Words};

/// Makes the two host halves over an inlet and an outlet that hold the words that `config` starts with.
///
/// One pair may exist for each inlet and outlet: a second would hand out the same slots.
///
/// # Errors
/// What is wrong with the shape, or that the memory is too small for it.
pub fn pair<W: Words>(
    config: &QueueConfig,
    inlet: W,
    outlet: W,
    link: Arc<dyn Link>,
) -> Result<(SubmissionQueue<W>, CompletionQueue<W>), ConfigError> {
    let shared = Arc::new(shared::Shared::new(config, inlet, outlet, link)?);
    Ok((SubmissionQueue::new(shared.clone()), CompletionQueue::new(shared, config)))
}
