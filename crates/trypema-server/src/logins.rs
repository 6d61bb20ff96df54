//! A limit on failed logins, by our own abuse strategy.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::Clock;
use trypema::http::AddressKey;
use trypema::{AbuseLimit, AbuseTier, RateLimiter, TrypemaError};

use crate::metrics::LoginMetrics;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// Failures within a minute that block an address for a minute: a person mistypes less often, a guesser gains nothing.
const FAILURES_PER_MINUTE: u64 = 10;
/// Failures within an hour that block an address for an hour.
const FAILURES_PER_HOUR: u64 = 50;
/// Addresses that are remembered, at about a kilobyte each. Beyond them, new addresses share their counts.
const MAX_ADDRESSES: usize = 4_096;

/// Counts failed logins by peer address (IPv6 by /64), and blocks addresses that fail too often.
///
/// Each listener has its own: failures on the check listener, which may be published, never block administration.
#[derive(Debug)]
pub(crate) struct LoginGuard {
    limiter: RateLimiter,
    limit: AbuseLimit,
    metrics: Arc<LoginMetrics>,
}

impl LoginGuard {
    /// A guard that has seen nothing. With a `clock`, blocks go by it.
    pub(crate) fn new(
        clock: Option<Arc<dyn Clock>>,
        metrics: Arc<LoginMetrics>,
    ) -> Result<Self, TrypemaError> {
        let mut builder = RateLimiter::builder().max_keys(MAX_ADDRESSES);
        if let Some(clock) = clock {
            builder = builder.clock(clock);
        }
        let limit = AbuseLimit::new(
            AbuseTier::new(MINUTE, FAILURES_PER_MINUTE, MINUTE)?,
            AbuseTier::new(HOUR, FAILURES_PER_HOUR, HOUR)?,
        );
        Ok(Self { limiter: builder.build()?, limit, metrics })
    }

    /// How long the address stays blocked; `None` if it is not.
    pub(crate) fn blocked_for(&self, peer: IpAddr) -> Option<Duration> {
        let usage = self.limiter.local().abuse().usage(AddressKey::of(peer).as_str(), &self.limit);
        let wait = (!usage.is_allowed()).then(|| usage.block_ends_after());
        if wait.is_some() {
            self.metrics.blocked.add_one();
        }
        wait
    }

    /// Counts and logs a wrong token; how long the address is blocked, if this blocks it.
    pub(crate) fn failed(&self, peer: IpAddr) -> Option<Duration> {
        self.metrics.failed.add_one();
        let peer = AddressKey::of(peer);
        let decision = self.limiter.local().abuse().take(peer.as_str(), &self.limit, 1);
        if decision.is_allowed() {
            tracing::warn!(%peer, "login failed: wrong token");
            return None;
        }
        let wait = decision.block_ends_after();
        tracing::warn!(
            %peer,
            last_minute = decision.short_count(),
            last_hour = decision.long_count(),
            "login failed: wrong token; refusing logins from this address for {} s",
            wait.as_secs()
        );
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use trypema::clock::ManualClock;

    use super::*;

    fn guard() -> (LoginGuard, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        (LoginGuard::new(Some(clock.clone()), Arc::default()).unwrap(), clock)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ten_failures_in_a_minute_block_for_a_minute() {
        let (guard, clock) = guard();
        let (peer, other) = (address("192.0.2.1"), address("192.0.2.2"));
        for _ in 1..FAILURES_PER_MINUTE {
            assert_eq!(guard.failed(peer), None);
        }
        assert_eq!(guard.blocked_for(peer), None);
        assert_eq!(guard.failed(peer), Some(MINUTE));
        assert_eq!((guard.blocked_for(peer), guard.blocked_for(other)), (Some(MINUTE), None));
        clock.advance(MINUTE - Duration::from_micros(1));
        assert_eq!(guard.blocked_for(peer), Some(Duration::from_micros(1)));
        clock.advance(Duration::from_micros(1));
        assert_eq!(guard.blocked_for(peer), None);
    }

    #[test]
    fn fifty_failures_in_an_hour_block_for_an_hour() {
        let (guard, clock) = guard();
        let peer = address("192.0.2.1");
        for _ in 1..FAILURES_PER_HOUR {
            assert_eq!(guard.failed(peer), None);
            clock.advance(Duration::from_secs(10));
        }
        assert_eq!(guard.failed(peer), Some(HOUR));
    }

    #[test]
    fn the_addresses_of_one_network_are_one_peer() {
        let (guard, _) = guard();
        for host in 1..=FAILURES_PER_MINUTE {
            guard.failed(address(&format!("2001:db8:0:1::{host}")));
        }
        assert!(guard.blocked_for(address("2001:db8:0:1:ffff::1")).is_some());
        assert_eq!(guard.blocked_for(address("2001:db8:0:2::1")), None);
    }

    #[test]
    fn an_address_stays_blocked_however_many_others_fail() {
        let (guard, _) = guard();
        let peer = address("192.0.2.1");
        for _ in 0..FAILURES_PER_MINUTE {
            guard.failed(peer);
        }
        for network in 0..2 * MAX_ADDRESSES {
            guard.failed(address(&format!("2001:db8:{network:x}::1")));
        }
        assert!(guard.blocked_for(peer).is_some());
        assert!(guard.limiter.local().abuse().len() <= 2 * MAX_ADDRESSES);
    }
}
