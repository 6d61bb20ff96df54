//! The strategies of a run, each limiting one key.

use std::sync::Arc;
use std::time::Duration;

use trypema::strategy::{Absolute, Abuse, FixedWindow, SlidingWindow, Suppressed, TokenBucket};
use trypema::{
    AbuseLimit, AbuseTier, FixedWindowLimit, RateLimit, RateLimiter, SlidingWindowLimit, TokenBucketLimits,
    TokenLimit, TrypemaError, WindowSizeSeconds,
};

use crate::arguments::{Name, Plan};
use crate::ledger::Outcome;
use crate::status::Shown;

/// The key that all threads use.
const KEY: &str = "everybody";

/// The largest threshold of the abuse strategy.
const MAX_ATTEMPTS: u64 = 10_000;

/// One strategy with its limit.
pub(crate) struct StrategyRun {
    pub(crate) name: Name,
    /// The most requests that the strategy may admit in any interval as long as the window.
    pub(crate) bound: u64,
    /// The reason for this bound.
    pub(crate) reason: &'static str,
    limited: Box<dyn Limited>,
}

impl StrategyRun {
    /// Makes one request.
    pub(crate) fn take(&self) -> Outcome {
        self.limited.take()
    }

    /// Returns the state of the key, in at most 19 characters.
    pub(crate) fn status(&self) -> String {
        self.limited.status()
    }
}

/// Creates the strategies of `plan`, on one limiter. The error names the strategy that does not support the limit.
pub(crate) fn create_all(plan: &Plan) -> Result<Vec<StrategyRun>, String> {
    let window = WindowSizeSeconds::try_from(plan.window.as_secs());
    let rl = window.and_then(|window| RateLimiter::builder().window_size_seconds(window).build());
    let rl = Arc::new(rl.map_err(|error| error.to_string())?);
    let named = |name: &Name| {
        create(*name, plan, &rl)
            .map_err(|error| format!("{} does not support this limit: {error}", name.text()))
    };
    plan.strategies.iter().map(named).collect()
}

fn create(name: Name, plan: &Plan, rl: &Arc<RateLimiter>) -> Result<StrategyRun, TrypemaError> {
    let limit = plan.limit;
    let (bound, reason) = match name {
        Name::Absolute => (limit, "the limit"),
        Name::Suppressed => {
            let rate = rate(limit, plan.window)?;
            (rl.local().suppressed().limit(&rate).hard(), "the hard limit")
        }
        Name::TokenBucket => (limit.saturating_mul(2), "burst + refill"),
        Name::SlidingWindow => (limit.saturating_mul(2) - 1, "an estimate"),
        Name::FixedWindow => (limit.saturating_mul(2), "two windows"),
        Name::Abuse => (limit - 1, "the next blocks"),
    };
    Ok(StrategyRun { name, bound, reason, limited: limited(name, plan, Arc::clone(rl))? })
}

fn limited(name: Name, plan: &Plan, rl: Arc<RateLimiter>) -> Result<Box<dyn Limited>, TrypemaError> {
    let (limit, window) = (plan.limit, plan.window);
    Ok(match name {
        Name::Absolute => {
            let limit = rl.local().absolute().limit(&rate(limit, window)?);
            Box::new(OnKey::<Absolute> { rl, limit })
        }
        Name::Suppressed => {
            let limit = rl.local().suppressed().limit(&rate(limit, window)?);
            Box::new(OnKey::<Suppressed> { rl, limit })
        }
        Name::TokenBucket => {
            let limit = TokenBucketLimits::from(TokenLimit::new(limit, window)?);
            Box::new(OnKey::<TokenBucket> { rl, limit })
        }
        Name::SlidingWindow => {
            let limit = SlidingWindowLimit::new(limit, window)?;
            Box::new(OnKey::<SlidingWindow> { rl, limit })
        }
        Name::FixedWindow => {
            let limit = FixedWindowLimit::new(limit, window)?;
            Box::new(OnKey::<FixedWindow> { rl, limit })
        }
        Name::Abuse => {
            let temp = AbuseTier::new(window, limit, window)?;
            let many = limit.saturating_mul(10).min(MAX_ATTEMPTS);
            let long = AbuseTier::new(window * 10, many, window * 3)?;
            Box::new(OnKey::<Abuse> { rl, limit: AbuseLimit::new(temp, long) })
        }
    })
}

fn rate(limit: u64, window: Duration) -> Result<RateLimit, TrypemaError> {
    RateLimit::try_from(limit as f64 / window.as_secs_f64())
}

/// A strategy with its limit, as a trait object.
trait Limited: Send + Sync {
    fn take(&self) -> Outcome;
    fn status(&self) -> String;
}

struct OnKey<S: Shown> {
    rl: Arc<RateLimiter>,
    limit: S::Limit,
}

impl<S: Shown> Limited for OnKey<S> {
    fn take(&self) -> Outcome {
        let decision = S::limiter(self.rl.local()).take(KEY, &self.limit, 1);
        if S::core(&decision).is_allowed() { Outcome::Admitted } else { Outcome::Denied }
    }

    fn status(&self) -> String {
        S::status(&S::limiter(self.rl.local()).peek(KEY, &self.limit, 1))
    }
}
