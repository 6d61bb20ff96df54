//! Several checks in one request.
//!
//! If one script call can contain all of them, Redis decides and spends them in one step. On a Cluster
//! their keys may be in different slots; [`cross_slot`] handles that. Either way each check has its own
//! result, so that the caller can apply a failure policy per check.

mod cross_slot;
mod each;
#[cfg(feature = "rules")]
mod reservations;
#[cfg(feature = "rules")]
mod without_store;

use std::time::Duration;

use super::batcher::CallOptions;
use super::failure::{RedisFailure, RedisFailureKind};
use super::join;
use super::key::RedisKey;
use super::key_spend::KeySpend;
use super::limiter::RedisLimiter;
use super::protocol::{CheckReply, CheckReplyResult, CheckRequest};
use super::provider::RedisRateLimiterProvider;
use super::receipt::RedisReceipt;
use super::verb::{self, VerbRow};
use crate::check::{
    Check, CheckResult, Deadline, DecideRequest, Failed, MultiDecision, Receipts, TakeRequest, TakeResponse,
    validate, validate_take,
};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::observer::{Event, Failure};
use crate::strategy::{Effect, ReplyReader, Spend, Strategy, with_strategy};

/// A check with its encoded key.
#[derive(Debug, Clone)]
struct KeyedCheck<'a> {
    check: Check<'a>,
    key: RedisKey,
    spend: Spend,
}

impl<'a> KeyedCheck<'a> {
    fn new(check: &Check<'a>) -> Self {
        Self { check: *check, key: RedisKey::encode(check.key), spend: check.spend() }
    }

    /// Returns the keyed checks of a request: first those that are spent all or nothing.
    fn all(request: &TakeRequest<'a>) -> Vec<Self> {
        request.checks.iter().chain(request.independent).map(Self::new).collect()
    }

    /// Returns the same check, which spends something else.
    fn spending(&self, spend: Spend) -> Self {
        Self { spend, ..self.clone() }
    }
}

/// The decision on a check, with the receipt of its take.
#[derive(Debug, Clone)]
struct DecidedCheck {
    decision: Decision,
    receipt: Option<RedisReceipt>,
}

/// The reply to one check, or its failure.
type DecidedCheckResult = Result<DecidedCheck, RedisFailure>;

fn is_denied(reply: &DecidedCheckResult) -> bool {
    reply.as_ref().is_ok_and(|decided| !decided.decision.is_allowed())
}

fn is_allowed(reply: &DecidedCheckResult) -> bool {
    reply.as_ref().is_ok_and(|decided| decided.decision.is_allowed())
}

