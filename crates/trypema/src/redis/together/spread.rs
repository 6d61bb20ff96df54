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
use super::{Answered, Errand, Errands, Holds, Keyed, together};
use crate::check::Together;
use crate::strategy::{Limit, with_strategy};

impl RedisRateLimiterProvider {
    pub(super) async fn spend_spread(
        &self,
        (first, others): (&[Keyed<'_>], &[Keyed<'_>]),
        errand: Errand<'_>,
        terms: &Terms,
    ) -> Result<Errands, RedisFailure> {
        let alone = self.try_each(others, Verb::Take, terms);
        let together = self.spend_together(first, errand, terms);
        let (alone, together) = join::both(alone, together).await;
        let mut together = together?;
        if !errand.is_giving_receipts {
            together.receipts.clear();
        }
        let alone =
            alone.into_iter().map(|answered| answered.ok().map(|answered| answered.decision)).collect();
        Ok(Errands { together, alone })
    }

    async fn spend_together(
        &self,
        keyed: &[Keyed<'_>],
        errand: Errand<'_>,
        terms: &Terms,
    ) -> Result<Together<Receipt>, RedisFailure> {
        let mut answered = Vec::with_capacity(keyed.len());
        let mut reachable = Vec::with_capacity(keyed.len());
        for (index, peeked) in self.try_each(keyed, Verb::Peek, terms).await.into_iter().enumerate() {
            match peeked {
                Ok(peeked) => {
                    reachable.push(index);
                    answered.push(peeked);
                }
                Err(failure) => {
                    // A server that is away says nothing about the limits on the others.
                    let decision =
                        errand.substitute.and_then(|substitute| substitute(index)).ok_or(failure)?;
                    answered.push(Answered { decision, receipt: None });
                }
            }
        }
        if !answered.iter().all(|answered| answered.decision.is_allowed()) {
            self.record_denials(keyed, (&reachable, &answered), terms).await;
            return Ok(together(answered));
        }
        let asked: Vec<Keyed<'_>> = reachable.iter().map(|index| keyed[*index].clone()).collect();
        let tries = self.try_each(&asked, Verb::Reserve, terms).await;
        let mut failure = None;
        for (index, tried) in reachable.iter().zip(tries) {
            match tried {
                Ok(reserved) => answered[*index] = reserved,
                Err(error) => failure = Some(error),
            }
        }
        if failure.is_none() && answered.iter().all(|answered| answered.decision.is_allowed()) {
            return Ok(together(answered));
        }
        let held = keyed.iter().zip(&answered);
        let held: Vec<_> =
            held.filter_map(|(keyed, answered)| Some((keyed, answered.receipt.as_ref()?))).collect();
        // What cannot be given back stays spent: stricter.
        let _ = self.give_back(&held).await;
        failure.map_or_else(|| Ok(together(answered)), Err)
    }

    /// Records a denial as one script call would have: what strategies count of denials, and the repair of a key whose
    /// time went back. The denial stands, whether or not that succeeds.
    async fn record_denials(
        &self,
        keyed: &[Keyed<'_>],
        (reachable, answered): (&[usize], &[Answered]),
        terms: &Terms,
    ) {
        let recording = reachable.iter().filter_map(|index| {
            let (keyed, is_allowed) = (&keyed[*index], answered[*index].decision.is_allowed());
            let verb = match keyed.check.limit {
                _ if !is_allowed => Verb::Reserve,
                Limit::Suppressed(_) => Verb::Forgo,
                _ => return None,
            };
            Some(self.record_denial(keyed, verb, terms))
        });
        let _ = join::all(recording).await;
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
            return self.read_all(keyed, told.into_iter());
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
