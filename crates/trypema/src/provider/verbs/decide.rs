//! Decides one check by itself: takes, peeks, or records that another check denies its request.

use crate::check::DecideRequest;
#[cfg(feature = "_redis")]
use crate::check::{Check, CheckResult, Deadline};
use crate::decision::Decision;
#[cfg(feature = "_redis")]
use crate::hybrid::HybridRateLimiterProvider;
use crate::local::LocalRateLimiterProvider;
#[cfg(feature = "_redis")]
use crate::provider::MaybeReady;
use crate::provider::ProviderVerb;
#[cfg(feature = "_redis")]
use crate::redis::all;
#[cfg(feature = "_redis")]
use crate::strategy::Effect;

impl ProviderVerb for DecideRequest<'_> {
    fn run_local(&self, local: &LocalRateLimiterProvider) -> Decision {
        local.decide(self)
    }

    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(
        requests: &'a [Self],
        hybrid: &'a HybridRateLimiterProvider,
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<CheckResult>> {
        MaybeReady::pending(async move {
            if requests.iter().all(|request| request.effect == Effect::Peek) {
                let checks: Vec<Check<'_>> = requests.iter().map(|request| request.check).collect();
                return hybrid.peek_each(&checks, deadline).await;
            }
            all(requests.iter().map(|request| hybrid.decide_one(request, deadline))).await
        })
    }
}
