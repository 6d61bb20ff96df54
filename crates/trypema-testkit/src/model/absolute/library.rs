//! The absolute strategy of the library, as tests use it.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::Absolute;
use trypema::{
    AbsoluteLimit, HardLimitFactor, LocalRateLimiterOptions, RateGroupSizeMs, RateLimit, TrypemaError,
    WindowSizeSeconds,
};

use super::{AbsoluteModel, WindowLimit};
#[cfg(feature = "redis")]
use crate::random::Random;
#[cfg(feature = "redis")]
use crate::simulator::fleet::{HasInvariant, Invariant};
use crate::subject::{LocalStrategy, Modelled};
use crate::trace::{CompatArgs, Limit, NoLimit, hard_limit_factor, rate, unknown_option, whole};

impl LocalStrategy for AbsoluteModel {
    type Strategy = Absolute;

    fn limit(limit: &WindowLimit) -> AbsoluteLimit {
        let (rate, window, group) = limit.parts();
        AbsoluteLimit::new(rate, window, group)
    }
}

impl WindowLimit {
    pub(in crate::model) fn parts(&self) -> (RateLimit, WindowSizeSeconds, RateGroupSizeMs) {
        (
            RateLimit::try_from(self.rate).unwrap(),
            WindowSizeSeconds::try_from(self.window_s).unwrap(),
            RateGroupSizeMs::try_from(self.group_ms).unwrap(),
        )
    }
}

impl Modelled for Absolute {
    type Model = AbsoluteModel;

    fn sized(capacity: u64, window: Duration) -> Result<AbsoluteLimit, TrypemaError> {
        AbsoluteLimit::per_window(capacity, window)
    }

    fn parse(words: &[&str]) -> Result<Limit, NoLimit> {
        let (rate, options, is_sticky) = windowed(words)?;
        let limit = AbsoluteLimit::new(rate, options.window_size_seconds, options.rate_group_size_ms);
        let limit = if is_sticky { limit.sticky() } else { limit };
        Ok(Limit { limit: limit.into(), compat: Some(CompatArgs { rate, options }) })
    }
}

/// Parses a rate, the options of its window, and whether it is sticky.
pub(in crate::model) fn windowed(
    words: &[&str],
) -> Result<(RateLimit, LocalRateLimiterOptions, bool), NoLimit> {
    let mut rate_word = None;
    let mut window = None;
    let mut group = RateGroupSizeMs::try_from(10)?;
    let mut factor = HardLimitFactor::default();
    let mut is_sticky = false;
    for option in words {
        match option.split_once('=').unwrap_or((option, "")) {
            ("rate", value) => rate_word = Some(rate(value)?),
            ("window", value) => window = Some(WindowSizeSeconds::try_from(whole(value, "s")?)?),
            ("group", value) => group = RateGroupSizeMs::try_from(whole(value, "ms")?)?,
            ("factor", value) => factor = hard_limit_factor(value)?,
            ("sticky", "") => is_sticky = true,
            _ => return Err(unknown_option(option)),
        }
    }
    let (Some(rate), Some(window)) = (rate_word, window) else {
        return Err(NoLimit::Unreadable("a rate and a window are needed".to_owned()));
    };
    let options = LocalRateLimiterOptions {
        window_size_seconds: window,
        rate_group_size_ms: group,
        hard_limit_factor: factor,
    };
    Ok((rate, options, is_sticky))
}

#[cfg(feature = "redis")]
impl HasInvariant for Absolute {
    fn invariant(limit: &AbsoluteLimit) -> Invariant {
        Invariant::Sliding { capacity: limit.capacity(), window_us: limit.window().as_micros() as u64 }
    }

    fn random(capacity: u64, window: Duration, random: &mut Random) -> Result<AbsoluteLimit, TrypemaError> {
        let group = RateGroupSizeMs::try_from(random.pick(&[1, 10, 100]))?;
        Ok(AbsoluteLimit::per_window(capacity, window)?.grouped(group))
    }
}
