//! Bounds the number of whole rule sets in memory, because each may have many megabytes.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::background_worker::Worker;
use crate::front::http::problem::ApiError;

/// The number of dry runs at a time. They share one worker, so more would only hold memory.
const DRY_RUNS: usize = 1;
/// The number of dry runs that may wait; further ones are refused.
const WAITING_DRY_RUNS: usize = 16;
/// The number of changes that may hold a rule set at a time: the second can arrive while the first is stored.
const CHANGES: usize = 2;

/// Permits for whole rule sets. Editors never wait for readers.
#[derive(Debug)]
pub(in crate::front::http) struct RulesetPermits {
    dry_runs: Semaphore,
    /// Places in the queue of dry runs, including those that are running.
    queue: Semaphore,
    changes: Semaphore,
}

impl Default for RulesetPermits {
    fn default() -> Self {
        Self {
            dry_runs: Semaphore::new(DRY_RUNS),
            queue: Semaphore::new(DRY_RUNS + WAITING_DRY_RUNS),
            changes: Semaphore::new(CHANGES),
        }
    }
}

impl RulesetPermits {
    /// Waits for the permits to receive a rule set that `worker` will process. They end when they are dropped.
    ///
    /// # Errors
    ///
    /// Too many dry runs are waiting already.
    pub(super) async fn acquire(&self, worker: Worker) -> Result<[Option<SemaphorePermit<'_>>; 2], ApiError> {
        let (permits, queued) = match worker {
            Worker::Changes => (&self.changes, None),
            Worker::Reads | Worker::Operators => {
                let busy = |_| ApiError::unavailable("too many dry runs are queued; retry");
                (&self.dry_runs, Some(self.queue.try_acquire().map_err(busy)?))
            }
        };
        // The semaphores are never closed.
        Ok([permits.acquire().await.ok(), queued])
    }
}
