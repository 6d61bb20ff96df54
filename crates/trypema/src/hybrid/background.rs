//! Requests for leases, and the background work of an instance.
//!
//! A lease request is a future. A call that needs the lease polls it itself. All other requests go to a
//! queue, from which the future of `keep_in_sync` runs up to [`MAX_IN_FLIGHT`] at a time. The first task in
//! the queue is the sweeper. At intervals of the limiter's clock, it returns the unspent units of ended
//! leases, removes idle keys and sends heartbeats.
//!
//! Invariants:
//! - A key has at most one lease request in progress. Other calls that need its reply wait for it.
//! - A request that is dropped before its reply is recorded as failed, so that its key can send another.
//!   Queued requests are dropped if nothing runs the queue.
//! - If a caller is dropped after it has sent a request, the queue finishes the request, so that a granted
//!   lease is not lost.
//! - The queue is closed when the provider is dropped. No lock is held across an await.

mod instance;
mod lease_request;
mod limiter_state;
mod queue;
mod sweeper;

pub(super) use instance::Instance;
pub(super) use lease_request::{FinishInBackground, LeaseRequest};
pub(super) use limiter_state::LimiterState;
pub(super) use sweeper::{Background, LeasedKeys};

use std::sync::{Arc, Weak};

use futures_util::StreamExt;

/// The maximum number of queued tasks that run at once. Their requests share batches, so this is a few
/// script calls.
const MAX_IN_FLIGHT: usize = 512;

/// Runs the background work until the provider is dropped. Returns at once if it is already running.
pub(super) async fn run(background: Weak<Background>, instance: Arc<Instance>) {
    let Some((tasks, closed)) = instance.queue.open() else { return };
    instance.queue.push(Box::pin(sweeper::run(background, Arc::clone(&instance), closed)));
    drop(instance);
    tasks.for_each_concurrent(MAX_IN_FLIGHT, |task| task).await;
}
