//! The result of a call in a form that the library's answer and the HTTP response share.

use serde_json::Value;
use trypema_testkit::trace::{Answer, Head, Value as Number, Wait};

/// A result. Comparing two of them compares every number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Decided(Decided),
    Forgotten(bool),
}

/// All fields of a decision, with times in milliseconds, rounded up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub is_allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    pub retry_after_ms: Option<u64>,
    pub reset_after_ms: u64,
}

impl Said {
    /// Converts the library's answer.
    pub fn by_library(answer: &Answer) -> Self {
        match answer.head {
            Head::Truth(existed) => Self::Forgotten(existed),
            head => Self::Decided(Decided {
                is_allowed: matches!(head, Head::Allowed | Head::SuppressedAllowed),
                limit: count(answer, "limit"),
                remaining: count(answer, "left"),
                retry_after_ms: time_ms(answer, "wait"),
                reset_after_ms: time_ms(answer, "reset").unwrap(),
            }),
        }
    }

    /// Converts the server's response for one rule, or for a key.
    pub fn by_service(told: &Value, is_allowed: bool) -> Self {
        Self::Decided(Decided {
            is_allowed,
            limit: told["limit"].as_u64().unwrap(),
            remaining: told["remaining"].as_u64().unwrap(),
            retry_after_ms: told["retry_after_ms"].as_u64(),
            reset_after_ms: told["reset_after_ms"].as_u64().unwrap(),
        })
    }
}

fn field<'a>(answer: &'a Answer, name: &str) -> &'a Number {
    let found = answer.fields.iter().find(|(given, _)| *given == name);
    &found.unwrap_or_else(|| panic!("no {name} in {answer}")).1
}

fn count(answer: &Answer, name: &str) -> u64 {
    match field(answer, name) {
        Number::Count(count) => *count,
        other => panic!("{name} is {other}"),
    }
}

fn time_ms(answer: &Answer, name: &str) -> Option<u64> {
    match field(answer, name) {
        Number::Time(Wait::Micros(us)) => Some(us.div_ceil(1_000)),
        Number::Time(Wait::Never) => None,
        other => panic!("{name} is {other}"),
    }
}
