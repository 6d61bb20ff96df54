//! Parses traces.

use std::fmt;

use trypema::clock::Timestamp;
use trypema::{HardLimitFactor, LocalRateLimiterOptions, RateGroupSizeMs, TrypemaError, WindowSizeSeconds};

use super::expected::expected;
use super::limit::{Limit, NoLimit, is_strategy, limit};
use super::step::{Step, Verb, moment, verb};

/// The time before the first step, 2020-09-13 12:26:40 UTC: a multiple of ten seconds, so that windows
/// aligned to the epoch are easy to count.
const START: Timestamp = Timestamp::from_micros(1_600_000_000_000_000);

/// A parsed trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The name of its file.
    pub name: String,
    /// Its lines, in order.
    pub lines: Vec<Line>,
}

/// One line of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The line number, from 1.
    pub number: usize,
    /// The text of the line.
    pub text: String,
    /// The meaning of the line.
    pub what: What,
}

/// The meaning of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The limit from here on.
    Limit(Limit),
    /// A call and its answer.
    Step(Step),
}

/// An error in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The name of the file.
    pub name: String,
    /// The line number, from 1.
    pub number: usize,
    /// The error message.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.name, self.number, self.message)
    }
}

impl std::error::Error for ParseError {}

impl Trace {
    /// Parses `text`, the contents of the file `name`.
    ///
    /// Anything that is not in the format is an error that names the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, ParseError> {
        let error = |number, message| ParseError { name: name.to_owned(), number, message };
        if !text.starts_with('#') {
            return Err(error(1, "a trace opens with a comment that says what it holds".to_owned()));
        }
        let mut reader = Reader { lines: Vec::new(), now: START };
        for (index, text) in text.lines().enumerate() {
            reader.read(index + 1, text).map_err(|message| error(index + 1, message))?;
        }
        let is_step = |line: &Line| matches!(line.what, What::Step(_));
        if !reader.lines.iter().any(is_step) && !text.contains("-> refused") {
            return Err(error(text.lines().count(), "a trace has at least one step".to_owned()));
        }
        Ok(Self { name: name.to_owned(), lines: reader.lines })
    }

    /// Returns the options for calls of the trypema 1.x API: those of the first limit that has any.
    pub fn window_options(&self) -> Result<LocalRateLimiterOptions, TrypemaError> {
        let options = self.lines.iter().find_map(|line| match &line.what {
            What::Limit(limit) => limit.compat.map(|compat| compat.options),
            What::Step(_) => None,
        });
        match options {
            Some(options) => Ok(options),
            None => Ok(LocalRateLimiterOptions {
                window_size_seconds: WindowSizeSeconds::try_from(60)?,
                rate_group_size_ms: RateGroupSizeMs::try_from(10)?,
                hard_limit_factor: HardLimitFactor::default(),
            }),
        }
    }
}

/// The state of the parser.
struct Reader {
    lines: Vec<Line>,
    now: Timestamp,
}

impl Reader {
    fn read(&mut self, number: usize, text: &str) -> Result<(), String> {
        let words: Vec<&str> = text.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        let what = match words[..] {
            [] => None,
            [first, ..] if is_strategy(first) => limit_line(&words)?.map(What::Limit),
            _ => Some(What::Step(self.step(&words)?)),
        };
        if let Some(what) = what {
            self.lines.push(Line { number, text: text.trim().to_owned(), what });
        }
        Ok(())
    }

    fn step(&mut self, words: &[&str]) -> Result<Step, String> {
        let arrow = words.iter().position(|word| *word == "->").ok_or("a step needs `->` and an answer")?;
        let (call, answer) = words.split_at(arrow);
        let [time, key, rest @ ..] = call else {
            return Err("a step begins with a time and a key".to_owned());
        };
        if !self.lines.iter().any(|line| matches!(line.what, What::Limit(_))) {
            return Err("a limit line comes before the first step".to_owned());
        }
        let verb = verb(rest)?;
        self.check_receipt(&verb)?;
        let at = moment(time, self.now)?;
        self.now = at;
        let expected = expected(answer.get(1..).unwrap_or_default())?;
        Ok(Step { at, key: (*key).to_owned(), verb, expected })
    }

    /// Checks that a receipt is named once, and before it is used.
    fn check_receipt(&self, verb: &Verb) -> Result<(), String> {
        let is_named = |wanted: &str| {
            self.lines.iter().any(|line| match &line.what {
                What::Step(Step { verb: Verb::Reserve { name, .. }, .. })
                | What::Step(Step { verb: Verb::ReservePostpaid { name, .. }, .. }) => name == wanted,
                _ => false,
            })
        };
        match verb {
            Verb::Refund(name) if !is_named(name) => Err(format!("no receipt is named `{name}`")),
            Verb::Reserve { name, .. } | Verb::ReservePostpaid { name, .. } if is_named(name) => {
                Err(format!("two receipts are named `{name}`"))
            }
            _ => Ok(()),
        }
    }
}

/// Parses a limit line. Returns `None` if it expects a rejection and the library rejects the limit.
fn limit_line(words: &[&str]) -> Result<Option<Limit>, String> {
    let (words, is_refusal_expected) = match words {
        [words @ .., "->", "refused"] => (words, true),
        words => (words, false),
    };
    match limit(words) {
        Err(NoLimit::Refused(_)) if is_refusal_expected => Ok(None),
        Ok(_) if is_refusal_expected => Err("the limit was to be refused and is accepted".to_owned()),
        Ok(limit) => Ok(Some(limit)),
        Err(NoLimit::Refused(error)) => Err(error.to_string()),
        Err(NoLimit::Unreadable(message)) => Err(message),
    }
}
