//! Policies: limits in the form that clients see.

use std::cmp::Reverse;
use std::time::Duration;

use super::headers::rounded_up;
use crate::decision::Decision;

/// A limit and its decision, as shown in headers and problems.
///
/// ```
/// use std::time::Duration;
/// use trypema::http::{Policy, QuotaUnit};
/// use trypema::{FixedWindowLimit, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let limit = FixedWindowLimit::new(100, Duration::from_secs(60))?;
/// let decision = rl.local().fixed_window().take("ann", &limit, 1);
/// let window = Some(limit.window());
/// let policy = Policy { name: "burst", quota: 100, window, unit: QuotaUnit::Spent, decision: &decision };
/// # let _ = policy;
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    /// The name. Clients see at most 64 characters of printable ASCII: other characters are percent-encoded,
    /// and the end of a longer name is replaced with a digest.
    pub name: &'a str,
    /// The number of units per window.
    pub quota: u64,
    /// The window of the quota; `None` if there is more than one, or none as for units that are held.
    pub window: Option<Duration>,
    /// The meaning of the quota's units.
    pub unit: QuotaUnit,
    /// The decision.
    pub decision: &'a Decision,
}

/// The meaning of a quota's units, which decides what clients are told about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// Units that are spent, and become available again with time.
    #[default]
    Spent,
    /// Requests in flight: `concurrent-requests` of draft 10.
    ConcurrentRequests,
    /// Other units that requests hold while they are in flight, for which draft 10 has no name.
    Held,
}

impl QuotaUnit {
    fn is_held(self) -> bool {
        self != Self::Spent
    }
}

/// The order of policies by tightness. The greatest is the tightest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Tightness {
    is_denied: bool,
    remaining: Reverse<Share>,
    wait: Duration,
}

/// A fraction, compared exactly.
#[derive(Debug, Clone, Copy)]
struct Share {
    of: u64,
    whole: u64,
}

impl Policy<'_> {
    /// Returns the time until more units are available: for a denied request that can fit, its wait;
    /// otherwise the time until everything spent is available again. Zero for units that are held, because
    /// they become available at any time.
    ///
    /// Draft 10 defines `t` this way, and requires that `Retry-After` is not earlier.
    fn reset_after(&self) -> Duration {
        match self.decision.retry_after() {
            Some(wait) if !self.decision.is_allowed() => wait,
            _ if self.unit.is_held() => Duration::ZERO,
            _ => self.decision.reset_after(),
        }
    }

    /// Returns the same time in whole seconds, rounded up. `None` if no units ever become available, or if
    /// the time is unknown: clients would pace their requests by the time until holders expire.
    pub(super) fn reset_seconds(&self) -> Option<u64> {
        self.wait_or_reset_seconds().filter(|_| !self.unit.is_held() || !self.decision.is_allowed())
    }

    /// The same as [`Policy::reset_seconds`], except that it is 0 for an allowed request whose units are
    /// held: the request need not wait.
    pub(super) fn wait_or_reset_seconds(&self) -> Option<u64> {
        if self.decision.is_never() && (self.decision.limit() == 0 || self.unit.is_held()) {
            return None;
        }
        Some(rounded_up(self.reset_after()))
    }

    fn tightness(&self) -> Tightness {
        let wait = match self.decision.is_never() {
            true => Duration::MAX,
            false => self.reset_after(),
        };
        Tightness {
            is_denied: !self.decision.is_allowed(),
            remaining: Reverse(Share { of: self.decision.remaining(), whole: self.quota }),
            wait,
        }
    }
}

/// Returns the policy that limits a client most: one that denied the request; otherwise the one with the
/// smallest share left; otherwise the one with the longest wait.
pub(super) fn tightest<'a>(policies: impl IntoIterator<Item = Policy<'a>>) -> Option<Policy<'a>> {
    let mut policies = policies.into_iter();
    let first = policies.next()?;
    match policies.next() {
        // Most requests have one policy, and nothing to compare.
        None => Some(first),
        Some(second) => [first, second].into_iter().chain(policies).max_by_key(Policy::tightness),
    }
}

/// A quota of zero has nothing left.
impl Share {
    fn terms(self) -> (u128, u128) {
        match self.whole {
            0 => (0, 1),
            whole => (u128::from(self.of), u128::from(whole)),
        }
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let ((of, whole), (other_of, other_whole)) = (self.terms(), other.terms());
        // Cannot overflow: both products are below 2^128.
        (of * other_whole).cmp(&(other_of * whole))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Share {}
