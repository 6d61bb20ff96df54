//! Limit lines: the limit of the following steps.

use std::time::Duration;

use trypema::strategy::for_each_strategy;
use trypema::{HardLimitFactor, LocalRateLimiterOptions, RateLimit, TrypemaError};

use super::provider::Unsupported;
use super::time;
use crate::subject::Modelled;

/// The limit of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The limit.
    pub limit: trypema::Limit,
    /// The arguments of the trypema 1.x API, if the strategy has it.
    pub compat: Option<CompatArgs>,
}

impl Limit {
    pub(crate) fn new(limit: impl Into<trypema::Limit>) -> Self {
        Self { limit: limit.into(), compat: None }
    }
}

/// The arguments of `inc` of the trypema 1.x API: a rate with each call, the options once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompatArgs {
    /// The rate of each call.
    pub rate: RateLimit,
    /// The options of the limiter.
    pub options: LocalRateLimiterOptions,
}

impl CompatArgs {
    /// Fails if the options changed: calls of the trypema 1.x API set them once, so a trace must not change
    /// them.
    pub(super) fn check(&self, options: &LocalRateLimiterOptions) -> Result<(), Unsupported> {
        if self.options == *options {
            return Ok(());
        }
        Err(Unsupported(
            "calls of the trypema 1.x API keep the window, group and factor of the first limit line",
        ))
    }
}

/// The reason why a line has no limit.
#[derive(Debug)]
pub enum NoLimit {
    /// It is malformed.
    Unreadable(String),
    /// The library rejects the limit.
    Refused(TrypemaError),
}

impl From<String> for NoLimit {
    fn from(message: String) -> Self {
        Self::Unreadable(message)
    }
}

impl From<TrypemaError> for NoLimit {
    fn from(error: TrypemaError) -> Self {
        Self::Refused(error)
    }
}

macro_rules! limit_lines {
    ($($number:literal $type:ident $name:ident $limit:ident;)+) => {
        /// Whether `word` begins a limit line.
        pub(super) fn is_strategy(word: &str) -> bool {
            [$(stringify!($name)),+].contains(&word)
        }

        /// Parses the words of a limit line.
        pub(super) fn limit(words: &[&str]) -> Result<Limit, NoLimit> {
            let (name, words) = words.split_first().unwrap_or((&"", &[]));
            $(if *name == stringify!($name) {
                return trypema::strategy::$type::parse(words);
            })+
            Err(NoLimit::Unreadable(format!("`{name}` is no strategy")))
        }
    };
}
for_each_strategy! { [limit_lines] }

/// Returns the only word of a limit.
pub(crate) fn single<'w>(words: &[&'w str]) -> Result<&'w str, NoLimit> {
    match words {
        [word] => Ok(word),
        _ => Err(NoLimit::Unreadable(format!("`{}` is no limit", words.join(" ")))),
    }
}

/// Parses a rate such as `5/s` or `1/60s`.
pub(crate) fn rate(text: &str) -> Result<RateLimit, NoLimit> {
    let unreadable = || NoLimit::Unreadable(format!("`{text}` is no rate"));
    let (units, per) = text.split_once('/').ok_or_else(unreadable)?;
    let units: f64 = units.parse().map_err(|_| unreadable())?;
    let per_us = if per == "s" { Some(1_000_000) } else { time::micros(per) };
    let per_us = per_us.filter(|us| *us > 0).ok_or_else(unreadable)?;
    Ok(RateLimit::try_from(units / (per_us as f64 / 1e6))?)
}

/// Parses a number per duration, such as `10/1s`.
pub(crate) fn quota(text: &str) -> Result<(u64, Duration), NoLimit> {
    let read = text.split_once('/').and_then(|(units, per)| Some((time::count(units)?, per)));
    let (units, per) = read.ok_or_else(|| NoLimit::Unreadable(format!("`{text}` is no limit/window")))?;
    Ok((units, duration(per)?))
}

pub(crate) fn hard_limit_factor(text: &str) -> Result<HardLimitFactor, NoLimit> {
    let factor: f64 = text.parse().map_err(|_| NoLimit::Unreadable(format!("`{text}` is no factor")))?;
    Ok(HardLimitFactor::try_from(factor)?)
}

/// Parses a duration that is a whole number of `unit` (`s` or `ms`).
pub(crate) fn whole(text: &str, unit: &str) -> Result<u64, NoLimit> {
    let unit_us = if unit == "s" { 1_000_000 } else { 1_000 };
    let us = time::micros(text).filter(|us| us.is_multiple_of(unit_us));
    us.map(|us| us / unit_us)
        .ok_or_else(|| NoLimit::Unreadable(format!("`{text}` is no whole number of {unit}")))
}

pub(crate) fn duration(text: &str) -> Result<Duration, NoLimit> {
    let us = time::micros(text).ok_or_else(|| NoLimit::Unreadable(format!("`{text}` is no time")))?;
    Ok(Duration::from_micros(us))
}

pub(crate) fn unknown_option(option: &str) -> NoLimit {
    NoLimit::Unreadable(format!("unknown option `{option}`"))
}
