//! The background loop that forgets stale keys.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::RateLimiter;

/// The settings of the loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct CleanupConfig {
    pub(super) stale_for: Duration,
    pub(super) interval: Duration,
}

/// The channel to a running loop. Dropping it ends the loop.
#[derive(Debug, Default)]
pub(super) struct Cleanup(Mutex<Option<Sender<CleanupConfig>>>);

impl Cleanup {
    /// Starts the loop, or sends new settings to the running one.
    pub(super) fn run(&self, limiter: &Arc<RateLimiter>, config: CleanupConfig) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_some_and(|running| running.send(config).is_ok()) {
            return;
        }
        let (sender, changes) = channel();
        let limiter = Arc::downgrade(limiter);
        let thread = std::thread::Builder::new().name("trypema-cleanup".into());
        // If the thread cannot be started, keys are still forgotten as new ones arrive.
        if thread.spawn(move || run(&limiter, config, &changes)).is_ok() {
            *running = Some(sender);
        }
    }
}

fn run(limiter: &Weak<RateLimiter>, mut config: CleanupConfig, changes: &Receiver<CleanupConfig>) {
    loop {
        match changes.recv_timeout(config.interval) {
            Ok(changed) => config = changed,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => match limiter.upgrade() {
                Some(limiter) => limiter.local().forget_stale(config.stale_for),
                None => return,
            },
        }
    }
}
