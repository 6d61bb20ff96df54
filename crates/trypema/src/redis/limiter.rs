//! One strategy of the Redis provider: every verb, for every key.

mod reserving;

use std::sync::Arc;
use std::time::Duration;

use super::ask::{Ask, Told, Verb};
use super::batcher::Terms;
use super::failure::{RedisFailure, RedisFailureKind};
use super::handle::KeyHandle;
use super::key::RedisKey;
use super::key_call::{Asking, KeyCall};
use super::store::Store;
use super::substitute::Substitute;
use crate::clock::{ClockSource, Timestamp};
use crate::decision::{Decision, DecisionTime};
use crate::error::TrypemaError;
use crate::local::Granted;
use crate::observer::{Event, Failure};
use crate::strategy::{Call, Strategy, Wire};
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
pub struct Limiter<S: Strategy> {
    pub(super) store: Arc<Store>,
    pub(super) substitute: Arc<Substitute<S>>,
    /// Callers of `wait`. The hybrid provider uses the same queues.
    pub(super) waiters: Arc<WaitQueues>,
}

impl<S: Strategy> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            substitute: Arc::clone(&self.substitute),
            waiters: Arc::clone(&self.waiters),
        }
    }
}

/// The outcome of a deciding verb, before it becomes a decision.
pub(super) struct Found<S: Strategy> {
    pub(super) outcome: S::Outcome,
    pub(super) told: Told,
    call: Call,
}

impl<S: Wire> Found<S> {
    pub(super) fn decision(self, limit: &S::Limit) -> S::Decision<'_> {
        S::decision(limit, self.outcome, DecisionTime::exactly(self.told.now))
    }
}

