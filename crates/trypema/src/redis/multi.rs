//! Several checks in one request.
//!
//! If one script call can contain all of them, Redis decides and spends them in one step. On a Cluster
//! their keys may be in different slots; [`cross_slot`] handles that. Either way each check has its own
//! result, so that the caller can apply a failure policy per check.

#[cfg(feature = "rules")]
mod as_provider;
mod cross_slot;
#[cfg(feature = "rules")]
mod reservations;

use std::time::Duration;

use super::batcher::CallOptions;
use super::failure::{RedisFailure, RedisFailureKind};
#[cfg(feature = "rules")]
use super::fallback::OnFailure;
use super::key::RedisKey;
use super::protocol::{CheckReply, CheckRequest, Verb};
use super::provider::RedisRateLimiterProvider;
use super::receipt::RedisReceipt;
use super::verb_call::VerbArgs;
#[cfg(feature = "rules")]
use super::verb_call::VerbCall;
use crate::check::{
    Check, CheckResult, Deadline, Failed, MultiDecision, Receipts, TakeRequest, TakeResponse, validate,
    validate_take,
};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::observer::{Event, Failure};
use crate::strategy::{Payment, Spend, Strategy, with_strategy};

/// A check with its encoded key.
#[derive(Debug, Clone)]
struct KeyedCheck<'a> {
    check: Check<'a>,
    key: RedisKey,
    payment: Payment,
}

impl<'a> KeyedCheck<'a> {
    fn new(check: Check<'a>) -> Self {
        Self { check, key: RedisKey::encode(check.key), payment: check.payment() }
    }

    fn all(checks: &[Check<'a>]) -> Vec<Self> {
        checks.iter().copied().map(Self::new).collect()
    }
}

/// A check with its verb.
#[derive(Debug)]
struct CheckWithVerb<'a> {
    keyed: KeyedCheck<'a>,
    verb: Verb,
}

/// The checks of a request: some are spent all or nothing, the others independently.
#[derive(Debug)]
struct KeyedChecks<'a> {
    atomic: Vec<KeyedCheck<'a>>,
    independent: Vec<KeyedCheck<'a>>,
}

impl<'a> KeyedChecks<'a> {
    fn iter(&self) -> impl Iterator<Item = &KeyedCheck<'a>> {
        self.atomic.iter().chain(&self.independent)
    }
}

/// A check with the receipt of its take.
#[derive(Debug, Clone, Copy)]
struct CheckWithReceipt<'a> {
    keyed: &'a KeyedCheck<'a>,
    receipt: &'a RedisReceipt,
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

