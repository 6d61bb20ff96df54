//! The decisions on counters, and the outcome of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use trypema::clock::Timestamp;
use trypema::rules::{Action, Rule};

use super::applying::{Asked, AskedPart};
use crate::rule_trace::{CounterAnswer, Mode, RuleAnswer, RuleOutcome};

/// The decision of one rule.
struct Decided<'m> {
    rule: &'m Rule,
    answer: CounterAnswer,
    /// The wait until the rule allows the request; `None` is never.
    wait: Option<Duration>,
}

impl Decided<'_> {
    fn is_denying(&self) -> bool {
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
        // A rule that denies the request whatever its counter is: the counters of other rules are not asked.
        let is_refusing =
            |asked: &Asked<'_>| !matches!(asked.part, AskedPart::Counter { .. }) && !asked.rule.is_shadow();
        let is_refused = mode != Mode::Record && asked.iter().any(is_refusing);
        let mut decided = Vec::new();
        let mut spent = Vec::new();
        for Asked { rule, part } in asked {
            let (name, answer, wait) = match part {
                AskedPart::Missing { name } => (rule.id.clone(), CounterAnswer::Missing(name.clone()), None),
                AskedPart::Blocked { key } => (key.clone(), CounterAnswer::Blocked, None),
                AskedPart::Counter { .. } if is_refused && !rule.is_shadow() => continue,
                AskedPart::Counter { key, window, cost } => {
                    let name = (key.clone(), window.start_us(at));
                    let counted = self.0.get(&name).copied().unwrap_or(0);
                    let left = window.limit.saturating_sub(counted);
                    let wait = window.until_end(at);
                    // "`postpaid: true`: it denies while nothing is left (it asks for one unit), and records
                    // whatever cost is reported, overdrawing if necessary."
                    let asked = match (rule.postpaid, mode) {
                        (false, _) => *cost,
                        (true, Mode::Record) => 0,
                        (true, _) => 1,
                    };
                    if asked <= left {
                        spent.push((*rule, name, *cost));
                        (
                            key.clone(),
                            CounterAnswer::Allowed(left.saturating_sub(*cost)),
                            Some(Duration::ZERO),
                        )
                    } else {
                        (
                            key.clone(),
                            CounterAnswer::Denied(left),
                            Some(wait).filter(|_| asked <= window.limit),
                        )
                    }
                }
            };
            decided.push((name, Decided { rule, answer, wait }));
        }
        let is_denied = decided.iter().any(|(_, decided)| decided.is_denying());
        let is_counted = |rule: &Rule| match mode {
            // "All rules are asked together, all or nothing." Rules that only log count by themselves.
            Mode::Check => !is_denied || rule.is_shadow(),
            Mode::Peek => false,
            Mode::Record => true,
        };
        let spent: Vec<_> = spent
            .into_iter()
            .filter(|(rule, ..)| is_counted(rule))
            .map(|(_, name, cost)| (name, cost))
            .collect();
        let outcome = outcome(decided.iter().map(|(_, decided)| decided));
        let counters = decided.into_iter().map(|(name, decided)| (name, decided.answer)).collect();
        for (name, cost) in spent {
            let counted = self.0.entry(name).or_default();
            *counted = counted.saturating_add(cost);
        }
        RuleAnswer { outcome, counters, candidates: None }
    }
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
