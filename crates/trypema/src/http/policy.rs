//! One limit as clients are told of it.

use std::cmp::Reverse;
use std::time::Duration;

use crate::decision::Decision;

/// One limit and what it decided, as headers and problems show it.
///
/// ```
/// use std::time::Duration;
/// use trypema::http::Policy;
/// use trypema::{FixedWindowLimit, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let limit = FixedWindowLimit::new(100, Duration::from_secs(60))?;
/// let decision = rl.local().fixed_window().take("ann", &limit, 1);
/// let policy = Policy { name: "burst", quota: 100, window: Some(limit.window()), decision: &decision };
/// # let _ = policy;
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    /// What it is called. Clients see printable ASCII of at most 64 characters: the rest is percent-encoded, and the
    /// end of a longer name gives way to a digest.
    pub name: &'a str,
    /// How many units it allows per window.
    pub quota: u64,
    /// The time that the quota is for; `None` where that is not one number.
    pub window: Option<Duration>,
    /// What it decided.
    pub decision: &'a Decision,
}

/// By how much a policy stands in the way; the greatest is the tightest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Tightness {
    is_denied: bool,
    remaining: Reverse<Share>,
    wait: Duration,
}

/// `of` a `whole`, compared exactly.
#[derive(Debug, Clone, Copy)]
struct Share {
    of: u64,
    whole: u64,
}

impl Policy<'_> {
    /// The time until more is available, as far as it is known: for the call itself if it was denied and can fit,
    /// else for everything that was spent.
    ///
    /// Draft 10 wants this of `t`, and that `Retry-After` is never earlier.
    pub(super) fn reset_after(&self) -> Duration {
        match self.decision.retry_after() {
            Some(wait) if !self.decision.is_allowed() => wait,
            _ => self.decision.reset_after(),
        }
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

/// The policy that a client runs into first: one that denied, then the one with the smallest share left, then the
/// one with the longest wait.
pub(super) fn tightest<'a>(policies: impl IntoIterator<Item = Policy<'a>>) -> Option<Policy<'a>> {
    let mut policies = policies.into_iter();
    let first = policies.next()?;
    match policies.next() {
        // Mostly there is one, and nothing to compare.
        None => Some(first),
        Some(second) => [first, second].into_iter().chain(policies).max_by_key(Policy::tightness),
    }
}

/// Nothing is left of a quota of nothing.
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
        // Both products are below 2^128.
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