/// The replies to the checks of a [`TakeRequest`].
struct Replies {
    atomic: Vec<DecidedCheckResult>,
    independent: Vec<DecidedCheckResult>,
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
    pub async fn reserve_all(
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
        let request = TakeRequest { checks, independent: &[], if_unreachable: &[], receipts, deadline };
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

    /// Refunds the takes of a [`reserve_all`](Self::reserve_all) by its receipts. `checks` must be the
    /// same.
    pub async fn refund_all(
        &self,
        checks: &[Check<'_>],
        receipts: &[Option<RedisReceipt>],
    ) -> Result<(), TrypemaError> {
        let keyed = KeyedCheck::all(checks);
        let reserved: Vec<_> = keyed
            .iter()
            .zip(receipts)
            .filter_map(|(keyed, receipt)| Some(CheckWithReceipt { keyed, receipt: receipt.as_ref()? }))
            .collect();
        let refunded = self.refund_by_receipts(&reserved, self.deadline_from_now()).await;
        let refunded: Result<Vec<u64>, RedisFailure> = refunded.into_iter().collect();
        refunded.map(|_| ()).map_err(|failure| self.report_failure(&keyed, failure))
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
        let checks = KeyedChecks {
            atomic: KeyedCheck::all(request.checks),
            independent: KeyedCheck::all(request.independent),
        };
        let started = SystemClock.now();
        let replies = self.take_keyed(&checks, request).await;
        let mut response = TakeResponse::of_decisions(Vec::with_capacity(checks.atomic.len()));
        for (index, result) in
            self.report_all(&checks.atomic, replies.atomic, started).into_iter().enumerate()
        {
            response.decisions.push(result.as_ref().ok().map(|decided| decided.decision));
            match result {
                Ok(decided) => response.receipts.push(decided.receipt),
                Err(error) => {
                    response.receipts.push(None);
                    response.failures.push(Failed { index, error });
                }
            }
        }
        if request.receipts == Receipts::Unwanted && response.failures.is_empty() {
            response.receipts.clear();
        }
        let independent = self.report_all(&checks.independent, replies.independent, started).into_iter();
        response.independent = independent.map(|result| result.map(|decided| decided.decision)).collect();
        Ok(response.without_unspent_receipts())
    }

    async fn take_keyed(&self, checks: &KeyedChecks<'_>, request: TakeRequest<'_>) -> Replies {
        let verb = if request.receipts == Receipts::Wanted { Verb::Reserve } else { Verb::Take };
        let mut requests: Vec<CheckRequest> =
            checks.atomic.iter().map(|keyed| self.check_request(keyed, verb)).collect();
        requests.extend(checks.independent.iter().map(|keyed| self.check_request(keyed, Verb::Take)));
        if !self.store.is_one_call(&requests) {
            return self.take_across_slots(checks, request).await;
        }
        let options = CallOptions::with_deadline(request.deadline.until());
        let replies = self.send_in_one_call(checks, requests, options).await;
        let read = |verb| {
            move |(keyed, reply): (&KeyedCheck<'_>, &Result<CheckReply, RedisFailure>)| {
                self.read(keyed, verb, reply.as_ref().map_err(Clone::clone)?)
            }
        };
        let mut atomic: Vec<DecidedCheckResult> =
            checks.atomic.iter().zip(&replies).map(read(verb)).collect();
        if atomic.iter().any(is_denied) {
            // The script has spent nothing, and its replies say what is left.
            atomic = checks.atomic.iter().zip(&replies).map(read(Verb::DeniedElsewhere)).collect();
        }
        let independent = replies.iter().skip(checks.atomic.len());
        Replies {
            atomic,
            independent: checks.independent.iter().zip(independent).map(read(Verb::Take)).collect(),
        }
    }

    /// Sends all checks in one script call. Returns a reply for each, those of `checks` first. If the
    /// call fails, every check fails.
    async fn send_in_one_call(
        &self,
        checks: &KeyedChecks<'_>,
        requests: Vec<CheckRequest>,
        options: CallOptions,
    ) -> Vec<Result<CheckReply, RedisFailure>> {
        let count = requests.len();
        let sent = async {
            for keyed in checks.iter() {
                self.charge_outage_units(keyed, &options).await?;
            }
            self.store.send_many(requests, checks.atomic.len(), options).await
        };
        let missing = || {
            Err(RedisFailure::new(
                RedisFailureKind::BadReply,
                "the script's reply has fewer results than checks",
            ))
        };
        match sent.await {
            Ok(mut reply) => {
                reply.resize_with(count, missing);
                reply
            }
            Err(failure) => vec![Err(failure); count],
        }
    }

    /// Peeks at each check independently.
    pub(crate) async fn peek_each<'a>(&self, checks: &[Check<'a>], deadline: Deadline) -> Vec<CheckResult> {
        let peek = |check: &Check<'a>| CheckWithVerb { keyed: KeyedCheck::new(*check), verb: Verb::Peek };
        self.send_each(checks.iter().map(peek).collect(), deadline).await
    }

    /// Sends each check independently, in one script call if possible. Notifies the observer.
    async fn send_each(&self, with_verbs: Vec<CheckWithVerb<'_>>, deadline: Deadline) -> Vec<CheckResult> {
        let requests: Vec<CheckRequest> =
            with_verbs.iter().map(|check| self.check_request(&check.keyed, check.verb)).collect();
        let (started, options) = (SystemClock.now(), CallOptions::with_deadline(deadline.until()));
        let (independent, verbs): (Vec<_>, Vec<_>) =
            with_verbs.into_iter().map(|check| (check.keyed, check.verb)).unzip();
        let checks = KeyedChecks { atomic: Vec::new(), independent };
        let replies: Vec<DecidedCheckResult> = if self.store.is_one_call(&requests) {
            let replies = self.send_in_one_call(&checks, requests, options).await;
            let read = |((keyed, verb), reply): ((_, &Verb), Result<CheckReply, _>)| {
                self.read(keyed, *verb, &reply?)
            };
            checks.independent.iter().zip(&verbs).zip(replies).map(read).collect()
        } else {
            self.try_each(checks.independent.iter().zip(verbs.iter().copied()), &options).await
        };
        let results = match verbs.contains(&Verb::Peek) {
            // The observer is notified of takes, not of peeks.
            true => checks
                .iter()
                .zip(replies)
                .map(|(keyed, reply)| self.or_report_failure(keyed, reply))
                .collect(),
            false => self.report_all(&checks.independent, replies, started),
        };
        results.into_iter().map(|result| result.map(|decided| decided.decision)).collect()
    }

