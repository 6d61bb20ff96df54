//! The decisions on counters, and the outcome of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use trypema::clock::Timestamp;
use trypema::rules::{Action, Rule};

use super::applying::{Asked, AskedPart};
use super::limit::ModelLimit;
use super::window::AlignedWindow;
use crate::rule_trace::{CounterAnswer, Mode, RuleAnswer, RuleOutcome};

/// The decision of one rule.
pub(super) struct Decided<'m> {
    pub(super) rule: &'m Rule,
    pub(super) answer: CounterAnswer,
    /// The wait until the rule allows the request; `None` is never.
    pub(super) wait: Option<Duration>,
    /// The units that are left without the request.
    pub(super) left: u64,
}

impl Decided<'_> {
    /// "A request that is denied charges nothing, so each other rule reports what is really left for it." Rules that
    /// only log count the request by themselves, but hold nothing for it.
    pub(super) fn uncharge(&mut self) {
        let is_charged = self.rule.is_shadow() && !self.rule.strategy.is_held();
        if !is_charged && matches!(self.answer, CounterAnswer::Allowed(_)) {
            self.answer = CounterAnswer::Allowed(self.left);
        }
    }

    pub(super) fn is_denying(&self) -> bool {
        !matches!(self.answer, CounterAnswer::Allowed(_)) && !self.rule.is_shadow()
    }

    /// Whether the rule only asks the client to wait.
    fn is_throttling(&self) -> bool {
        let longest = self.rule.max_delay.map_or(Duration::from_secs(1), |delay| delay.0);
        self.rule.action == Action::Throttle && self.wait.is_some_and(|wait| wait <= longest)
    }
}

/// The counted units, by the name of the counter and the start of the window in microseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct CountedUnits(BTreeMap<(String, u64), u64>);

impl CountedUnits {
    /// Decides on the rules that apply, and counts what is spent.
    pub(super) fn count(&mut self, at: Timestamp, mode: Mode, asked: &[Asked<'_>]) -> RuleAnswer {
        let is_refused = mode != Mode::Record && is_refused(asked);
        let mut decided = Vec::new();
        let mut spent = Vec::new();
        for Asked { rule, part } in asked {
            let (name, one) = match part {
                AskedPart::Counter { .. } if is_refused && !rule.is_shadow() => continue,
                AskedPart::Counter { key, limit, cost } => {
                    // A check has no counters of units that are held.
                    let ModelLimit::Window(window) = limit else { continue };
                    let needed = match (rule.postpaid, mode) {
                        (false, _) => *cost,
                        (true, Mode::Record) => 0,
                        (true, _) => 1,
                    };
                    let left = self.left(key, *window, at);
                    let one = decide(left, window.limit, needed, *cost, window.until_end(at));
                    if matches!(one.answer, CounterAnswer::Allowed(_)) {
                        spent.push((*rule, key, *window, *cost));
                    }
                    (key.clone(), one)
                }
                part => refused(rule, part),
            };
            let CounterDecision { answer, wait, left } = one;
            decided.push((name, Decided { rule, answer, wait, left }));
        }
        let is_denied = decided.iter().any(|(_, decided)| decided.is_denying());
        if is_denied && mode != Mode::Record {
            decided.iter_mut().for_each(|(_, decided)| decided.uncharge());
        }
        let is_counted = |rule: &Rule| match mode {
            // "All rules are asked together, all or nothing." Rules that only log count by themselves.
            Mode::Check => !is_denied || rule.is_shadow(),
            Mode::Peek => false,
            Mode::Record => true,
        };
        for (_, key, window, cost) in spent.into_iter().filter(|(rule, ..)| is_counted(rule)) {
            self.add(key, window, at, cost);
        }
        answer(decided)
    }

    /// Returns the units that are left of a window.
    pub(super) fn left(&self, key: &str, window: AlignedWindow, at: Timestamp) -> u64 {
        let counted = self.0.get(&(key.to_owned(), window.start_us(at))).copied().unwrap_or(0);
        window.limit.saturating_sub(counted)
    }

    /// Counts units.
    pub(super) fn add(&mut self, key: &str, window: AlignedWindow, at: Timestamp, cost: u64) {
        let counted = self.0.entry((key.to_owned(), window.start_us(at))).or_default();
        *counted = counted.saturating_add(cost);
    }

    /// "A refund applies where the take was recorded, if it still counts there." Returns the units refunded.
    pub(super) fn refund(&mut self, key: &str, window: AlignedWindow, refund: Refund) -> u64 {
        let Refund { recorded, at, units } = refund;
        if window.start_us(recorded) != window.start_us(at) {
            return 0;
        }
        let counted = self.0.entry((key.to_owned(), window.start_us(recorded))).or_default();
        let refunded = units.min(*counted);
        *counted -= refunded;
        refunded
    }
}

/// Units to refund, and when they were recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refund {
    pub(super) recorded: Timestamp,
    pub(super) at: Timestamp,
    pub(super) units: u64,
}

