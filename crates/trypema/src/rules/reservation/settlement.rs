//! The result of settling a reservation.

use std::borrow::Cow;

use super::Outstanding;
use crate::error::TrypemaError;
use crate::rules::counter;

/// The result of settling or releasing a reservation, counter by counter.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Settlement {
    /// The counters of the rules that could deny the request. Log-only rules and candidates are settled along
    /// with them, and are not listed.
    pub rules: Vec<SettledRule>,
    /// Whether there was a reservation: the request had not been denied, nor had the value been settled.
    was_outstanding: bool,
}

impl Settlement {
    /// Whether this call settled the whole reservation: no counter failed, and no counter had settled it
    /// before or did not know it. True for a reservation that no rule applied to; false if the request was
    /// denied, or if this value has been settled before.
    pub fn is_complete(&self) -> bool {
        let is_settled = |rule: &SettledRule| matches!(rule.status, SettledStatus::Settled { .. });
        self.was_outstanding && self.rules.iter().all(is_settled)
    }

    /// Whether this call settled the reservation at one counter at least, and no counter failed. Unlike
    /// [`is_complete`](Settlement::is_complete), this holds if a rule was removed in the meantime, or a
    /// counter was reset, or if this call settled what an earlier one had failed to settle.
    pub fn is_settled(&self) -> bool {
        let is_failed = |rule: &SettledRule| matches!(rule.status, SettledStatus::Failed(_));
        let is_settled = |rule: &SettledRule| matches!(rule.status, SettledStatus::Settled { .. });
        let rules = &self.rules;
        self.was_outstanding
            && (rules.is_empty() || (rules.iter().any(is_settled) && !rules.iter().any(is_failed)))
    }
}

impl Outstanding {
    /// Returns the settlement with these results, one for each counter. Those of rules that can deny requests
    /// get their names; the others are left out.
    pub(in crate::rules) fn into_settlement(self, settled: Vec<SettledRule>) -> Settlement {
        let named = settled.into_iter().zip(self.counters).filter(|(rule, _)| !rule.is_shadow);
        let rules = named.map(|(rule, name)| SettledRule { key: name.key, ..rule }).collect();
        Settlement { rules, was_outstanding: true }
    }
}

/// The result at one counter of a reservation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SettledRule {
    /// The name of the counter.
    pub key: String,
    /// The unit that the rule counts. Empty if the rule is gone.
    pub unit: Cow<'static, str>,
    /// The result.
    pub status: SettledStatus,
    /// Whether the rule cannot deny requests.
    pub(in crate::rules) is_shadow: bool,
}

impl SettledRule {
    /// Returns the result at a counter that has not been asked yet, and whose name is added later.
    pub(in crate::rules) fn unnamed(unit: Cow<'static, str>, is_shadow: bool) -> Self {
        Self { key: String::new(), unit, status: SettledStatus::NotOutstanding, is_shadow }
    }

    /// Returns the result at a counter whose rule is gone.
    pub(in crate::rules) fn removed(is_shadow: bool) -> Self {
        Self { status: SettledStatus::RuleRemoved, ..Self::unnamed(Cow::Borrowed(""), is_shadow) }
    }

    /// Returns the id of the rule.
    pub fn rule(&self) -> &str {
        counter::rule_of(&self.key)
    }
}

/// The result at one counter of a reservation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SettledStatus {
    /// The counter is settled.
    Settled {
        /// The units that were reserved.
        reserved: u64,
        /// The units that were really spent.
        counted: u64,
        /// The reserved units that are free again: fewer than were not spent if some no longer counted.
        refunded: u64,
    },
    /// The reservation was settled or released before. This is only remembered if the caller chose its id.
    SettledBefore,
    /// The counter does not know the reservation: it expired, or was settled or released before, or was never
    /// made.
    NotOutstanding,
    /// No rule has this counter any more.
    RuleRemoved,
    /// The store failed. Repeat the call: what was settled by it is not settled again.
    Failed(TrypemaError),
}
