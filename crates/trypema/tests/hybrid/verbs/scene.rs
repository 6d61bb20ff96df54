//! Instances that share a Redis and a manual clock.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{Decision, RateLimiter, RateLimiterBuilder};
use trypema_testkit::blocking::{connect, key, limiter, wait_for};
use trypema_testkit::redis::{FaultProxy, Server};
use trypema_testkit::subject::HybridStrategy;

/// The interval between lease requests.
pub(crate) const SYNC: Duration = Duration::from_millis(100);

/// Much longer than the interval.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// The number of simultaneous calls after which a key is certainly leased.
const SURELY_HOT: u64 = 8;

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) clock: Arc<ManualClock>,
}

impl Scene {
    pub(crate) fn start() -> Self {
        Self { server: Server::start().unwrap(), clock: Arc::new(ManualClock::default()) }
    }

    /// An instance with its own connection.
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

    /// The number of script calls that Redis has executed.
    pub(crate) fn calls(&self) -> u64 {
        let info = self.server.info("commandstats").unwrap();
        let calls = |command: &str| {
            let mut parts = info.text(command).split(',');
            parts.find_map(|part| part.strip_prefix("calls=")?.parse::<u64>().ok()).unwrap_or(0)
        };
        calls("cmdstat_evalsha") + calls("cmdstat_eval")
    }
}

/// Takes `cost` units, with a Redis call if necessary.
pub(crate) fn take<S: HybridStrategy>(rl: &RateLimiter, name: &str, limit: &S::Limit, cost: u64) -> Decision {
    S::core(&wait_for(S::hybrid(rl).take(&key(name), limit, cost)).unwrap())
}

/// Takes `cost` units without waiting. Returns `None` if Redis would be needed.
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

/// The units of a key that Redis counts, including leased ones.
pub(crate) fn used<S: HybridStrategy>(rl: &RateLimiter, name: &str, limit: &S::Limit) -> u64 {
    let usage = S::core(&wait_for(S::redis(rl).usage(&key(name), limit)).unwrap());
    usage.limit() - usage.remaining()
}

/// Takes single units until the instance holds a lease. Returns the number taken.
pub(crate) fn call_until_leased<S: HybridStrategy>(rl: &RateLimiter, name: &str, limit: &S::Limit) -> u64 {
    for taken in 1..=SURELY_HOT {
        assert!(take::<S>(rl, name, limit, 1).is_allowed(), "{}", S::NAME);
        if held::<S>(rl, name) > 0 {
            return taken;
        }
    }
    panic!("{} is not leased after {SURELY_HOT} calls", S::NAME);
}

/// Refunds all leased units.
pub(crate) fn release(rl: &RateLimiter) {
    wait_for(rl.hybrid().release());
}
