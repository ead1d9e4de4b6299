//! Completions: how tasks ended.

use std::fmt;

use super::ticket::Ticket;
use crate::protocol::completion::{self, fault};

/// A task that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The task's ticket.
    pub ticket: Ticket,
    /// The number that was pushed with the task.
    pub user_data: u64,
    /// How the task ended.
    pub outcome: Outcome,
    /// The handler's result word.
    pub result: u32,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The handler ran to its end.
    Done,
    /// The task failed, for the reason that the code gives.
    Fault(FaultCode),
}

impl Outcome {
    /// Reads the outcome word of a completion.
    #[inline]
    pub(super) const fn from_word(word: u32) -> Self {
        match word & completion::OUTCOME_MASK {
            completion::DONE => Self::Done,
            _ => Self::Fault(FaultCode(word >> completion::FAULT_SHIFT & completion::FAULT_MASK)),
        }
    }
}

/// Why a task failed: a code of the kernel's, or of the handler's own from [`fault::USER`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaultCode(pub u32);

impl fmt::Display for FaultCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            fault::NO_HANDLER => "no handler is registered under the opcode: register it before building the runtime",
            fault::OUT_OF_RANGE => "an index is outside the bound buffer: bind a larger one or check the payload",
            fault::NOT_BOUND => "a buffer that the handler needs is not bound: name a binding table that has it",
            fault::TORN => "parts of the task never reached the kernel: run `abide doctor` to check the memory",
            fault::LOOP_LIMIT => "the driver cut the handler's loops short: loop less, or use a newer driver",
            fault::WRONG_LEVEL => "the task's level is not its slot's: something else writes to the inlet",
            fault::TENANT => "the task's tenant is not registered: something else writes to the inlet",
            code if code >= fault::USER => return write!(formatter, "the handler's own fault {code:#x}"),
            code => return write!(formatter, "fault {code:#x}, which this version does not know"),
        };
        write!(formatter, "fault {}: {text}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_words_are_read_back() {
        assert_eq!(Outcome::from_word(completion::pack_outcome(completion::DONE, 3, 0, 200)), Outcome::Done);
        let word = completion::pack_outcome(completion::FAULT, 3, fault::USER + 5, 200);
        assert_eq!(Outcome::from_word(word), Outcome::Fault(FaultCode(0x105)));
    }

    #[test]
    fn every_code_says_what_it_means() {
        for code in fault::NO_HANDLER..=fault::TENANT {
            let text = FaultCode(code).to_string();
            assert!(text.starts_with(&format!("fault {code}: ")) && text.len() > 40, "{text}");
        }
        assert_eq!(FaultCode(0x105).to_string(), "the handler's own fault 0x105");
        assert_eq!(FaultCode(0x50).to_string(), "fault 0x50, which this version does not know");
    }
}
