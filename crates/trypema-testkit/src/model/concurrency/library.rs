//! The concurrency strategy of the library, as tests use it.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::Concurrency;
use trypema::{ConcurrencyLimit, TrypemaError};

use super::{ConcurrencyModel, HoldLimit};
#[cfg(feature = "redis")]
use crate::simulator::fleet::{HasInvariant, Invariant};
use crate::subject::{LocalStrategy, Modelled};
use crate::trace::{Limit, NoLimit, count, duration, unknown_option};

/// The longest hold of a concurrency limit.
const LONGEST_HOLD: Duration = Duration::from_secs(3_600);

impl LocalStrategy for ConcurrencyModel {
    type Strategy = Concurrency;

    fn limit(limit: &HoldLimit) -> ConcurrencyLimit {
        ConcurrencyLimit::new(limit.limit, Duration::from_micros(limit.hold_us)).unwrap()
    }
}

impl Modelled for Concurrency {
    type Model = ConcurrencyModel;

    /// Units are held for one window, or for the longest hold, unless they are released sooner.
    fn sized(capacity: u64, window: Duration) -> Result<ConcurrencyLimit, TrypemaError> {
        ConcurrencyLimit::new(capacity, window.min(LONGEST_HOLD))
    }

    fn parse(words: &[&str]) -> Result<Limit, NoLimit> {
        let (mut limit, mut hold) = (None, None);
        for option in words {
            match option.split_once('=') {
                Some(("limit", value)) => limit = count(value),
                Some(("hold", value)) => hold = Some(duration(value)?),
                _ => return Err(unknown_option(option)),
            }
        }
        let (Some(limit), Some(hold)) = (limit, hold) else {
            return Err(NoLimit::Unreadable("a limit and a hold are needed".to_owned()));
        };
        Ok(Limit::new(ConcurrencyLimit::new(limit, hold)?))
    }
}

#[cfg(feature = "redis")]
impl HasInvariant for Concurrency {
    fn invariant(limit: &ConcurrencyLimit) -> Invariant {
        Invariant::Held { limit: limit.limit(), hold_us: limit.hold().as_micros() as u64 }
    }
}
