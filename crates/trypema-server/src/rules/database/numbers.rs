//! The columns of a strategy and its numbers, which rules and overrides share.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trypema::rules::{
    AbuseNumbers, BucketLimit, BucketNumbers, CalendarPeriod, ConcurrencyNumbers, CounterNumbers,
    FixedWindowNumbers, Numbers, Starts, SuppressedNumbers, TierNumbers, WhileBlocked, WindowNumbers,
};

use super::row::Seconds;

/// An algorithm and its numbers. Which of them are set depends on the algorithm.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct NumbersRow {
    algorithm: Option<Algorithm>,
    limit_count: Option<u64>,
    window_seconds: Option<Seconds>,
    burst_limit: Option<u64>,
    refill_rate: Option<f64>,
    limits: Option<Vec<BucketRow>>,
    group_ms: Option<u64>,
    hard_limit_factor: Option<f64>,
    per: Option<CalendarPeriod>,
    zone: Option<String>,
    starts: Option<StartsText>,
    temp_window_seconds: Option<Seconds>,
    temp_threshold: Option<u64>,
    temp_block_seconds: Option<Seconds>,
    long_window_seconds: Option<Seconds>,
    long_threshold: Option<u64>,
    long_block_seconds: Option<Seconds>,
    while_blocked: Option<WhileBlocked>,
    hold_seconds: Option<Seconds>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Algorithm {
    Absolute,
    Suppressed,
    TokenBucket,
    SlidingWindow,
    FixedWindow,
    Abuse,
    Concurrency,
}

/// The start of a calendar's windows, always as text.
#[derive(Debug, Clone, Copy)]
struct StartsText(Starts);

impl Serialize for StartsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for StartsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Starts::deserialize(deserializer).map(Self)
    }
}

/// One of several limits of a token bucket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketRow {
    limit_count: u64,
    window_seconds: Seconds,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst_limit: Option<u64>,
}

impl From<&Numbers> for NumbersRow {
    fn from(numbers: &Numbers) -> Self {
        match numbers.clone() {
            Numbers::Absolute(WindowNumbers { limit, window, group }) => Self {
                group_ms: group.map(milliseconds),
                ..Self::counting(Algorithm::Absolute, CounterNumbers { limit, window })
            },
            Numbers::Suppressed(SuppressedNumbers { limit, window, group, hard_limit_factor }) => Self {
                group_ms: group.map(milliseconds),
                hard_limit_factor,
                ..Self::counting(Algorithm::Suppressed, CounterNumbers { limit, window })
            },
            Numbers::SlidingWindow(numbers) => Self::counting(Algorithm::SlidingWindow, numbers),
            Numbers::FixedWindow(numbers) => Self {
                algorithm: Some(Algorithm::FixedWindow),
                limit_count: Some(numbers.limit),
                window_seconds: numbers.window.map(Seconds::from),
                per: numbers.per,
                zone: numbers.zone,
                starts: numbers.starts.map(StartsText),
                ..Self::default()
            },
            Numbers::TokenBucket(numbers) => Self::bucket(numbers),
            Numbers::Abuse(numbers) => Self::abuse(numbers),
            Numbers::Concurrency(ConcurrencyNumbers { limit, hold }) => Self {
                algorithm: Some(Algorithm::Concurrency),
                limit_count: Some(limit),
                hold_seconds: Some(hold.into()),
                ..Self::default()
            },
        }
    }
}

fn milliseconds(period: trypema::rules::Period) -> u64 {
    u64::try_from(period.0.as_millis()).unwrap_or(u64::MAX)
}

impl NumbersRow {
    fn counting(algorithm: Algorithm, numbers: CounterNumbers) -> Self {
        Self {
            algorithm: Some(algorithm),
            limit_count: Some(numbers.limit),
            window_seconds: Some(numbers.window.into()),
            ..Self::default()
        }
    }

    fn bucket(numbers: BucketNumbers) -> Self {
        let limits = numbers.limits.into_iter().map(|limit| BucketRow {
            limit_count: limit.limit,
            window_seconds: limit.window.into(),
            burst_limit: limit.burst,
        });
        Self {
            algorithm: Some(Algorithm::TokenBucket),
            limit_count: numbers.limit,
            window_seconds: numbers.window.map(Seconds::from),
            burst_limit: numbers.burst,
            refill_rate: numbers.refill_rate,
            limits: Some(limits.collect()).filter(|limits: &Vec<_>| !limits.is_empty()),
            ..Self::default()
        }
    }

