//! Decides single checks of any strategy.

use super::multi::TakeOptions;
use super::provider::LocalRateLimiterProvider;
use crate::check::{Check, DecideRequest};
use crate::decision::Decision;
use crate::strategy::{Effect, Strategy, with_strategy};

impl LocalRateLimiterProvider {
    /// Decides a check, and notifies the observer unless it is a peek.
    pub(crate) fn decide(&self, request: &DecideRequest<'_>) -> Decision {
        let check = &request.check;
        if request.effect == Effect::DeniedElsewhere {
            return self.record_denied_elsewhere(check);
        }
        with_strategy!(check.limit, |S, limit| {
            let (limiter, spend) = (self.limiter::<S>(), request.spend());
            S::core(&match request.effect {
                Effect::Peek => limiter.peek_at(check.key, limit, spend).decision(limit),
                _ => limiter.spend_observed(check.key, limit, spend),
            })
        })
    }

    /// Records a check of a request that another check denies. If this check is denied as well, the denial is
    /// recorded as usual. If it would be admitted, only the suppressed strategy records it, as an observed
    /// request.
    fn record_denied_elsewhere(&self, check: &Check<'_>) -> Decision {
        let started = self.observed_from();
        let decision = self.deny_elsewhere(check);
        if !decision.is_allowed() || check.limit.counts_denied_elsewhere() {
            self.notify_decisions(started, std::iter::once((check, &decision)));
        }
        decision
    }

    /// Same as [`record_denied_elsewhere`](Self::record_denied_elsewhere), without notifying the observer.
    pub(super) fn deny_elsewhere(&self, check: &Check<'_>) -> Decision {
        let options = TakeOptions { is_denied_elsewhere: true, ..TakeOptions::default() };
        let denied = self.take_many(std::slice::from_ref(check), options);
        denied.decisions.into_iter().next().unwrap_or(Decision::refused())
    }
}
