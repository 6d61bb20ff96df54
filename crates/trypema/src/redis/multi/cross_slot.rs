//! Takes all or nothing over keys in different slots of a Cluster, which one script call cannot combine.
//!
//! All checks are peeked at first. So a request that is denied anyway, for example during a flood, changes
//! no other key. If all checks would be admitted, each is reserved. If one of them is denied after all,
//! because a concurrent request was faster, the others are refunded by their receipts. Each step has its
//! part of the deadline. A request that is denied asks the counters that would admit it once more, for what is
//! left without it.

use super::super::batcher::CallOptions;
use super::super::failure::RedisFailure;
use super::super::join;
use super::super::protocol::{CheckReply, CheckRequest, Verb};
use super::super::provider::RedisRateLimiterProvider;
use super::super::receipt::RedisReceipt;
use super::{
    CheckWithReceipt, CheckWithVerb, DecidedCheck, DecidedCheckResult, KeyedCheck, KeyedChecks, Replies,
    is_denied,
};
use crate::check::{Deadline, IfUnreachable, TakeRequest};
use crate::decision::Decision;
use crate::strategy::with_strategy;

impl RedisRateLimiterProvider {
    pub(super) async fn take_across_slots(
        &self,
        checks: &KeyedChecks<'_>,
        request: TakeRequest<'_>,
    ) -> Replies {
        let options = CallOptions::with_deadline(request.deadline.before_rollback());
        let independent = self.try_each(checks.independent.iter().map(|keyed| (keyed, Verb::Take)), &options);
        let atomic = self.take_atomic(&checks.atomic, request, &options);
        let (independent, atomic) = join::both(independent, atomic).await;
        Replies { atomic, independent }
    }

