//! The sweeper: maintains idle keys and sends heartbeats.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::instance::{Instance, LIVE_FOR};
use super::limiter_state::LimiterState;
use super::queue::{ClosedSignal, Task};
use crate::clock::ClockSource;
use crate::hybrid::state::{Maintenance, Pace};
use crate::redis::{InstanceLiveness, RedisRateLimiterProvider, all};
use crate::strategy::{Leasable, STRATEGIES};
use crate::waiting::{Sleep, with_timeout};

/// The data of the background work. The provider owns it, and dropping it closes the queue.
pub(in crate::hybrid) struct Background {
    pub(in crate::hybrid) instance: Arc<Instance>,
    pub(in crate::hybrid) redis: RedisRateLimiterProvider,
    /// One entry per strategy.
    pub(in crate::hybrid) strategies: [Arc<dyn LeasedKeys>; STRATEGIES],
}

/// The keys of one strategy.
pub(in crate::hybrid) trait LeasedKeys: Send + Sync {
    /// Queues a request for every key that has units to return or calls to report, and removes idle keys.
    fn sweep(self: Arc<Self>);

    /// Waits for lease requests in progress, then returns all held units to Redis.
    fn release(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// Returns the number of units held for all keys.
    fn held(&self) -> u64;
}

impl Background {
    /// Returns all held units to Redis, and announces that the instance leaves.
    pub(in crate::hybrid) async fn release(&self) {
        all(self.strategies.iter().map(|keys| Arc::clone(keys).release())).await;
        self.heartbeat(self.instance.leaving()).await;
    }

    /// Returns a task that sends a heartbeat, or announces that the instance leaves. The reply updates the
    /// number of live instances.
    fn heartbeat(&self, instance: InstanceLiveness) -> Task {
        let redis = self.redis.clone();
        Box::pin(async move {
            // If Redis is unreachable, the last known number stays in use.
            let _ = redis.send_heartbeat(instance).await;
        })
    }
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.instance.queue.close();
    }
}

/// Sweeps and sends heartbeats periodically, until the queue is closed.
pub(super) async fn run(background: Weak<Background>, instance: Arc<Instance>, mut closed: ClosedSignal) {
    let interval = Duration::from_micros(Pace::sweep_interval_us(instance.sync_us));
    let mut next_heartbeat = instance.clock.now();
    loop {
        let Some(background) = background.upgrade() else { return };
        let now = instance.clock.now();
        if now >= next_heartbeat {
            instance.queue.push(background.heartbeat(instance.live()));
            next_heartbeat = now + LIVE_FOR / 3;
        }
        background.strategies.iter().for_each(|keys| Arc::clone(keys).sweep());
        drop(background);
        if with_timeout(&mut closed, Sleep::until(&instance.clock, now + interval)).await.is_some() {
            return;
        }
    }
}

impl<S: Leasable> LeasedKeys for LimiterState<S> {
    fn sweep(self: Arc<Self>) {
        let now = self.instance.clock.now();
        // Abuse attempts are not leased, so this instance does not count as sharing their keys.
        let instance = if S::IS_LEASED { self.instance.live() } else { self.instance.leaving() };
        let mut requests = Vec::new();
        self.table.sweep(|entry| match entry.holding.next_maintenance(now) {
            Maintenance::Nothing => true,
            Maintenance::Return => {
                let params = entry.holding.start_return(now);
                requests.push(self.request(entry, params, instance));
                true
            }
            Maintenance::Remove => entry.is_waited_for(),
        });
        requests.into_iter().for_each(|request| self.queue(request));
    }

    fn release(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.wait_for_replies().await;
            let mut requests = Vec::new();
            let now = self.instance.clock.now();
            self.table.sweep(|entry| {
                entry.holding.end_all();
                while entry.holding.has_units_to_return() || entry.holding.is_unreported() {
                    let params = entry.holding.start_return(now);
                    requests.push(self.request(entry, params, self.instance.leaving()));
                }
                true
            });
            all(requests.into_iter().map(|request| self.task(request))).await;
        })
    }

    fn held(&self) -> u64 {
        let (now, mut held) = (self.instance.clock.now(), 0);
        self.table.sweep(|entry| {
            held += entry.holding.held(now);
            true
        });
        held
    }
}

impl<S: Leasable> LimiterState<S> {
    /// Waits for lease requests in progress, for at most the timeout of a call.
    async fn wait_for_replies(&self) {
        let (now, deadline) = (self.instance.clock.now(), self.redis.deadline_from_now());
        let mut replies = Vec::new();
        self.table.sweep(|entry| {
            if entry.holding.is_requesting(now) {
                replies.push(entry.wait_for_reply());
            }
            true
        });
        // The results do not matter: a failed request leaves no units to return.
        with_timeout(all(replies), Sleep::until(&ClockSource::System, deadline)).await;
    }
}
