//! One strategy of the Redis provider: every verb, for every key.

mod postpaid;
mod receipts;

use std::sync::Arc;
use std::time::Duration;

use super::batcher::CallOptions;
use super::failure::{RedisFailure, RedisFailureKind};
use super::fallback::FallbackCounters;
use super::handle::RedisKeyHandle;
use super::key::RedisKey;
use super::key_spend::KeySpend;
use super::protocol::{CheckReply, CheckRequest};
use super::store::Store;
use super::verb::{self, Helper, VerbRow};
use crate::clock::{ClockSource, Timestamp};
use crate::decision::{Decision, DecisionTime};
use crate::error::TrypemaError;
use crate::local::{Granted, TimedOutcome};
use crate::observer::{Event, Failure};
use crate::strategy::{Call, Effect, ReplyReader, Spend, Strategy, Wire};
use crate::waiting::WaitQueues;

/// A limiter of one strategy, shared through Redis by every process that uses the same server and prefix.
///
/// Every verb is one atomic script call, with the limit as an argument. The first call of a script on a
/// server takes two round trips. A denial is a decision. An `Err` means that Redis did not answer with a
/// decision, and its [`kind`](RedisFailure::kind) tells whether the cost can have been spent.
///
/// ```no_run
/// use std::time::Duration;
/// use trypema::redis::{RedisConnection, RedisKey};
/// use trypema::{FixedWindowLimit, RateLimiter};
///
/// # async fn example() -> Result<(), trypema::TrypemaError> {
/// let rl = RateLimiter::builder().redis(RedisConnection::connect("redis://127.0.0.1").await?).build()?;
/// let windows = rl.redis().fixed_window();
/// let limit = FixedWindowLimit::new(10, Duration::from_secs(3600))?;
/// let ann = RedisKey::try_from("ann")?;
///
/// assert!(windows.take(&ann, &limit, 4).await?.is_allowed());
/// assert_eq!(windows.usage(&ann, &limit).await?.remaining(), 6);
/// assert_eq!(windows.take_up_to(&ann, &limit, 100).await?.units, 6);
/// assert!(windows.reset(&ann).await?);
/// # Ok(())
/// # }
/// ```
///
/// Clones are cheap and share their state.
#[derive(Debug)]
pub struct RedisLimiter<S: Strategy> {
    pub(super) store: Arc<Store>,
    pub(super) fallback: Arc<FallbackCounters<S>>,
    /// Callers of `wait`. The hybrid provider uses the same queues.
    pub(super) waiters: Arc<WaitQueues>,
}

impl<S: Strategy> Clone for RedisLimiter<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            fallback: Arc::clone(&self.fallback),
            waiters: Arc::clone(&self.waiters),
        }
    }
}

