//! Waits for conditions of real processes: polls until a deadline, then reports the condition that did not
//! occur.

use std::thread;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};

use super::{Error, Result};

/// The deadline. A loaded machine may take seconds to start six servers, but nothing that works takes this
/// long.
const PATIENCE: Duration = Duration::from_secs(30);
/// The poll interval: short compared with every wait, long enough to leave the processor to other
/// processes.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Waits until `is_so` returns `true`. Fails after 30 s with an error that names `what`.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    poll(what, || if is_so() { Ok(()) } else { Err(Error::new("not yet")) })
}

/// Repeats `attempt` until it succeeds. Fails after the deadline with the last error.
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
