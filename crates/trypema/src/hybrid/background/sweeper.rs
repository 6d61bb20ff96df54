//! Keys that nobody calls for, and heartbeats.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::instance::{Instance, LIVE_FOR};
use super::queue::{Closed, Task};
use super::shared::Shared;
use crate::clock::Source;
use crate::hybrid::state::{Chore, Pace};
use crate::redis::{RedisRateLimiterProvider, Sharer, all};
use crate::strategy::Leasable;
use crate::waiting::{Sleep, before};

/// What the background works for: dropped with the provider.
pub(in crate::hybrid) struct Background {
    pub(in crate::hybrid) instance: Arc<Instance>,
    pub(in crate::hybrid) redis: RedisRateLimiterProvider,
    /// One for each strategy.
    pub(in crate::hybrid) strategies: [Arc<dyn LeasedKeys>; 6],
}

/// The keys of one strategy.
pub(in crate::hybrid) trait LeasedKeys: Send + Sync {
    /// Queues a request for every key of which something is to be given back or told, and forgets idle keys.
    fn sweep(self: Arc<Self>);

    /// Waits for the replies that are under way, then gives back everything that is held.
    fn release(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// Units held now, of all keys.
    fn held(&self) -> u64;
}

impl Background {
    /// Gives back everything that is held, and stops counting as live.
    pub(in crate::hybrid) async fn release(&self) {
        all(self.strategies.iter().map(|keys| Arc::clone(keys).release())).await;
        self.heartbeat(self.instance.leaver()).await;
    }

    /// Tells Redis that this instance lives, or leaves, and learns how many there are.
    fn heartbeat(&self, sharer: Sharer) -> Task {
        let redis = self.redis.clone();
        Box::pin(async move {
            // If Redis is away the last known number is used.
            let _ = redis.heartbeat(sharer).await;
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

/// Sweeps and sends heartbeats when it is time, until the queue is closed.
pub(super) async fn run(background: Weak<Background>, instance: Arc<Instance>, mut closed: Closed) {
    let interval = Duration::from_micros(Pace::sweep_interval_us(instance.sync_us));
    let mut next_heartbeat = instance.clock.now();
    loop {
        let Some(background) = background.upgrade() else { return };
        let now = instance.clock.now();
        if now >= next_heartbeat {
            instance.queue.push(background.heartbeat(instance.sharer()));
            next_heartbeat = now + LIVE_FOR / 3;
        }
        background.strategies.iter().for_each(|keys| Arc::clone(keys).sweep());
        drop(background);
        if before(&mut closed, Sleep::until(&instance.clock, now + interval)).await.is_some() {
            return;
        }
    }
}

impl<S: Leasable> LeasedKeys for Shared<S> {
    fn sweep(self: Arc<Self>) {
        let now = self.instance.clock.now();
        // Nobody shares attempts.
        let sharer = if S::IS_LEASED { self.instance.sharer() } else { self.instance.leaver() };
        let mut requests = Vec::new();
        self.table.sweep(|entry| match entry.holding.chore(now) {
            Chore::Nothing => true,
            Chore::Settle => {
                let ask = entry.holding.settle(now);
                requests.push(self.request(entry, ask, sharer));
                true
            }
            Chore::Forget => entry.is_waited_for(),
        });
        requests.into_iter().for_each(|request| self.queue(request));
    }

    fn release(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.replies().await;
            let mut requests = Vec::new();
            let now = self.instance.clock.now();
            self.table.sweep(|entry| {
                entry.holding.end_all();
                while entry.holding.is_owing() || entry.holding.is_unreported() {
                    let ask = entry.holding.settle(now);
                    requests.push(self.request(entry, ask, self.instance.leaver()));
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

impl<S: Leasable> Shared<S> {
    /// Waits for the replies that are under way, for the time of a call at most.
    async fn replies(&self) {
        let (now, deadline) = (self.instance.clock.now(), self.redis.deadline_from_now());
        let mut replies = Vec::new();
        self.table.sweep(|entry| {
            if entry.holding.is_asking(now) {
                replies.push(entry.wait_for_reply());
            }
            true
        });
        // What failed is not held.
        before(all(replies), Sleep::until(&Source::System, deadline)).await;
    }
}
