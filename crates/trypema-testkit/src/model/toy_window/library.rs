//! The toy of the library, as tests use it.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::ToyWindow;
use trypema::{ToyWindowLimit, TrypemaError};

use super::ToyWindowModel;
use crate::model::AlignedLimit;
#[cfg(feature = "redis")]
use crate::simulator::fleet::{Law, Legal};
use crate::subject::{LocalStrategy, Modelled};
use crate::trace::{Limit, NoLimit, quota, single};

impl LocalStrategy for ToyWindowModel {
    type Strategy = ToyWindow;

    fn limit(limit: &AlignedLimit) -> ToyWindowLimit {
        ToyWindowLimit::new(limit.limit, Duration::from_micros(limit.window_us)).unwrap()
    }
}

impl Modelled for ToyWindow {
    type Model = ToyWindowModel;

    fn sized(capacity: u64, window: Duration) -> Result<ToyWindowLimit, TrypemaError> {
        ToyWindowLimit::new(capacity, window)
    }

    fn parse(words: &[&str]) -> Result<Limit, NoLimit> {
        let (limit, window) = quota(single(words)?)?;
        Ok(Limit::new(ToyWindowLimit::new(limit, window)?))
    }
}

#[cfg(feature = "redis")]
impl Legal for ToyWindow {
    fn law(limit: &ToyWindowLimit) -> Law {
        Law::Aligned { limit: limit.limit(), window_us: limit.window().as_micros() as u64 }
    }
}
