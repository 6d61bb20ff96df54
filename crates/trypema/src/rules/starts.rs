//! The start of a calendar's windows in the notation of rules.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use thiserror::Error as ErrorMessage;

use crate::strategy::{CalendarStart, Weekday};

/// The start of a calendar's windows in the notation of rules: `06:00`, `monday` or `1`.
///
/// ```
/// use trypema::CalendarStart;
/// use trypema::rules::Starts;
///
/// assert_eq!("06:00".parse(), Ok(Starts(CalendarStart::Day { hour: 6, minute: 0 })));
/// assert_eq!("1".parse(), Ok(Starts(CalendarStart::Month { day: 1 })));
/// assert!("24:00".parse::<Starts>().is_err());
/// assert!("31".parse::<Starts>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starts(pub CalendarStart);

/// The error for text that is not a [`Starts`].
#[derive(Debug, Clone, PartialEq, Eq, ErrorMessage)]
#[error("invalid start {given:?}: need {need}")]
pub struct InvalidStarts {
    given: String,
    need: &'static str,
}

/// The most characters of an invalid text that an error repeats.
const SHOWN_CHARACTERS: usize = 40;

impl FromStr for Starts {
    type Err = InvalidStarts;

    fn from_str(text: &str) -> Result<Self, InvalidStarts> {
        let weekday = Weekday::ALL.into_iter().find(|day| day.name() == text).map(CalendarStart::Week);
        let (start, need) = if text.contains(':') {
            (time(text), "a time from 00:00 to 23:59")
        } else if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            (day_of_month(text), "a day from 1 to 28, which every month has")
        } else {
            (weekday, "a time such as 06:00, a weekday such as monday, or a day from 1 to 28")
        };
        start
            .map(Self)
            .ok_or_else(|| InvalidStarts { given: text.chars().take(SHOWN_CHARACTERS).collect(), need })
    }
}

/// Reads `HH:MM`.
fn time(text: &str) -> Option<CalendarStart> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str, below: u8| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|number| is_number && *number < below)
    };
    Some(CalendarStart::Day { hour: number(hour, 24)?, minute: number(minute, 60)? })
}

fn day_of_month(text: &str) -> Option<CalendarStart> {
    let day = text.parse().ok().filter(|day| (1..=28).contains(day));
    day.map(|day| CalendarStart::Month { day })
}

impl fmt::Display for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Starts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            CalendarStart::Month { day } => serializer.serialize_u8(day),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Starts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StartsText)
    }
}

struct StartsText;

impl Visitor<'_> for StartsText {
    type Value = Starts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as 06:00, a weekday such as monday, or a day from 1 to 28")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Starts, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Starts, E> {
        self.visit_str(&number.to_string())
    }
}

impl JsonSchema for Starts {
    fn schema_name() -> Cow<'static, str> {
        "Starts".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let weekdays = Weekday::ALL.map(Weekday::name);
        json_schema!({
            "description": "A time such as 06:00, a weekday such as monday, or a day from 1 to 28.",
            "oneOf": [
                {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
                {"type": "string", "enum": weekdays},
                {"type": "integer", "minimum": 1, "maximum": 28}
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in ["00:00", "06:30", "23:59", "monday", "sunday", "1", "28"] {
            let starts: Starts = text.parse().unwrap();
            assert_eq!(starts.to_string(), text);
            let json = serde_json::to_string(&starts).unwrap();
            assert_eq!(serde_json::from_str::<Starts>(&json).unwrap(), starts);
        }
        assert_eq!(serde_json::from_str::<Starts>("\"1\"").unwrap().to_string(), "1");
        assert_eq!(serde_json::to_string(&"1".parse::<Starts>().unwrap()).unwrap(), "1");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", "24:00", "06:60", "6:00", "06:0", "06:00:00", ":", "+6:00", "-1:00", "0", "29", "31", "-1",
            "1.5", "01st", "Monday", "mon", "noday", "1s",
        ] {
            assert!(text.parse::<Starts>().is_err(), "{text}");
        }
        for wrong in ["-1", "1.5", "null", "true", "[1]", "29"] {
            assert!(serde_json::from_str::<Starts>(wrong).is_err(), "{wrong}");
        }
    }
}
