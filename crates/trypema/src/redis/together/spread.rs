//! All or nothing over keys that no one script call can reach: different slots of a Cluster.
//!
//! First all checks are looked at, so that a request that is denied anyway, such as one of a flood, touches no other
//! key. Where all would be admitted each is reserved; if one of them is denied after all, because somebody was
//! faster, the others are given back by their receipts.

use super::super::ask::{Ask, Told, Verb};
use super::super::failure::RedisFailure;
use super::super::join;
use super::super::lane::Terms;
use super::super::provider::RedisRateLimiterProvider;
use super::super::receipt::Receipt;
use super::{Answered, Errands, Holds, Keyed, together};
use crate::check::Together;
use crate::strategy::{Limit, with_strategy};

impl RedisRateLimiterProvider {
    pub(super) async fn spend_spread(
        &self,
        (first, others): (&[Keyed<'_>], &[Keyed<'_>]),
        is_giving_receipts: bool,
        terms: &Terms,
    ) -> Result<Errands, RedisFailure> {
        let alone = self.each(others, Verb::Take, terms).await?;
        let mut together = self.spend_together(first, terms).await?;
        if !is_giving_receipts {
            together.receipts.clear();
        }
        Ok(Errands { together, alone: alone.into_iter().map(|answered| answered.decision).collect() })
    }

    async fn spend_together(
        &self,
        keyed: &[Keyed<'_>],
        terms: &Terms,
    ) -> Result<Together<Receipt>, RedisFailure> {
        let peeked = self.each(keyed, Verb::Peek, terms).await?;
        if !peeked.iter().all(|answered| answered.decision.is_allowed()) {
            return self.deny(keyed, peeked, terms).await;
        }
        let tries = self.try_each(keyed, Verb::Reserve, terms).await;
        let mut reserved = Vec::with_capacity(tries.len());
        let (mut failure, mut held) = (None, Vec::new());
        for (keyed, tried) in keyed.iter().zip(tries) {
            match tried {
                Ok(answered) => {
                    held.extend(answered.receipt.clone().map(|receipt| (keyed, receipt)));
                    reserved.push(answered);
                }
                Err(error) => failure = Some(error),
            }
        }
        let is_allowed = reserved.iter().all(|answered| answered.decision.is_allowed());
        if failure.is_none() && is_allowed {
            return Ok(together(reserved));
        }
        let held: Vec<_> = held.iter().map(|(keyed, receipt)| (*keyed, receipt)).collect();
        // What cannot be given back stays spent: stricter.
        let given_back = self.give_back(&held).await;
        match failure {
            Some(failure) => Err(failure),
            None => given_back.map(|()| together(reserved)),
        }
    }

    /// Records a denial as one script call would have: what strategies count of denials, and the repair of a key whose
    /// time went back.
    async fn deny(
        &self,
        keyed: &[Keyed<'_>],
        peeked: Vec<Answered>,
        terms: &Terms,
    ) -> Result<Together<Receipt>, RedisFailure> {
        let recording = keyed.iter().zip(&peeked).filter_map(|(keyed, answered)| {
            let verb = match (keyed.check.limit, answered.decision.is_allowed()) {
                (_, false) => Verb::Reserve,
                (Limit::Suppressed(_), true) => Verb::Forgo,
                (_, true) => return None,
            };
            Some(self.record_denial(keyed, verb, terms))
        });
        join::all(recording).await.into_iter().collect::<Result<(), _>>()?;
        Ok(together(peeked))
    }

    async fn record_denial(&self, keyed: &Keyed<'_>, verb: Verb, terms: &Terms) -> Result<(), RedisFailure> {
        let told = self.store.ask(self.ask(keyed, verb), terms.clone()).await?;
        if verb == Verb::Reserve
            && let Some(receipt) = self.read(keyed, &told)?.receipt
        {
            // It would be admitted by now; the request was denied all the same.
            self.give_back(&[(keyed, &receipt)]).await?;
        }
        Ok(())
    }

    /// Asks for each check on its own: in one script call where that is possible, else in one per slot at once.
    pub(super) async fn each(
        &self,
        keyed: &[Keyed<'_>],
        verb: Verb,
        terms: &Terms,
    ) -> Result<Vec<Answered>, RedisFailure> {
        let asks: Vec<Ask> = keyed.iter().map(|keyed| self.ask(keyed, verb)).collect();
        if self.store.is_one_call(&asks) {
            let told = self.store.ask_many(asks, 0, terms.clone()).await?;
            return self.read_all(keyed.iter(), &told);
        }
        self.try_each(keyed, verb, terms).await.into_iter().collect()
    }

    async fn try_each(
        &self,
        keyed: &[Keyed<'_>],
        verb: Verb,
        terms: &Terms,
    ) -> Vec<Result<Answered, RedisFailure>> {
        let ask = |keyed| async move {
            let told: Told = self.store.ask(self.ask(keyed, verb), terms.clone()).await?;
            self.read(keyed, &told)
        };
        join::all(keyed.iter().map(ask)).await
    }

    /// Gives back what receipts name, with a deadline of its own; the first failure, if there is any.
    pub(super) async fn give_back(&self, held: &[(&Keyed<'_>, &Receipt)]) -> Result<(), RedisFailure> {
        let ask_of = |(keyed, receipt): &(&Keyed<'_>, &Receipt)| {
            with_strategy!(keyed.check.limit, |S, limit| {
                Holds::<S>::limiter(self).ask_refund(&keyed.key, limit, receipt)
            })
        };
        let refund = |ask| async move { self.store.ask(ask, self.store.terms()).await.map(|_| ()) };
        join::all(held.iter().filter_map(ask_of).map(refund)).await.into_iter().collect()
    }
}
