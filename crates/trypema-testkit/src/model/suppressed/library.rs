//! The suppressed strategy of the library, as tests use it.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::Suppressed;
use trypema::{AbsoluteLimit, HardLimitFactor, SuppressedDecision, SuppressedLimit, TrypemaError};

use super::{SheddingLimit, SuppressedModel};
use crate::model::absolute::windowed;
#[cfg(feature = "redis")]
use crate::random::Random;
#[cfg(feature = "redis")]
use crate::simulator::fleet::{HasInvariant, Invariant};
use crate::subject::{Detail, LocalStrategy, Modelled};
use crate::trace::{self, Answer, CompatArgs, Limit, NoLimit, Value};

impl LocalStrategy for SuppressedModel {
    type Strategy = Suppressed;

    fn limit(limit: &SheddingLimit) -> SuppressedLimit {
        let (rate, window, group) = limit.soft.parts();
        let factor = HardLimitFactor::try_from(limit.hard_limit_factor).unwrap();
        SuppressedLimit::new(rate, window, group, factor)
    }

    fn detail(decision: &SuppressedDecision) -> Detail {
        Detail::Suppressed { factor: decision.suppression_factor() }
    }
}

impl Modelled for Suppressed {
    type Model = SuppressedModel;

    fn sized(capacity: u64, window: Duration) -> Result<SuppressedLimit, TrypemaError> {
        Ok(SuppressedLimit::above(AbsoluteLimit::per_window(capacity, window)?, HardLimitFactor::default()))
    }

    fn parse(words: &[&str]) -> Result<Limit, NoLimit> {
        let (rate, options, is_sticky) = windowed(words)?;
        let (window, group) = (options.window_size_seconds, options.rate_group_size_ms);
        let limit = SuppressedLimit::new(rate, window, group, options.hard_limit_factor);
        let limit = if is_sticky { limit.sticky() } else { limit };
        Ok(Limit { limit: limit.into(), compat: Some(CompatArgs { rate, options }) })
    }

    fn answer(decision: &SuppressedDecision) -> Answer {
        let answer = trace::core_answer(decision);
        let Some(factor) = decision.suppression_factor() else { return answer };
        answer.headed(trace::drawn(decision.is_allowed())).with("factor", Value::Fractions(vec![factor]))
    }
}

/// The soft limit only holds on average, so the invariant is the hard limit.
#[cfg(feature = "redis")]
impl HasInvariant for Suppressed {
    fn invariant(limit: &SuppressedLimit) -> Invariant {
        Invariant::Sliding { capacity: limit.hard(), window_us: limit.window().as_micros() as u64 }
    }

    fn random(capacity: u64, window: Duration, random: &mut Random) -> Result<SuppressedLimit, TrypemaError> {
        let window = trypema::strategy::Absolute::random(capacity, window, random)?;
        let factor = HardLimitFactor::try_from(random.pick(&[1.0, 1.5, 2.0, 3.0]))?;
        Ok(SuppressedLimit::above(window, factor))
    }
}
