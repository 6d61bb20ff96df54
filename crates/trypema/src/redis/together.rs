//! Several checks asked at once.
//!
//! Where one script call can ask for all of them, Redis decides and spends them in one step. On a Cluster their keys
//! may live in different slots: see [`cross_slot`]. Either way each check has a result of its own, so that the caller can
//! apply a failure policy per check.

#[cfg(feature = "rules")]
mod as_provider;
mod cross_slot;

use std::time::Duration;

use super::ask::{Ask, Told, Verb};
use super::batcher::Terms;
use super::failure::{RedisFailure, RedisFailureKind};
use super::key::RedisKey;
use super::key_call::Asking;
#[cfg(feature = "rules")]
use super::key_call::KeyCall;
use super::limiter::Limiter;
use super::provider::RedisRateLimiterProvider;
use super::receipt::Receipt;
#[cfg(feature = "rules")]
use super::substitute::OnFailure;
use crate::check::{
    Check, CheckResult, Deadline, Failed, Receipts, TakeRequest, TakeResponse, Together, validate,
};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::observer::{Event, Failure};
use crate::strategy::{LimitOf, Strategy, Wire, with_strategy};

/// The limiter of each strategy.
pub(crate) trait Holds<S: LimitOf + Wire> {
    fn limiter(&self) -> &Limiter<S>;
}

/// A check with its key.
#[derive(Debug, Clone)]
struct Keyed<'a> {
    check: Check<'a>,
    key: RedisKey,
}

impl<'a> Keyed<'a> {
    fn new(check: Check<'a>) -> Self {
        Self { check, key: RedisKey::encode(check.key) }
    }

    fn all(checks: &[Check<'a>]) -> Vec<Self> {
        checks.iter().copied().map(Self::new).collect()
    }
}

/// A check with what is asked of it.
#[derive(Debug)]
struct Asked<'a> {
    keyed: Keyed<'a>,
    verb: Verb,
}

/// The checks of a request: those that are spent all or nothing, and those that are each spent on their own.
#[derive(Debug)]
struct KeyedChecks<'a> {
    together: Vec<Keyed<'a>>,
    alone: Vec<Keyed<'a>>,
}

impl<'a> KeyedChecks<'a> {
    fn iter(&self) -> impl Iterator<Item = &Keyed<'a>> {
        self.together.iter().chain(&self.alone)
    }
}

/// A check with the receipt of what it took.
#[derive(Debug, Clone, Copy)]
struct Held<'a> {
    keyed: &'a Keyed<'a>,
    receipt: &'a Receipt,
}

/// The decision on a check, with the receipt of what it took.
#[derive(Debug, Clone)]
struct Answered {
    decision: Decision,
    receipt: Option<Receipt>,
}

/// The answer of Redis to one check, or why there is none.
type Reply = Result<Answered, RedisFailure>;

/// The answers to the checks of a [`TakeRequest`].
struct Replies {
    together: Vec<Reply>,
    alone: Vec<Reply>,
}

