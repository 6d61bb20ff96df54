//! Parses outcomes and the decisions on counters.

use std::time::Duration;

use trypema::rules::Period;

use super::answer::{CounterAnswer, RuleOutcome};

impl TryFrom<String> for RuleOutcome {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(error) = text.strip_prefix("error ") {
            return Ok(Self::Error(error.to_owned()));
        }
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["allowed"] => Ok(Self::Allowed),
            ["allowed", "by", "list", entry] => Ok(Self::AllowedByList(entry.to_owned())),
            ["denied", "by", rule, "never"] => Ok(Self::Denied { by: rule.to_owned(), wait: None }),
            ["denied", "by", rule, time] => Ok(Self::Denied { by: rule.to_owned(), wait: Some(wait(time)?) }),
            ["throttled", "by", rule, time] => Ok(Self::Throttled { by: rule.to_owned(), wait: wait(time)? }),
            ["blocked", "by", rule] => Ok(Self::Blocked(rule.to_owned())),
            ["blocked", "by", "list", entry] => Ok(Self::BlockedByList(entry.to_owned())),
            _ => Err(format!(
                "unknown answer {text:?}: need one of `allowed`, `allowed by list ATTRIBUTE=ENTRY`, `denied by RULE TIME`, \
                 `denied by RULE never`, `throttled by RULE TIME`, `blocked by RULE`, `blocked by list ATTRIBUTE=ENTRY`, \
                 `error TEXT`"
            )),
        }
    }
}

/// Parses a wait. Front ends round waits up to milliseconds, so that a shorter one could not be compared.
fn wait(text: &str) -> Result<Duration, String> {
    let Period(wait) = text.parse().map_err(|error| format!("{error}"))?;
    if !wait.as_nanos().is_multiple_of(1_000_000) {
        return Err(format!("a wait of {text}: need whole milliseconds"));
    }
    if wait.is_zero() { Err("a denied request has to wait".to_owned()) } else { Ok(wait) }
}

impl TryFrom<String> for CounterAnswer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let parsed = match words[..] {
            ["allowed", left] => left.parse().ok().map(Self::Allowed),
            ["denied", left] => left.parse().ok().map(Self::Denied),
            ["blocked"] => Some(Self::Blocked),
            ["missing", name] => Some(Self::Missing(name.to_owned())),
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!("unknown decision {text:?}: need one of `allowed LEFT`, `denied LEFT`, `blocked`, `missing NAME`")
        })
    }
}
