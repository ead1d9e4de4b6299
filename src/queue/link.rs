//! The queues' way to whoever launches the kernel, taken only when plain words say that it is needed.

use std::fmt;
use std::time::Duration;

use crate::protocol::outlet::exit;

/// What launches and watches the kernel on behalf of the queues; a runtime implements it.
///
/// The queues call [`Link::turn`] when the outlet's ENDED word says that the launch has left while tasks are
/// unfinished, and now and then while they wait.
pub trait Link: Send + Sync {
    /// The number of the latest launch; the kernel has left once the outlet's ENDED word equals it.
    ///
    /// One atomic load: it is called on the fast path. Before the first launch it is 0, as ENDED is, so that the first
    /// publish launches. In epoch mode it always equals the shadow's ENDED word, so that every call turns.
    fn launch(&self) -> u32;

    /// Looks after the launch: starts one where none runs and tasks are `waiting`, runs or collects an epoch, and
    /// notices a kernel that no longer answers.
    ///
    /// A task is waiting once it has been published and until a worker has taken it in. The link may know better, and
    /// takes the caller's word where it doesn't. Waits `patience` at most; with none it only starts what must be started. Several threads may call it at once.
    ///
    /// # Errors
    /// What keeps the tasks from being run. It is asked again later, so an error that ended by itself may vanish.
    fn turn(&self, patience: Duration, waiting: bool) -> Result<(), LinkError>;
}

/// Why a kernel left, as it says in the outlet's EXIT word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExitReason(pub u32);

impl fmt::Display for ExitReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => formatter.write_str("it gave no reason; the driver may have cut it short"),
            exit::STOP => formatter.write_str("it was asked to stop"),
            exit::IDLE => formatter.write_str("it had been idle for as long as the launch allows"),
            exit::BUDGET => formatter.write_str("it had used up its budget of passes"),
            exit::SHUTDOWN => formatter.write_str("a SHUTDOWN task ended it"),
            exit::ONE_TASK => formatter.write_str("the launch runs one task a worker"),
            other => write!(formatter, "unknown reason {other}"),
        }
    }
}

/// Why tasks that were pushed can't be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The kernel left while tasks were unfinished, and launching it again did not help.
    #[error("the kernel left early: {reason}; its unfinished tasks are listed by `CompletionQueue::unfinished`")]
    KernelLeft {
        /// What the kernel said.
        reason: ExitReason,
    },
    /// The kernel runs but has not moved for longer than the runtime allows.
    #[error(
        "the kernel has made no progress for {quiet:?}: a handler may loop without end; mend it, or allow more time"
    )]
    Stalled {
        /// How long it has not moved.
        quiet: Duration,
    },
    /// The driver has given the device up.
    #[error("the device is lost: open it again and push the tasks of `CompletionQueue::unfinished` anew")]
    DeviceLost,
    /// The driver refused a call for another reason, which is logged.
    #[error("the driver refused to launch or watch the kernel, for the reason that is logged: build another runtime")]
    Refused,
    /// The runtime was stopped or dropped, or a SHUTDOWN task ended it.
    #[error("the runtime is stopped: build another one and push the unfinished tasks there")]
    Stopped,
}

impl LinkError {
    /// True where no later call can succeed: queues refuse tasks from then on.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Stalled { .. })
    }
}
