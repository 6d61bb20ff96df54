//! What became of requests, rule by rule.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use trypema::BlockScope;
use trypema::rules::{Outcome, Request, RuleDecision, RuleSet, Verdict};

use super::{Counter, Exposition, Kind};
use crate::app::Mode;

/// Counters of every rule. Never by key: keys are chosen by clients, and have no bound.
#[derive(Debug)]
pub(crate) struct RuleMetrics {
    board: ArcSwap<Board>,
    blocked_temp: Counter,
    blocked_long: Counter,
    substitutes: Counter,
    listed: Counter,
}

type Board = HashMap<Box<str>, Arc<OneRule>, RandomState>;

#[derive(Debug, Default)]
struct OneRule {
    allowed: Counter,
    denied: Counter,
    throttled: Counter,
    shadowed: Counter,
    error: Counter,
    compared: Compared,
}

/// What a candidate said beside its live rule.
#[derive(Debug, Default)]
struct Compared {
    both_allowed: Counter,
    both_denied: Counter,
    would_deny: Counter,
    would_allow: Counter,
}

/// The same, as it is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Comparisons {
    pub(crate) both_allowed: u64,
    pub(crate) both_denied: u64,
    pub(crate) would_deny: u64,
    pub(crate) would_allow: u64,
}

impl RuleMetrics {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        let board = rules.rules().map(|rule| (rule.id.as_str().into(), Arc::default())).collect();
        Self {
            board: ArcSwap::from_pointee(board),
            blocked_temp: Counter::default(),
            blocked_long: Counter::default(),
            substitutes: Counter::default(),
            listed: Counter::default(),
        }
    }

    /// Counts for these rules from here on. Those that stay keep their counts; those that went are kept until the next time, as requests
    /// that they decide may be under way.
    pub(crate) fn replace(&self, old: &RuleSet, new: &RuleSet) {
        let board = self.board.load();
        let known = |id: &str| board.get(id).cloned().unwrap_or_default();
        let ids = old.rules().chain(new.rules()).map(|rule| rule.id.as_str());
        self.board.store(Arc::new(ids.map(|id| (id.into(), known(id))).collect()));
    }

    /// Counts what each rule decided. Where all are spent or none, a rule has allowed what all have allowed.
    pub(crate) fn decided(&self, verdict: &Verdict, mode: Mode) {
        if verdict.listed_by().is_some() {
            self.listed.add_one();
        }
        let board = self.board.load();
        let outcome = verdict.outcome();
        if mode == Mode::Check {
            compare(&board, verdict);
        }
        for rule in verdict.rules() {
            let Some(counters) = board.get(rule.rule.id.as_str()) else { continue };
            if rule.decision.is_substitute() {
                self.substitutes.add_one();
            }
            let is_alone = mode == Mode::Record || rule.rule.is_shadow();
            if rule.decision.is_allowed() {
                if is_alone || outcome == Outcome::Allowed {
                    counters.allowed.add_one();
                }
                continue;
            }
            if rule.is_shadowed() {
                counters.shadowed.add_one();
                continue;
            }
            self.note_block(&rule);
            if outcome == Outcome::Throttled {
                counters.throttled.add_one();
            } else {
                counters.denied.add_one();
            }
        }
    }

    /// What a candidate said beside its live rule.
    pub(crate) fn comparisons(&self, candidate: &str) -> Comparisons {
        self.board.load().get(candidate).map(|rule| rule.compared.told()).unwrap_or_default()
    }

    /// Nothing could be decided for a request: an error of every rule that applies to it.
    pub(crate) fn failed(&self, rules: &RuleSet, request: &Request<'_>) {
        let board = self.board.load();
        let Ok(applying) = rules.matching(request) else { return };
        for counters in applying.filter_map(|rule| board.get(rule.id.as_str())) {
            counters.error.add_one();
        }
    }

    pub(crate) fn write(&self, text: &mut Exposition) {
        let board = self.board.load();
        let sorted: BTreeMap<&str, &OneRule> = board.iter().map(|(id, rule)| (&**id, &**rule)).collect();
        text.family(
            "trypema_checks_total",
            Kind::Counter,
            "What each rule decided. Allowed is what all rules that apply have allowed; shadowed what a rule that only logs would have denied.",
        );
        for (id, rule) in &sorted {
            let results = [
                ("allowed", &rule.allowed),
                ("denied", &rule.denied),
                ("throttled", &rule.throttled),
                ("shadowed", &rule.shadowed),
                ("error", &rule.error),
            ];
            for (result, counter) in results {
                text.sample(&[("rule", id), ("result", result)], counter.get());
            }
        }
        self.write_comparisons(text, &sorted);
        text.family(
            "limiter_blocked_total",
            Kind::Counter,
            "Attempts that an abuse rule blocked, by its window.",
        );
        text.sample(&[("scope", "temp")], self.blocked_temp.get());
        text.sample(&[("scope", "long")], self.blocked_long.get());
        text.family(
            "trypema_substitutes_total",
            Kind::Counter,
            "Decisions that were made in place of a store that could not be asked.",
        );
        text.sample(&[], self.substitutes.get());
        text.family(
            "trypema_listed_total",
            Kind::Counter,
            "Requests that an allow list or a block list decided by itself.",
        );
        text.sample(&[], self.listed.get());
    }

    fn write_comparisons(&self, text: &mut Exposition, rules: &BTreeMap<&str, &OneRule>) {
        text.family(
            "trypema_candidate_checks_total",
            Kind::Counter,
            "What candidates said beside their live rules.",
        );
        for (id, rule) in rules {
            let told = rule.compared.told();
            // Most rules are no candidates, and have nothing to tell.
            if told == Comparisons::default() {
                continue;
            }
            let results = [
                ("both_allowed", told.both_allowed),
                ("both_denied", told.both_denied),
                ("would_deny", told.would_deny),
                ("would_allow", told.would_allow),
            ];
            for (result, count) in results {
                text.sample(&[("candidate", id), ("result", result)], count);
            }
        }
    }

    fn note_block(&self, rule: &RuleDecision<'_>) {
        match rule.block_scope() {
            Some(BlockScope::Temp) => self.blocked_temp.add_one(),
            Some(BlockScope::Long) => self.blocked_long.add_one(),
            None => {}
        }
    }
}

impl Compared {
    fn told(&self) -> Comparisons {
        Comparisons {
            both_allowed: self.both_allowed.get(),
            both_denied: self.both_denied.get(),
            would_deny: self.would_deny.get(),
            would_allow: self.would_allow.get(),
        }
    }
}

fn compare(board: &Board, verdict: &Verdict) {
    for compared in verdict.comparisons() {
        let Some(counters) = board.get(compared.candidate.id.as_str()) else { continue };
        match (compared.is_live_allowed, compared.is_candidate_allowed) {
            (true, true) => counters.compared.both_allowed.add_one(),
            (false, false) => counters.compared.both_denied.add_one(),
            (true, false) => counters.compared.would_deny.add_one(),
            (false, true) => counters.compared.would_allow.add_one(),
        }
    }
}
