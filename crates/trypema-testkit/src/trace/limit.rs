//! Limit lines: the limit of the following steps.

use std::time::Duration;

use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, CalendarStart, CalendarWindow, ConcurrencyLimit, FixedWindowLimit,
    HardLimitFactor, LocalRateLimiterOptions, RateGroupSizeMs, RateLimit, SlidingWindowLimit,
    SuppressedLimit, TokenBucketLimits, TokenLimit, TrypemaError, Weekday, WindowSizeSeconds,
};

use super::provider::Unsupported;
use super::time;
use crate::model::WhileBlocked;

/// A limit of one of the seven strategies.
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    /// A sliding window.
    Absolute(AbsoluteLimit, CompatArgs),
    /// A sliding window that sheds load.
    Suppressed(SuppressedLimit, CompatArgs),
    /// One or more token buckets.
    TokenBucket(TokenBucketLimits),
    /// A fixed window.
    FixedWindow(FixedWindowLimit),
    /// A sliding-window counter.
    SlidingWindow(SlidingWindowLimit),
    /// Attempts and blocks.
    Abuse(AbuseLimit),
    /// Units held at the same time.
    Concurrency(ConcurrencyLimit),
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
pub(super) enum NoLimit {
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

/// Whether `word` begins a limit line.
pub(super) fn is_strategy(word: &str) -> bool {
    let names =
        ["absolute", "suppressed", "token_bucket", "fixed_window", "sliding_window", "abuse", "concurrency"];
    names.contains(&word)
}

/// Parses the words of a limit line.
pub(super) fn limit(words: &[&str]) -> Result<Limit, NoLimit> {
    match words {
        ["absolute", options @ ..] => {
            windowed(options).map(|(window, compat)| Limit::Absolute(window, compat))
        }
        ["suppressed", options @ ..] => suppressed(options),
        ["token_bucket", limits @ ..] => {
            let limits = limits.iter().map(|word| {
                let (capacity, refill_every) = quota(word)?;
                Ok(TokenLimit::new(capacity, refill_every)?)
            });
            let limits = limits.collect::<Result<Vec<_>, NoLimit>>()?;
            Ok(Limit::TokenBucket(TokenBucketLimits::new(limits)?))
        }
        ["fixed_window", word, options @ ..] if is_calendar(word) => calendar(word, options),
        ["fixed_window", word] => {
            let (limit, window) = quota(word)?;
            Ok(Limit::FixedWindow(FixedWindowLimit::new(limit, window)?))
        }
        ["sliding_window", word] => {
            let (limit, window) = quota(word)?;
            Ok(Limit::SlidingWindow(SlidingWindowLimit::new(limit, window)?))
        }
        ["abuse", options @ ..] => abuse(options),
        ["concurrency", options @ ..] => concurrency(options),
        _ => Err(NoLimit::Unreadable(format!("`{}` is no limit", words.join(" ")))),
    }
}

fn is_calendar(word: &str) -> bool {
    ["/day", "/week", "/month"].iter().any(|per| word.ends_with(per))
}

/// Parses a limit per day, week or month, such as `10/month zone=Europe/Berlin starts=1`.
fn calendar(word: &str, options: &[&str]) -> Result<Limit, NoLimit> {
    let unreadable = |text: &str| NoLimit::Unreadable(format!("`{text}` is no limit of a calendar"));
    let (limit, per) = word.split_once('/').ok_or_else(|| unreadable(word))?;
    let limit = time::count(limit).ok_or_else(|| unreadable(word))?;
    let (mut zone, mut starts) = ("UTC", None);
    for option in options {
        match option.split_once('=') {
            Some(("zone", name)) => zone = name,
            Some(("starts", start)) => starts = Some(start),
            _ => return Err(unknown_option(option)),
        }
    }
    let number = |text: &str| text.parse::<u8>().map_err(|_| unreadable(text));
    let start = match (per, starts) {
        ("day", None) => CalendarStart::MIDNIGHT,
        ("day", Some(text)) => {
            let (hour, minute) = text.split_once(':').ok_or_else(|| unreadable(text))?;
            CalendarStart::Day { hour: number(hour)?, minute: number(minute)? }
        }
        ("week", None) => CalendarStart::Week(Weekday::Monday),
        ("week", Some(text)) => {
            let day = Weekday::ALL.into_iter().find(|day| day.name() == text);
            CalendarStart::Week(day.ok_or_else(|| unreadable(text))?)
        }
        (_, None) => CalendarStart::Month { day: 1 },
        (_, Some(text)) => CalendarStart::Month { day: number(text)? },
    };
    Ok(Limit::FixedWindow(FixedWindowLimit::calendar(limit, CalendarWindow::new(zone, start)?)?))
}

/// Parses a rate such as `5/s` or `1/60s`.
pub(super) fn rate(text: &str) -> Result<RateLimit, NoLimit> {
    let unreadable = || NoLimit::Unreadable(format!("`{text}` is no rate"));
    let (units, per) = text.split_once('/').ok_or_else(unreadable)?;
    let units: f64 = units.parse().map_err(|_| unreadable())?;
    let per_us = if per == "s" { Some(1_000_000) } else { time::micros(per) };
    let per_us = per_us.filter(|us| *us > 0).ok_or_else(unreadable)?;
    Ok(RateLimit::try_from(units / (per_us as f64 / 1e6))?)
}

fn windowed(options: &[&str]) -> Result<(AbsoluteLimit, CompatArgs), NoLimit> {
    let mut rate_word = None;
    let mut window = None;
    let mut group = RateGroupSizeMs::try_from(10)?;
    let mut factor = HardLimitFactor::default();
    let mut is_sticky = false;
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("rate", value) => rate_word = Some(rate(value)?),
            ("window", value) => window = Some(WindowSizeSeconds::try_from(whole(value, "s")?)?),
            ("group", value) => group = RateGroupSizeMs::try_from(whole(value, "ms")?)?,
            ("factor", value) => factor = hard_limit_factor(value)?,
            ("sticky", "") => is_sticky = true,
            _ => return Err(unknown_option(option)),
        }
    }
    let (Some(rate), Some(window)) = (rate_word, window) else {
        return Err(NoLimit::Unreadable("a rate and a window are needed".to_owned()));
    };
    let limit = AbsoluteLimit::new(rate, window, group);
    let options = LocalRateLimiterOptions {
        window_size_seconds: window,
        rate_group_size_ms: group,
        hard_limit_factor: factor,
    };
    Ok((if is_sticky { limit.sticky() } else { limit }, CompatArgs { rate, options }))
}

