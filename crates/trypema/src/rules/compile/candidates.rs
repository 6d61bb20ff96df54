//! Candidates: checks that each one names a live rule, and links the two.

use std::collections::BTreeMap;

use super::{Compiler, MAX_ID_BYTES};
use crate::rules::definition::Rule;
use crate::rules::problem::FieldPath;
use crate::rules::set::RuleSet;

/// The id in a candidate's `candidate_for`, and the rule with that id if it exists.
struct LiveRuleRef<'a> {
    id: &'a str,
    rule: Option<&'a Rule>,
}

impl Compiler<'_> {
    pub(super) fn check_candidates(&mut self, rules: &[Rule], all: &FieldPath) {
        if !rules.iter().any(|rule| rule.candidate_for.is_some() || rule.share.is_some()) {
            return;
        }
        let by_id: BTreeMap<&str, &Rule> = rules.iter().map(|rule| (rule.id.as_str(), rule)).collect();
        let are_ids_known = self.are_ids_known(rules, all);
        for (index, rule) in rules.iter().enumerate() {
            let (field, known) = (all.at(index), self.problems.listed().len());
            if let Some(live) = &rule.candidate_for {
                let named = LiveRuleRef { id: live, rule: by_id.get(live.as_str()).copied() };
                if named.rule.is_some() || are_ids_known {
                    self.check_live(rule, named, &field.then("candidate_for"));
                }
            }
            self.check_share(rule, &field);
            self.name_rule(known, &rule.id);
        }
    }

    fn check_live(&mut self, rule: &Rule, live: LiveRuleRef<'_>, field: &FieldPath) {
        let given: String = live.id.chars().take(MAX_ID_BYTES).collect();
        match live.rule {
            _ if live.id == rule.id => self.refuse(field, "a rule cannot be a candidate for itself"),
            None => self.refuse(field, format!("there is no rule {given:?}")),
            Some(live) if live.candidate_for.is_some() => {
                self.refuse(field, format!("rule {given:?} is a candidate itself: name a live rule"));
            }
            Some(_) => {}
        }
    }

    fn check_share(&mut self, rule: &Rule, field: &FieldPath) {
        let Some(share) = rule.share else { return };
        let is_known = !self.is_replaced(&field.then("candidate_for"));
        let field = &field.then("share");
        if rule.candidate_for.is_none() && is_known {
            self.refuse(field, "only a candidate (`candidate_for`) has a share");
        }
        // Written as a negation, so that NaN is refused as well.
        if !(share > 0.0 && share <= 1.0) {
            self.refuse(field, format!("invalid share {share}: need a number above 0 and up to 1"));
        }
    }
}

impl RuleSet {
    /// Links candidates and live rules: sets `live` of each candidate, and lists the candidates of each live
    /// rule.
    pub(super) fn link_candidates(&mut self) {
        for (number, compiled) in (0..).zip(&mut self.rules) {
            let Some(live) = &compiled.rule.candidate_for else { continue };
            compiled.live = self.ids.get(live.as_str()).copied();
            if let Some(live) = compiled.live {
                self.candidates.entry(live).or_default().push(number);
            }
        }
    }
}