impl<S: Wire> Limiter<S> {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, substitute: Arc::new(Substitute::new()), waiters: Arc::default() }
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
        let call = KeyCall::new(key, limit, Asking::new(Verb::Take, cost));
        self.decide(self.store.name(key, S::SUFFIX), call).await
    }

    /// Returns the decision that [`Limiter::take`] would make. Spends nothing.
    pub async fn peek<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let call = KeyCall::new(key, limit, Asking::new(Verb::Peek, cost));
        self.decide(self.store.name(key, S::SUFFIX), call).await
    }

    /// Returns the used and the remaining units: a [`Limiter::peek`] with a cost of 0.
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
        let result = self.take_up_to_untold(key, limit, cost).await;
        self.tell(key, cost, started, result.as_ref().ok().map(|granted| S::core(&granted.decision)));
        result
    }

    /// Same as [`Limiter::take_up_to`], without notifying the observer of the decision. The caller does
    /// that.
    pub(crate) async fn take_up_to_untold<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<Granted<S::Decision<'l>>, TrypemaError> {
        match self.found_up_to(key, limit, Asking::new(Verb::UpTo, cost)).await {
            Ok((units, found)) => Ok(Granted { units, decision: found.decision(limit) }),
            Err(failure) => {
                let asking =
                    Asking::new(Verb::UpTo, self.substitute.most_of(self.store.on_failure(), limit, cost));
                self.or_substitute(KeyCall { key, limit, asking }, Err(failure)).map(|decision| {
                    let units = if S::core(&decision).is_allowed() { asking.cost } else { 0 };
                    Granted { units, decision }
                })
            }
        }
    }

    /// Returns a handle to `key`, for callers that check it in a tight loop. It builds the key's name in
    /// Redis once.
    pub fn key<'a>(&'a self, key: &'a RedisKey) -> KeyHandle<'a, S> {
        KeyHandle { limiter: self, key, name: self.store.name(key, S::SUFFIX) }
    }

    /// Refunds up to `units`, oldest first. Returns the units that still counted. Prefer
    /// [`Limiter::refund`], which refunds where the take was recorded, and only once.
    pub async fn refund_units(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        units: u64,
    ) -> Result<u64, TrypemaError> {
        let ask = self.ask(key, Some(limit), Asking::new(Verb::RefundUnits, units));
        self.number(key, ask).await
    }

    /// Deletes the state of `key` and voids its receipts. Returns whether there was a state.
    pub async fn reset(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        self.reset_until(self.deadline_from_now(), key).await
    }

    /// Same as [`Limiter::reset`], with a deadline.
    pub(crate) async fn reset_until(
        &self,
        deadline: Timestamp,
        key: &RedisKey,
    ) -> Result<bool, TrypemaError> {
        let ask = self.ask(key, None, Asking::new(Verb::Reset, 0));
        let was_any = self.number_until(deadline, key, ask).await? > 0;
        // Redis must not be charged after the reset for units that were admitted without it before.
        self.substitute.forget(key);
        Ok(was_any)
    }

    /// Returns the deadline of a call that starts now.
    pub(crate) fn deadline_from_now(&self) -> Timestamp {
        self.store.terms().deadline
    }

    pub(crate) fn waiters(&self) -> &WaitQueues {
        &self.waiters
    }

    /// Replaces the sticky limit that is stored with a live key. Returns whether the key is live.
    pub(crate) async fn adopt(&self, key: &RedisKey, limit: &S::Limit) -> Result<bool, TrypemaError> {
        let ask = self.ask(key, Some(limit), Asking::new(Verb::Adopt, 0));
        Ok(self.number(key, ask).await? > 0)
    }

    /// Decides a call, by the failure policy if Redis fails. Notifies the observer of takes.
    pub(super) async fn decide<'l>(
        &self,
        name: Vec<u8>,
        call: KeyCall<'_, 'l, S::Limit>,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let started = self.started();
        let found = self.found(name, call).await;
        let result = self.or_substitute(call, found.map(|found| found.decision(call.limit)));
        if call.asking.verb == Verb::Take {
            self.tell(call.key, call.asking.cost, started, result.as_ref().ok().map(S::core));
        }
        result
    }

    /// Runs a deciding verb in Redis on the state with this name.
    pub(super) async fn found(
        &self,
        name: Vec<u8>,
        call: KeyCall<'_, '_, S::Limit>,
    ) -> Result<Found<S>, RedisFailure> {
        self.found_by(self.store.terms(), name, call).await
    }

    /// Same as [`found`](Self::found), with these terms.
    pub(super) async fn found_by(
        &self,
        terms: Terms,
        name: Vec<u8>,
        call: KeyCall<'_, '_, S::Limit>,
    ) -> Result<Found<S>, RedisFailure> {
        let KeyCall { key, limit, asking } = call;
        self.settle(key, limit, terms.clone()).await?;
        let told = self.store.ask(Self::ask_named(name, Some(limit), asking), terms).await?;
        self.read(limit, asking, told)
    }

    async fn found_up_to(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        asking: Asking,
    ) -> Result<(u64, Found<S>), RedisFailure> {
        let terms = self.store.terms();
        self.settle(key, limit, terms.clone()).await?;
        let told = self.store.ask(self.ask(key, Some(limit), asking), terms).await?;
        let units = told.number;
        // The decision is about the units that were taken, or about a single unit if none were.
        let decided = if units == 0 { asking.cost.min(1) } else { units };
        Ok((units, self.read(limit, Asking::new(Verb::UpTo, decided), told)?))
    }

    pub(super) fn read(
        &self,
        limit: &S::Limit,
        asking: Asking,
        told: Told,
    ) -> Result<Found<S>, RedisFailure> {
        let lease = if asking.verb == Verb::Reserve { asking.extra } else { 0 };
        let stamp = told.now + Duration::from_micros(lease);
        let call = Call::new(told.now, asking.cost).with_stamp(stamp);
        match S::read_outcome(limit, &mut told.facts(), call, told.spent) {
            Some(outcome) => Ok(Found { outcome, told, call }),
            None => Err(RedisFailure::new(RedisFailureKind::BadReply, "an outcome that cannot be")),
        }
    }

    /// Returns a request for this strategy.
    pub(super) fn ask(&self, key: &RedisKey, limit: Option<&S::Limit>, asking: Asking) -> Ask {
        Self::ask_named(self.store.name(key, S::SUFFIX), limit, asking)
    }

    fn ask_named(state: Vec<u8>, limit: Option<&S::Limit>, asking: Asking) -> Ask {
        let helpers = match asking.verb {
            Verb::Reserve | Verb::Refund | Verb::Reset | Verb::Unblock => {
                vec![[state.as_slice(), b":resets"].concat()]
            }
            Verb::Lease => {
                vec![[state.as_slice(), b":resets"].concat(), [state.as_slice(), b":instances"].concat()]
            }
            _ => Vec::new(),
        };
        let mut written = Vec::with_capacity(64);
        if let Some(limit) = limit {
            S::write_limit(limit, &mut written);
        }
        Ask {
            name: state,
            helpers,
            strategy: S::NUMBER,
            verb: asking.verb,
            cost: asking.cost,
            extra: asking.extra,
            resets: 0,
            limit: written,
            outcome_len: limit.map_or(0, S::outcome_len),
            lease: None,
        }
    }

    /// Runs a verb that returns a number.
    pub(super) async fn number(&self, key: &RedisKey, ask: Ask) -> Result<u64, TrypemaError> {
        self.number_until(self.deadline_from_now(), key, ask).await
    }

    /// Same as [`number`](Self::number), with a deadline.
    async fn number_until(&self, deadline: Timestamp, key: &RedisKey, ask: Ask) -> Result<u64, TrypemaError> {
        let told = self.store.ask(ask, Terms::until(deadline)).await;
        told.map(|told| told.number).map_err(|failure| self.failed(key, failure))
    }

    /// Charges Redis for units that were admitted without it during an outage.
    pub(super) async fn settle(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        terms: Terms,
    ) -> Result<(), RedisFailure> {
        let Some(settling) = self.substitute.settling(key) else { return Ok(()) };
        let ask = self.ask(key, Some(limit), Asking::new(Verb::UpTo, settling.units()));
        let terms = Terms { unsent: Some(settling.unsent()), ..terms };
        let settled = self.store.ask(ask, terms).await;
        settled.map(|_| ()).inspect_err(|failure| match failure.kind() {
            RedisFailureKind::Unavailable | RedisFailureKind::Refused => settling.put_off(),
            // The units may have been charged: do not charge them again.
            RedisFailureKind::OutcomeUnknown | RedisFailureKind::BadReply => {}
        })
    }

    /// Returns the decision of Redis or, if Redis failed, the decision of the failure policy.
    pub(super) fn or_substitute<'l>(
        &self,
        call: KeyCall<'_, 'l, S::Limit>,
        decided: Result<S::Decision<'l>, RedisFailure>,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        decided.or_else(|failure| {
            let error = self.failed(call.key, failure);
            self.substitute.decide(self.store.on_failure(), call).ok_or(error)
        })
    }

    /// Same as [`or_substitute`](Self::or_substitute), for a take.
    pub(crate) fn or_substitute_take<'l>(
        &self,
        key: &RedisKey,
        (limit, cost): (&'l S::Limit, u64),
        decided: Result<S::Decision<'l>, RedisFailure>,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.or_substitute(KeyCall::new(key, limit, Asking::new(Verb::Take, cost)), decided)
    }

    /// Notifies the observer of a failure. Returns it as an error.
    pub(crate) fn failed(&self, key: &RedisKey, failure: RedisFailure) -> TrypemaError {
        let error = TrypemaError::from(failure);
        if let Some(observer) = self.store.observer() {
            observer.failed(&Failure { strategy: S::NAME, key: key.as_str(), error: &error });
        }
        error
    }

    /// Returns the start time of a call, if there is an observer that needs it.
    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.store.observer().map(|_| ClockSource::System.now())
    }

    /// Notifies the observer of a decision.
    pub(crate) fn tell(
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