    fn abuse(AbuseNumbers { temp, long, while_blocked }: AbuseNumbers) -> Self {
        Self {
            algorithm: Some(Algorithm::Abuse),
            temp_window_seconds: Some(temp.window.into()),
            temp_threshold: Some(temp.threshold),
            temp_block_seconds: Some(temp.block.into()),
            long_window_seconds: Some(long.window.into()),
            long_threshold: Some(long.threshold),
            long_block_seconds: Some(long.block.into()),
            while_blocked: Some(while_blocked),
            ..Self::default()
        }
    }

    /// Converts the row to numbers. Returns `None` if there is no algorithm.
    pub(super) fn numbers(&self) -> Result<Option<Numbers>, String> {
        let Some(algorithm) = self.algorithm else { return Ok(None) };
        Ok(Some(match algorithm {
            Algorithm::Absolute => {
                let CounterNumbers { limit, window } = self.counter()?;
                Numbers::Absolute(WindowNumbers { limit, window, group: self.group() })
            }
            Algorithm::Suppressed => {
                let CounterNumbers { limit, window } = self.counter()?;
                let (group, hard_limit_factor) = (self.group(), self.hard_limit_factor);
                Numbers::Suppressed(SuppressedNumbers { limit, window, group, hard_limit_factor })
            }
            Algorithm::SlidingWindow => Numbers::SlidingWindow(self.counter()?),
            Algorithm::FixedWindow => Numbers::FixedWindow(self.fixed_window()?),
            Algorithm::TokenBucket => Numbers::TokenBucket(self.buckets()?),
            Algorithm::Abuse => Numbers::Abuse(self.tiers()?),
            Algorithm::Concurrency => Numbers::Concurrency(ConcurrencyNumbers {
                limit: self.limit_count.ok_or("limit_count is missing")?,
                hold: self.hold_seconds.ok_or("hold_seconds is missing")?.period()?,
            }),
        }))
    }

    fn counter(&self) -> Result<CounterNumbers, String> {
        Ok(CounterNumbers {
            limit: self.limit_count.ok_or("limit_count is missing")?,
            window: self.window_seconds.ok_or("window_seconds is missing")?.period()?,
        })
    }

    fn fixed_window(&self) -> Result<FixedWindowNumbers, String> {
        if self.per.is_none() {
            return self.counter().map(FixedWindowNumbers::from);
        }
        Ok(FixedWindowNumbers {
            limit: self.limit_count.ok_or("limit_count is missing")?,
            window: self.window_seconds.map(Seconds::period).transpose()?,
            per: self.per,
            zone: self.zone.clone(),
            starts: self.starts.map(|StartsText(starts)| starts),
        })
    }

    fn group(&self) -> Option<trypema::rules::Period> {
        self.group_ms.map(|group_ms| trypema::rules::Period(std::time::Duration::from_millis(group_ms)))
    }

    fn buckets(&self) -> Result<BucketNumbers, String> {
        let limits = self.limits.iter().flatten().map(|row| {
            let window = row.window_seconds.period()?;
            Ok(BucketLimit { limit: row.limit_count, window, burst: row.burst_limit })
        });
        Ok(BucketNumbers {
            limit: self.limit_count,
            window: self.window_seconds.map(Seconds::period).transpose()?,
            burst: self.burst_limit,
            refill_rate: self.refill_rate,
            limits: limits.collect::<Result<_, String>>()?,
        })
    }

    fn tiers(&self) -> Result<AbuseNumbers, String> {
        Ok(AbuseNumbers {
            temp: TierNumbers {
                window: self.temp_window_seconds.ok_or("temp_window_seconds is missing")?.period()?,
                threshold: self.temp_threshold.ok_or("temp_threshold is missing")?,
                block: self.temp_block_seconds.ok_or("temp_block_seconds is missing")?.period()?,
            },
            long: TierNumbers {
                window: self.long_window_seconds.ok_or("long_window_seconds is missing")?.period()?,
                threshold: self.long_threshold.ok_or("long_threshold is missing")?,
                block: self.long_block_seconds.ok_or("long_block_seconds is missing")?.period()?,
            },
            while_blocked: self.while_blocked.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::NumbersRow;

    /// Rounding to a shorter number would change the rate, so an exported rule would differ from the
    /// applied one.
    #[test]
    fn a_refill_rate_is_read_to_its_last_digit() {
        let row: NumbersRow =
            serde_json::from_str(r#"{"refill_rate":0.0009400000000000001}"#).unwrap_or_default();
        assert_eq!(row.refill_rate, Some(0.000_940_000_000_000_000_1));
    }
}