impl<S: Wire> RedisLimiter<S> {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, fallback: Arc::new(FallbackCounters::new()), waiters: Arc::default() }
    }

    /// Takes `cost` if it fits. A cost of 0 reports the usage and records nothing.
    ///
    /// Concurrent takes share script calls. If this future is dropped, the take may have been sent already,
    /// and then stays spent.
    pub async fn take<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.decide(self.name(key), Effect::Take, KeySpend::new(key, limit, cost)).await
    }

    /// Returns the decision that [`RedisLimiter::take`] would make. Spends nothing.
    pub async fn peek<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.decide(self.name(key), Effect::Peek, KeySpend::new(key, limit, cost)).await
    }

    /// Returns the used and the remaining units: a [`RedisLimiter::peek`] with a cost of 0.
    pub async fn usage<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.peek(key, limit, 0).await
    }

    /// Takes as much of `cost` as fits, possibly nothing.
    pub async fn take_up_to<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<Granted<S::Decision<'l>>, TrypemaError> {
        let started = self.started();
        let result = self.take_up_to_unobserved(key, limit, cost).await;
        self.notify_decision(
            key,
            cost,
            started,
            result.as_ref().ok().map(|granted| S::core(&granted.decision)),
        );
        result
    }

    /// Same as [`RedisLimiter::take_up_to`], without notifying the observer of the decision. The caller does
    /// that.
    pub(crate) async fn take_up_to_unobserved<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<Granted<S::Decision<'l>>, TrypemaError> {
        let call = KeySpend::new(key, limit, cost);
        match self.run_up_to(call).await {
            Ok(granted) => Ok(granted),
            Err(failure) => {
                let cost = self.fallback.capped_cost(self.store.on_failure(), limit, cost);
                let call = KeySpend { spend: cost.into(), ..call };
                self.or_fallback(Effect::Take, call, Err(failure)).map(|decision| {
                    let units = if S::core(&decision).is_allowed() { cost } else { 0 };
                    Granted { units, decision }
                })
            }
        }
    }

    /// Returns a handle to `key`, for callers that check it in a tight loop. It builds the key's name in
    /// Redis once.
    pub fn key<'a>(&'a self, key: &'a RedisKey) -> RedisKeyHandle<'a, S> {
        RedisKeyHandle { limiter: self, key, name: self.name(key) }
    }

    /// Refunds up to `units`, oldest first. Returns the units that still counted. Prefer
    /// [`RedisLimiter::refund`], which refunds where the take was recorded, and only once.
    pub async fn refund_units(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        units: u64,
    ) -> Result<u64, TrypemaError> {
        let request = self.request(verb::REFUND_UNITS, key, Some(limit)).spending(units.into());
        self.run_numeric(key, request).await
    }

    /// Deletes the state of `key` and voids its receipts. Returns whether there was a state.
    pub async fn reset(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        self.reset_with_deadline(self.deadline_from_now(), key).await
    }

    /// Same as [`RedisLimiter::reset`], with a deadline.
    pub(crate) async fn reset_with_deadline(
        &self,
        deadline: Timestamp,
        key: &RedisKey,
    ) -> Result<bool, TrypemaError> {
        let request = self.request(verb::RESET, key, None);
        let was_any = self.run_numeric_with_deadline(deadline, key, request).await? > 0;
        // Redis must not be charged after the reset for units that were admitted without it before.
        self.fallback.forget(key);
        Ok(was_any)
    }

    /// Returns the deadline of a call that starts now.
    pub(crate) fn deadline_from_now(&self) -> Timestamp {
        self.store.call_options().deadline
    }

    pub(crate) fn waiters(&self) -> &WaitQueues {
        &self.waiters
    }

    /// Replaces the sticky limit that is stored with a live key. Returns whether the key is live.
    pub(crate) async fn adopt(&self, key: &RedisKey, limit: &S::Limit) -> Result<bool, TrypemaError> {
        let request = self.request(verb::ADOPT, key, Some(limit));
        Ok(self.run_numeric(key, request).await? > 0)
    }

    /// Decides a call on the state with this name, by the failure policy if Redis fails. Notifies the observer of takes.
    pub(super) async fn decide<'l>(
        &self,
        name: Vec<u8>,
        effect: Effect,
        call: KeySpend<'_, 'l, S::Limit>,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let started = self.started();
        let request = self.named_request(effect.verb(), name, Some(call.limit));
        let found = self.run(request, call, self.store.call_options()).await;
        let result = self.or_fallback(effect, call, found.map(|found| found.decision(call.limit)));
        if effect == Effect::Take {
            self.notify_decision(call.key, call.spend.cost, started, result.as_ref().ok().map(S::core));
        }
        result
    }

    /// Runs a deciding verb in Redis.
    pub(super) async fn run(
        &self,
        request: CheckRequest,
        call: KeySpend<'_, '_, S::Limit>,
        options: CallOptions,
    ) -> Result<TimedOutcome<S>, RedisFailure> {
        let reply = self.charge_and_send(request, call, options).await?;
        Self::read(call.limit, call.spend.at(reply.now), &reply, &mut reply.reader())
    }

    /// Same as [`take`](Self::take), with a deadline and without a failure policy or notice to the observer.
    pub(crate) async fn take_without_policy(
        &self,
        deadline: Timestamp,
        call: KeySpend<'_, '_, S::Limit>,
    ) -> Result<TimedOutcome<S>, RedisFailure> {
        let request = self.request(verb::TAKE, call.key, Some(call.limit));
        self.run(request, call, CallOptions::with_deadline(deadline)).await
    }

    async fn run_up_to<'l>(
        &self,
        call: KeySpend<'_, 'l, S::Limit>,
    ) -> Result<Granted<S::Decision<'l>>, RedisFailure> {
        let request = self.request(verb::UP_TO, call.key, Some(call.limit));
        let reply = self.charge_and_send(request, call, self.store.call_options()).await?;
        let units = reply.number;
        // The decision is about the units that were taken, or about a single unit if none were.
        let decided = if units == 0 { call.spend.cost.min(1) } else { units };
        let found = Self::read(call.limit, Call::new(reply.now, decided), &reply, &mut reply.reader())?;
        Ok(Granted { units, decision: found.decision(call.limit) })
    }

    /// Sends a request that spends this, after Redis was charged for units of an outage.
    pub(super) async fn charge_and_send(
        &self,
        request: CheckRequest,
        KeySpend { key, limit, spend }: KeySpend<'_, '_, S::Limit>,
        options: CallOptions,
    ) -> Result<CheckReply, RedisFailure> {
        self.charge_outage_units(key, limit, options.clone()).await?;
        self.store.send(request.spending(spend), options).await
    }

    /// Reads the outcome of `call` from a reply. The reader is at the outcome.
    pub(super) fn read(
        limit: &S::Limit,
        call: Call,
        reply: &CheckReply,
        reader: &mut ReplyReader<'_>,
    ) -> Result<TimedOutcome<S>, RedisFailure> {
        let impossible = || {
            RedisFailure::new(RedisFailureKind::BadReply, "the script's reply contains an impossible outcome")
        };
        let outcome = S::read_outcome(limit, reader, call, reply.spent).ok_or_else(impossible)?;
        Ok(TimedOutcome { outcome, decided_at: DecisionTime::exactly(reply.now) })
    }

    fn name(&self, key: &RedisKey) -> Vec<u8> {
        self.store.name(key, S::SUFFIX)
    }

    /// Returns a request for this strategy. It spends nothing.
    pub(super) fn request(
        &self,
        verb: &'static VerbRow,
        key: &RedisKey,
        limit: Option<&S::Limit>,
    ) -> CheckRequest {
        self.named_request(verb, self.name(key), limit)
    }

    fn named_request(&self, verb: &'static VerbRow, name: Vec<u8>, limit: Option<&S::Limit>) -> CheckRequest {
        // The state of units that are held is a table of reservations itself.
        let helpers: &[Helper] = if verb.is_of_table() && S::IS_HELD { &[] } else { verb.helpers };
        let helpers = helpers.iter().map(|helper| helper.name(&name)).collect();
        let mut arguments = Vec::with_capacity(64);
        if let Some(limit) = limit {
            S::write_limit(limit, self.store.now(), &mut arguments);
        }
        CheckRequest {
            name,
            helpers,
            strategy: S::NUMBER,
            verb,
            spend: Spend::from(0),
            time_us: 0,
            arguments,
            outcome_len: limit.map_or(0, S::outcome_len),
        }
    }

    /// Runs a verb that returns a number.
    pub(super) async fn run_numeric(
        &self,
        key: &RedisKey,
        request: CheckRequest,
    ) -> Result<u64, TrypemaError> {
        self.run_numeric_with_deadline(self.deadline_from_now(), key, request).await
    }

    /// Same as [`run_numeric`](Self::run_numeric), with a deadline.
    async fn run_numeric_with_deadline(
        &self,
        deadline: Timestamp,
        key: &RedisKey,
        request: CheckRequest,
    ) -> Result<u64, TrypemaError> {
        let reply = self.store.send(request, CallOptions::with_deadline(deadline)).await;
        reply.map(|reply| reply.number).map_err(|failure| self.report_failure(key, failure))
    }

    /// Charges Redis for units that were admitted without it during an outage.
    pub(super) async fn charge_outage_units(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        options: CallOptions,
    ) -> Result<(), RedisFailure> {
        let Some(charge) = self.fallback.take_pending_charge(key) else { return Ok(()) };
        let request = self.request(verb::UP_TO, key, Some(limit)).spending(charge.units().into());
        let options = CallOptions { unsent: Some(charge.unsent()), ..options };
        let reply = self.store.send(request, options).await;
        reply.map(|_| ()).inspect_err(|failure| match failure.kind() {
            RedisFailureKind::Unavailable | RedisFailureKind::Refused => charge.mark_unsent(),
            // The units may have been charged: do not charge them again.
            RedisFailureKind::OutcomeUnknown | RedisFailureKind::BadReply => {}
        })
    }

    /// Returns the decision of Redis or, if Redis failed, the decision of the failure policy.
    pub(crate) fn or_fallback<'l>(
        &self,
        effect: Effect,
        call: KeySpend<'_, 'l, S::Limit>,
        decided: Result<S::Decision<'l>, RedisFailure>,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        decided.or_else(|failure| {
            let error = self.report_failure(call.key, failure);
            self.fallback.decide(self.store.on_failure(), effect, call).ok_or(error)
        })
    }

    /// Notifies the observer of a failure. Returns it as an error.
    pub(crate) fn report_failure(&self, key: &RedisKey, failure: RedisFailure) -> TrypemaError {
        let error = TrypemaError::from(failure);
        if let Some(observer) = self.store.observer() {
            observer.failed(&Failure { strategy: S::NAME, key: key.as_str(), error: &error });
        }
        error
    }

    /// Returns the start time of a call, if there is an observer that needs it.
    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.store.started()
    }

    /// Notifies the observer of a decision.
    pub(crate) fn notify_decision(
        &self,
        key: &RedisKey,
        cost: u64,
        started: Option<Timestamp>,
        decision: Option<Decision>,
    ) {
        if let (Some(observer), Some(started), Some(decision)) = (self.store.observer(), started, &decision) {
            let elapsed_us = ClockSource::System.now().as_micros().saturating_sub(started.as_micros());
            let latency = Duration::from_micros(elapsed_us);
            observer.decided(&Event { strategy: S::NAME, key: key.as_str(), cost, decision, latency });
        }
    }
}
