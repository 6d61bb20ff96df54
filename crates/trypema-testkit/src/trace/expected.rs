//! Parses expectations.

use trypema::BlockScope;

use super::answer::{Answer, Head, Value, Wait};
use super::time;

/// The type of a field.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Count,
    Time,
    Fractions,
}

/// All fields.
const FIELDS: [(&str, Kind); 13] = [
    ("left", Kind::Count),
    ("limit", Kind::Count),
    ("reset", Kind::Time),
    ("wait", Kind::Time),
    ("failed", Kind::Count),
    ("balances", Kind::Fractions),
    ("factor", Kind::Fractions),
    ("short", Kind::Count),
    ("long", Kind::Count),
    ("end", Kind::Time),
    ("stamp", Kind::Time),
    ("remaining_after_waiting", Kind::Count),
    ("keys", Kind::Count),
];

/// Parses the words after the arrow.
pub(super) fn expected(words: &[&str]) -> Result<Answer, String> {
    let (head, fields) = head(words)?;
    let fields = fields.iter().map(|word| field(word)).collect::<Result<_, _>>()?;
    Ok(Answer { head, fields })
}

/// Parses the scope of a block.
pub(super) fn scope(word: &str) -> Result<BlockScope, String> {
    match word {
        "short" => Ok(BlockScope::Temp),
        "long" => Ok(BlockScope::Long),
        _ => Err(format!("`{word}` is neither `short` nor `long`")),
    }
}

fn head<'w, 'l>(words: &'w [&'l str]) -> Result<(Head, &'w [&'l str]), String> {
    Ok(match words {
        ["allowed", rest @ ..] => (Head::Allowed, rest),
        ["denied", time, rest @ ..] => (Head::Denied(wait(time)?), rest),
        ["suppressed", "allowed", rest @ ..] => (Head::SuppressedAllowed, rest),
        ["suppressed", "denied", rest @ ..] => (Head::SuppressedDenied, rest),
        ["blocked", which, time, rest @ ..] => (Head::Blocked(scope(which)?, wait(time)?), rest),
        ["rejected", time, rest @ ..] => (Head::Rejected(wait(time)?), rest),
        ["granted", units, rest @ ..] => (Head::Granted(count(units)?), rest),
        ["refunded", units, rest @ ..] => (Head::Refunded(count(units)?), rest),
        ["true", rest @ ..] => (Head::Truth(true), rest),
        ["false", rest @ ..] => (Head::Truth(false), rest),
        ["done", rest @ ..] => (Head::Done, rest),
        [] => return Err("nothing is expected after `->`".to_owned()),
        [word, ..] => {
            return Err(format!("`{word}` begins no expectation, or lacks what follows it"));
        }
    })
}

fn field(word: &str) -> Result<(&'static str, Value), String> {
    let (name, text) = word.split_once('=').ok_or_else(|| format!("unknown word `{word}`"))?;
    let known = FIELDS.iter().find(|(known, _)| *known == name);
    let (name, kind) = known.ok_or_else(|| format!("unknown field `{name}`"))?;
    let value = match kind {
        Kind::Count => Value::Count(count(text)?),
        Kind::Time => Value::Time(wait(text)?),
        Kind::Fractions => Value::Fractions(text.split(',').map(fraction).collect::<Result<_, _>>()?),
    };
    Ok((name, value))
}

fn wait(text: &str) -> Result<Wait, String> {
    if text == "never" {
        return Ok(Wait::Never);
    }
    time::micros(text).map(Wait::Micros).ok_or_else(|| format!("`{text}` is no time"))
}

fn count(text: &str) -> Result<u64, String> {
    time::count(text).ok_or_else(|| format!("`{text}` is no whole number"))
}

fn fraction(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|number| number.is_finite()).ok_or_else(|| format!("`{text}` is no number"))
}
