//! A limit on failed logins, enforced with the abuse strategy of the library.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::Clock;
use trypema::http::AddressKey;
use trypema::{AbuseLimit, AbuseTier, RateLimiter, TrypemaError, WhenFull};

use crate::metrics::LoginMetrics;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// The number of failures within a minute that block an address for a minute. A person mistypes less often,
/// and an attacker gains nothing.
const FAILURES_PER_MINUTE: u64 = 10;
/// The number of failures within an hour that block an address for an hour.
const FAILURES_PER_HOUR: u64 = 50;
/// The number of addresses in memory, at about a kilobyte each. A further address evicts another one, whose
/// count is lost. An attacker with that many networks gains little, and an address that never failed is
/// never blocked for the failures of others.
const MAX_ADDRESSES: usize = 4_096;

/// Counts failed logins by peer address (IPv6 by /64), and rejects further wrong tokens from addresses that
/// fail too often.
///
/// A valid token is never counted or rejected here: otherwise clients that share an address (loopback, a
/// Docker gateway, a NAT) could lock out the administrator. Tokens are too long to be guessed; the limit
/// keeps floods of guesses out of the log and tells clients to stop.
///
/// Each listener has its own guard.
#[derive(Debug)]
pub(crate) struct LoginGuard {
    /// The component that lines of the log begin with.
    component: &'static str,
    limiter: RateLimiter,
    limit: AbuseLimit,
    metrics: Arc<LoginMetrics>,
}

impl LoginGuard {
    /// Creates a guard without any failures. With a `clock`, blocks follow that clock instead of the
    /// system's.
    pub(crate) fn new(
        component: &'static str,
        clock: Option<Arc<dyn Clock>>,
        metrics: Arc<LoginMetrics>,
    ) -> Result<Self, TrypemaError> {
        let mut builder = RateLimiter::builder().max_keys(MAX_ADDRESSES).when_full(WhenFull::Evict);
        if let Some(clock) = clock {
            builder = builder.clock(clock);
        }
        let limit = AbuseLimit::new(
            AbuseTier::new(MINUTE, FAILURES_PER_MINUTE, MINUTE)?,
            AbuseTier::new(HOUR, FAILURES_PER_HOUR, HOUR)?,
        );
        Ok(Self { component, limiter: builder.build()?, limit, metrics })
    }

    /// Counts a wrong token. Returns the remaining time of the block if the address has failed too often.
    pub(crate) fn failed(&self, peer: IpAddr) -> Option<Duration> {
        let peer = AddressKey::of(peer);
        let abuse = self.limiter.local().abuse();
        let blocked_for = abuse.usage(peer.as_str(), &self.limit).block_ends_after();
        let decision = abuse.take(peer.as_str(), &self.limit, 1);
        let is_blocked = !blocked_for.is_zero();
        if is_blocked { &self.metrics.blocked } else { &self.metrics.wrong_token }.add_one();
        if decision.is_allowed() {
            tracing::warn!(%peer, "{}: login failed: wrong token", self.component);
            return None;
        }
        let wait = decision.block_ends_after();
        // Log only the start of a block: a flood of wrong tokens must not flood the log.
        if wait > blocked_for {
            tracing::warn!(
                %peer,
                last_minute = decision.short_count(),
                last_hour = decision.long_count(),
                "{}: login failed: wrong token; answering 429 to wrong tokens from this address for {} s",
                self.component,
                wait.as_secs()
            );
        }
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use trypema::clock::ManualClock;

    use super::*;

    fn guard() -> (LoginGuard, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        (LoginGuard::new("requests", Some(clock.clone()), Arc::default()).unwrap(), clock)
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
        assert_eq!(guard.failed(peer), Some(MINUTE));
        assert_eq!(guard.failed(other), None);
        clock.advance(MINUTE - Duration::from_micros(1));
        assert_eq!(guard.failed(peer), Some(Duration::from_micros(1)));
        clock.advance(Duration::from_micros(1));
        assert_eq!(guard.failed(peer), None);
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
    fn failures_during_a_short_block_count_towards_the_long_one() {
        let (guard, _) = guard();
        let peer = address("192.0.2.1");
        let waits: Vec<_> = (0..FAILURES_PER_HOUR).map(|_| guard.failed(peer)).collect();
        assert_eq!(
            (waits[8], waits[9], waits[48], waits[49]),
            (None, Some(MINUTE), Some(MINUTE), Some(HOUR))
        );
        assert_eq!((guard.metrics.wrong_token.get(), guard.metrics.blocked.get()), (10, 40));
    }

    #[test]
    fn the_addresses_of_one_network_are_one_peer() {
        let (guard, _) = guard();
        for host in 1..=FAILURES_PER_MINUTE {
            guard.failed(address(&format!("2001:db8:0:1::{host}")));
        }
        assert!(guard.failed(address("2001:db8:0:1:ffff::1")).is_some());
        assert_eq!(guard.failed(address("2001:db8:0:2::1")), None);
    }

    #[test]
    fn an_address_is_never_blocked_for_the_failures_of_others() {
        let (guard, _) = guard();
        for network in 0..2 * MAX_ADDRESSES {
            let attacker = address(&format!("2001:db8:{network:x}::1"));
            assert_eq!(guard.failed(attacker), None);
            for _ in 1..FAILURES_PER_MINUTE {
                guard.failed(attacker);
            }
        }
        for host in 1..=200 {
            assert_eq!(guard.failed(address(&format!("192.0.2.{host}"))), None);
        }
        assert!(guard.limiter.local().abuse().len() <= MAX_ADDRESSES);
    }
}
