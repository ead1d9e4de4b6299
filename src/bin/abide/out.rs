//! Standard output. What reads it may go at any time, and the disk behind it may be full.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};

/// Prints a text as it is.
///
/// # Errors
/// It can't be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output can't be written")
}

/// Whether an error says only that nobody reads standard output any more: no reason to complain.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
