//! The answer of rules to a request.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trypema::TrypemaError;
use trypema::rules::{Outcome, Period, RuleDecision, Verdict};

/// The decisions on all counters of a request, by the name of the counter. A rule that lacks an attribute or a
/// cost has no counter; its id is the name.
pub type Counters = BTreeMap<String, CounterAnswer>;

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAnswer {
    /// The outcome of the request.
    pub outcome: RuleOutcome,
    /// The counters of all rules that apply, except those of candidates.
    pub counters: Counters,
    /// The counters of candidates. `None` if the subject does not report them.
    pub candidates: Option<Counters>,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RuleOutcome {
    /// The request may proceed.
    Allowed,
    /// The request may proceed because of an entry of an allow list, written `attribute=entry`.
    AllowedByList(String),
    /// The rule denies the request. It would be allowed after the wait; `None` is never.
    Denied {
        /// The id of the rule that decides.
        by: String,
        /// The wait until all rules allow the request.
        wait: Option<Duration>,
    },
    /// The rule asks the client to wait.
    Throttled {
        /// The id of the rule that decides.
        by: String,
        /// The wait until all rules allow the request.
        wait: Duration,
    },
    /// An override of the rule with this id blocks the client.
    Blocked(String),
    /// An entry of a block list, written `attribute=entry`, blocks the client.
    BlockedByList(String),
    /// The request fails with an error that contains this text.
    Error(String),
}

/// The decision on one counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CounterAnswer {
    /// The rule allows the request; this many units are left after it.
    Allowed(u64),
    /// The rule denies the request; this many units are left.
    Denied(u64),
    /// An override blocks the key.
    Blocked,
    /// The request lacks this attribute or unit.
    Missing(String),
}

impl RuleAnswer {
    /// Returns the answer of an engine.
    pub fn of(verdict: &Result<Verdict, TrypemaError>) -> Self {
        match verdict {
            Ok(verdict) => {
                let (candidates, rules): (Vec<RuleDecision<'_>>, Vec<RuleDecision<'_>>) =
                    verdict.rules().partition(|decided| decided.rule.candidate_for.is_some());
                let counters = |decided: Vec<RuleDecision<'_>>| decided.iter().map(counter).collect();
                let outcome = RuleOutcome::of(verdict);
                Self { outcome, counters: counters(rules), candidates: Some(counters(candidates)) }
            }
            Err(error) => Self::error(error.to_string()),
        }
    }

    /// Returns the answer to a request that fails.
    pub fn error(text: impl Into<String>) -> Self {
        let outcome = RuleOutcome::Error(text.into());
        Self { outcome, counters: Counters::new(), candidates: None }
    }

    /// Whether this answer is the expected one.
    pub fn fulfils(&self, expected: &Self) -> bool {
        let has_outcome = match (&self.outcome, &expected.outcome) {
            (RuleOutcome::Error(text), RuleOutcome::Error(expected)) => text.contains(expected.as_str()),
            (outcome, expected) => outcome == expected,
        };
        let are_same = |candidates: &Counters| Some(candidates) == expected.candidates.as_ref();
        has_outcome
            && self.counters == expected.counters
            && (expected.candidates.is_none() || self.candidates.as_ref().is_none_or(are_same))
    }
}

fn counter(decided: &RuleDecision<'_>) -> (String, CounterAnswer) {
    if let Some(missing) = decided.missing.or(decided.missing_unit) {
        return (decided.rule.id.clone(), CounterAnswer::Missing(missing.to_owned()));
    }
    let left = decided.decision.remaining();
    let answer = match decided.decision.is_allowed() {
        _ if decided.is_blocked => CounterAnswer::Blocked,
        true => CounterAnswer::Allowed(left),
        false => CounterAnswer::Denied(left),
    };
    (decided.key.to_owned(), answer)
}

impl RuleOutcome {
    /// Whether the request may proceed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed | Self::AllowedByList(_))
    }

    fn of(verdict: &Verdict) -> Self {
        let listed = || Some(format!("{}={}", verdict.listed_by()?, verdict.listed_entry()?));
        let by = || verdict.decided_by().map_or(String::new(), |decided| decided.rule.id.clone());
        match verdict.outcome() {
            Outcome::Allowed => listed().map_or(Self::Allowed, Self::AllowedByList),
            _ if verdict.is_blocked() => listed().map_or_else(|| Self::Blocked(by()), Self::BlockedByList),
            Outcome::Throttled => {
                Self::Throttled { by: by(), wait: verdict.retry_after().unwrap_or(Duration::MAX) }
            }
            Outcome::Denied => Self::Denied { by: by(), wait: verdict.retry_after() },
        }
    }
}

impl fmt::Display for RuleAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outcome)?;
        self.counters.iter().try_for_each(|(key, counter)| write!(f, "; {key}: {counter}"))?;
        let candidates = self.candidates.iter().flatten();
        candidates.into_iter().try_for_each(|(key, counter)| write!(f, "; candidate {key}: {counter}"))
    }
}

impl fmt::Display for RuleOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed => f.write_str("allowed"),
            Self::AllowedByList(entry) => write!(f, "allowed by list {entry}"),
            Self::Denied { by, wait: Some(wait) } => write!(f, "denied by {by} {}", Period(*wait)),
            Self::Denied { by, wait: None } => write!(f, "denied by {by} never"),
            Self::Throttled { by, wait } => write!(f, "throttled by {by} {}", Period(*wait)),
            Self::Blocked(by) => write!(f, "blocked by {by}"),
            Self::BlockedByList(entry) => write!(f, "blocked by list {entry}"),
            Self::Error(text) => write!(f, "error {text}"),
        }
    }
}

impl fmt::Display for CounterAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed(left) => write!(f, "allowed {left}"),
            Self::Denied(left) => write!(f, "denied {left}"),
            Self::Blocked => f.write_str("blocked"),
            Self::Missing(name) => write!(f, "missing {name}"),
        }
    }
}

impl From<RuleOutcome> for String {
    fn from(outcome: RuleOutcome) -> Self {
        outcome.to_string()
    }
}

impl From<CounterAnswer> for String {
    fn from(answer: CounterAnswer) -> Self {
        answer.to_string()
    }
}
