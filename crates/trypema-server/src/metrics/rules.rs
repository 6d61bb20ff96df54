//! The outcome of requests, rule by rule.

mod unmatched;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use trypema::BlockScope;
use trypema::observer::ShadowDenial;
use trypema::rules::{Outcome, Request, Rule, RuleDecision, RuleSet, SettledStatus, Settlement, Verdict};

use self::unmatched::{MatchHistory, Moment, UnmatchedRule, UnmatchedScan};
use super::{Counter, Exposition, Families, metrics};
use crate::clock::milliseconds;
use crate::mode::Mode;

/// Skipped rules are counted for every request as long as at most this many rules can apply to one request.
/// With more rules, they are counted for a sample of the requests, and each sampled request counts several
/// times. So the cost per request stays bounded.
const MAX_UNSAMPLED: usize = 64;

/// The most units that one request adds to a metric: the most that a counter can hold.
const MAX_UNITS_AT_ONCE: u64 = 1 << 53;

/// The counters of every rule. They are never labelled by key: clients choose keys, so their number is
/// unbounded.
#[derive(Debug)]
pub(crate) struct RuleMetrics {
    rule_counters: ArcSwap<RuleCounters>,
    totals: TotalMetrics,
    unmatched_scan: UnmatchedScan,
    sampled: Counter,
}

type RuleCounters = HashMap<Box<str>, RuleEntry, RandomState>;

/// The counters of one rule.
#[derive(Debug, Clone)]
struct RuleEntry {
    rule: Arc<OutcomeCounters>,
    /// The unit that the rule counts.
    unit: Box<str>,
    /// The match history since the rule was loaded in its current form.
    history: Arc<MatchHistory>,
    /// Whether the rule is expected to match requests: it is enabled, and is not a candidate.
    expects_matches: bool,
    /// For a candidate: its decisions compared with those of its live rule, since either was changed.
    compared: Option<Arc<ComparisonMetrics>>,
}

/// The counters of a rule that stay when it changes.
#[derive(Debug, Default)]
struct OutcomeCounters {
    decisions: DecisionMetrics,
    units: UnitMetrics,
}

metrics! {
    /// The decisions of one rule.
    DecisionMetrics {
        "trypema_checks_total",
        "Decisions by rule. allowed: all rules that apply allowed the request; shadowed: a log_only rule would have denied it.",
        by "result" { allowed: Counter, denied: Counter, throttled: Counter, shadowed: Counter, error: Counter }
        "trypema_rules_skipped_total",
        "Requests that a rule skipped. missing: they lack an attribute of its key or a cost in its unit; estimated if more than 64 rules can be targeted at one request. needs_reservation: a check or forward-auth, which hold nothing, came to a concurrency rule.",
        by "reason" { missing: Counter, needs_reservation: Counter }
    }

    /// What requests spent on one rule.
    UnitMetrics {
        "trypema_units_total",
        "Units that requests spent, by rule: the whole cost of a reservation when it is made, and what it cost beyond that when it is settled. Units that are given back are not subtracted." {
            units: Counter
        }
        "trypema_units_used_total",
        "Units that requests really used, by rule: the cost of a check, and what a reservation was settled at." {
            used: Counter
        }
    }

    /// The decisions of a candidate, compared with those of its live rule.
    ComparisonMetrics {
        "trypema_candidate_checks_total", "Decisions of candidates, compared with those of their live rules.",
        by "result" { both_allowed: Counter, both_denied: Counter, would_deny: Counter, would_allow: Counter }
    }

    /// The sums over all rules.
    TotalMetrics {
        "limiter_blocked_total", "Attempts that an abuse rule blocked, by its window.",
        by "scope" { temp: Counter, long: Counter }
        "trypema_substitutes_total", "Decisions made by on_store_failure, because Redis failed." { substitutes: Counter }
        "trypema_listed_total", "Requests decided by an allow list or a block list." { listed: Counter }
    }
}

