//! The fixed window of the library, as tests use it.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::FixedWindow;
use trypema::{FixedWindowLimit, TrypemaError};

use super::FixedWindowModel;
use crate::model::AlignedLimit;
use crate::model::calendar::calendar;
#[cfg(feature = "redis")]
use crate::simulator::fleet::{HasInvariant, Invariant};
use crate::subject::{LocalStrategy, Modelled};
use crate::trace::{Limit, NoLimit, quota, single};

impl LocalStrategy for FixedWindowModel {
    type Strategy = FixedWindow;

    fn limit(limit: &AlignedLimit) -> FixedWindowLimit {
        FixedWindowLimit::new(limit.limit, Duration::from_micros(limit.window_us)).unwrap()
    }
}

impl Modelled for FixedWindow {
    type Model = FixedWindowModel;

    fn sized(capacity: u64, window: Duration) -> Result<FixedWindowLimit, TrypemaError> {
        FixedWindowLimit::new(capacity, window)
    }

    fn parse(words: &[&str]) -> Result<Limit, NoLimit> {
        if let [word, options @ ..] = words
            && ["/day", "/week", "/month"].iter().any(|per| word.ends_with(per))
        {
            return Ok(Limit::new(calendar(word, options)?));
        }
        let (limit, window) = quota(single(words)?)?;
        Ok(Limit::new(FixedWindowLimit::new(limit, window)?))
    }
}

#[cfg(feature = "redis")]
impl HasInvariant for FixedWindow {
    fn invariant(limit: &FixedWindowLimit) -> Invariant {
        Invariant::Aligned { limit: limit.limit(), window_us: limit.window().as_micros() as u64 }
    }
}
