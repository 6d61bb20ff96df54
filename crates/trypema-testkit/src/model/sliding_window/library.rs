//! The sliding-window counter of the library, as tests use it.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::SlidingWindow;
use trypema::{SlidingWindowLimit, TrypemaError};

use super::SlidingWindowModel;
use crate::model::AlignedLimit;
#[cfg(feature = "redis")]
use crate::simulator::fleet::{HasInvariant, Invariant};
use crate::subject::{LocalStrategy, Modelled};
use crate::trace::{Limit, NoLimit, quota, single};

impl LocalStrategy for SlidingWindowModel {
    type Strategy = SlidingWindow;

    fn limit(limit: &AlignedLimit) -> SlidingWindowLimit {
        SlidingWindowLimit::new(limit.limit, Duration::from_micros(limit.window_us)).unwrap()
    }
}

impl Modelled for SlidingWindow {
    type Model = SlidingWindowModel;

    fn sized(capacity: u64, window: Duration) -> Result<SlidingWindowLimit, TrypemaError> {
        SlidingWindowLimit::new(capacity, window)
    }

    fn parse(words: &[&str]) -> Result<Limit, NoLimit> {
        let (limit, window) = quota(single(words)?)?;
        Ok(Limit::new(SlidingWindowLimit::new(limit, window)?))
    }
}

#[cfg(feature = "redis")]
impl HasInvariant for SlidingWindow {
    fn invariant(limit: &SlidingWindowLimit) -> Invariant {
        Invariant::Estimated { limit: limit.limit(), window_us: limit.window().as_micros() as u64 }
    }
}
