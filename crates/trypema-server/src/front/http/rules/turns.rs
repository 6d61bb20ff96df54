//! Turns for whole rule sets: each may be many megabytes, so only some are in memory at a time.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::background_worker::Worker;
use crate::front::http::problem::Refusal;

/// Dry runs at a time. They share one worker, so more would only hold memory.
const DRY_RUNS: usize = 1;
/// Dry runs that may wait for their turn; further ones are refused.
const WAITING_DRY_RUNS: usize = 16;
/// Rule sets of editors at a time: the second one arrives while the first one is stored.
const CHANGES: usize = 2;

/// Bounds how many whole rule sets are in memory. Editors never wait for readers.
#[derive(Debug)]
pub(in crate::front::http) struct Turns {
    dry_runs: Semaphore,
    /// Places in the queue of dry runs, those that have their turn included.
    queue: Semaphore,
    changes: Semaphore,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    _turn: Option<SemaphorePermit<'t>>,
    _place: Option<SemaphorePermit<'t>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            dry_runs: Semaphore::new(DRY_RUNS),
            queue: Semaphore::new(DRY_RUNS + WAITING_DRY_RUNS),
            changes: Semaphore::new(CHANGES),
        }
    }
}

impl Turns {
    /// Waits for a turn to send a rule set that `worker` works on.
    ///
    /// # Errors
    ///
    /// That too many dry runs wait already.
    pub(super) async fn take(&self, worker: Worker) -> Result<Turn<'_>, Refusal> {
        let (turns, place) = match worker {
            Worker::Changes => (&self.changes, None),
            Worker::Reads => {
                let busy = |_| Refusal::unavailable("too many dry runs wait already");
                (&self.dry_runs, Some(self.queue.try_acquire().map_err(busy)?))
            }
        };
        // The semaphores are never closed.
        Ok(Turn { _turn: turns.acquire().await.ok(), _place: place })
    }
}
