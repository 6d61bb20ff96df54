//! Counters in a provider that others may use, in this process or in Redis.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{
    AfterResponseResult, CheckOutcome, CheckedRequest, CountWhen, CountingOptions, EnforcerError,
    LayerDecision, LimitEnforcer,
};
use crate::check::{Check, CheckResult, DecideRequest, Receipts, TakeRequest};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::provider::failure_policy::{self, as_built};
use crate::provider::{AnyReceipt, Provider, RefundRequest};
use crate::rules::SelectProvider;
use crate::strategy::Effect;

impl LimitEnforcer {
    /// Checks a request. Returns the decision at once if no waiting is needed, otherwise a future.
    pub(super) fn check_in_provider(
        self: &Arc<Self>,
        select: SelectProvider,
        counter: String,
        options: CountingOptions,
    ) -> CheckOutcome {
        let counter_ref = CounterRef { enforcer: Arc::clone(self), select, counter };
        if options.count_when == CountWhen::Before
            && let Some(taken) = counter_ref.try_take(options.cost)
        {
            let checked =
                taken.map(|decision| CheckedRequest::without_follow_up(self.layer_decision(decision)));
            return CheckOutcome::Ready(checked.map_err(EnforcerError::from));
        }
        let is_immediate = counter_ref.provider().is_immediate();
        let mut check = Box::pin(counter_ref.decide(options));
        if is_immediate
            && let Poll::Ready(checked) = check.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return CheckOutcome::Ready(checked);
        }
        CheckOutcome::Pending(check)
    }
}

/// The counter of one request, in any provider.
struct CounterRef {
    enforcer: Arc<LimitEnforcer>,
    select: SelectProvider,
    counter: String,
}

/// A decision, and the receipt for its units.
struct TakenCheck {
    decision: Decision,
    receipt: Option<AnyReceipt>,
}

impl CounterRef {
    fn provider(&self) -> Provider<'_> {
        (self.select)(&self.enforcer.limiter)
    }

    fn check(&self, cost: u64) -> Check<'_> {
        Check::new(&self.counter, &self.enforcer.limit, cost)
    }

    fn try_take(&self, cost: u64) -> Option<Result<Decision, TrypemaError>> {
        let (provider, check) = (self.provider(), [self.check(cost)]);
        let request = TakeRequest::new(&check, provider.deadline());
        let taken = provider.all_or_nothing(request).ready()?;
        Some(taken.and_then(|taken| only(taken.decisions.into_iter().flatten())))
    }

    async fn decide(self, options: CountingOptions) -> Result<CheckedRequest, EnforcerError> {
        let CountingOptions { cost, count_when, .. } = options;
        Ok(match count_when {
            CountWhen::Before => {
                let taken = self.take(cost, Receipts::Unwanted).await?;
                CheckedRequest::without_follow_up(self.enforcer.layer_decision(taken.decision))
            }
            CountWhen::BeforeWithReceipt => {
                let TakenCheck { decision, receipt } = self.take(cost, Receipts::Wanted).await?;
                let decision = self.enforcer.layer_decision(decision);
                CheckedRequest::new(decision, move || match receipt {
                    Some(receipt) => AfterResponseResult::Pending(Box::pin(self.refund(cost, receipt))),
                    None => AfterResponseResult::Ready(None),
                })
            }
            CountWhen::After => {
                let decision = self.peek(self.enforcer.peek_cost(cost)).await?;
                CheckedRequest::new(self.enforcer.layer_decision(decision), move || {
                    AfterResponseResult::Pending(Box::pin(self.record(cost)))
                })
            }
        })
    }

    async fn take(&self, cost: u64, receipts: Receipts) -> Result<TakenCheck, TrypemaError> {
        let (provider, check) = (self.provider(), [self.check(cost)]);
        let may_fail = failure_policy::may_fail(provider, &check, &as_built);
        let request =
            TakeRequest { may_fail: &may_fail, receipts, ..TakeRequest::new(&check, provider.deadline()) };
        let taken = provider.all_or_nothing(request).wait().await?;
        let mut taken = failure_policy::after_take(provider, request, taken, &as_built).await?;
        let receipt = taken.receipts.pop().flatten();
        Ok(TakenCheck { decision: only(taken.decisions.into_iter().flatten())?, receipt })
    }

    async fn peek(&self, cost: u64) -> CheckResult {
        self.decide_one(Effect::Peek, cost).await
    }

    async fn decide_one(&self, effect: Effect, cost: u64) -> CheckResult {
        let (provider, request) = (self.provider(), [DecideRequest::new(effect, self.check(cost))]);
        let decided = failure_policy::decide_each(provider, &request, provider.deadline(), &as_built).await;
        only(decided)?
    }

    /// Failures are ignored: the observer reports them, and units that cannot be refunded stay spent.
    async fn refund(self, cost: u64, receipt: AnyReceipt) -> Option<LayerDecision> {
        let (provider, refund) =
            (self.provider(), [RefundRequest { check: self.check(cost), receipt: Some(&receipt) }]);
        failure_policy::refund_all(provider, &refund, provider.deadline(), &as_built).await;
        None
    }

    /// Counts a request after its response. Neither a denial nor a failure changes the response.
    async fn record(self, cost: u64) -> Option<LayerDecision> {
        let decision = self.decide_one(Effect::Take, cost).await.ok()?;
        Some(self.enforcer.layer_decision(decision))
    }
}

/// Returns the result of the only check.
fn only<T>(decisions: impl IntoIterator<Item = T>) -> Result<T, TrypemaError> {
    let no_decision = || TrypemaError::InvalidChecks {
        reason: "internal error: the provider returned no decision".to_owned(),
    };
    decisions.into_iter().next().ok_or_else(no_decision)
}
