//! The token bucket of the library, as tests use it.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::{Strategy, TokenBucket};
use trypema::{TokenBucketDecision, TokenBucketLimits, TokenLimit, TrypemaError};

use super::{Bucket, TokenBucketModel};
#[cfg(feature = "redis")]
use crate::random::Random;
#[cfg(feature = "redis")]
use crate::simulator::fleet::{HasInvariant, Invariant, Refill};
use crate::subject::{Detail, LocalStrategy, Modelled};
use crate::trace::{self, Answer, Limit, NoLimit, Value, quota};

impl LocalStrategy for TokenBucketModel {
    type Strategy = TokenBucket;

    fn limit(limits: &Vec<Bucket>) -> TokenBucketLimits {
        let each = limits
            .iter()
            .map(|limit| TokenLimit::new(limit.capacity, Duration::from_micros(limit.refill_us)).unwrap());
        TokenBucketLimits::new(each).unwrap()
    }

    fn detail(decision: &TokenBucketDecision<'_>) -> Detail {
        Detail::Tokens {
            failed: decision.failed_limit(),
            balances: decision.balances().map(|balance| balance.remaining).collect(),
        }
    }
}

impl Modelled for TokenBucket {
    type Model = TokenBucketModel;

    fn sized(capacity: u64, window: Duration) -> Result<TokenBucketLimits, TrypemaError> {
        TokenLimit::new(capacity, window).map(TokenBucketLimits::from)
    }

    fn parse(words: &[&str]) -> Result<Limit, NoLimit> {
        let limits = words.iter().map(|word| {
            let (capacity, refill_every) = quota(word)?;
            Ok(TokenLimit::new(capacity, refill_every)?)
        });
        let limits = limits.collect::<Result<Vec<_>, NoLimit>>()?;
        Ok(Limit::new(TokenBucketLimits::new(limits)?))
    }

    fn answer(decision: &TokenBucketDecision<'_>) -> Answer {
        let balances = decision.balances().map(|balance| balance.remaining).collect();
        let answer = trace::core_answer(&Self::core(decision)).with("balances", Value::Fractions(balances));
        match decision.failed_limit() {
            Some(position) => answer.with("failed", Value::Count(position as u64)),
            None => answer,
        }
    }
}

#[cfg(feature = "redis")]
impl HasInvariant for TokenBucket {
    fn invariant(limits: &TokenBucketLimits) -> Invariant {
        let refill = |limit: &TokenLimit| Refill {
            capacity: limit.capacity(),
            refill_us: limit.refill_every().as_micros() as u64,
        };
        Invariant::Refilled(limits.as_slice().iter().map(refill).collect())
    }

    fn random(
        capacity: u64,
        window: Duration,
        random: &mut Random,
    ) -> Result<TokenBucketLimits, TrypemaError> {
        let whole = TokenLimit::new(capacity, window)?;
        match random.below(3) {
            0 => TokenBucketLimits::new([whole]),
            1 => TokenBucketLimits::new([TokenLimit::new(capacity / 3 + 1, window / 4)?, whole]),
            _ => TokenBucketLimits::new([whole, TokenLimit::new(3 * capacity, 5 * window)?]),
        }
    }
}
