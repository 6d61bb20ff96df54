//! Parses the command line.

use std::str::FromStr;
use std::time::Duration;

use crate::traffic::Load;

pub(crate) const HELP: &str = "\
Limits real traffic, and draws the decisions in the terminal.

  cargo run --release --example live -- [options]

Threads call one key of every strategy at the same moments, faster than its limit
allows. Admitted calls are green, denied calls are red; time runs to the right.

  --strategy NAME   show one strategy, larger:
                      absolute        a strict sliding window
                      suppressed      a sliding window that denies more calls the higher the load
                      token-bucket    a burst, then a steady refill
                      sliding-window  two aligned windows, the older one weighted less and less
                      fixed-window    a count that restarts with every window
                      abuse           too many attempts block for a while
                    (default: all six, on the same traffic)
  --limit N         calls allowed per window (default: 1000)
  --window S        the window, in whole seconds (default: 2)
  --load SHAPE      offered load, as a multiple of the limit:
                      waves    low load, then 3, then none, then slightly above 1 (default)
                      steady   2, constant
                      bursts   spikes of 8 with low load between them
                      ramp     from 0 to 4
  --seconds N       duration of the run (default: 20, at most 600)
  --plain           print a line per second without colours or cursor movement
                    (automatic when the output is not a terminal)
  --help            print this text

Try: --strategy suppressed --load steady       the limit holds, and some calls are always admitted
     --strategy absolute --load steady         the same load against a strict limit
     --strategy token-bucket --load bursts     bursts pass, and the average rate holds
     --strategy fixed-window --window 5        see twice the limit around a boundary
";

/// The longest run. The ledger keeps a counter for every millisecond of a run.
const MAX_SECONDS: u64 = 600;

#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    Run(Plan),
}

/// The parameters of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) strategies: Vec<Name>,
    pub(crate) limit: u64,
    pub(crate) window: Duration,
    pub(crate) load: Load,
    pub(crate) seconds: u64,
    pub(crate) style: Style,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Style {
    /// A chart, if the output is a terminal.
    Drawn,
    /// One line per second.
    Plain,
}

/// The strategies, by their names on the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Name {
    Absolute,
    Suppressed,
    TokenBucket,
    SlidingWindow,
    FixedWindow,
    Abuse,
}

impl Name {
    pub(crate) const ALL: [Self; 6] = [
        Self::Absolute,
        Self::Suppressed,
        Self::TokenBucket,
        Self::SlidingWindow,
        Self::FixedWindow,
        Self::Abuse,
    ];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Absolute => "absolute",
            Self::Suppressed => "suppressed",
            Self::TokenBucket => "token-bucket",
            Self::SlidingWindow => "sliding-window",
            Self::FixedWindow => "fixed-window",
            Self::Abuse => "abuse",
        }
    }
}

pub(crate) fn parse(words: &[String]) -> Result<Command, String> {
    let mut plan = Plan {
        strategies: Name::ALL.to_vec(),
        limit: 1_000,
        window: Duration::from_secs(2),
        load: Load::Waves,
        seconds: 20,
        style: Style::Drawn,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            let value = words.next().map(String::as_str);
            value.ok_or_else(|| format!("{word} needs a value"))
        };
        match word.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--plain" => plan.style = Style::Plain,
            "--strategy" => plan.strategies = vec![strategy(value()?)?],
            "--limit" => plan.limit = whole(word, value()?, 1..=u64::MAX)?,
            "--window" => plan.window = Duration::from_secs(whole(word, value()?, 1..=60)?),
            "--seconds" => plan.seconds = whole(word, value()?, 1..=MAX_SECONDS)?,
            "--load" => plan.load = load(value()?)?,
            _ => return Err(format!("unknown argument `{word}`")),
        }
    }
    Ok(Command::Run(plan))
}

fn strategy(text: &str) -> Result<Name, String> {
    let named = Name::ALL.into_iter().find(|name| name.text() == text);
    named.ok_or_else(|| {
        let names = Name::ALL.map(Name::text).join(", ");
        format!("unknown strategy `{text}`: need one of {names}")
    })
}

fn load(text: &str) -> Result<Load, String> {
    let named = Load::ALL.into_iter().find(|load| load.text() == text);
    named.ok_or_else(|| {
        let names = Load::ALL.map(Load::text).join(", ");
        format!("unknown load `{text}`: need one of {names}")
    })
}

fn whole(name: &str, text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    match u64::from_str(text) {
        Ok(number) if range.contains(&number) => Ok(number),
        _ if *range.end() == u64::MAX => Err(format!("{name} {text}: need a whole number above 0")),
        _ => {
            let (least, most) = range.into_inner();
            Err(format!("{name} {text}: need a whole number from {least} to {most}"))
        }
    }
}
