//! What became of requests, rule by rule.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use trypema::BlockScope;
use trypema::rules::{Outcome, Request, Rule, RuleDecision, RuleSet, Verdict};

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

type Board = HashMap<Box<str>, Entry, RandomState>;

/// A rule's counters.
#[derive(Debug, Clone, Default)]
struct Entry {
    rule: Arc<OneRule>,
    /// Of a candidate: what it said beside its live rule, since either was changed.
    compared: Option<Arc<Compared>>,
}

#[derive(Debug, Default)]
struct OneRule {
    allowed: Counter,
    denied: Counter,
    throttled: Counter,
    shadowed: Counter,
    error: Counter,
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
        Self {
            board: ArcSwap::from_pointee(board_of(None, rules, &Board::default())),
            blocked_temp: Counter::default(),
            blocked_long: Counter::default(),
            substitutes: Counter::default(),
            listed: Counter::default(),
        }
    }

    /// Counts for these rules from here on. Those that stay keep their counts; those that went are kept until the next time, as requests
    /// that they decide may be under way.
    pub(crate) fn replace(&self, old: &RuleSet, new: &RuleSet) {
        self.board.store(Arc::new(board_of(Some(old), new, &self.board.load())));
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
            let Some(counters) = board.get(rule.rule.id.as_str()).map(|entry| &entry.rule) else { continue };
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
        let board = self.board.load();
        let compared = board.get(candidate).and_then(|entry| entry.compared.as_ref());
        compared.map(|compared| compared.told()).unwrap_or_default()
    }

    /// Nothing could be decided for a request: an error of every rule that applies to it.
    pub(crate) fn failed(&self, rules: &RuleSet, request: &Request<'_>) {
        let board = self.board.load();
        let Ok(applying) = rules.matching(request) else { return };
        for entry in applying.filter_map(|rule| board.get(rule.id.as_str())) {
            entry.rule.error.add_one();
        }
    }

    pub(crate) fn write(&self, text: &mut Exposition) {
        let board = self.board.load();
        let sorted: BTreeMap<&str, &Entry> = board.iter().map(|(id, entry)| (&**id, entry)).collect();
        text.family(
            "trypema_checks_total",
            Kind::Counter,
            "What each rule decided. Allowed is what all rules that apply have allowed; shadowed what a rule that only logs would have denied.",
        );
        for (id, Entry { rule, .. }) in &sorted {
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

    fn write_comparisons(&self, text: &mut Exposition, rules: &BTreeMap<&str, &Entry>) {
        text.family(
            "trypema_candidate_checks_total",
            Kind::Counter,
            "What candidates said beside their live rules.",
        );
        for (id, entry) in rules {
            let Some(told) = entry.compared.as_ref().map(|compared| compared.told()) else { continue };
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
    for said in verdict.comparisons() {
        let entry = board.get(said.candidate.id.as_str());
        let Some(compared) = entry.and_then(|entry| entry.compared.as_ref()) else { continue };
        match (said.is_live_allowed, said.is_candidate_allowed) {
            (true, true) => compared.both_allowed.add_one(),
            (false, false) => compared.both_denied.add_one(),
            (true, false) => compared.would_deny.add_one(),
            (false, true) => compared.would_allow.add_one(),
        }
    }
}

/// The counters of these rules and of those before them. A candidate is compared anew once it or its live rule is another.
fn board_of(old: Option<&RuleSet>, new: &RuleSet, known: &Board) -> Board {
    let entry = |rule: &Rule| {
        let known = known.get(rule.id.as_str()).cloned().unwrap_or_default();
        let is_as_it_was = |id: &str| old.and_then(|old| old.rule(id)) == new.rule(id);
        let compared = rule.candidate_for.as_ref().map(|live| match known.compared {
            Some(compared) if is_as_it_was(&rule.id) && is_as_it_was(live) => compared,
            _ => Arc::default(),
        });
        (rule.id.as_str().into(), Entry { rule: known.rule, compared })
    };
    let before = old.into_iter().flat_map(RuleSet::rules);
    before.chain(new.rules()).map(entry).collect()
}
