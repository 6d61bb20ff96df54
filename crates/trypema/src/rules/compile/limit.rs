//! Converts the numbers of a rule into the limit of its strategy.

use std::time::Duration;

use super::Compiler;
use crate::error::TrypemaError;
use crate::rules::definition::{
    AbuseNumbers, BucketLimit, BucketNumbers, CounterNumbers, Numbers, SuppressedNumbers, TierNumbers,
    WhileBlocked, WindowNumbers,
};
use crate::rules::period::Period;
use crate::rules::problem::Field;
use crate::strategy::{
    AbsoluteLimit, AbuseLimit, AbuseTier, FixedWindowLimit, Limit, SlidingWindowLimit, SuppressedLimit,
    TokenBucketLimits, TokenLimit,
};
use crate::units::{HardLimitFactor, MAX_WINDOW, RateGroupSizeMs, RateLimit};

/// The name of the invalid field, and the reason why it is invalid.
type Refused = (&'static str, String);

impl Compiler {
    /// Returns the limit that `numbers` describe. `field` is their location, for error messages.
    pub(super) fn limit(&mut self, numbers: &Numbers, field: &Field) -> Option<Limit> {
        let (name, made) = match numbers {
            Numbers::Absolute(numbers) => ("absolute", absolute(numbers).map(Limit::from)),
            Numbers::Suppressed(numbers) => ("suppressed", suppressed(numbers).map(Limit::from)),
            Numbers::SlidingWindow(numbers) => ("sliding_window", sliding_window(numbers).map(Limit::from)),
            Numbers::FixedWindow(numbers) => ("fixed_window", fixed_window(numbers).map(Limit::from)),
            Numbers::TokenBucket(numbers) => {
                return self.token_bucket(numbers, &field.then("token_bucket")).map(Limit::from);
            }
            Numbers::Abuse(numbers) => return self.abuse(numbers, &field.then("abuse")).map(Limit::from),
        };
        self.made(made, &field.then(name))
    }

    fn made<T>(&mut self, made: Result<T, Refused>, field: &Field) -> Option<T> {
        made.map_err(|(name, reason)| self.refuse(&field.then(name), reason)).ok()
    }

    fn token_bucket(&mut self, numbers: &BucketNumbers, field: &Field) -> Option<TokenBucketLimits> {
        let BucketNumbers { limit, window, burst, refill_rate, limits } = numbers;
        let limits: Vec<TokenLimit> = if limits.is_empty() {
            vec![self.made(bucket(numbers), field)?]
        } else if limit.is_some() || window.is_some() || burst.is_some() || refill_rate.is_some() {
            self.refuse(&field.then("limits"), "give either one limit or a list of them");
            return None;
        } else {
            let field = field.then("limits");
            let made = limits.iter().enumerate();
            let made: Vec<_> =
                made.map(|(index, limit)| self.made(bucket(&limit.into()), &field.at(index))).collect();
            made.into_iter().collect::<Option<_>>()?
        };
        let made = TokenBucketLimits::new(limits);
        made.map_err(|error| self.refuse(&field.then("limits"), error.to_string())).ok()
    }

    fn abuse(&mut self, numbers: &AbuseNumbers, field: &Field) -> Option<AbuseLimit> {
        let temp = self.made(tier(&numbers.temp), &field.then("temp"));
        let long = self.made(tier(&numbers.long), &field.then("long"));
        let limit = AbuseLimit::new(temp?, long?);
        Some(match numbers.while_blocked {
            WhileBlocked::Count => limit,
            WhileBlocked::Lengthen => limit.lengthening_blocks(),
            WhileBlocked::Ignore => limit.ignoring_attempts_while_blocked(),
        })
    }
}

fn absolute(numbers: &WindowNumbers) -> Result<AbsoluteLimit, Refused> {
    window(numbers.limit, numbers.window, numbers.group)
}

fn suppressed(numbers: &SuppressedNumbers) -> Result<SuppressedLimit, Refused> {
    let window = window(numbers.limit, numbers.window, numbers.group)?;
    let factor = numbers.hard_limit_factor.map_or(Ok(HardLimitFactor::default()), HardLimitFactor::try_from);
    Ok(SuppressedLimit::above(window, factor.map_err(|error| ("hard_limit_factor", error.to_string()))?))
}

fn window(limit: u64, window: Period, group: Option<Period>) -> Result<AbsoluteLimit, Refused> {
    let limit = AbsoluteLimit::per_window(limit, window.0).map_err(about)?;
    let Some(Period(group)) = group else { return Ok(limit) };
    if group.subsec_nanos() % 1_000_000 != 0 {
        return Err(("group", "a group is a whole number of milliseconds".to_owned()));
    }
    let group_ms = u64::try_from(group.as_millis()).unwrap_or(u64::MAX);
    let group = RateGroupSizeMs::try_from(group_ms).map_err(|error| ("group", error.to_string()))?;
    Ok(limit.grouped(group))
}

fn sliding_window(numbers: &CounterNumbers) -> Result<SlidingWindowLimit, Refused> {
    SlidingWindowLimit::new(numbers.limit, numbers.window.0).map_err(about)
}

fn fixed_window(numbers: &CounterNumbers) -> Result<FixedWindowLimit, Refused> {
    FixedWindowLimit::new(numbers.limit, numbers.window.0).map_err(about)
}

impl From<&BucketLimit> for BucketNumbers {
    fn from(limit: &BucketLimit) -> Self {
        let BucketLimit { limit, window, burst } = limit.clone();
        Self { limit: Some(limit), window: Some(window), burst, ..Self::default() }
    }
}

/// Returns a bucket of `burst` tokens (or of `limit`, if there is no `burst`), refilled at `refill_rate` (or
/// at `limit` per `window`, if there is no `refill_rate`).
///
/// With a `refill_rate`, the `window` has no effect. It is allowed because every row of the table
/// `rate_limit_rules` has one, and it is validated because an impossible window is a mistake anyway.
fn bucket(numbers: &BucketNumbers) -> Result<TokenLimit, Refused> {
    let missing = |name| (name, format!("a token bucket needs `{name}`"));
    let capacity = numbers.burst.or(numbers.limit).ok_or_else(|| missing("limit"))?;
    let capacity_name = if numbers.burst.is_some() { "burst" } else { "limit" };
    let refill_every = match (numbers.refill_rate, numbers.window) {
        (Some(rate), window) => {
            window.map_or(Ok(()), |window| in_bounds(window.0))?;
            refill_time(capacity, rate)?
        }
        (None, Some(window)) => scaled(window.0, capacity, numbers.limit.ok_or_else(|| missing("limit"))?)?,
        (None, None) => return Err(missing("window")),
    };
    TokenLimit::new(capacity, refill_every).map_err(|error| match error {
        TrypemaError::InvalidLimit { .. } => (capacity_name, error.to_string()),
        error => about(error),
    })
}

/// Returns the time in which `rate` tokens per second refill `capacity` tokens, rounded up to a microsecond.
fn refill_time(capacity: u64, rate: f64) -> Result<Duration, Refused> {
    let rate = RateLimit::try_from(rate).map_err(|error| ("refill_rate", error.to_string()))?;
    let seconds = capacity as f64 / *rate;
    if seconds > MAX_WINDOW.as_secs_f64() {
        let reason =
            format!("{capacity} tokens would take {seconds:?} s to come back: need at most {MAX_WINDOW:?}");
        return Err(("refill_rate", reason));
    }
    Ok(Duration::from_micros((seconds * 1e6).ceil() as u64))
}

/// Returns the time in which `limit` tokens per `window` refill `capacity` tokens, rounded up to a
/// microsecond.
fn scaled(window: Duration, capacity: u64, limit: u64) -> Result<Duration, Refused> {
    if limit == 0 {
        return Err(("limit", "invalid limit 0: need at least 1".to_owned()));
    }
    in_bounds(window)?;
    let micros =
        (window.as_nanos().div_ceil(1_000)).saturating_mul(u128::from(capacity)).div_ceil(u128::from(limit));
    Ok(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
}

/// Checks that a window is longer than zero and at most [`MAX_WINDOW`].
fn in_bounds(window: Duration) -> Result<(), Refused> {
    if window.is_zero() || window > MAX_WINDOW {
        return Err(about(TrypemaError::InvalidWindow { given: window, max: MAX_WINDOW }));
    }
    Ok(())
}

fn tier(numbers: &TierNumbers) -> Result<AbuseTier, Refused> {
    let TierNumbers { window, threshold, block } = numbers;
    // `AbuseTier::new` reports an invalid window and an invalid block with the same error. Each is tried on
    // its own, so that the problem names the right field.
    let (any, second) = (*threshold, Duration::from_secs(1));
    AbuseTier::new(window.0, 1, second).map_err(about)?;
    AbuseTier::new(second, 1, block.0).map_err(|error| ("block", error.to_string()))?;
    AbuseTier::new(window.0, any, block.0).map_err(about)
}

/// Adds the name of the field that an error is about.
fn about(error: TrypemaError) -> Refused {
    let name = match error {
        TrypemaError::InvalidWindow { .. } => "window",
        TrypemaError::InvalidThreshold { .. } => "threshold",
        _ => "limit",
    };
    (name, error.to_string())
}
