//! Steps: timed calls and their expected answers.

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
    /// The time of the call.
    pub at: Timestamp,
    /// The key.
    pub key: String,
    /// The verb.
    pub verb: Verb,
    /// The expected answer.
    pub expected: Answer,
}

/// A verb with its arguments.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// Takes all units of this cost, or none.
    Take(u64),
    /// Returns the answer that a take of this cost would get.
    Peek(u64),
    /// Takes as much of this cost as fits.
    UpTo(u64),
    /// Takes units, and keeps a receipt.
    Reserve {
        /// The number of units.
        cost: u64,
        /// The name of the receipt in later steps.
        name: String,
        /// The duration of the lease.
        lease: Duration,
    },
    /// Takes this cost if one unit is free.
    Postpaid(u64),
    /// Takes units if one is free, and keeps a receipt.
    ReservePostpaid {
        /// The number of units.
        cost: u64,
        /// The name of the receipt in later steps.
        name: String,
    },
    /// Records this cost, whatever is left.
    Debit(u64),
    /// Refunds the receipt of this name.
    Refund(String),
    /// Refunds this many of the oldest units.
    RefundUnits(u64),
    /// Resets the key.
    Reset,
    /// Returns the units that are left.
    Usage,
    /// `inc` of the trypema 1.x API: a take with a sticky rate.
    Inc(u64),
    /// `is_allowed` of the trypema 1.x API: a peek with the sticky rate.
    IsAllowed,
    /// Changes the sticky rate of the trypema 1.x API.
    SetRate(RateLimit),
    /// `check` of the abuse strategy: a take.
    Check,
    /// Blocks the key manually.
    Block(BlockScope, Duration),
    /// Ends a block manually.
    Unblock,
    /// Removes every key whose state equals a fresh one.
    Forget,
}

/// Parses the words between the key and the arrow.
pub(super) fn verb(words: &[&str]) -> Result<Verb, String> {
    Ok(match words {
        [] | ["take"] => Verb::Take(1),
        ["peek"] => Verb::Peek(1),
        ["take", cost] => Verb::Take(count(cost)?),
        ["peek", cost] => Verb::Peek(count(cost)?),
        ["upto", cost] => Verb::UpTo(count(cost)?),
        ["reserve", cost, "as", name] => reserve(cost, name, "0")?,
        ["reserve", cost, "as", name, "for", lease] => reserve(cost, name, lease)?,
        ["postpaid", cost] => Verb::Postpaid(count(cost)?),
        ["reserve", "postpaid", cost, "as", name] => {
            Verb::ReservePostpaid { cost: count(cost)?, name: (*name).to_owned() }
        }
        ["debit", cost] => Verb::Debit(count(cost)?),
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

/// Parses the time of a step, relative to the previous one or absolute: `+1s`, `-2s`, `@1600000000s`.
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
