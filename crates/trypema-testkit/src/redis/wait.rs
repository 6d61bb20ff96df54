//! Waiting for a real process: poll until a deadline, then say what did not happen.

use std::thread;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};

use super::{Error, Result};

/// A loaded machine may take seconds to start six servers; nothing that works takes this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Short beside everything that is waited for, long enough to leave the processor to it.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Returns once `is_so` does; fails after 30 s, naming `what` was waited for.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    poll(what, || if is_so() { Ok(()) } else { Err(Error::new("not yet")) })
}

/// Repeats `attempt` until it succeeds; after the deadline, fails with its last error.
pub(crate) fn poll<T>(what: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = SystemClock.now() + PATIENCE;
    loop {
        let error = match attempt() {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if SystemClock.now() > deadline {
            return Err(Error::new(format!("waited {PATIENCE:?} for {what}: {error}")));
        }
        thread::sleep(BETWEEN_ATTEMPTS);
    }
}