fn suppressed(options: &[&str]) -> Result<Limit, NoLimit> {
    let (_, compat) = windowed(options)?;
    let LocalRateLimiterOptions { window_size_seconds, rate_group_size_ms, hard_limit_factor } =
        compat.options;
    let limit = SuppressedLimit::new(compat.rate, window_size_seconds, rate_group_size_ms, hard_limit_factor);
    let limit = if options.contains(&"sticky") { limit.sticky() } else { limit };
    Ok(Limit::Suppressed(limit, compat))
}

fn abuse(options: &[&str]) -> Result<Limit, NoLimit> {
    let (mut short, mut long, mut while_blocked) = (None, None, WhileBlocked::Count);
    for option in options {
        match option.split_once('=') {
            Some(("short", value)) => short = Some(tier(value)?),
            Some(("long", value)) => long = Some(tier(value)?),
            Some(("while_blocked", "lengthen")) => while_blocked = WhileBlocked::Lengthen,
            Some(("while_blocked", "ignore")) => while_blocked = WhileBlocked::Ignore,
            _ => return Err(unknown_option(option)),
        }
    }
    let (Some(short), Some(long)) = (short, long) else {
        return Err(NoLimit::Unreadable("a short and a long tier are needed".to_owned()));
    };
    let limit = AbuseLimit::new(short, long);
    Ok(Limit::Abuse(while_blocked.apply(limit)))
}

fn concurrency(options: &[&str]) -> Result<Limit, NoLimit> {
    let (mut limit, mut hold) = (None, None);
    for option in options {
        match option.split_once('=') {
            Some(("limit", value)) => limit = time::count(value),
            Some(("hold", value)) => hold = Some(duration(value)?),
            _ => return Err(unknown_option(option)),
        }
    }
    let (Some(limit), Some(hold)) = (limit, hold) else {
        return Err(NoLimit::Unreadable("a limit and a hold are needed".to_owned()));
    };
    Ok(Limit::Concurrency(ConcurrencyLimit::new(limit, hold)?))
}

/// Parses a tier: window, threshold, block.
fn tier(text: &str) -> Result<AbuseTier, NoLimit> {
    let parts: Vec<&str> = text.split('/').collect();
    let [window, threshold, block] = parts[..] else {
        return Err(NoLimit::Unreadable(format!("`{text}` is no window/threshold/block")));
    };
    let threshold = time::count(threshold)
        .ok_or_else(|| NoLimit::Unreadable(format!("`{threshold}` is no whole number")))?;
    Ok(AbuseTier::new(duration(window)?, threshold, duration(block)?)?)
}

/// Parses a number per duration, such as `10/1s`.
fn quota(text: &str) -> Result<(u64, Duration), NoLimit> {
    let read = text.split_once('/').and_then(|(units, per)| Some((time::count(units)?, per)));
    let (units, per) = read.ok_or_else(|| NoLimit::Unreadable(format!("`{text}` is no limit/window")))?;
    Ok((units, duration(per)?))
}

fn hard_limit_factor(text: &str) -> Result<HardLimitFactor, NoLimit> {
    let factor: f64 = text.parse().map_err(|_| NoLimit::Unreadable(format!("`{text}` is no factor")))?;
    Ok(HardLimitFactor::try_from(factor)?)
}

/// Parses a duration that is a whole number of `unit` (`s` or `ms`).
fn whole(text: &str, unit: &str) -> Result<u64, NoLimit> {
    let unit_us = if unit == "s" { 1_000_000 } else { 1_000 };
    let us = time::micros(text).filter(|us| us.is_multiple_of(unit_us));
    us.map(|us| us / unit_us)
        .ok_or_else(|| NoLimit::Unreadable(format!("`{text}` is no whole number of {unit}")))
}

fn duration(text: &str) -> Result<Duration, NoLimit> {
    let us = time::micros(text).ok_or_else(|| NoLimit::Unreadable(format!("`{text}` is no time")))?;
    Ok(Duration::from_micros(us))
}

fn unknown_option(option: &str) -> NoLimit {
    NoLimit::Unreadable(format!("unknown option `{option}`"))
}
