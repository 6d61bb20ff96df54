//! The numbers of the token bucket.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InvalidNumber, SECOND, StrategyNumbers, about};
use crate::error::TrypemaError;
use crate::rules::compile::Compiler;
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::strategy::{TokenBucketLimits, TokenLimit};
use crate::units::{MAX_EXACT, MAX_WINDOW, RateLimit};

/// The numbers of a token bucket: one limit, or a list of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BucketNumbers {
    /// The tokens refilled per window, and the capacity unless `burst` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The time in which `limit` tokens are refilled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Period>,
    /// The capacity of the bucket. Defaults to `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// The tokens refilled per second. Takes precedence over `limit` per `window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill_rate: Option<f64>,
    /// Several buckets instead of one. A request takes its cost from each of them or is denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<BucketLimit>,
}

/// One of several limits of a token bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BucketLimit {
    /// The tokens refilled per window, and the capacity unless `burst` is given.
    pub limit: u64,
    /// The time in which `limit` tokens are refilled.
    pub window: Period,
    /// The capacity of the bucket. Defaults to `limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

impl From<&BucketLimit> for BucketNumbers {
    fn from(limit: &BucketLimit) -> Self {
        let BucketLimit { limit, window, burst } = limit.clone();
        Self { limit: Some(limit), window: Some(window), burst, ..Self::default() }
    }
}

impl StrategyNumbers for BucketNumbers {
    type Limit = TokenBucketLimits;

    fn compile(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<TokenBucketLimits> {
        let BucketNumbers { limit, window, burst, refill_rate, limits } = self;
        let limits: Vec<TokenLimit> = if limits.is_empty() {
            vec![self.bucket(compiler, field)?]
        } else if limit.is_some() || window.is_some() || burst.is_some() || refill_rate.is_some() {
            compiler.refuse(
                &field.then("limits"),
                "`limits` cannot be combined with `limit`, `window`, `burst` or `refill_rate`",
            );
            return None;
        } else {
            let field = field.then("limits");
            let made = limits.iter().enumerate();
            let made: Vec<_> =
                made.map(|(index, limit)| Self::from(limit).bucket(compiler, &field.at(index))).collect();
            made.into_iter().collect::<Option<_>>()?
        };
        let made = TokenBucketLimits::new(limits);
        made.map_err(|error| compiler.refuse(&field.then("limits"), error.to_string())).ok()
    }
}

impl BucketNumbers {
    /// Returns a bucket of `burst` tokens (or of `limit`, if there is no `burst`), refilled at `refill_rate`
    /// (or at `limit` per `window`, if there is no `refill_rate`).
    ///
    /// With a `refill_rate`, the `window` has no effect. It is allowed because every row of the table
    /// `rate_limit_rules` has one, and it is validated because an impossible window is a mistake anyway.
    fn bucket(&self, compiler: &mut Compiler<'_>, field: &FieldPath) -> Option<TokenLimit> {
        let known = compiler.problems.count();
        let (capacity, capacity_name) = capacity_of(self);
        if let Some(given) = capacity.filter(|capacity| !(1..=MAX_EXACT).contains(capacity)) {
            let error = TrypemaError::InvalidLimit { given, max: MAX_EXACT };
            compiler.refuse(&field.then(capacity_name), error.to_string());
        }
        // With a burst and a refill rate, the limit has no effect.
        if self.limit == Some(0) && self.burst.is_some() && self.refill_rate.is_none() {
            compiler.refuse(&field.then("limit"), "invalid limit 0: need at least 1");
        }
        if let Some(window) = self.window {
            compiler.made(in_bounds(window.0), field);
        }
        if let Some(rate) = self.refill_rate {
            compiler.made(rate_of(rate), field);
        }
        let missing = |name| (name, format!("a token bucket needs `{name}`"));
        let needs_limit = self.burst.is_none() || self.refill_rate.is_none();
        if self.limit.is_none() && needs_limit {
            compiler.made::<()>(Err(missing("limit")), field);
        }
        if self.window.is_none() && self.refill_rate.is_none() {
            compiler.made::<()>(Err(missing("window")), field);
        }
        if compiler.problems.count() > known || compiler.has_replaced(field) {
            return None;
        }
        compiler.made(bucket_of(self), field)
    }
}

/// Returns the number of tokens in a full bucket, if it is given, and the name of its field.
fn capacity_of(numbers: &BucketNumbers) -> (Option<u64>, &'static str) {
    match numbers.burst {
        Some(burst) => (Some(burst), "burst"),
        None => (numbers.limit, "limit"),
    }
}

/// Makes a bucket from numbers, each of which is valid on its own.
fn bucket_of(numbers: &BucketNumbers) -> Result<TokenLimit, InvalidNumber> {
    let BucketNumbers { limit, window, refill_rate, .. } = numbers;
    let (capacity, capacity_name) = capacity_of(numbers);
    let capacity = capacity.unwrap_or(1);
    let refill_every = match (refill_rate, window) {
        (Some(rate), _) => refill_time(capacity, *rate)?,
        (None, window) => scaled(window.map_or(SECOND, |window| window.0), capacity, limit.unwrap_or(1)),
    };
    TokenLimit::new(capacity, refill_every).map_err(|error| match error {
        TrypemaError::InvalidLimit { .. } => (capacity_name, error.to_string()),
        error => about(error),
    })
}

fn rate_of(rate: f64) -> Result<RateLimit, InvalidNumber> {
    RateLimit::try_from(rate).map_err(|error| ("refill_rate", error.to_string()))
}

/// Returns the time in which `rate` tokens per second refill `capacity` tokens, rounded up to a microsecond.
fn refill_time(capacity: u64, rate: f64) -> Result<Duration, InvalidNumber> {
    let seconds = capacity as f64 / *rate_of(rate)?;
    if seconds > MAX_WINDOW.as_secs_f64() {
        let max = Period(MAX_WINDOW);
        let reason = format!("{capacity} tokens would take {seconds:?} s to come back: need at most {max}");
        return Err(("refill_rate", reason));
    }
    Ok(Duration::from_micros((seconds * 1e6).ceil() as u64))
}

/// Returns the time in which `limit` tokens per `window` refill `capacity` tokens, rounded up to a
/// microsecond.
fn scaled(window: Duration, capacity: u64, limit: u64) -> Duration {
    let micros = window.as_nanos().div_ceil(1_000).saturating_mul(u128::from(capacity));
    let micros = micros.div_ceil(u128::from(limit.max(1)));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Checks that a window is longer than zero and at most [`MAX_WINDOW`].
fn in_bounds(window: Duration) -> Result<(), InvalidNumber> {
    if window.is_zero() || window > MAX_WINDOW {
        return Err(about(TrypemaError::InvalidWindow { given: window, max: MAX_WINDOW }));
    }
    Ok(())
}
