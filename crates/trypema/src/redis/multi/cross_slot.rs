//! Takes all or nothing over keys in different slots of a Cluster, which one script call cannot combine.
//!
//! All checks are peeked at first. So a request that is denied anyway, for example during a flood, changes
//! no other key. If all checks would be admitted, each is reserved. If one of them is denied after all,
//! because a concurrent request was faster, the others are refunded by their receipts. Each step has its
//! part of the deadline.

use super::super::ask::{Ask, Told, Verb};
use super::super::batcher::Terms;
use super::super::failure::RedisFailure;
use super::super::join;
use super::super::provider::RedisRateLimiterProvider;
use super::super::receipt::Receipt;
use super::{Answered, Asked, Held, Holds, Keyed, KeyedChecks, Replies, Reply};
use crate::check::{Deadline, IfUnreachable, TakeRequest};
use crate::strategy::{Limit, with_strategy};

impl RedisRateLimiterProvider {
    pub(super) async fn take_across_slots(
        &self,
        checks: &KeyedChecks<'_>,
        request: TakeRequest<'_>,
    ) -> Replies {
        let terms = Terms::until(request.deadline.before_rollback());
        let independent = self.try_each(checks.independent.iter().map(|keyed| (keyed, Verb::Take)), &terms);
        let atomic = self.take_atomic(&checks.atomic, request, &terms);
        let (independent, atomic) = join::both(independent, atomic).await;
        Replies { atomic, independent }
    }

    async fn take_atomic(&self, keyed: &[Keyed<'_>], request: TakeRequest<'_>, terms: &Terms) -> Vec<Reply> {
        let first = Terms::until(request.deadline.of_first_step().until());
        let mut replies = self.try_each(keyed.iter().map(|keyed| (keyed, Verb::Peek)), &first).await;
        if replies.iter().any(is_denied) {
            self.record_denials(keyed, &replies, terms, request.deadline).await;
            return replies;
        }
        if has_to_stop(&replies, request) {
            return replies;
        }
        let reachable = || replies.iter().enumerate().filter(|(_, reply)| reply.is_ok());
        let reachable: Vec<usize> = reachable().map(|(index, _)| index).collect();
        let asked = reachable.iter().map(|index| (&keyed[*index], Verb::Reserve));
        for (index, reserved) in reachable.iter().zip(self.try_each(asked, terms).await) {
            replies[*index] = reserved;
        }
        if replies.iter().any(is_denied) || has_to_stop(&replies, request) {
            let receipts: Vec<Option<Receipt>> = replies.iter_mut().map(take_receipt).collect();
            let held = keyed.iter().zip(&receipts);
            let held: Vec<_> = held
                .filter_map(|(keyed, receipt)| Some(Held { keyed, receipt: receipt.as_ref()? }))
                .collect();
            // If a refund fails, its units stay spent, which is the stricter outcome.
            let _ = self.refund_by_receipts(&held, request.deadline).await;
        }
        replies
    }

    /// Records a denial as a single script call would have: the denials that strategies count, and the
    /// repair of a state whose clock went back. The request stays denied even if this fails.
    async fn record_denials(
        &self,
        keyed: &[Keyed<'_>],
        replies: &[Reply],
        terms: &Terms,
        deadline: Deadline,
    ) {
        let recording = keyed.iter().zip(replies).filter_map(|(keyed, reply)| {
            let is_allowed = reply.as_ref().ok()?.decision.is_allowed();
            let verb = match keyed.check.limit {
                _ if !is_allowed => Verb::Reserve,
                Limit::Suppressed(_) => Verb::DeniedElsewhere,
                _ => return None,
            };
            Some(self.record_denial(Asked { keyed: keyed.clone(), verb }, terms, deadline))
        });
        let _ = join::all(recording).await;
    }

    async fn record_denial(
        &self,
        asked: Asked<'_>,
        terms: &Terms,
        deadline: Deadline,
    ) -> Result<(), RedisFailure> {
        let Asked { keyed, verb } = &asked;
        let told = self.store.ask(self.ask(keyed, *verb), terms.clone()).await?;
        if *verb == Verb::Reserve
            && let Some(receipt) = self.read(keyed, *verb, &told)?.receipt
        {
            // The check would be admitted by now, but the request is already denied.
            let _ = self.refund_by_receipts(&[Held { keyed, receipt: &receipt }], deadline).await;
        }
        Ok(())
    }

    /// Sends each check independently and concurrently. Checks of one slot share a batch.
    pub(super) async fn try_each<'k>(
        &self,
        checks: impl Iterator<Item = (&'k Keyed<'k>, Verb)>,
        terms: &Terms,
    ) -> Vec<Reply> {
        let ask = |(keyed, verb): (&'k Keyed<'k>, Verb)| async move {
            self.settle(keyed, terms).await?;
            let told: Told = self.store.ask(self.ask(keyed, verb), terms.clone()).await?;
            self.read(keyed, verb, &told)
        };
        join::all(checks.map(ask)).await
    }

    /// Makes refunds by their receipts. Returns the units that still counted, for each.
    pub(super) async fn refund_by_receipts(
        &self,
        held: &[Held<'_>],
        deadline: Deadline,
    ) -> Vec<Result<u64, RedisFailure>> {
        let ask_of = |held: &Held<'_>| {
            with_strategy!(held.keyed.check.limit, |S, limit| {
                Holds::<S>::limiter(self).ask_refund(&held.keyed.key, limit, held.receipt)
            })
        };
        self.refund_each(held.iter().map(ask_of), deadline).await
    }

    /// Makes all refunds concurrently. A missing request refunds 0 units.
    pub(super) async fn refund_each(
        &self,
        asks: impl Iterator<Item = Option<Ask>>,
        deadline: Deadline,
    ) -> Vec<Result<u64, RedisFailure>> {
        let refund = |ask: Option<Ask>| async move {
            let Some(ask) = ask else { return Ok(0) };
            self.store.ask(ask, Terms::until(deadline.until())).await.map(|told| told.number)
        };
        join::all(asks.map(refund)).await
    }
}

fn is_denied(reply: &Reply) -> bool {
    reply.as_ref().is_ok_and(|answered| !answered.decision.is_allowed())
}

/// Whether a check failed whose failure stops the request.
fn has_to_stop(replies: &[Reply], request: TakeRequest<'_>) -> bool {
    replies
        .iter()
        .enumerate()
        .any(|(index, reply)| reply.is_err() && request.if_unreachable(index) == IfUnreachable::Stop)
}

fn take_receipt(reply: &mut Reply) -> Option<Receipt> {
    let Answered { receipt, .. } = reply.as_mut().ok()?;
    receipt.take()
}