    /// Notifies the observer of every decision and failure.
    fn report_all(
        &self,
        keyed: &[KeyedCheck<'_>],
        replies: Vec<DecidedCheckResult>,
        started: Timestamp,
    ) -> Vec<Result<DecidedCheck, TrypemaError>> {
        let decided = keyed.iter().zip(&replies);
        self.notify_decisions(
            decided.filter_map(|(keyed, reply)| Some((keyed, &reply.as_ref().ok()?.decision))),
            started,
        );
        keyed.iter().zip(replies).map(|(keyed, reply)| self.or_report_failure(keyed, reply)).collect()
    }

    fn or_report_failure(
        &self,
        keyed: &KeyedCheck<'_>,
        reply: DecidedCheckResult,
    ) -> Result<DecidedCheck, TrypemaError> {
        reply.map_err(|failure| self.report_failure(std::slice::from_ref(keyed), failure))
    }

    /// Decides a check while Redis is unreachable; `None` if the policy is to fail.
    #[cfg(feature = "rules")]
    pub(super) fn decide_without(
        &self,
        check: &Check<'_>,
        args: VerbArgs,
        on_failure: OnFailure,
    ) -> Option<Decision> {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            let decided = limiter.fallback.decide(on_failure, VerbCall::new(&key, limit, args))?;
            let decision = S::core(&decided);
            if args.verb == Verb::Take {
                limiter.notify_decision(&key, check.cost, limiter.started(), Some(decision));
            }
            Some(decision)
        })
    }

    fn check_request(&self, keyed: &KeyedCheck<'_>, verb: Verb) -> CheckRequest {
        let args = VerbArgs::new(verb, keyed.check.cost).with_payment(keyed.payment);
        with_strategy!(keyed.check.limit, |S, limit| {
            self.limiter::<S>().check_request(&keyed.key, Some(limit), args)
        })
    }

    /// Charges Redis for units that were admitted without it during an outage.
    async fn charge_outage_units(
        &self,
        keyed: &KeyedCheck<'_>,
        options: &CallOptions,
    ) -> Result<(), RedisFailure> {
        with_strategy!(keyed.check.limit, |S, limit| {
            self.limiter::<S>().charge_outage_units(&keyed.key, limit, options.clone()).await
        })
    }

    /// Decodes a reply. Only a reservation has a receipt. A check that only another one denies costs nothing.
    fn read(&self, keyed: &KeyedCheck<'_>, verb: Verb, reply: &CheckReply) -> DecidedCheckResult {
        let spend = Spend { cost: keyed.check.cost, payment: keyed.payment };
        let decided = self.read_spend(keyed, spend, verb, reply)?;
        match verb == Verb::DeniedElsewhere && decided.decision.is_allowed() {
            true => self.read_spend(keyed, Spend::NOTHING, verb, reply),
            false => Ok(decided),
        }
    }

    fn read_spend(
        &self,
        keyed: &KeyedCheck<'_>,
        spend: Spend,
        verb: Verb,
        reply: &CheckReply,
    ) -> DecidedCheckResult {
        let args = VerbArgs::new(Verb::Take, spend.cost).with_payment(spend.payment);
        with_strategy!(keyed.check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            let reserved = limiter.reservation(&keyed.key, limit, limiter.read(limit, args, reply.clone())?);
            let receipt = reserved.receipt.filter(|_| verb == Verb::Reserve);
            Ok(DecidedCheck { decision: S::core(&reserved.decision), receipt })
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

    fn report_failure(&self, keyed: &[KeyedCheck<'_>], failure: RedisFailure) -> TrypemaError {
        let error = TrypemaError::from(failure);
        if let Some(observer) = self.store.observer() {
            for KeyedCheck { check, key, .. } in keyed {
                let strategy = check.limit.strategy();
                observer.failed(&Failure { strategy, key: key.as_str(), error: &error });
            }
        }
        error
    }
}