    async fn take_atomic(
        &self,
        keyed: &[KeyedCheck<'_>],
        request: TakeRequest<'_>,
        options: &CallOptions,
    ) -> Vec<DecidedCheckResult> {
        let first = CallOptions::with_deadline(request.deadline.of_first_step().until());
        let mut replies = self.try_each(keyed.iter().map(|keyed| (keyed, Verb::Peek)), &first).await;
        if replies.iter().any(is_denied) {
            self.report_denial(keyed, &mut replies, options, request.deadline).await;
            return replies;
        }
        if has_to_stop(&replies, request) {
            return replies;
        }
        let reachable = || replies.iter().enumerate().filter(|(_, reply)| reply.is_ok());
        let reachable: Vec<usize> = reachable().map(|(index, _)| index).collect();
        let to_reserve = reachable.iter().map(|index| (&keyed[*index], Verb::Reserve));
        for (index, reserved) in reachable.iter().zip(self.try_each(to_reserve, options).await) {
            replies[*index] = reserved;
        }
        if replies.iter().any(is_denied) || has_to_stop(&replies, request) {
            let receipts: Vec<Option<RedisReceipt>> = replies.iter_mut().map(take_receipt).collect();
            let taken = keyed.iter().zip(&receipts);
            let taken: Vec<_> = taken
                .filter_map(|(keyed, receipt)| Some(CheckWithReceipt { keyed, receipt: receipt.as_ref()? }))
                .collect();
            // If a refund fails, its units stay spent, which is the stricter outcome.
            let _ = self.refund_by_receipts(&taken, request.deadline).await;
            if replies.iter().any(is_denied) {
                let options = CallOptions::with_deadline(request.deadline.until());
                let usage = self.peek_usage(allowed(keyed, &replies), &options).await;
                replace_decisions(&mut replies, usage);
            }
        }
        replies
    }

    /// Records a denial, and replaces the decisions of the checks that would be admitted by what is left.
    pub(super) async fn report_denial(
        &self,
        keyed: &[KeyedCheck<'_>],
        replies: &mut [DecidedCheckResult],
        options: &CallOptions,
        deadline: Deadline,
    ) {
        let recorded = self.record_denials(keyed, replies, options, deadline);
        let usage = self.peek_usage(allowed(keyed, replies), options);
        let ((), usage) = join::both(recorded, usage).await;
        replace_decisions(replies, usage);
    }

    /// Returns what is left of counters that a denied request uses and does not charge. `None` if the store fails;
    /// the decision with the charge then stands, which reports less.
    pub(super) async fn peek_usage<'k>(
        &self,
        wanted: impl Iterator<Item = Option<&'k KeyedCheck<'k>>>,
        options: &CallOptions,
    ) -> Vec<Option<Decision>> {
        let peek = |keyed: Option<&'k KeyedCheck<'k>>| async move {
            let KeyedCheck { check, key, .. } = keyed?;
            let (check, key) = (check.usage(), key.clone());
            let usage = KeyedCheck { payment: check.payment(), check, key };
            let reply =
                self.store.send(self.check_request(&usage, Verb::Peek), options.clone()).await.ok()?;
            let decided = self.read(&usage, Verb::Peek, &reply).ok()?;
            Some(decided.decision).filter(Decision::is_allowed)
        };
        join::all(wanted.map(peek)).await
    }

    /// Records a denial as a single script call would have: the denials that strategies count, and the
    /// repair of a state whose clock went back. The request stays denied even if this fails.
    async fn record_denials(
        &self,
        keyed: &[KeyedCheck<'_>],
        replies: &[DecidedCheckResult],
        options: &CallOptions,
        deadline: Deadline,
    ) {
        let recording = keyed.iter().zip(replies).filter_map(|(keyed, reply)| {
            let is_allowed = reply.as_ref().ok()?.decision.is_allowed();
            let limit = keyed.check.limit;
            let verb = match is_allowed {
                // A take could get a slot that was released meanwhile, and nobody would release that again.
                false if limit.is_held() => Verb::DeniedElsewhere,
                false => Verb::Reserve,
                true if limit.counts_denied_elsewhere() => Verb::DeniedElsewhere,
                true => return None,
            };
            Some(self.record_denial(CheckWithVerb { keyed: keyed.clone(), verb }, options, deadline))
        });
        let _ = join::all(recording).await;
    }

    async fn record_denial(
        &self,
        check: CheckWithVerb<'_>,
        options: &CallOptions,
        deadline: Deadline,
    ) -> Result<(), RedisFailure> {
        let CheckWithVerb { keyed, verb } = &check;
        let reply = self.store.send(self.check_request(keyed, *verb), options.clone()).await?;
        if *verb == Verb::Reserve
            && let Some(receipt) = self.read(keyed, *verb, &reply)?.receipt
        {
            // The check would be admitted by now, but the request is already denied.
            let _ = self.refund_by_receipts(&[CheckWithReceipt { keyed, receipt: &receipt }], deadline).await;
        }
        Ok(())
    }

    /// Sends each check independently and concurrently. Checks of one slot share a batch.
    pub(super) async fn try_each<'k>(
        &self,
        checks: impl Iterator<Item = (&'k KeyedCheck<'k>, Verb)>,
        options: &CallOptions,
    ) -> Vec<DecidedCheckResult> {
        let request = |(keyed, verb): (&'k KeyedCheck<'k>, Verb)| async move {
            self.charge_outage_units(keyed, options).await?;
            let reply: CheckReply = self.store.send(self.check_request(keyed, verb), options.clone()).await?;
            self.read(keyed, verb, &reply)
        };
        join::all(checks.map(request)).await
    }

    /// Makes refunds by their receipts. Returns the units that still counted, for each.
    pub(super) async fn refund_by_receipts(
        &self,
        taken: &[CheckWithReceipt<'_>],
        deadline: Deadline,
    ) -> Vec<Result<u64, RedisFailure>> {
        let request_of = |one: &CheckWithReceipt<'_>| {
            with_strategy!(one.keyed.check.limit, |S, limit| {
                self.limiter::<S>().refund_request(&one.keyed.key, limit, one.receipt)
            })
        };
        self.refund_each(taken.iter().map(request_of), deadline).await
    }

    /// Makes all refunds concurrently. A missing request refunds 0 units.
    pub(super) async fn refund_each(
        &self,
        requests: impl Iterator<Item = Option<CheckRequest>>,
        deadline: Deadline,
    ) -> Vec<Result<u64, RedisFailure>> {
        let refund = |request: Option<CheckRequest>| async move {
            let Some(request) = request else { return Ok(0) };
            self.store
                .send(request, CallOptions::with_deadline(deadline.until()))
                .await
                .map(|reply| reply.number)
        };
        join::all(requests.map(refund)).await
    }
}

/// Returns the checks that would be admitted.
fn allowed<'k>(
    keyed: &'k [KeyedCheck<'k>],
    replies: &[DecidedCheckResult],
) -> impl Iterator<Item = Option<&'k KeyedCheck<'k>>> {
    let is_allowed =
        |reply: &DecidedCheckResult| reply.as_ref().is_ok_and(|decided| decided.decision.is_allowed());
    keyed.iter().zip(replies).map(move |(keyed, reply)| is_allowed(reply).then_some(keyed))
}

fn replace_decisions(replies: &mut [DecidedCheckResult], decisions: Vec<Option<Decision>>) {
    for (reply, decision) in replies.iter_mut().zip(decisions) {
        if let (Ok(decided), Some(decision)) = (reply, decision) {
            decided.decision = decision;
        }
    }
}

/// Whether a check failed whose failure stops the request.
fn has_to_stop(replies: &[DecidedCheckResult], request: TakeRequest<'_>) -> bool {
    replies
        .iter()
        .enumerate()
        .any(|(index, reply)| reply.is_err() && request.if_unreachable(index) == IfUnreachable::Stop)
}

fn take_receipt(reply: &mut DecidedCheckResult) -> Option<RedisReceipt> {
    let DecidedCheck { receipt, .. } = reply.as_mut().ok()?;
    receipt.take()
}
