//! Steps: what is called, when, and what it must be answered.

use std::time::Duration;

use trypema::clock::Timestamp;
use trypema::{BlockScope, RateLimit};

use super::answer::Answer;
use super::expected::scope;
use super::limit::{NoLimit, rate};
use super::time;

/// One call and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// When it is made.
    pub at: Timestamp,
    /// The key it is made for.
    pub key: String,
    /// What is called.
    pub verb: Verb,
    /// What it must be answered.
    pub expected: Answer,
}

/// What can be called.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// Spend so much, or nothing.
    Take(u64),
    /// What a take of so much would be answered.
    Peek(u64),
    /// Spend the most of so much that fits.
    UpTo(u64),
    /// Spend so much and keep a receipt.
    Reserve {
        /// How much.
        cost: u64,
        /// What the receipt is called in later steps.
        name: String,
        /// How long the units may be spent.
        lease: Duration,
    },
    /// Give back what the receipt of this name took.
    Refund(String),
    /// Give back so much of the oldest.
    RefundUnits(u64),
    /// Forget the key.
    Reset,
    /// What is left.
    Usage,
    /// The seeds' sticky take.
    Inc(u64),
    /// The seeds' sticky look.
    IsAllowed,
    /// Change the rate that the seeds' calls stick to.
    SetRate(RateLimit),
    /// The abuse seed's take.
    Check,
    /// Block by hand.
    Block(BlockScope, Duration),
    /// End a block by hand.
    Unblock,
    /// Forget every key that is as good as fresh.
    Forget,
}

/// Reads the words between the key and the arrow.
pub(super) fn verb(words: &[&str]) -> Result<Verb, String> {
    Ok(match words {
        [] | ["take"] => Verb::Take(1),
        ["peek"] => Verb::Peek(1),
        ["take", cost] => Verb::Take(count(cost)?),
        ["peek", cost] => Verb::Peek(count(cost)?),
        ["upto", cost] => Verb::UpTo(count(cost)?),
        ["reserve", cost, "as", name] => reserve(cost, name, "0")?,
        ["reserve", cost, "as", name, "for", lease] => reserve(cost, name, lease)?,
        ["refund", name] => Verb::Refund((*name).to_owned()),
        ["refund_units", units] => Verb::RefundUnits(count(units)?),
        ["reset"] => Verb::Reset,
        ["usage"] => Verb::Usage,
        ["inc"] => Verb::Inc(1),
        ["inc", cost] => Verb::Inc(count(cost)?),
        ["is_allowed"] => Verb::IsAllowed,
        ["set_rate", text] => Verb::SetRate(rate(text).map_err(|error| match error {
            NoLimit::Unreadable(message) => message,
            NoLimit::Refused(error) => error.to_string(),
        })?),
        ["check"] => Verb::Check,
        ["block", which, time] => Verb::Block(scope(which)?, duration(time)?),
        ["unblock"] => Verb::Unblock,
        ["forget"] => Verb::Forget,
        [cost] if time::count(cost).is_some() => Verb::Take(count(cost)?),
        _ => {
            return Err(format!("`{}` is no verb with what it needs", words.join(" ")));
        }
    })
}

/// Reads when a step is, counted from the step before: `+1s`, `-2s`, `@1600000000s`.
pub(super) fn moment(word: &str, before: Timestamp) -> Result<Timestamp, String> {
    let unreadable = || format!("`{word}` is no time of a step");
    let sign = word.chars().next().ok_or_else(unreadable)?;
    let us = word.get(1..).and_then(time::micros).ok_or_else(unreadable)?;
    let at = match sign {
        '+' => before.as_micros().checked_add(us),
        '-' => before.as_micros().checked_sub(us),
        '@' => Some(us),
        _ => return Err(unreadable()),
    };
    at.filter(|at| *at <= Timestamp::MAX.as_micros())
        .map(Timestamp::from_micros)
        .ok_or_else(|| format!("`{word}` leads out of time"))
}

fn reserve(cost: &str, name: &str, lease: &str) -> Result<Verb, String> {
    Ok(Verb::Reserve { cost: count(cost)?, name: name.to_owned(), lease: duration(lease)? })
}

fn count(text: &str) -> Result<u64, String> {
    time::count(text).ok_or_else(|| format!("`{text}` is no whole number"))
}

fn duration(text: &str) -> Result<Duration, String> {
    time::micros(text).map(Duration::from_micros).ok_or_else(|| format!("`{text}` is no time"))
}
