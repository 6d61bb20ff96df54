//! Single checks of any strategy, for rules and middleware.

use crate::check::{Check, CheckResult, Deadline, DecideRequest};
use crate::hybrid::HybridRateLimiterProvider;
use crate::hybrid::verbs::decide::{Attempt, CountCall};
use crate::redis::{KeySpend, RedisKey};
use crate::strategy::{Effect, Payment, Strategy, with_strategy};

impl HybridRateLimiterProvider {
    /// Forgets the leases and denials of a counter that is reset.
    pub(crate) fn forget(&self, check: &Check<'_>) {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, _limit| self.limiter::<S>().forget(&key));
    }

    /// Forgets the denials of a counter that this instance remembers.
    pub(crate) fn forget_denials(&self, check: &Check<'_>) {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, _limit| {
            let table = &self.limiter::<S>().shared.table;
            table.with(&key, |entry| entry.holding.forget_denials());
        });
    }

    /// Decides one check by itself. Applies no failure policy. Neither leases nor remembered denials apply to a check that
    /// may overdraw its limit.
    ///
    /// If another check denies its request, a check that is denied itself is taken, which records the denial. A check that
    /// would be allowed is only peeked at, so the suppressed strategy does not observe it.
    pub(crate) async fn decide_one(&self, request: &DecideRequest<'_>, deadline: Deadline) -> CheckResult {
        let check = &request.check;
        if request.effect == Effect::DeniedElsewhere {
            let peeked = self.peek_uncharged(std::slice::from_ref(check), deadline).await;
            match peeked.into_iter().next() {
                Some(Ok(peeked)) if !peeked.is_allowed() => {}
                Some(peeked) => return peeked,
                None => {}
            }
        }
        if request.payment != Payment::Prepaid {
            let request = DecideRequest { effect: Effect::Take, ..*request };
            return self.redis.one(request, deadline).await;
        }
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            let started = limiter.redis().started();
            let attempt = Attempt { count: CountCall::Yes, deadline: Some(deadline.until()) };
            let found = limiter.take_outcome(KeySpend::new(&key, limit, check.cost), attempt).await;
            let decision = found
                .map(|found| S::core(&found.decision(limit)))
                .map_err(|failure| limiter.redis().report_failure(&key, failure))?;
            limiter.redis().notify_decision(&key, check.cost, started, Some(decision));
            Ok(decision)
        })
    }
}