/// The decision of a counter.
pub(super) struct CounterDecision {
    pub(super) answer: CounterAnswer,
    /// See [`Decided::wait`].
    pub(super) wait: Option<Duration>,
    /// See [`Decided::left`].
    pub(super) left: u64,
}

/// Decides on a counter of which `left` units are left. "`postpaid: true`: it denies while nothing is left (it
/// asks for one unit), and records whatever cost is reported, overdrawing if necessary."
pub(super) fn decide(left: u64, limit: u64, needed: u64, cost: u64, wait: Duration) -> CounterDecision {
    match needed <= left {
        true => {
            let answer = CounterAnswer::Allowed(left.saturating_sub(cost));
            CounterDecision { answer, wait: Some(Duration::ZERO), left }
        }
        false => {
            let wait = Some(wait).filter(|_| needed <= limit);
            CounterDecision { answer: CounterAnswer::Denied(left), wait, left }
        }
    }
}

/// Returns the decision of a rule that has no counter, or blocks it.
pub(super) fn refused(rule: &Rule, part: &AskedPart) -> (String, CounterDecision) {
    let (name, answer) = match part {
        AskedPart::Missing { name } => (rule.id.clone(), CounterAnswer::Missing(name.clone())),
        AskedPart::Blocked { key } | AskedPart::Counter { key, .. } => (key.clone(), CounterAnswer::Blocked),
    };
    (name, CounterDecision { answer, wait: None, left: 0 })
}

/// Whether a rule denies the request whatever its counter is: the counters of other rules are not asked.
pub(super) fn is_refused(asked: &[Asked<'_>]) -> bool {
    asked.iter().any(|asked| !matches!(asked.part, AskedPart::Counter { .. }) && !asked.rule.is_shadow())
}

/// Returns the answer of decisions that are sorted by priority.
pub(super) fn answer(decided: Vec<(String, Decided<'_>)>) -> RuleAnswer {
    let outcome = outcome(decided.iter().map(|(_, decided)| decided));
    let counters = decided.into_iter().map(|(name, decided)| (name, decided.answer)).collect();
    RuleAnswer { outcome, counters, candidates: None }
}

/// Returns the outcome of decisions that are sorted by priority. A rule that rejects decides before one that
/// throttles, and the wait is the longest one.
fn outcome<'m>(decided: impl Iterator<Item = &'m Decided<'m>>) -> RuleOutcome {
    let denying: Vec<&Decided<'_>> = decided.filter(|decided| decided.is_denying()).collect();
    let rejecting = denying.iter().find(|decided| !decided.is_throttling());
    let Some(decider) = rejecting.or(denying.first()) else { return RuleOutcome::Allowed };
    let by = decider.rule.id.clone();
    let wait = denying.iter().map(|decided| decided.wait).collect::<Option<Vec<_>>>();
    let wait = wait.and_then(|waits| waits.into_iter().max());
    match (rejecting, wait) {
        (Some(_), _) if decider.answer == CounterAnswer::Blocked => RuleOutcome::Blocked(by),
        (None, Some(wait)) => RuleOutcome::Throttled { by, wait },
        _ => RuleOutcome::Denied { by, wait },
    }
}
