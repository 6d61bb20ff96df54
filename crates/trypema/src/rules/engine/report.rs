//! Reports the denials of log-only rules to the observer.

use std::sync::atomic::Ordering;

use super::Engine;
use crate::observer::ShadowDenial;
use crate::rules::verdict::Verdict;

impl Engine {
    /// Reports the denials of log-only rules to the observer, and returns the verdict.
    pub(super) fn reported(&self, verdict: Verdict) -> Verdict {
        self.report(&verdict);
        verdict
    }

    pub(super) fn report(&self, verdict: &Verdict) {
        let Some(observer) = self.limiter.local().observer() else { return };
        let is_reported =
            |rule: &crate::rules::RuleDecision<'_>| rule.is_shadowed() && rule.rule.candidate_for.is_none();
        for denied in verdict.rules().filter(is_reported) {
            let Some(compiled) = verdict.set.compiled(&denied.rule.id) else { continue };
            let count = compiled.shadow_denials.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            observer.shadowed(&ShadowDenial {
                rule: &denied.rule.id,
                name: denied.rule.display_name(),
                key: denied.key,
                cost: denied.cost,
                decision: denied.decision,
                count,
            });
        }
    }
}
