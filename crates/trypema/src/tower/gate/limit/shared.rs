//! Counters in a provider that others may use, in this process or in Redis.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{Asked, Counting, Finding, Found, LimitGate, Settled, Terms, Trouble};
use crate::check::{Check, CheckResult, Receipts, TakeRequest};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::provider::failure_policy::{self, as_built};
use crate::provider::{Counting as Recording, Provider, Receipt, Record, Refund};
use crate::rules::SelectProvider;

impl LimitGate {
    /// Checks a request. Returns the decision at once if no waiting is needed, otherwise a future.
    pub(super) fn ask_shared(
        self: &Arc<Self>,
        select: SelectProvider,
        counter: String,
        terms: Terms,
    ) -> Asked {
        let store = Store { gate: Arc::clone(self), select, counter };
        if terms.counting == Counting::Before
            && let Some(taken) = store.try_take(terms.cost)
        {
            let found = taken.map(|decision| Found::settled(self.finding(decision)));
            return Asked::Now(found.map_err(Trouble::from));
        }
        let is_immediate = store.provider().is_immediate();
        let mut asked = Box::pin(store.ask(terms));
        if is_immediate
            && let Poll::Ready(found) = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return Asked::Now(found);
        }
        Asked::Later(asked)
    }
}

/// The counter of one request, in any provider.
struct Store {
    gate: Arc<LimitGate>,
    select: SelectProvider,
    counter: String,
}

/// A decision, and the receipt for its units.
struct Reserved {
    decision: Decision,
    receipt: Option<Receipt>,
}

impl Store {
    fn provider(&self) -> &dyn Provider {
        (self.select)(&self.gate.limiter)
    }

    fn check(&self, cost: u64) -> Check<'_> {
        Check { key: &self.counter, limit: &self.gate.limit, cost }
    }

    fn try_take(&self, cost: u64) -> Option<Result<Decision, TrypemaError>> {
        let (provider, check) = (self.provider(), [self.check(cost)]);
        let request = TakeRequest {
            together: &check,
            alone: &[],
            if_unreachable: &[],
            receipts: Receipts::Unwanted,
            deadline: provider.deadline(),
        };
        let taken = provider.take_all(request).now()?;
        Some(taken.and_then(|taken| only(taken.decisions.into_iter().flatten())))
    }

    async fn ask(self, terms: Terms) -> Result<Found, Trouble> {
        let Terms { cost, counting, .. } = terms;
        Ok(match counting {
            Counting::Before => {
                let reserved = self.take(cost, Receipts::Unwanted).await?;
                Found::settled(self.gate.finding(reserved.decision))
            }
            Counting::Reserving => {
                let Reserved { decision, receipt } = self.take(cost, Receipts::Wanted).await?;
                let finding = self.gate.finding(decision);
                Found::new(finding, move || match receipt {
                    Some(receipt) => Settled::Later(Box::pin(self.refund(cost, receipt))),
                    None => Settled::Now(None),
                })
            }
            Counting::After => {
                let decision = self.peek(self.gate.looking(cost)).await?;
                Found::new(self.gate.finding(decision), move || Settled::Later(Box::pin(self.record(cost))))
            }
        })
    }

    async fn take(&self, cost: u64, receipts: Receipts) -> Result<Reserved, TrypemaError> {
        let (provider, check) = (self.provider(), [self.check(cost)]);
        let if_unreachable = failure_policy::if_unreachable(provider, &check, &as_built);
        let request = TakeRequest {
            together: &check,
            alone: &[],
            if_unreachable: &if_unreachable,
            receipts,
            deadline: provider.deadline(),
        };
        let taken = provider.take_all(request).wait().await?;
        let mut taken = failure_policy::after_take(provider, request, taken, &as_built).await?;
        let receipt = taken.receipts.pop().flatten();
        Ok(Reserved { decision: only(taken.decisions.into_iter().flatten())?, receipt })
    }

    async fn peek(&self, cost: u64) -> CheckResult {
        let (provider, check) = (self.provider(), [self.check(cost)]);
        let peeked = failure_policy::peek_all(provider, &check, provider.deadline(), &as_built).await;
        only(peeked)?
    }

    /// Failures are ignored: the observer reports them, and units that cannot be refunded stay spent.
    async fn refund(self, cost: u64, receipt: Receipt) -> Option<Finding> {
        let (provider, refund) =
            (self.provider(), [Refund { check: self.check(cost), receipt: Some(&receipt) }]);
        failure_policy::refund_all(provider, &refund, provider.deadline(), &as_built).await;
        None
    }

    /// Counts a request after its response. Neither a denial nor a failure changes the response.
    async fn record(self, cost: u64) -> Option<Finding> {
        let (provider, record) =
            (self.provider(), [Record { check: self.check(cost), counting: Recording::Take }]);
        let recorded = failure_policy::record_all(provider, &record, provider.deadline(), &as_built).await;
        let decision = only(recorded).and_then(|recorded| recorded).ok()?;
        Some(self.gate.finding(decision))
    }
}

/// Returns the result of the only check.
fn only<T>(answers: impl IntoIterator<Item = T>) -> Result<T, TrypemaError> {
    let missing = || TrypemaError::InvalidChecks { reason: "the provider gave no answer".to_owned() };
    answers.into_iter().next().ok_or_else(missing)
}
