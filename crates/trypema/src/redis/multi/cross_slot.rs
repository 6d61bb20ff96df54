//! Takes all or nothing over keys in different slots of a Cluster, which one script call cannot combine.
//!
//! All checks are peeked at first. So a request that is denied anyway, for example during a flood, changes
//! no other key. If all checks would be admitted, each is taken with a receipt. If one of them is denied after all,
//! because a concurrent request was faster, the others are refunded by their receipts. Each step has its
//! part of the deadline. A request that is denied asks the counters that would admit it once more, for what is
//! left without it.

use super::super::batcher::CallOptions;
use super::super::join;
use super::super::provider::RedisRateLimiterProvider;
use super::super::verb::{self, VerbRow};
use super::{DecidedCheckResult, KeyedCheck, is_allowed, is_denied};
use crate::check::{Deadline, TakeRequest};
use crate::decision::Decision;

impl RedisRateLimiterProvider {
    pub(super) async fn take_across_slots(
        &self,
        keyed: &[KeyedCheck<'_>],
        request: TakeRequest<'_>,
    ) -> Vec<DecidedCheckResult> {
        let options = CallOptions::with_deadline(request.deadline.before_rollback());
        let (atomic, independent) = keyed.split_at(request.checks.len());
        let independent = self.try_each(independent, verb::TAKE, &options);
        let atomic = self.take_atomic(atomic, request, &options);
        let (mut atomic, independent) = join::both(atomic, independent).await;
        atomic.extend(independent);
        atomic
    }

    async fn take_atomic(
        &self,
        keyed: &[KeyedCheck<'_>],
        request: TakeRequest<'_>,
        options: &CallOptions,
    ) -> Vec<DecidedCheckResult> {
        let first = CallOptions::with_deadline(request.deadline.of_first_step().until());
        let mut replies = self.try_each(keyed, verb::PEEK, &first).await;
        if replies.iter().any(is_denied) {
            self.report_denial(keyed, &mut replies, options, request.deadline).await;
            return replies;
        }
        if has_to_stop(&replies, request) {
            return replies;
        }
        let reachable = keyed.iter().zip(&replies).filter(|(_, reply)| reply.is_ok());
        let reachable: Vec<KeyedCheck<'_>> = reachable.map(|(keyed, _)| keyed.clone()).collect();
        let taken = self.try_each(&reachable, verb::TAKE_WITH_RECEIPT, options).await;
        replies.iter_mut().filter(|reply| reply.is_ok()).zip(taken).for_each(|(reply, taken)| *reply = taken);
        if replies.iter().any(is_denied) || has_to_stop(&replies, request) {
            self.refund_taken(keyed, &replies, request.deadline).await;
            replies.iter_mut().flatten().for_each(|decided| decided.receipt = None);
            if replies.iter().any(is_denied) {
                let options = CallOptions::with_deadline(request.deadline.until());
                let usage = self.peek_usage(keyed, replies.iter().map(is_allowed), &options).await;
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
        let usage = self.peek_usage(keyed, replies.iter().map(is_allowed), options);
        let ((), usage) = join::both(recorded, usage).await;
        replace_decisions(replies, usage);
    }

    /// Returns what is left of the wanted counters, which a denied request uses and does not charge. `None` if the store
    /// fails; the decision with the charge then stands, which reports less.
    pub(super) async fn peek_usage(
        &self,
        keyed: &[KeyedCheck<'_>],
        is_wanted: impl Iterator<Item = bool>,
        options: &CallOptions,
    ) -> Vec<Option<Decision>> {
        let usage: Vec<_> = keyed.iter().map(|keyed| keyed.spending(keyed.check.usage().spend())).collect();
        let peek = |(usage, is_wanted)| async move {
            let peeked = if is_wanted { self.try_one(usage, verb::PEEK, options).await.ok() } else { None };
            peeked.map(|decided| decided.decision).filter(Decision::is_allowed)
        };
        join::all(usage.iter().zip(is_wanted).map(peek)).await
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
            let (decided, limit) = (reply.as_ref().ok()?, keyed.check.limit);
            let verb = match decided.decision.is_allowed() {
                // A take could get a slot that was released meanwhile, and nobody would release that again.
                false if limit.is_held() => verb::DENIED_ELSEWHERE,
                false => verb::TAKE_WITH_RECEIPT,
                true if limit.counts_denied_elsewhere() => verb::DENIED_ELSEWHERE,
                true => return None,
            };
            Some(async move {
                // If the check would be admitted by now, the request is denied all the same.
                let taken = [self.try_one(keyed, verb, options).await];
                self.refund_taken(std::slice::from_ref(keyed), &taken, deadline).await;
            })
        });
        join::all(recording).await;
    }

    /// Refunds takes by their receipts. If a refund fails, its units stay spent, which is the stricter outcome.
    async fn refund_taken(&self, keyed: &[KeyedCheck<'_>], taken: &[DecidedCheckResult], deadline: Deadline) {
        let taken = keyed.iter().zip(taken);
        let refund = |(keyed, taken): (&KeyedCheck<'_>, &DecidedCheckResult)| {
            let request = self.refund_request(&keyed.check, taken.as_ref().ok()?.receipt.as_ref()?)?;
            Some(self.store.send(request, CallOptions::with_deadline(deadline.until())))
        };
        join::all(taken.filter_map(refund)).await;
    }

    /// Sends each check independently and concurrently. Checks of one slot share a batch.
    pub(super) async fn try_each(
        &self,
        keyed: &[KeyedCheck<'_>],
        verb: &'static VerbRow,
        options: &CallOptions,
    ) -> Vec<DecidedCheckResult> {
        join::all(keyed.iter().map(|keyed| self.try_one(keyed, verb, options))).await
    }

    async fn try_one(
        &self,
        keyed: &KeyedCheck<'_>,
        verb: &'static VerbRow,
        options: &CallOptions,
    ) -> DecidedCheckResult {
        self.charge_outage_units(keyed, options.clone()).await?;
        let reply = self.store.send(self.check_request(keyed, verb), options.clone()).await?;
        self.read(keyed, verb, &reply)
    }
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
    replies.iter().enumerate().any(|(index, reply)| reply.is_err() && !request.may_fail(index))
}