impl RuleMetrics {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        let unmatched_scan = UnmatchedScan::new();
        Self {
            rule_counters: ArcSwap::from_pointee(build_rule_counters(
                None,
                rules,
                &RuleCounters::default(),
                unmatched_scan.moment(),
            )),
            unmatched_scan,
            sampled: Counter::default(),
            totals: TotalMetrics::default(),
        }
    }

    /// Counts for the rules of `new` from now on. Rules that stay keep their counts. Removed rules are kept
    /// until the next replacement, because requests that they decide may still be in flight.
    pub(crate) fn replace(&self, old: &RuleSet, new: &RuleSet) {
        let rule_counters =
            build_rule_counters(Some(old), new, &self.rule_counters.load(), self.unmatched_scan.moment());
        self.rule_counters.store(Arc::new(rule_counters));
    }

    /// Counts the decision of each rule about a check, whose cost is what it uses.
    pub(crate) fn count_check(&self, verdict: &Verdict, mode: Mode) {
        self.count_verdict(verdict, mode, |units, cost| {
            units.units.add(cost);
            units.used.add(cost);
        });
    }

    /// Counts the decision of each rule about a reservation. What it uses is known when it is settled.
    pub(crate) fn count_reservation(&self, verdict: &Verdict) {
        self.count_verdict(verdict, Mode::Check, |units, cost| units.units.add(cost));
    }

    /// Counts the decision of each rule. A check spends on all rules or on none, so a rule counts as
    /// `allowed` only if all rules allowed the request.
    fn count_verdict(&self, verdict: &Verdict, mode: Mode, count_cost: impl Fn(&UnitMetrics, u64)) {
        if verdict.listed_by().is_some() {
            self.totals.listed.add_one();
        }
        let rule_counters = self.rule_counters.load();
        let outcome = verdict.outcome();
        if mode == Mode::Check {
            compare(&rule_counters, verdict);
        }
        for rule in verdict.rules() {
            let Some(entry) = rule_counters.get(rule.rule.id.as_str()) else { continue };
            entry.history.matched();
            let counters = &entry.rule.decisions;
            if rule.decision.is_substitute() {
                self.totals.substitutes.add_one();
            }
            let is_alone = mode == Mode::Record || rule.rule.is_shadow();
            if rule.decision.is_allowed() {
                if is_alone || outcome == Outcome::Allowed {
                    counters.allowed.add_one();
                    if mode != Mode::Peek && !rule.decision.is_uncounted() {
                        // Reported costs may be absurd; the sum must not wrap at once.
                        count_cost(&entry.rule.units, rule.cost.min(MAX_UNITS_AT_ONCE));
                    }
                }
                continue;
            }
            if rule.is_shadowed() {
                log_shadowed(&rule, counters.shadowed.next() + 1);
                continue;
            }
            self.count_block(&rule);
            if outcome == Outcome::Throttled {
                counters.throttled.add_one();
            } else {
                counters.denied.add_one();
            }
        }
    }

    /// Counts the rules that skipped a request: because it lacks an attribute of their keys or a cost in their
    /// units, or because it is a check, which cannot hold slots of concurrency rules. Also warns about rules
    /// that never matched a request.
    pub(crate) fn count_skipped(&self, verdict: &Verdict, request: &Request<'_>) {
        let rules = verdict.set();
        let every = rules.applying_upper_bound().div_ceil(MAX_UNSAMPLED).max(1) as u64;
        if verdict.listed_by().is_none() && self.sampled.next().is_multiple_of(every) {
            let rule_counters = self.rule_counters.load();
            let skipped = rules.skipped_rules(request).into_iter().flatten();
            for entry in skipped.filter_map(|skipped| rule_counters.get(skipped.rule.id.as_str())) {
                entry.rule.decisions.missing.add(every);
            }
        }
        let mut unheld = verdict.skipped_rules().peekable();
        if unheld.peek().is_some() {
            let rule_counters = self.rule_counters.load();
            for rule in unheld {
                let Some(entry) = rule_counters.get(rule.id.as_str()) else { continue };
                // It matches the request, so its endpoints and attributes are no mistake.
                entry.history.matched();
                entry.rule.decisions.needs_reservation.add_one();
                tracing::debug!(
                    rule = rule.id,
                    "rules: a check skipped a concurrency rule, which only reservations obey"
                );
            }
        }
        if let Some(requests) = self.unmatched_scan.request() {
            self.warn_of_unmatched(requests);
        }
    }

    #[cold]
    fn warn_of_unmatched(&self, requests: u64) {
        let rule_counters = self.rule_counters.load();
        let expected = rule_counters.iter().filter(|(_, entry)| entry.expects_matches);
        let unmatched_rules = expected.map(|(id, entry)| UnmatchedRule {
            id,
            history: &entry.history,
            skipped: entry.rule.decisions.missing.get(),
        });
        unmatched::warn(unmatched_rules, requests);
    }

    /// Counts the units that requests used, and those that they spent beyond their reservations.
    pub(crate) fn count_settlement(&self, settlement: &Settlement) {
        let rule_counters = self.rule_counters.load();
        for rule in &settlement.rules {
            let SettledStatus::Settled { reserved, counted, .. } = rule.status else { continue };
            if let Some(entry) = rule_counters.get(rule.rule()) {
                entry.rule.units.units.add(counted.saturating_sub(reserved).min(MAX_UNITS_AT_ONCE));
                entry.rule.units.used.add(counted.min(MAX_UNITS_AT_ONCE));
            }
        }
    }

    /// Returns the number of decisions that were made in place of an unreachable store.
    pub(crate) fn substitutes(&self) -> u64 {
        self.totals.substitutes.get()
    }

    /// Returns the decisions of a candidate, compared with those of its live rule.
    pub(crate) fn comparisons(&self, candidate: &str) -> Arc<ComparisonMetrics> {
        let rule_counters = self.rule_counters.load();
        rule_counters.get(candidate).and_then(|entry| entry.compared.clone()).unwrap_or_default()
    }

    /// Counts an error for every rule that applies to a request which could not be decided.
    pub(crate) fn count_error(&self, rules: &RuleSet, request: &Request<'_>) {
        let rule_counters = self.rule_counters.load();
        let Ok(applying) = rules.matching(request) else { return };
        for entry in applying.filter_map(|rule| rule_counters.get(rule.id.as_str())) {
            entry.rule.decisions.error.add_one();
        }
    }

    pub(crate) fn write(&self, text: &mut Exposition) {
        let rule_counters = self.rule_counters.load();
        let mut rules: Vec<_> = rule_counters
            .iter()
            .map(|(id, entry)| ([("rule", &**id), ("unit", &*entry.unit)], [("candidate", &**id)], entry))
            .collect();
        rules.sort_unstable_by_key(|(_, id, _)| *id);
        let decisions = rules.iter().map(|(labels, _, entry)| (&labels[..1], &entry.rule.decisions));
        DecisionMetrics::write_all(text, decisions);
        UnitMetrics::write_all(text, rules.iter().map(|(labels, _, entry)| (&labels[..], &entry.rule.units)));
        let compared =
            rules.iter().filter_map(|(_, label, entry)| Some((&label[..], &**entry.compared.as_ref()?)));
        ComparisonMetrics::write_all(text, compared);
        self.totals.write(text);
    }

    fn count_block(&self, rule: &RuleDecision<'_>) {
        match rule.block_scope() {
            Some(BlockScope::Temp) => self.totals.temp.add_one(),
            Some(BlockScope::Long) => self.totals.long.add_one(),
            None => {}
        }
    }
}

