//! The library's engine on a manual clock.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{ManualClock, Timestamp};
use trypema::redis::RedisConnection;
use trypema::rules::{Engine, RuleSet};
use trypema::{RateLimiter, TrypemaError};

use super::answer::RuleAnswer;
use super::replay::RuleSubject;
use super::request::{CheckBody, Mode};
use crate::blocking::{limiter, wait_for};

/// The interval of the hybrid provider: shorter than the time between two steps.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// An engine, and its clock.
#[derive(Debug)]
pub struct EngineSubject {
    engine: Engine,
    clock: Arc<ManualClock>,
}

impl EngineSubject {
    /// Creates an engine with counters in this process.
    pub fn local(rules: RuleSet) -> Result<Self, TrypemaError> {
        let clock = Arc::new(ManualClock::default());
        let limiter = RateLimiter::builder().clock(clock.clone()).build()?;
        Ok(Self { engine: Engine::local(Arc::new(limiter), rules), clock })
    }

    /// Creates an engine with counters in Redis, whose names start with `prefix`.
    pub fn redis(rules: RuleSet, connection: &RedisConnection, prefix: &str) -> Result<Self, TrypemaError> {
        let clock = Arc::new(ManualClock::default());
        let limiter = limiter(connection, prefix, &clock).build()?;
        Ok(Self { engine: Engine::redis(Arc::new(limiter), rules), clock })
    }

    /// Creates an engine with counters in Redis, whose names start with `prefix` and which may be leased.
    pub fn hybrid(rules: RuleSet, connection: &RedisConnection, prefix: &str) -> Result<Self, TrypemaError> {
        let clock = Arc::new(ManualClock::default());
        let limiter = limiter(connection, prefix, &clock).sync_interval(SYNC_INTERVAL).build()?;
        Ok(Self { engine: Engine::hybrid(Arc::new(limiter), rules), clock })
    }
}

impl RuleSubject for EngineSubject {
    fn ask(&mut self, at: Timestamp, request: &CheckBody) -> Option<RuleAnswer> {
        self.clock.set(at);
        let verdict = request.with_request(|asked| match request.mode {
            Mode::Check => wait_for(self.engine.check(asked)),
            Mode::Peek => wait_for(self.engine.peek(asked)),
            Mode::Record => wait_for(self.engine.record(asked)),
        })?;
        Some(RuleAnswer::of(&verdict))
    }
}
