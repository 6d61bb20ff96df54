//! Reports the denials of log-only rules, and reservations, to the observer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use crate::observer::{Observer, ReservationChange, ReservationEvent, ShadowDenial};
use crate::rules::counter;
use crate::rules::verdict::Verdict;

impl Engine {
    /// Reports the denials of log-only rules to the observer, and returns the verdict.
    pub(super) fn reported(&self, verdict: Verdict) -> Verdict {
        self.report(&verdict);
        verdict
    }

    fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.as_ref().or_else(|| self.limiter.local().observer())
    }

    /// Reports what has happened to a reservation at one counter.
    pub(super) fn report_reservation(&self, key: &str, change: ReservationChange) {
        if let Some(observer) = self.observer() {
            observer.reservation_changed(&ReservationEvent { rule: counter::rule_of(key), key, change });
        }
    }

    pub(super) fn report(&self, verdict: &Verdict) {
        let Some(observer) = self.observer() else { return };
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
