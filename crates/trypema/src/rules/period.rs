//! Durations in the notation of rules.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use thiserror::Error as ErrorMessage;

use crate::duration_text::{DurationText, TIME_UNITS};

/// A duration in the notation of rules: `500ms`, `90s`, `1h30m` or `7d`.
///
/// A number without a unit is refused. The units are `d`, `h`, `m`, `s`, `ms` and `us`. Each may occur once,
/// the largest first, without spaces or fractions. A period is displayed with as few units as possible,
/// rounded up to a microsecond.
///
/// ```
/// use std::time::Duration;
/// use trypema::rules::Period;
///
/// let period: Period = "1h30m".parse()?;
/// assert_eq!(period.0, Duration::from_secs(90 * 60));
/// assert_eq!(Period(Duration::from_millis(90_500)).to_string(), "1m30s500ms");
/// assert!("1.5h".parse::<Period>().is_err());
/// assert_eq!("60".parse::<Period>().unwrap_err().to_string(), "`60` needs a unit, for example `60s`");
/// # Ok::<(), trypema::rules::InvalidPeriod>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(pub Duration);

/// The error for text that is not a [`Period`].
#[derive(Debug, Clone, PartialEq, Eq, ErrorMessage)]
#[error(transparent)]
pub struct InvalidPeriod(PeriodError);

#[derive(Debug, Clone, PartialEq, Eq, ErrorMessage)]
enum PeriodError {
    #[error(
        "invalid length of time {given:?}: need whole numbers with their units, the largest first, such as \
         500ms, 90s or 1h30m"
    )]
    Malformed { given: String },
    #[error("invalid length of time {given:?}: need less than 18446744073709551616s")]
    TooLong { given: String },
    #[error("`{given}` needs a unit, for example `{given}s`")]
    NoUnit { given: String },
}

enum ParseError {
    Malformed,
    TooLong,
}

/// The most characters of an invalid text that an error repeats.
const SHOWN_CHARACTERS: usize = 40;

impl FromStr for Period {
    type Err = InvalidPeriod;

    fn from_str(text: &str) -> Result<Self, InvalidPeriod> {
        let given = || text.chars().take(SHOWN_CHARACTERS).collect();
        parse(text).map(Self).map_err(|error| {
            InvalidPeriod(match error {
                ParseError::Malformed if is_number(text) => PeriodError::NoUnit { given: given() },
                ParseError::Malformed => PeriodError::Malformed { given: given() },
                ParseError::TooLong => PeriodError::TooLong { given: given() },
            })
        })
    }
}

fn parse(text: &str) -> Result<Duration, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Malformed);
    }
    let (mut rest, mut units, mut micros) = (text, TIME_UNITS.iter(), 0_u128);
    while !rest.is_empty() {
        let (digits, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (name, after) = split_where(after, |c| !c.is_ascii_lowercase());
        let unit = units.find(|unit| unit.name == name).ok_or(ParseError::Malformed)?;
        if digits.is_empty() {
            return Err(ParseError::Malformed);
        }
        let number: u64 = digits.parse().map_err(|_| ParseError::TooLong)?;
        // Cannot overflow: a sum of six products of 64 and 37 bits.
        micros += u128::from(number) * unit.micros;
        rest = after;
    }
    let seconds = u64::try_from(micros / 1_000_000).map_err(|_| ParseError::TooLong)?;
    Ok(Duration::from_secs(seconds) + Duration::from_micros((micros % 1_000_000) as u64))
}

/// Whether a text is a whole number, so that only the unit of a period is missing.
fn is_number(text: &str) -> bool {
    (1..SHOWN_CHARACTERS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DurationText(self.0).fmt(f)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PeriodText)
    }
}

struct PeriodText;

impl Visitor<'_> for PeriodText {
    type Value = Period;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a length of time such as 90s")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Period, E> {
        text.parse().map_err(E::custom)
    }

    /// Refuses a number: whether it means seconds or milliseconds is a guess.
    fn visit_u64<E: Error>(self, number: u64) -> Result<Period, E> {
        self.visit_str(&number.to_string())
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time with its unit: 500ms, 90s, 1h30m or 7d.",
            "type": "string",
            "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?([0-9]+us)?$",
            "minLength": 1
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
            "", "s", "5x", "5S", "5 s", " 5s", "5s ", "1.5h", "-5s", "+5s", "1m1h", "1s1s", "1ms1s", "5s5",
            "٣s", "1h\n", "5µs", "5min",
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
            let InvalidPeriod(PeriodError::TooLong { given }) = error else { panic!("{error}") };
            assert!(given.len() <= SHOWN_CHARACTERS);
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
    fn a_number_needs_a_unit() {
        for (given, reason) in [
            ("60", "`60` needs a unit, for example `60s`"),
            ("\"60\"", "`60` needs a unit, for example `60s`"),
            ("0", "`0` needs a unit, for example `0s`"),
        ] {
            let error = serde_json::from_str::<Period>(given).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{given}: {error}");
        }
        for wrong in ["-1", "1.5", "null", "true", "[60]", "18446744073709551616"] {
            assert!(serde_json::from_str::<Period>(wrong).is_err(), "{wrong}");
        }
    }
}
