//! Common parts of the pictures: a limiter on virtual time, and simulated traffic.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{ManualClock, Timestamp};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::simulator::{Load, Series, Simulation};

/// A function that decides whether a limiter admits a call for a key.
pub(crate) type Ask<'a> = dyn Fn(&RateLimiter, &str) -> bool + 'a;

/// The traffic of a picture: its start, its loads and its duration.
pub(crate) struct Scene<'a> {
    pub(crate) start: Timestamp,
    pub(crate) loads: &'a [Load],
    pub(crate) seconds: u64,
}

impl Scene<'_> {
    /// Simulates the traffic against a new limiter, where `ask` decides every call.
    pub(crate) fn played(&self, ask: &Ask<'_>) -> Result<Series, TrypemaError> {
        let clock = Arc::new(ManualClock::starting_at(self.start));
        let limiter = RateLimiter::builder().clock(clock.clone()).build()?;
        let mut simulation = Simulation::new(clock, 1);
        for load in self.loads {
            simulation.add_client(*load, |key| ask(&limiter, key));
        }
        let record = simulation.run_for(Duration::from_secs(self.seconds));
        Ok(record.total())
    }
}

/// 2020-09-13 12:26:40 UTC, a boundary of ten-second windows.
pub(crate) const EPOCH: Timestamp = Timestamp::from_micros(1_600_000_000_000_000);
