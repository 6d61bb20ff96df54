//! A limit whose strategy is chosen while the program runs.

use std::time::Duration;

use super::{
    AbsoluteLimit, AbuseLimit, Call, FixedWindowLimit, SlidingWindowLimit, Strategy, SuppressedLimit,
    TokenBucketLimits,
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
    /// So much in any window, exactly.
    Absolute(AbsoluteLimit),
    /// A limit that is held by shedding load.
    Suppressed(SuppressedLimit),
    /// Buckets that refill.
    TokenBucket(TokenBucketLimits),
    /// About so much in any window.
    SlidingWindow(SlidingWindowLimit),
    /// So much in each window.
    FixedWindow(FixedWindowLimit),
    /// So many attempts until a block.
    Abuse(AbuseLimit),
}

/// Runs `$body` for the strategy of `$limit`, which is `$strategy` in it and whose limit is `$inner`.
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
        }
    };
}
pub(crate) use with_strategy;

impl Limit {
    /// The strategy's name.
    pub fn strategy(&self) -> &'static str {
        with_strategy!(self, |S, _limit| S::NAME)
    }

    /// What fits at most: of a token bucket with several limits, into the smallest.
    pub fn quota(&self) -> u64 {
        let call = Call::new(Timestamp::default(), u64::MAX);
        with_strategy!(self, |S, limit| S::fits(limit, &Default::default(), call))
    }

    /// The time that the [`Limit::quota`] is for. A bucket's is how long it takes to refill, and of two tiers it is
    /// the window of the one that is reached first.
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
        }
    }
}

/// A strategy's own limit within one of any strategy.
pub(crate) trait LimitOf: Strategy {
    /// The limit, if it is of this strategy.
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
}
