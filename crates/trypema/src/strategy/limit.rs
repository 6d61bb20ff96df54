//! A limit whose strategy is chosen at run time.

use std::time::Duration;

use super::{
    AbsoluteLimit, AbuseLimit, Call, ConcurrencyLimit, FixedWindowLimit, SlidingWindowLimit, Strategy,
    SuppressedLimit, TokenBucketLimits,
};
use crate::clock::Timestamp;

/// A limit of any strategy.
///
/// ```
/// use std::time::Duration;
/// use trypema::{FixedWindowLimit, Limit};
///
/// let limit = Limit::from(FixedWindowLimit::new(100, Duration::from_secs(60))?);
/// assert_eq!((limit.strategy(), limit.quota()), ("fixed_window", 100));
/// assert_eq!(limit.window(), Duration::from_secs(60));
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    /// A sliding window that never admits more than its capacity in any interval of its length.
    Absolute(AbsoluteLimit),
    /// A sliding window that denies a growing share of the calls above its limit.
    Suppressed(SuppressedLimit),
    /// One or more token buckets, all of which must admit the cost.
    TokenBucket(TokenBucketLimits),
    /// A sliding window that is estimated from two fixed ones.
    SlidingWindow(SlidingWindowLimit),
    /// A count for each window, aligned to the epoch or to a calendar.
    FixedWindow(FixedWindowLimit),
    /// A number of attempts that starts a block.
    Abuse(AbuseLimit),
    /// A number of units that may be held at the same time.
    Concurrency(ConcurrencyLimit),
}

/// Runs `$body` with `$strategy` as the strategy type of `$limit`, and `$inner` as the limit of that
/// strategy.
macro_rules! with_strategy {
    ($limit:expr, |$strategy:ident, $inner:ident| $body:expr) => {
        match $limit {
            $crate::strategy::Limit::Absolute($inner) => {
                type $strategy = $crate::strategy::Absolute;
                $body
            }
            $crate::strategy::Limit::Suppressed($inner) => {
                type $strategy = $crate::strategy::Suppressed;
                $body
            }
            $crate::strategy::Limit::TokenBucket($inner) => {
                type $strategy = $crate::strategy::TokenBucket;
                $body
            }
            $crate::strategy::Limit::SlidingWindow($inner) => {
                type $strategy = $crate::strategy::SlidingWindow;
                $body
            }
            $crate::strategy::Limit::FixedWindow($inner) => {
                type $strategy = $crate::strategy::FixedWindow;
                $body
            }
            $crate::strategy::Limit::Abuse($inner) => {
                type $strategy = $crate::strategy::Abuse;
                $body
            }
            $crate::strategy::Limit::Concurrency($inner) => {
                type $strategy = $crate::strategy::Concurrency;
                $body
            }
        }
    };
}
pub(crate) use with_strategy;

impl Limit {
    /// Returns the strategy's name.
    pub fn strategy(&self) -> &'static str {
        with_strategy!(self, |S, _limit| S::NAME)
    }

    /// Returns the largest cost that is certain to be admitted on a fresh key. For a token bucket with
    /// several limits, this is the smallest capacity.
    pub fn quota(&self) -> u64 {
        let call = Call::new(Timestamp::default(), u64::MAX);
        with_strategy!(self, |S, limit| S::available(limit, &Default::default(), call))
    }

    /// Returns the period that [`Limit::quota`] refers to. For a token bucket, this is the refill time of the
    /// limit with the smallest capacity. For two tiers of attempts, it is the window of the tier with the
    /// lower threshold. For a calendar, it is the usual length of its windows: 31 days for months. For a
    /// concurrency limit, it is the longest time for which a holder keeps its units without a renewal.
    pub fn window(&self) -> Duration {
        match self {
            Self::Absolute(limit) => limit.window(),
            Self::Suppressed(limit) => limit.window(),
            Self::TokenBucket(limits) => {
                let smallest = limits.as_slice().iter().min_by_key(|limit| limit.capacity());
                smallest.map(|limit| limit.refill_every()).unwrap_or_default()
            }
            Self::SlidingWindow(limit) => limit.window(),
            Self::FixedWindow(limit) => limit.window(),
            Self::Abuse(limit) => limit.window(),
            Self::Concurrency(limit) => limit.hold(),
        }
    }
}

/// A strategy whose limit can be extracted from a [`Limit`].
pub(crate) trait LimitOf: Strategy {
    /// Returns the limit, if it belongs to this strategy.
    fn limit_of(limit: &Limit) -> Option<&Self::Limit>;
}

macro_rules! limits {
    ($($name:ident => $limit:ty),+ $(,)?) => {
        $(
            impl From<$limit> for Limit {
                fn from(limit: $limit) -> Self {
                    Self::$name(limit)
                }
            }

            impl LimitOf for super::$name {
                #[inline]
                fn limit_of(limit: &Limit) -> Option<&$limit> {
                    match limit {
                        Limit::$name(limit) => Some(limit),
                        _ => None,
                    }
                }
            }
        )+
    };
}

limits! {
    Absolute => AbsoluteLimit,
    Suppressed => SuppressedLimit,
    TokenBucket => TokenBucketLimits,
    SlidingWindow => SlidingWindowLimit,
    FixedWindow => FixedWindowLimit,
    Abuse => AbuseLimit,
    Concurrency => ConcurrencyLimit,
}