/// Logs a sample of the requests that a `log_only` rule would have denied. Candidates are not logged: they
/// are compared with their live rules instead.
fn log_shadowed(denied: &RuleDecision<'_>, count: u64) {
    if denied.rule.candidate_for.is_none() && ShadowDenial::is_sampled(count) {
        tracing::info!(
            rule = denied.rule.id,
            name = denied.rule.display_name(),
            key = denied.key,
            count,
            retry_after_ms = denied.decision.retry_after().map(milliseconds),
            "rules: log_only rule would have denied a request"
        );
    }
}

fn compare(rule_counters: &RuleCounters, verdict: &Verdict) {
    for comparison in verdict.comparisons() {
        let entry = rule_counters.get(comparison.candidate.id.as_str());
        let Some(compared) = entry.and_then(|entry| entry.compared.as_ref()) else { continue };
        match (comparison.is_live_allowed, comparison.is_candidate_allowed) {
            (true, true) => compared.both_allowed.add_one(),
            (false, false) => compared.both_denied.add_one(),
            (true, false) => compared.would_deny.add_one(),
            (false, true) => compared.would_allow.add_one(),
        }
    }
}

/// Builds the counters of the new and the previous rules. The comparison of a candidate starts again when
/// the candidate or its live rule changes.
fn build_rule_counters(
    old: Option<&RuleSet>,
    new: &RuleSet,
    known: &RuleCounters,
    now: Moment,
) -> RuleCounters {
    let entry = |rule: &Rule| {
        let known = known.get(rule.id.as_str());
        let is_unchanged = |id: &str| old.and_then(|old| old.rule(id)) == new.rule(id);
        let unchanged = known.filter(|_| is_unchanged(&rule.id));
        let compared = rule.candidate_for.as_ref().map(|live| {
            let compared = unchanged.filter(|_| is_unchanged(live)).and_then(|known| known.compared.clone());
            compared.unwrap_or_default()
        });
        let entry = RuleEntry {
            rule: known.map(|known| Arc::clone(&known.rule)).unwrap_or_default(),
            unit: rule.unit_name().into(),
            history: unchanged
                .map_or_else(|| Arc::new(MatchHistory::new(now)), |known| Arc::clone(&known.history)),
            expects_matches: new
                .rule(&rule.id)
                .is_some_and(|rule| rule.enabled && rule.candidate_for.is_none()),
            compared,
        };
        (rule.id.as_str().into(), entry)
    };
    let before = old.into_iter().flat_map(RuleSet::rules);
    before.chain(new.rules()).map(entry).collect()
}
