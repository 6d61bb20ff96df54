//! Counters that are leased, which answer at once where something is held.

use std::sync::Arc;

use super::{Asked, Counting, Finding, Found, LimitGate, Settled, Terms, Trouble};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::hybrid::{Keeping, Receipt, Spent};

impl LimitGate {
    pub(super) fn ask_hybrid(self: &Arc<Self>, counter: String, terms: Terms) -> Asked {
        if terms.counting == Counting::Before
            && let Some(taken) = self.limiter.hybrid().try_run(&[self.check(&counter, terms.cost)])
        {
            let taken = taken.and_then(|spent| decision_of(&spent));
            return Asked::Now(
                taken.map(|decision| Found::settled(self.finding(decision))).map_err(Trouble::from),
            );
        }
        Asked::Later(Box::pin(Arc::clone(self).wait_for_hybrid(counter, terms)))
    }

    async fn wait_for_hybrid(self: Arc<Self>, counter: String, terms: Terms) -> Result<Found, Trouble> {
        let Terms { cost, counting, .. } = terms;
        Ok(match counting {
            Counting::Before => Found::settled(self.finding(self.take_leased(&counter, cost).await?)),
            Counting::Reserving => {
                // What a failure of Redis means was chosen when the limiter was built.
                let spent = self
                    .limiter
                    .hybrid()
                    .run(&[self.check(&counter, cost)], Keeping::Receipts, &|_| None)
                    .await?;
                let finding = self.finding(decision_of(&spent)?);
                Found::new(finding, move || {
                    Settled::Later(Box::pin(self.refund_leased(counter, spent.receipts)))
                })
            }
            Counting::After => {
                let looked = self.check(&counter, self.looking(cost));
                let decision = self.limiter.hybrid().peek_one(&looked).await?;
                let finding = self.finding(decision);
                Found::new(finding, move || Settled::Later(Box::pin(self.charge_leased(counter, cost))))
            }
        })
    }

    fn check<'a>(&'a self, counter: &'a str, cost: u64) -> Check<'a> {
        Check { key: counter, limit: &self.limit, cost }
    }

    async fn take_leased(&self, counter: &str, cost: u64) -> Result<Decision, TrypemaError> {
        self.limiter.hybrid().take_one(&self.check(counter, cost)).await
    }

    /// The observer knows of a failure; what cannot be given back stays spent.
    async fn refund_leased(
        self: Arc<Self>,
        counter: String,
        receipts: Vec<Option<Receipt>>,
    ) -> Option<Finding> {
        let _ = self.limiter.hybrid().refund_all(&[self.check(&counter, 0)], &receipts).await;
        None
    }

    /// The response is made, so a denial or a failure changes nothing for it.
    async fn charge_leased(self: Arc<Self>, counter: String, cost: u64) -> Option<Finding> {
        self.take_leased(&counter, cost).await.ok().map(|decision| self.finding(decision))
    }
}

/// What the only check was told.
fn decision_of(spent: &Spent) -> Result<Decision, TrypemaError> {
    let missing = || TrypemaError::InvalidChecks { reason: "none was asked".to_owned() };
    spent.decisions.first().copied().flatten().ok_or_else(missing)
}
