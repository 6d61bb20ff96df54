//! Instances that share a Redis and a driven clock.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{Decision, RateLimiter, RateLimiterBuilder};
use trypema_testkit::blocking::{connect, key, limiter, wait_for};
use trypema_testkit::redis::{FaultProxy, Server};
use trypema_testkit::subject::HybridStrategy;

/// How often instances ask for leases.
pub(crate) const SYNC: Duration = Duration::from_millis(100);

/// A window beside which that is short.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// A key is leased after so many calls at once.
const SURELY_HOT: u64 = 8;

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) clock: Arc<ManualClock>,
}

impl Scene {
    pub(crate) fn start() -> Self {
        Self { server: Server::start().unwrap(), clock: Arc::new(ManualClock::default()) }
    }

    /// An instance with a connection of its own.
    pub(crate) fn instance(&self) -> RateLimiter {
        self.building().build().unwrap()
    }

    pub(crate) fn building(&self) -> RateLimiterBuilder {
        limiter(&connect(&self.server.url()), "trypema", &self.clock).sync_interval(SYNC)
    }

    /// An instance that reaches Redis through `proxy`.
    pub(crate) fn behind(&self, proxy: &FaultProxy) -> RateLimiter {
        let builder = limiter(&connect(&proxy.url()), "trypema", &self.clock);
        builder.sync_interval(SYNC).build().unwrap()
    }

    /// Script calls that Redis has answered.
    pub(crate) fn calls(&self) -> u64 {
        let info = self.server.info("commandstats").unwrap();
        let calls = |command: &str| {
            let mut parts = info.text(command).split(',');
            parts.find_map(|part| part.strip_prefix("calls=")?.parse::<u64>().ok()).unwrap_or(0)
        };
        calls("cmdstat_evalsha") + calls("cmdstat_eval")
    }
}

/// A take, waiting for Redis where it has to.
pub(crate) fn take<S: HybridStrategy>(rl: &RateLimiter, name: &str, limit: &S::Limit, cost: u64) -> Decision {
    S::core(&wait_for(S::hybrid(rl).take(&key(name), limit, cost)).unwrap())
}

/// A take that does not wait.
pub(crate) fn try_take<S: HybridStrategy>(
    rl: &RateLimiter,
    name: &str,
    limit: &S::Limit,
    cost: u64,
) -> Option<Decision> {
    S::hybrid(rl).try_take(&key(name), limit, cost).map(|decision| S::core(&decision))
}

pub(crate) fn held<S: HybridStrategy>(rl: &RateLimiter, name: &str) -> u64 {
    S::hybrid(rl).held(&key(name))
}

/// What Redis counts of a key, whoever holds it.
pub(crate) fn used<S: HybridStrategy>(rl: &RateLimiter, name: &str, limit: &S::Limit) -> u64 {
    let usage = S::core(&wait_for(S::redis(rl).usage(&key(name), limit)).unwrap());
    usage.limit() - usage.remaining()
}

/// Takes single units until the instance holds some; how many it took.
pub(crate) fn heat<S: HybridStrategy>(rl: &RateLimiter, name: &str, limit: &S::Limit) -> u64 {
    for taken in 1..=SURELY_HOT {
        assert!(take::<S>(rl, name, limit, 1).is_allowed(), "{}", S::NAME);
        if held::<S>(rl, name) > 0 {
            return taken;
        }
    }
    panic!("{} is not leased after {SURELY_HOT} calls", S::NAME);
}

/// Gives back all that is held.
pub(crate) fn release(rl: &RateLimiter) {
    wait_for(rl.hybrid().release());
}
