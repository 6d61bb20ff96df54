//! Converts the numbers of a rule into the limit of its strategy.

mod calendar;

use std::time::Duration;

use super::Compiler;
use crate::error::TrypemaError;
use crate::rules::definition::{
    AbuseNumbers, BucketLimit, BucketNumbers, ConcurrencyNumbers, CounterNumbers, Numbers, SuppressedNumbers,
    TierNumbers, WhileBlocked, WindowNumbers,
};
use crate::rules::period::Period;
use crate::rules::problem::FieldPath;
use crate::strategy::{
    AbsoluteLimit, AbuseLimit, AbuseTier, ConcurrencyLimit, Limit, SlidingWindowLimit, SuppressedLimit,
    TokenBucketLimits, TokenLimit,
};
use crate::units::{HardLimitFactor, MAX_EXACT, MAX_WINDOW, RateGroupSizeMs, RateLimit};

/// The name of the invalid field, and the reason why it is invalid.
type InvalidNumber = (&'static str, String);

/// A valid window for trying a limit. A limit that is invalid with this window is invalid with any.
const SECOND: Duration = Duration::from_secs(1);

/// The fields of the absolute and the suppressed strategy that describe the window.
struct WindowFields {
    limit: u64,
    window: Period,
    group: Option<Period>,
}

impl Compiler<'_> {
    /// Returns the limit that `numbers` describe. `field` is their location, for error messages.
    pub(super) fn limit(&mut self, numbers: &Numbers, field: &FieldPath) -> Option<Limit> {
        match numbers {
            Numbers::Absolute(WindowNumbers { limit, window, group }) => {
                let windowed = WindowFields { limit: *limit, window: *window, group: *group };
                self.windowed(windowed, &field.then("absolute")).map(Limit::from)
            }
            Numbers::Suppressed(numbers) => {
                self.suppressed(numbers, &field.then("suppressed")).map(Limit::from)
            }
            Numbers::SlidingWindow(numbers) => {
                self.counter(numbers, &field.then("sliding_window"), SlidingWindowLimit::new).map(Limit::from)
            }
            Numbers::FixedWindow(numbers) => {
                self.fixed_window(numbers, &field.then("fixed_window")).map(Limit::from)
            }
            Numbers::TokenBucket(numbers) => {
                self.token_bucket(numbers, &field.then("token_bucket")).map(Limit::from)
            }
            Numbers::Abuse(numbers) => self.abuse(numbers, &field.then("abuse")).map(Limit::from),
            Numbers::Concurrency(numbers) => {
                self.concurrency(numbers, &field.then("concurrency")).map(Limit::from)
            }
        }
    }

    fn made<T>(&mut self, made: Result<T, InvalidNumber>, field: &FieldPath) -> Option<T> {
        made.map_err(|(name, reason)| self.refuse(&field.then(name), reason)).ok()
    }

    /// Makes a limit from two numbers. Each number is first tried alone, together with a valid second one, so
    /// that the problems of both are reported.
    fn counter<T>(
        &mut self,
        numbers: &CounterNumbers,
        field: &FieldPath,
        make: impl Fn(u64, Duration) -> Result<T, TrypemaError>,
    ) -> Option<T> {
        let limit = self.made(make(numbers.limit, SECOND).map_err(about), field);
        let window = self.made(make(1, numbers.window.0).map_err(about), field);
        limit.and(window)?;
        self.made(make(numbers.limit, numbers.window.0).map_err(about), field)
    }

    fn windowed(&mut self, windowed: WindowFields, field: &FieldPath) -> Option<AbsoluteLimit> {
        let WindowFields { limit, window, group } = windowed;
        let limit = self.counter(&CounterNumbers { limit, window }, field, AbsoluteLimit::per_window);
        match group {
            Some(given) => {
                let group = self.made(group_size(given), field);
                Some(limit?.grouped(group?))
            }
            None => limit,
        }
    }

    fn suppressed(&mut self, numbers: &SuppressedNumbers, field: &FieldPath) -> Option<SuppressedLimit> {
        let SuppressedNumbers { limit, window, group, hard_limit_factor } = numbers;
        let window = self.windowed(WindowFields { limit: *limit, window: *window, group: *group }, field);
        let factor = hard_limit_factor.map_or(Ok(HardLimitFactor::default()), HardLimitFactor::try_from);
        let factor = self.made(factor.map_err(|error| ("hard_limit_factor", error.to_string())), field);
        Some(SuppressedLimit::above(window?, factor?))
    }

    fn token_bucket(&mut self, numbers: &BucketNumbers, field: &FieldPath) -> Option<TokenBucketLimits> {
        let BucketNumbers { limit, window, burst, refill_rate, limits } = numbers;
        let limits: Vec<TokenLimit> = if limits.is_empty() {
            vec![self.bucket(numbers, field)?]
        } else if limit.is_some() || window.is_some() || burst.is_some() || refill_rate.is_some() {
            self.refuse(
                &field.then("limits"),
                "`limits` cannot be combined with `limit`, `window`, `burst` or `refill_rate`",
            );
            return None;
        } else {
            let field = field.then("limits");
            let made = limits.iter().enumerate();
            let made: Vec<_> =
                made.map(|(index, limit)| self.bucket(&limit.into(), &field.at(index))).collect();
            made.into_iter().collect::<Option<_>>()?
        };
        let made = TokenBucketLimits::new(limits);
        made.map_err(|error| self.refuse(&field.then("limits"), error.to_string())).ok()
    }

    /// Returns a bucket of `burst` tokens (or of `limit`, if there is no `burst`), refilled at `refill_rate`
    /// (or at `limit` per `window`, if there is no `refill_rate`).
    ///
    /// With a `refill_rate`, the `window` has no effect. It is allowed because every row of the table
    /// `rate_limit_rules` has one, and it is validated because an impossible window is a mistake anyway.
    fn bucket(&mut self, numbers: &BucketNumbers, field: &FieldPath) -> Option<TokenLimit> {
        let known = self.problems.count();
        let (capacity, capacity_name) = capacity_of(numbers);
        if let Some(given) = capacity.filter(|capacity| !(1..=MAX_EXACT).contains(capacity)) {
            let error = TrypemaError::InvalidLimit { given, max: MAX_EXACT };
            self.refuse(&field.then(capacity_name), error.to_string());
        }
        // With a burst and a refill rate, the limit has no effect.
        if numbers.limit == Some(0) && numbers.burst.is_some() && numbers.refill_rate.is_none() {
            self.refuse(&field.then("limit"), "invalid limit 0: need at least 1");
        }
        if let Some(window) = numbers.window {
            self.made(in_bounds(window.0), field);
        }
        if let Some(rate) = numbers.refill_rate {
            self.made(rate_of(rate), field);
        }
        let missing = |name| (name, format!("a token bucket needs `{name}`"));
        let needs_limit = numbers.burst.is_none() || numbers.refill_rate.is_none();
        if numbers.limit.is_none() && needs_limit {
            self.made::<()>(Err(missing("limit")), field);
        }
        if numbers.window.is_none() && numbers.refill_rate.is_none() {
            self.made::<()>(Err(missing("window")), field);
        }
        if self.problems.count() > known || self.has_replaced(field) {
            return None;
        }
        self.made(bucket_of(numbers), field)
    }

    fn abuse(&mut self, numbers: &AbuseNumbers, field: &FieldPath) -> Option<AbuseLimit> {
        let temp = self.tier(&numbers.temp, &field.then("temp"));
        let long = self.tier(&numbers.long, &field.then("long"));
        let limit = AbuseLimit::new(temp?, long?);
        Some(match numbers.while_blocked {
            WhileBlocked::Count => limit,
            WhileBlocked::Lengthen => limit.lengthening_blocks(),
            WhileBlocked::Ignore => limit.ignoring_attempts_while_blocked(),
        })
    }

    /// Makes a tier from three numbers. Each number is first tried alone, together with valid values for the
    /// others, so that the problems of all three are reported.
    fn tier(&mut self, numbers: &TierNumbers, field: &FieldPath) -> Option<AbuseTier> {
        let TierNumbers { window, threshold, block } = numbers;
        let window_alone = self.made(AbuseTier::new(window.0, 1, SECOND).map_err(about), field);
        let threshold_alone = self.made(AbuseTier::new(SECOND, *threshold, SECOND).map_err(about), field);
        let block_alone = AbuseTier::new(SECOND, 1, block.0).map_err(|error| ("block", error.to_string()));
        let block_alone = self.made(block_alone, field);
        window_alone.and(threshold_alone).and(block_alone)?;
        self.made(AbuseTier::new(window.0, *threshold, block.0).map_err(about), field)
    }

    /// Makes a limit from two numbers. Each number is first tried alone, together with a valid second one, so
    /// that the problems of both are reported.
    fn concurrency(&mut self, numbers: &ConcurrencyNumbers, field: &FieldPath) -> Option<ConcurrencyLimit> {
        let ConcurrencyNumbers { limit, hold } = numbers;
        let limit_alone = self.made(ConcurrencyLimit::new(*limit, SECOND).map_err(about), field);
        let hold_alone = self.made(ConcurrencyLimit::new(1, hold.0).map_err(about), field);
        limit_alone.and(hold_alone)?;
        self.made(ConcurrencyLimit::new(*limit, hold.0).map_err(about), field)
    }
}

fn group_size(Period(group): Period) -> Result<RateGroupSizeMs, InvalidNumber> {
    if group.subsec_nanos() % 1_000_000 != 0 {
        return Err(("group", "a group is a whole number of milliseconds".to_owned()));
    }
    let group_ms = u64::try_from(group.as_millis()).unwrap_or(u64::MAX);
    RateGroupSizeMs::try_from(group_ms).map_err(|error| ("group", error.to_string()))
}

impl From<&BucketLimit> for BucketNumbers {
    fn from(limit: &BucketLimit) -> Self {
        let BucketLimit { limit, window, burst } = limit.clone();
        Self { limit: Some(limit), window: Some(window), burst, ..Self::default() }
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

/// Adds the name of the field that an error is about.
fn about(error: TrypemaError) -> InvalidNumber {
    let name = match error {
        TrypemaError::InvalidWindow { .. } => "window",
        TrypemaError::InvalidThreshold { .. } => "threshold",
        TrypemaError::InvalidHold { .. } => "hold",
        _ => "limit",
    };
    (name, error.to_string())
}
