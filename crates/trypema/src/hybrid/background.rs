//! Requests for leases, and the background work of an instance.
//!
//! A request for a lease is a future. The call that needs it polls it; every other one goes to a queue, from which the future
//! of `keep_in_sync` runs up to [`MAX_IN_FLIGHT`] at a time. Its first task is the sweeper, which gives back what is left of ended
//! leases, forgets idle keys and sends heartbeats, by the limiter's clock.
//!
//! Invariants:
//! - A key has one request under way at a time; who needs its reply waits for it.
//! - A request that is dropped before its reply is noted as failed, so that its key can be asked for again. It is dropped if nobody runs
//!   the queue.
//! - A caller that goes away leaves the request that it sent to the queue: the lease that it may have been granted is not lost.
//! - The queue ends with the provider. No lock is held across an await.

mod instance;
mod lease_request;
mod queue;
mod shared;
mod sweeper;

pub(super) use instance::Instance;
pub(super) use lease_request::{FinishInBackground, LeaseRequest};
pub(super) use shared::{Found, Shared};
pub(super) use sweeper::Background;

use std::sync::{Arc, Weak};

use futures_util::StreamExt;

/// Requests under way at once at most; more wait their turn. They travel together, so this is a few script calls.
const MAX_IN_FLIGHT: usize = 512;

/// Runs the background work until the provider is dropped. A second one ends at once.
pub(super) async fn run(background: Weak<Background>, instance: Arc<Instance>) {
    let Some((tasks, closed)) = instance.queue.open() else { return };
    instance.queue.push(Box::pin(sweeper::run(background, Arc::clone(&instance), closed)));
    drop(instance);
    tasks.for_each_concurrent(MAX_IN_FLIGHT, |task| task).await;
}