impl RedisRateLimiterProvider {
    /// Takes all of `checks`, which may be of any strategies and keys, or none of them. A failure of Redis is always
    /// an `Err` here.
    ///
    /// This is one script call, except on a Cluster where the keys are in different slots: there all are looked at
    /// first, and where all would be admitted each is taken in its slot; should one be denied in between, the others
    /// are given back. No limit is ever passed, but meanwhile others may be denied by what is given back, and a process
    /// that dies or loses a server in between leaves up to `cost` spent on each of the other keys.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use trypema::{Check, FixedWindowLimit, Limit, RateLimiter, TokenBucketLimits, TokenLimit};
    ///
    /// # async fn example(rl: &RateLimiter) -> Result<(), trypema::TrypemaError> {
    /// let tenant = Limit::from(FixedWindowLimit::new(1_000, Duration::from_secs(60))?);
    /// let user = Limit::from(TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(1))?));
    /// let checks = [
    ///     Check { key: "acme", limit: &tenant, cost: 1 },
    ///     Check { key: "ann", limit: &user, cost: 1 },
    /// ];
    /// let answer = rl.redis().take_all(&checks).await?;
    /// if let Some(denied) = answer.decisions.iter().find(|decision| !decision.is_allowed()) {
    ///     println!("try again in {:?}; nothing was spent", denied.retry_after());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn take_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        self.take_or_fail(checks, Receipts::Unwanted).await
    }

    /// As [`take_all`](Self::take_all), with receipts for giving everything back by
    /// [`refund_all`](Self::refund_all).
    pub async fn reserve_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        self.take_or_fail(checks, Receipts::Wanted).await
    }

    async fn take_or_fail(
        &self,
        together: &[Check<'_>],
        receipts: Receipts,
    ) -> Result<Together<Receipt>, TrypemaError> {
        let deadline = self.deadline_from_now();
        let request = TakeRequest { together, alone: &[], if_unreachable: &[], receipts, deadline };
        self.take(request).await?.into_together()
    }

    /// What each check would be answered if it were the only one; nothing is spent.
    pub async fn peek_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        validate(checks)?;
        let peeked = self.peek_each(checks, self.deadline_from_now()).await;
        let decisions: Vec<Decision> = peeked.into_iter().collect::<Result<_, _>>()?;
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        Ok(Together { is_allowed, decisions, receipts: Vec::new() })
    }

    /// Gives back what `receipts` of [`reserve_all`](Self::reserve_all) name, for the same checks.
    pub async fn refund_all(
        &self,
        checks: &[Check<'_>],
        receipts: &[Option<Receipt>],
    ) -> Result<(), TrypemaError> {
        let keyed = Keyed::all(checks);
        let reserved: Vec<_> = keyed
            .iter()
            .zip(receipts)
            .filter_map(|(keyed, receipt)| Some(Held { keyed, receipt: receipt.as_ref()? }))
            .collect();
        let refunded = self.refund_by_receipts(&reserved, self.deadline_from_now()).await;
        let refunded: Result<Vec<u64>, RedisFailure> = refunded.into_iter().collect();
        refunded.map(|_| ()).map_err(|failure| self.failed(&keyed, failure))
    }

    /// The deadline of a request that starts now.
    pub(crate) fn deadline_from_now(&self) -> Deadline {
        Deadline::after(self.store.deadline())
    }

    /// Takes the checks of a request, with a result for each, and tells the observer.
    pub(crate) async fn take(&self, request: TakeRequest<'_>) -> Result<TakeResponse<Receipt>, TrypemaError> {
        validate(request.together)?;
        let checks = KeyedChecks { together: Keyed::all(request.together), alone: Keyed::all(request.alone) };
        let started = SystemClock.now();
        let replies = self.take_keyed(&checks, request).await;
        let mut response = TakeResponse {
            decisions: Vec::with_capacity(checks.together.len()),
            failures: Vec::new(),
            receipts: Vec::new(),
            alone: Vec::new(),
        };
        for (index, result) in
            self.observed(&checks.together, replies.together, started).into_iter().enumerate()
        {
            response.decisions.push(result.as_ref().ok().map(|answered| answered.decision));
            match result {
                Ok(answered) => response.receipts.push(answered.receipt),
                Err(error) => {
                    response.receipts.push(None);
                    response.failures.push(Failed { index, error });
                }
            }
        }
        if request.receipts == Receipts::Unwanted && response.failures.is_empty() {
            response.receipts.clear();
        }
        let alone = self.observed(&checks.alone, replies.alone, started).into_iter();
        response.alone = alone.map(|result| result.map(|answered| answered.decision)).collect();
        Ok(response.without_unspent_receipts())
    }

    async fn take_keyed(&self, checks: &KeyedChecks<'_>, request: TakeRequest<'_>) -> Replies {
        let verb = if request.receipts == Receipts::Wanted { Verb::Reserve } else { Verb::Take };
        let mut asks: Vec<Ask> = checks.together.iter().map(|keyed| self.ask(keyed, verb)).collect();
        asks.extend(checks.alone.iter().map(|keyed| self.ask(keyed, Verb::Take)));
        if !self.store.is_one_call(&asks) {
            return self.take_across_slots(checks, request).await;
        }
        let terms = Terms::until(request.deadline.until());
        let mut told = self.ask_in_one_call(checks, asks, terms).await.into_iter();
        let read = |verb| {
            move |(keyed, told): (&Keyed<'_>, Result<Told, RedisFailure>)| self.read(keyed, verb, &told?)
        };
        let together = checks.together.iter().zip(told.by_ref()).map(read(verb)).collect();
        Replies { together, alone: checks.alone.iter().zip(told).map(read(Verb::Take)).collect() }
    }

    /// One answer per check, those of `together` first. A call that fails is the failure of each of them.
    async fn ask_in_one_call(
        &self,
        checks: &KeyedChecks<'_>,
        asks: Vec<Ask>,
        terms: Terms,
    ) -> Vec<Result<Told, RedisFailure>> {
        let count = asks.len();
        let asked = async {
            for keyed in checks.iter() {
                self.settle(keyed, &terms).await?;
            }
            self.store.ask_many(asks, checks.together.len(), terms).await
        };
        let missing = || Err(RedisFailure::new(RedisFailureKind::BadReply, "an answer is missing"));
        match asked.await {
            Ok(mut told) => {
                told.resize_with(count, missing);
                told
            }
            Err(failure) => vec![Err(failure); count],
        }
    }

    /// Peeks at each check on its own.
    pub(crate) async fn peek_each<'a>(&self, checks: &[Check<'a>], deadline: Deadline) -> Vec<CheckResult> {
        let peek = |check: &Check<'a>| Asked { keyed: Keyed::new(*check), verb: Verb::Peek };
        self.ask_each(checks.iter().map(peek).collect(), deadline).await
    }

    /// Asks for each check on its own, in one script call where that is possible; tells the observer.
    async fn ask_each(&self, asked: Vec<Asked<'_>>, deadline: Deadline) -> Vec<CheckResult> {
        let asks: Vec<Ask> = asked.iter().map(|asked| self.ask(&asked.keyed, asked.verb)).collect();
        let (started, terms) = (SystemClock.now(), Terms::until(deadline.until()));
        let (alone, verbs): (Vec<_>, Vec<_>) =
            asked.into_iter().map(|asked| (asked.keyed, asked.verb)).unzip();
        let checks = KeyedChecks { together: Vec::new(), alone };
        let replies: Vec<Reply> = if self.store.is_one_call(&asks) {
            let told = self.ask_in_one_call(&checks, asks, terms).await;
            let read = |((keyed, verb), told): ((_, &Verb), Result<Told, _>)| self.read(keyed, *verb, &told?);
            checks.alone.iter().zip(&verbs).zip(told).map(read).collect()
        } else {
            self.try_each(checks.alone.iter().zip(verbs.iter().copied()), &terms).await
        };
        let results = match verbs.contains(&Verb::Peek) {
            // An observer is told of takes only.
            true => checks.iter().zip(replies).map(|(keyed, reply)| self.or_failed(keyed, reply)).collect(),
            false => self.observed(&checks.alone, replies, started),
        };
        results.into_iter().map(|result| result.map(|answered| answered.decision)).collect()
    }

    /// Tells the observer of every decision and failure.
    fn observed(
        &self,
        keyed: &[Keyed<'_>],
        replies: Vec<Reply>,
        started: Timestamp,
    ) -> Vec<Result<Answered, TrypemaError>> {
        let decided = keyed.iter().zip(&replies);
        self.tell(
            decided.filter_map(|(keyed, reply)| Some((keyed, &reply.as_ref().ok()?.decision))),
            started,
        );
        keyed.iter().zip(replies).map(|(keyed, reply)| self.or_failed(keyed, reply)).collect()
    }

    fn or_failed(&self, keyed: &Keyed<'_>, reply: Reply) -> Result<Answered, TrypemaError> {
        reply.map_err(|failure| self.failed(std::slice::from_ref(keyed), failure))
    }

    /// Decides a check in place of Redis; `None` if the policy is to fail.
    #[cfg(feature = "rules")]
    pub(super) fn decide_without(
        &self,
        check: &Check<'_>,
        verb: Verb,
        on_failure: OnFailure,
    ) -> Option<Decision> {
        let key = RedisKey::encode(check.key);
        let asking = Asking::new(verb, check.cost);
        with_strategy!(check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            let decided = limiter.substitute.decide(on_failure, KeyCall::new(&key, limit, asking))?;
            let decision = S::core(&decided);
            if verb == Verb::Take {
                limiter.tell(&key, check.cost, limiter.started(), Some(decision));
            }
            Some(decision)
        })
    }

    fn ask(&self, keyed: &Keyed<'_>, verb: Verb) -> Ask {
        let asking = Asking::new(verb, keyed.check.cost);
        with_strategy!(keyed.check.limit, |S, limit| {
            Holds::<S>::limiter(self).ask(&keyed.key, Some(limit), asking)
        })
    }

    /// Tells Redis of units that were admitted in its place.
    async fn settle(&self, keyed: &Keyed<'_>, terms: &Terms) -> Result<(), RedisFailure> {
        with_strategy!(keyed.check.limit, |S, limit| {
            Holds::<S>::limiter(self).settle(&keyed.key, limit, terms.clone()).await
        })
    }

    /// Reads an answer. Only a reservation has a receipt: a peek took nothing.
    fn read(&self, keyed: &Keyed<'_>, verb: Verb, told: &Told) -> Reply {
        let asking = Asking::new(Verb::Take, keyed.check.cost);
        with_strategy!(keyed.check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            let reserved = limiter.reservation(&keyed.key, limit, limiter.read(limit, asking, told.clone())?);
            let receipt = reserved.receipt.filter(|_| verb == Verb::Reserve);
            Ok(Answered { decision: S::core(&reserved.decision), receipt })
        })
    }

    fn tell<'k>(&self, told: impl Iterator<Item = (&'k Keyed<'k>, &'k Decision)>, started: Timestamp) {
        let Some(observer) = self.store.observer() else { return };
        let latency_us = SystemClock.now().as_micros().saturating_sub(started.as_micros());
        let latency = Duration::from_micros(latency_us);
        for (Keyed { check, key }, decision) in told {
            let (strategy, key, cost) = (check.limit.strategy(), key.as_str(), check.cost);
            observer.decided(&Event { strategy, key, cost, decision, latency });
        }
    }

    fn failed(&self, keyed: &[Keyed<'_>], failure: RedisFailure) -> TrypemaError {
        let error = TrypemaError::from(failure);
        if let Some(observer) = self.store.observer() {
            for Keyed { check, key } in keyed {
                let strategy = check.limit.strategy();
                observer.failed(&Failure { strategy, key: key.as_str(), error: &error });
            }
        }
        error
    }
}

/// Says where `$provider` has the limiter of each strategy.
macro_rules! holds {
    ($provider:ident, $($strategy:ident: $field:ident),+ $(,)?) => {
        $(
            impl Holds<$crate::strategy::$strategy> for $provider {
                fn limiter(&self) -> &Limiter<$crate::strategy::$strategy> {
                    &self.$field
                }
            }
        )+
    };
    ($provider:ident) => {
        $crate::redis::holds! {
            $provider,
            Absolute: absolute,
            Suppressed: suppressed,
            TokenBucket: token_bucket,
            SlidingWindow: sliding_window,
            FixedWindow: fixed_window,
            Abuse: abuse,
        }
    };
}
pub(crate) use holds;

holds!(RedisRateLimiterProvider);