impl RedisRateLimiterProvider {
    /// Takes all of `checks`, or none of them. They may have any strategies and keys. A failure of Redis is
    /// always an `Err` here; no failure policy is applied.
    ///
    /// This is one script call, unless the keys are in different slots of a Cluster. Then all checks are
    /// peeked at first. If all of them would be admitted, each is taken in its slot, and if one is denied
    /// after all, the others are refunded. No limit is ever exceeded. But other callers may be denied
    /// because of units that are about to be refunded, and a process that dies or loses a server in between
    /// leaves up to `cost` spent on each of the other keys.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use trypema::{Check, FixedWindowLimit, Limit, RateLimiter, TokenBucketLimits, TokenLimit};
    ///
    /// # async fn example(rl: &RateLimiter) -> Result<(), trypema::TrypemaError> {
    /// let tenant = Limit::from(FixedWindowLimit::new(1_000, Duration::from_secs(60))?);
    /// let user = Limit::from(TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(1))?));
    /// let checks = [
    ///     Check::new("acme", &tenant, 1),
    ///     Check::new("ann", &user, 1),
    /// ];
    /// let answer = rl.redis().take_all(&checks).await?;
    /// if let Some(denied) = answer.decisions.iter().find(|decision| !decision.is_allowed()) {
    ///     println!("try again in {:?}; nothing was spent", denied.retry_after());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn take_all(&self, checks: &[Check<'_>]) -> Result<MultiDecision<RedisReceipt>, TrypemaError> {
        self.take_or_fail(checks, Receipts::Unwanted).await
    }

    /// Same as [`take_all`](Self::take_all), with receipts for a later [`refund_all`](Self::refund_all).
    pub async fn take_all_with_receipts(
        &self,
        checks: &[Check<'_>],
    ) -> Result<MultiDecision<RedisReceipt>, TrypemaError> {
        self.take_or_fail(checks, Receipts::Wanted).await
    }

    async fn take_or_fail(
        &self,
        checks: &[Check<'_>],
        receipts: Receipts,
    ) -> Result<MultiDecision<RedisReceipt>, TrypemaError> {
        let deadline = self.deadline_from_now();
        let request = TakeRequest { receipts, ..TakeRequest::new(checks, deadline) };
        self.take(request).await?.into_multi_decision()
    }

    /// Returns the decision on each check as if it were the only one. Spends nothing.
    pub async fn peek_all(&self, checks: &[Check<'_>]) -> Result<MultiDecision<RedisReceipt>, TrypemaError> {
        validate(checks)?;
        let peeked = self.peek_each(checks, self.deadline_from_now()).await;
        let decisions: Vec<Decision> = peeked.into_iter().collect::<Result<_, _>>()?;
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        Ok(MultiDecision { is_allowed, decisions, receipts: Vec::new() })
    }

    /// Refunds the takes of a [`take_all_with_receipts`](Self::take_all_with_receipts) by its receipts. `checks` must be the
    /// same.
    pub async fn refund_all(
        &self,
        checks: &[Check<'_>],
        receipts: &[Option<RedisReceipt>],
    ) -> Result<(), TrypemaError> {
        let deadline = self.deadline_from_now();
        let taken =
            checks.iter().zip(receipts).filter_map(|(check, receipt)| Some((check, receipt.as_ref()?)));
        let refund = |(check, receipt)| self.refund_by_receipt(check, receipt, deadline);
        let refunded = join::all(taken.map(refund)).await;
        refunded.into_iter().try_for_each(|refunded| refunded.map(|_| ()))
    }

    /// Returns the deadline of a request that starts now.
    pub(crate) fn deadline_from_now(&self) -> Deadline {
        Deadline::after(self.store.call_timeout())
    }

    /// Takes the checks of a request. Returns a result for each, and notifies the observer.
    pub(crate) async fn take(
        &self,
        request: TakeRequest<'_>,
    ) -> Result<TakeResponse<RedisReceipt>, TrypemaError> {
        validate_take(request.checks)?;
        let (keyed, started) = (KeyedCheck::all(&request), SystemClock.now());
        let replies = self.take_keyed(&keyed, request).await;
        let decided = keyed.iter().zip(&replies);
        let decided = decided.filter_map(|(keyed, reply)| Some((keyed, &reply.as_ref().ok()?.decision)));
        self.notify_decisions(decided, started);
        let results = keyed.iter().zip(replies);
        let mut results = results.map(|(keyed, reply)| reply.map_err(|why| self.report_failure(keyed, why)));
        let mut response = TakeResponse::of_decisions(Vec::with_capacity(request.checks.len()));
        for (index, result) in results.by_ref().take(request.checks.len()).enumerate() {
            response.decisions.push(result.as_ref().ok().map(|decided| decided.decision));
            match result {
                Ok(decided) => response.receipts.push(decided.receipt),
                Err(error) => {
                    response.receipts.push(None);
                    response.failures.push(Failed { index, error });
                }
            }
        }
        response.independent = results.map(|result| result.map(|decided| decided.decision)).collect();
        if request.receipts == Receipts::Unwanted && response.failures.is_empty() {
            response.receipts.clear();
        }
        Ok(response.without_unspent_receipts())
    }

    async fn take_keyed(
        &self,
        keyed: &[KeyedCheck<'_>],
        request: TakeRequest<'_>,
    ) -> Vec<DecidedCheckResult> {
        let atomic = request.checks.len();
        let verb_of = |index| match request.receipts {
            Receipts::Wanted if index < atomic => verb::TAKE_WITH_RECEIPT,
            _ => verb::TAKE,
        };
        let requests = keyed.iter().enumerate();
        let requests: Vec<CheckRequest> =
            requests.map(|(index, keyed)| self.check_request(keyed, verb_of(index))).collect();
        if !self.store.is_one_call(&requests) {
            return self.take_across_slots(keyed, request).await;
        }
        let options = CallOptions { atomic, ..CallOptions::with_deadline(request.deadline.until()) };
        let replies = self.send_each(keyed, requests, options).await;
        let read = |(index, (keyed, reply)): (usize, (&KeyedCheck<'_>, &CheckReplyResult))| {
            self.read(keyed, verb_of(index), reply.as_ref().map_err(Clone::clone)?)
        };
        let mut decided: Vec<DecidedCheckResult> = keyed.iter().zip(&replies).enumerate().map(read).collect();
        if decided.iter().take(atomic).any(is_denied) {
            // The script has spent nothing, and its replies say what is left.
            let uncharged: Vec<_> = keyed.iter().map(|keyed| keyed.spending(Spend::NOTHING)).collect();
            let replies = uncharged.iter().zip(&replies).enumerate().take(atomic);
            for (decided, reply) in decided.iter_mut().zip(replies) {
                if is_allowed(decided) {
                    *decided = read(reply);
                }
            }
        }
        decided
    }

    /// Sends checks, in one script call if possible. Returns a reply for each. If a call fails, all of its checks fail.
    async fn send_each(
        &self,
        keyed: &[KeyedCheck<'_>],
        requests: Vec<CheckRequest>,
        options: CallOptions,
    ) -> Vec<CheckReplyResult> {
        let charge = |keyed, request: &CheckRequest| {
            let is_deciding = request.verb.is_deciding();
            let options = options.clone();
            async move { if is_deciding { self.charge_outage_units(keyed, options).await } else { Ok(()) } }
        };
        if !self.store.is_one_call(&requests) {
            let send = |(keyed, request)| {
                let charged = charge(keyed, &request);
                async {
                    charged.await?;
                    self.store.send(request, options.clone()).await
                }
            };
            return join::all(keyed.iter().zip(requests).map(send)).await;
        }
        let count = requests.len();
        let sent = async {
            for (keyed, request) in keyed.iter().zip(&requests) {
                charge(keyed, request).await?;
            }
            self.store.send_all(requests, options.clone()).await
        };
        let missing = "the script's reply has fewer results than checks";
        let missing = || Err(RedisFailure::new(RedisFailureKind::BadReply, missing));
        match sent.await {
            Ok(mut replies) => {
                replies.resize_with(count, missing);
                replies
            }
            Err(failure) => vec![Err(failure); count],
        }
    }

    /// Peeks at each check independently.
    pub(crate) async fn peek_each(&self, checks: &[Check<'_>], deadline: Deadline) -> Vec<CheckResult> {
        self.each(&DecideRequest::all(Effect::Peek, checks), deadline).await
    }

    fn check_request(&self, keyed: &KeyedCheck<'_>, verb: &'static VerbRow) -> CheckRequest {
        with_strategy!(keyed.check.limit, |S, limit| {
            self.limiter::<S>().request(verb, &keyed.key, Some(limit)).spending(keyed.spend)
        })
    }

    /// Charges Redis for units that were admitted without it during an outage.
    async fn charge_outage_units(
        &self,
        keyed: &KeyedCheck<'_>,
        options: CallOptions,
    ) -> Result<(), RedisFailure> {
        with_strategy!(keyed.check.limit, |S, limit| {
            self.limiter::<S>().charge_outage_units(&keyed.key, limit, options).await
        })
    }

    /// Decodes a reply.
    fn read(
        &self,
        KeyedCheck { check, key, spend }: &KeyedCheck<'_>,
        verb: &'static VerbRow,
        reply: &CheckReply,
    ) -> DecidedCheckResult {
        if verb.number != verb::TAKE_WITH_RECEIPT.number {
            let decision = read_decision(check, *spend, reply, &mut reply.reader())?;
            return Ok(DecidedCheck { decision, receipt: None });
        }
        with_strategy!(check.limit, |S, limit| {
            let call = KeySpend { key, limit, spend: *spend };
            let taken = RedisLimiter::<S>::read_with_receipt(call, Duration::ZERO, reply)?;
            Ok(DecidedCheck { decision: S::core(&taken.decision), receipt: taken.receipt })
        })
    }

    fn notify_decisions<'k>(
        &self,
        decided: impl Iterator<Item = (&'k KeyedCheck<'k>, &'k Decision)>,
        started: Timestamp,
    ) {
        let Some(observer) = self.store.observer() else { return };
        let latency_us = SystemClock.now().as_micros().saturating_sub(started.as_micros());
        let latency = Duration::from_micros(latency_us);
        for (KeyedCheck { check, key, .. }, decision) in decided {
            let (strategy, key, cost) = (check.limit.strategy(), key.as_str(), check.cost);
            observer.decided(&Event { strategy, key, cost, decision, latency });
        }
    }

    fn report_failure(
        &self,
        KeyedCheck { check, key, .. }: &KeyedCheck<'_>,
        failure: RedisFailure,
    ) -> TrypemaError {
        let error = TrypemaError::from(failure);
        if let Some(observer) = self.store.observer() {
            let strategy = check.limit.strategy();
            observer.failed(&Failure { strategy, key: key.as_str(), error: &error });
        }
        error
    }
}

/// Reads the decision on a spend from a reply. The reader is at the outcome.
pub(crate) fn read_decision(
    check: &Check<'_>,
    spend: Spend,
    reply: &CheckReply,
    reader: &mut ReplyReader<'_>,
) -> Result<Decision, RedisFailure> {
    with_strategy!(check.limit, |S, limit| {
        let found = RedisLimiter::<S>::read(limit, spend.at(reply.now), reply, reader)?;
        Ok(S::core(&found.decision(limit)))
    })
}
