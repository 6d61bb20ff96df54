//! Answers in the format's notation. An expectation is an answer with fewer fields.

use std::fmt;
use std::time::Duration;

use trypema::BlockScope;

use super::time;

/// The tolerance of fractions, because traces write them with few digits.
const FRACTION_TOLERANCE: f64 = 1e-6;

/// An answer: a decision and its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The decision.
    pub head: Head,
    /// The numbers, by name.
    pub fields: Vec<(&'static str, Value)>,
}

/// The decision of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Admitted.
    Allowed,
    /// Denied, with the wait.
    Denied(Wait),
    /// Drawn by the suppressed strategy, and admitted.
    SuppressedAllowed,
    /// Drawn by the suppressed strategy, and denied.
    SuppressedDenied,
    /// Denied by the abuse strategy.
    Blocked(BlockScope, Wait),
    /// Denied by `inc` of the trypema 1.x API.
    Rejected(Wait),
    /// The number of units taken of those requested.
    Granted(u64),
    /// The number of units refunded.
    Refunded(u64),
    /// The answer of a verb that returns a boolean.
    Truth(bool),
    /// The answer of a verb that returns nothing.
    Done,
}

/// A wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// This many microseconds.
    Micros(u64),
    /// Waiting does not help.
    Never,
}

impl From<Option<Duration>> for Wait {
    fn from(wait: Option<Duration>) -> Self {
        wait.map_or(Self::Never, |wait| Self::Micros(micros(wait)))
    }
}

/// A number of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A duration.
    Time(Wait),
    /// Fractions.
    Fractions(Vec<f64>),
}

impl Answer {
    /// Creates an answer without numbers.
    pub fn new(head: Head) -> Self {
        Self { head, fields: Vec::new() }
    }

    /// Adds a number.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Value) -> Self {
        self.fields.push((name, value));
        self
    }

    /// Adds a duration.
    #[must_use]
    pub fn with_time(self, name: &'static str, time: Duration) -> Self {
        self.with(name, Value::Time(Wait::Micros(micros(time))))
    }

    /// Replaces the decision, and keeps the numbers.
    #[must_use]
    pub fn headed(self, head: Head) -> Self {
        Self { head, ..self }
    }

    /// Whether this answer has the decision of `expected`, and every number of it.
    pub fn fulfils(&self, expected: &Answer) -> bool {
        let has = |(name, value): &(&str, Value)| {
            self.fields.iter().any(|(known, given)| known == name && given.is_close_to(value))
        };
        self.head == expected.head && expected.fields.iter().all(has)
    }
}

impl Value {
    fn is_close_to(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fractions(ours), Self::Fractions(theirs)) => {
                let is_close = |(our, their): (&f64, &f64)| (our - their).abs() <= FRACTION_TOLERANCE;
                ours.len() == theirs.len() && ours.iter().zip(theirs).all(is_close)
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.head)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed => f.write_str("allowed"),
            Self::Denied(wait) => write!(f, "denied {wait}"),
            Self::SuppressedAllowed => f.write_str("suppressed allowed"),
            Self::SuppressedDenied => f.write_str("suppressed denied"),
            Self::Blocked(BlockScope::Temp, wait) => write!(f, "blocked short {wait}"),
            Self::Blocked(BlockScope::Long, wait) => write!(f, "blocked long {wait}"),
            Self::Rejected(wait) => write!(f, "rejected {wait}"),
            Self::Granted(units) => write!(f, "granted {units}"),
            Self::Refunded(units) => write!(f, "refunded {units}"),
            Self::Truth(is_so) => write!(f, "{is_so}"),
            Self::Done => f.write_str("done"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Micros(us) => f.write_str(&time::shown(*us)),
            Self::Never => f.write_str("never"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Time(wait) => write!(f, "{wait}"),
            Self::Fractions(fractions) => {
                let shown: Vec<String> = fractions.iter().map(f64::to_string).collect();
                f.write_str(&shown.join(","))
            }
        }
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
