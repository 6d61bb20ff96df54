//! Durations in the notation of rules.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use thiserror::Error as ErrorMessage;

/// A duration in the notation of rules: `500ms`, `90s`, `1h30m`, `7d`, or a whole number of seconds.
///
/// The units are `d`, `h`, `m`, `s`, `ms` and `us`. Each may occur once, the largest first, without spaces or
/// fractions. A period is displayed with as few units as possible, rounded up to a microsecond.
///
/// ```
/// use std::time::Duration;
/// use trypema::rules::Period;
///
/// let period: Period = "1h30m".parse()?;
/// assert_eq!(period.0, Duration::from_secs(90 * 60));
/// assert_eq!(Period(Duration::from_millis(90_500)).to_string(), "1m30s500ms");
/// assert!("1.5h".parse::<Period>().is_err());
/// # Ok::<(), trypema::rules::InvalidPeriod>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(pub Duration);

/// The error for text that is not a [`Period`].
#[derive(Debug, Clone, PartialEq, Eq, ErrorMessage)]
#[error("invalid length of time {given:?}: {reason}")]
pub struct InvalidPeriod {
    given: String,
    reason: PeriodError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ErrorMessage)]
enum PeriodError {
    #[error("need whole numbers with their units, the largest first, such as 500ms, 90s or 1h30m")]
    Malformed,
    #[error("need less than 18446744073709551616s")]
    TooLong,
}

/// The most characters of an invalid text that an error repeats.
const SHOWN_CHARACTERS: usize = 40;

struct Unit {
    name: &'static str,
    micros: u128,
}

/// The units, largest first: the order in which a period is written.
const UNITS: [Unit; 6] = [
    Unit { name: "d", micros: 86_400_000_000 },
    Unit { name: "h", micros: 3_600_000_000 },
    Unit { name: "m", micros: 60_000_000 },
    Unit { name: "s", micros: 1_000_000 },
    Unit { name: "ms", micros: 1_000 },
    Unit { name: "us", micros: 1 },
];

impl FromStr for Period {
    type Err = InvalidPeriod;

    fn from_str(text: &str) -> Result<Self, InvalidPeriod> {
        parse(text).map(Self).map_err(|reason| {
            let given = text.chars().take(SHOWN_CHARACTERS).collect();
            InvalidPeriod { given, reason }
        })
    }
}

fn parse(text: &str) -> Result<Duration, PeriodError> {
    if text.is_empty() {
        return Err(PeriodError::Malformed);
    }
    let (mut rest, mut units, mut micros) = (text, UNITS.iter(), 0_u128);
    while !rest.is_empty() {
        let (digits, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (name, after) = split_where(after, |c| !c.is_ascii_lowercase());
        let unit = units.find(|unit| unit.name == name).ok_or(PeriodError::Malformed)?;
        if digits.is_empty() {
            return Err(PeriodError::Malformed);
        }
        let number: u64 = digits.parse().map_err(|_| PeriodError::TooLong)?;
        // Cannot overflow: a sum of six products of 64 and 37 bits.
        micros += u128::from(number) * unit.micros;
        rest = after;
    }
    let seconds = u64::try_from(micros / 1_000_000).map_err(|_| PeriodError::TooLong)?;
    Ok(Duration::from_secs(seconds) + Duration::from_micros((micros % 1_000_000) as u64))
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos().div_ceil(1_000);
        if rest == 0 {
            return f.write_str("0s");
        }
        for unit in UNITS.iter() {
            let number = rest / unit.micros;
            rest %= unit.micros;
            if number > 0 {
                write!(f, "{number}{}", unit.name)?;
            }
        }
        Ok(())
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrSeconds)
    }
}

struct TextOrSeconds;

impl Visitor<'_> for TextOrSeconds {
    type Value = Period;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a length of time such as 90s, or a whole number of seconds")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Period, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E>(self, seconds: u64) -> Result<Period, E> {
        Ok(Period(Duration::from_secs(seconds)))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Period, E> {
        let seconds =
            u64::try_from(seconds).map_err(|_| E::invalid_value(Unexpected::Signed(seconds), &self))?;
        self.visit_u64(seconds)
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time: 500ms, 90s, 1h30m, 7d, or a whole number of seconds.",
            "type": ["string", "integer"],
            "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?([0-9]+us)?$",
            "minLength": 1,
            "minimum": 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> u128 {
        text.parse::<Period>().unwrap_or_else(|error| panic!("{error}")).0.as_micros()
    }

    #[test]
    fn texts_are_read() {
        assert_eq!(micros("250us"), 250);
        assert_eq!(micros("500ms"), 500_000);
        assert_eq!(micros("90s"), 90_000_000);
        assert_eq!(micros("1h30m"), 5_400_000_000);
        assert_eq!(micros("7d"), 7 * 86_400_000_000);
        assert_eq!(micros("1d2h3m4s5ms6us"), 93_784_005_006);
        assert_eq!(micros("1m1ms"), 60_001_000);
        assert_eq!(micros("0s"), 0);
        assert_eq!(micros("007s"), 7_000_000);
        assert_eq!(micros("18446744073709551615s"), u128::from(u64::MAX) * 1_000_000);
    }

    #[test]
    fn other_texts_are_refused() {
        for given in [
            "", "s", "5", "5x", "5S", "5 s", " 5s", "5s ", "1.5h", "-5s", "+5s", "1m1h", "1s1s", "1ms1s",
            "5s5", "٣s", "1h\n", "5µs", "5min",
        ] {
            let error = given.parse::<Period>().map_err(|error| error.to_string());
            let allowed =
                "need whole numbers with their units, the largest first, such as 500ms, 90s or 1h30m";
            assert_eq!(error, Err(format!("invalid length of time {given:?}: {allowed}")));
        }
    }

    #[test]
    fn what_is_too_long_does_not_overflow() {
        for given in [
            "18446744073709551616s",
            "18446744073709551615s1000000us",
            "18446744073709551615d18446744073709551615h18446744073709551615m18446744073709551615s",
            "99999999999999999999999999999999999999999999999999999999999999999999999us",
        ] {
            let error = given.parse::<Period>().unwrap_err();
            assert_eq!(error.reason, PeriodError::TooLong);
            assert!(error.given.len() <= SHOWN_CHARACTERS);
        }
    }

    #[test]
    fn written_periods_are_read_back() {
        for micros in [0, 1, 999, 1_000, 59_999_999, 60_000_000, 90_061_001_001, u64::MAX] {
            let period = Period(Duration::from_micros(micros));
            assert_eq!(period.to_string().parse(), Ok(period));
            let json = serde_json::to_string(&period).unwrap();
            assert_eq!(serde_json::from_str::<Period>(&json).unwrap(), period);
        }
        assert_eq!(Period(Duration::from_nanos(1)).to_string(), "1us");
        assert_eq!(Period(Duration::from_secs(90)).to_string(), "1m30s");
        assert!(!Period(Duration::MAX).to_string().is_empty());
    }

    #[test]
    fn numbers_are_seconds() {
        assert_eq!(serde_json::from_str::<Period>("60").unwrap(), Period(Duration::from_secs(60)));
        assert!(serde_json::from_str::<Period>("18446744073709551615").is_ok());
        for wrong in ["-1", "1.5", "null", "true", "[60]", "\"60\"", "18446744073709551616"] {
            assert!(serde_json::from_str::<Period>(wrong).is_err(), "{wrong}");
        }
    }
}
