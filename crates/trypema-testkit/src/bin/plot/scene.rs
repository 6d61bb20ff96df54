//! What the pictures have in common: a limiter in virtual time, and traffic that meets it.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{ManualClock, Timestamp};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::simulator::{Load, Series, Simulation};

/// Asks a limiter whether a call for a key is admitted.
pub(crate) type Ask<'a> = dyn Fn(&RateLimiter, &str) -> bool + 'a;

/// What is offered, from when on, and for how long.
pub(crate) struct Scene<'a> {
    pub(crate) start: Timestamp,
    pub(crate) loads: &'a [Load],
    pub(crate) seconds: u64,
}

impl Scene<'_> {
    /// What happens when every call is answered by `ask`, which is given a new limiter.
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

/// 2020-09-13 12:26:40 UTC, at which windows of ten seconds begin.
pub(crate) const EPOCH: Timestamp = Timestamp::from_micros(1_600_000_000_000_000);
