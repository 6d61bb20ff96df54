//! Several checks that are spent all or nothing.
//!
//! Where one script call can ask for all of them, Redis decides and spends them in one step. On a Cluster their keys
//! may live on different servers: see [`spread`].

mod spread;

use std::time::Duration;

use super::ask::{Ask, Told, Verb};
use super::failure::{RedisFailure, RedisFailureKind};
use super::key::RedisKey;
use super::lane::Terms;
use super::limiter::{Asking, Limiter};
use super::provider::RedisRateLimiterProvider;
use super::receipt::Receipt;
#[cfg(feature = "rules")]
use super::substitute::OnFailure;
use crate::check::{Check, Together, problem_with};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::observer::{Event, Failure};
use crate::strategy::{
    Absolute, Abuse, FixedWindow, LimitOf, SlidingWindow, Strategy, Suppressed, TokenBucket, Wire, with_strategy,
};

/// The limiter of each strategy.
pub(super) trait Holds<S: LimitOf + Wire> {
    fn limiter(&self) -> &Limiter<S>;
}

/// Checks to be spent all or nothing, and others that are asked for on the way, each on its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Errand<'a> {
    pub(crate) together: &'a [Check<'a>],
    pub(crate) alone: &'a [Check<'a>],
    /// Whether receipts are wanted of those that are spent together.
    pub(crate) is_giving_receipts: bool,
}

/// What became of an errand.
#[derive(Debug)]
pub(crate) struct Errands {
    pub(crate) together: Together<Receipt>,
    pub(crate) alone: Vec<Decision>,
}

/// A check with its key.
#[derive(Debug, Clone)]
struct Keyed<'a> {
    check: Check<'a>,
    key: RedisKey,
}

impl<'a> Keyed<'a> {
    fn all(checks: &[Check<'a>]) -> Result<Vec<Self>, TrypemaError> {
        checks.iter().map(|check| Ok(Self { check: *check, key: RedisKey::try_from(check.key)? })).collect()
    }
}

/// What a check was told.
#[derive(Debug, Clone)]
struct Answered {
    decision: Decision,
    receipt: Option<Receipt>,
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
        Ok(self.run(Errand { together: checks, ..Errand::default() }).await?.together)
    }

    /// As [`take_all`](Self::take_all), with receipts for giving everything back by
    /// [`refund_all`](Self::refund_all).
    pub async fn reserve_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        let errand = Errand { together: checks, is_giving_receipts: true, ..Errand::default() };
        Ok(self.run(errand).await?.together)
    }

    /// What each check would be answered if it were the only one; nothing is spent.
    pub async fn peek_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        checked(checks)?;
        let keyed = Keyed::all(checks)?;
        let peeked = self.each(&keyed, Verb::Peek, &self.store.terms()).await;
        let peeked = peeked.map_err(|failure| self.failed(&keyed, failure))?;
        Ok(Together { receipts: Vec::new(), ..together(peeked) })
    }

    /// Gives back what `receipts` of [`reserve_all`](Self::reserve_all) name, for the same checks.
    pub async fn refund_all(
        &self,
        checks: &[Check<'_>],
        receipts: &[Option<Receipt>],
    ) -> Result<(), TrypemaError> {
        let keyed = Keyed::all(checks)?;
        let reserved: Vec<_> = keyed
            .iter()
            .zip(receipts)
            .filter_map(|(keyed, receipt)| Some((keyed, receipt.as_ref()?)))
            .collect();
        self.give_back(&reserved).await.map_err(|failure| self.failed(&keyed, failure))
    }

    /// Spends an errand, and tells the observer.
    pub(crate) async fn run(&self, errand: Errand<'_>) -> Result<Errands, TrypemaError> {
        let Errand { together, alone, .. } = errand;
        checked(together)?;
        let (first, others) = (Keyed::all(together)?, Keyed::all(alone)?);
        let started = SystemClock.now();
        match self.spend((&first, &others), errand.is_giving_receipts).await {
            Ok(done) => {
                self.tell(&first, &done.together.decisions, started);
                self.tell(&others, &done.alone, started);
                Ok(done)
            }
            Err(failure) => Err(self.failed(&first, failure)),
        }
    }

    async fn spend(
        &self,
        (first, others): (&[Keyed<'_>], &[Keyed<'_>]),
        is_giving_receipts: bool,
    ) -> Result<Errands, RedisFailure> {
        let terms = self.store.terms();
        for keyed in first.iter().chain(others) {
            self.settle(keyed, &terms).await?;
        }
        let verb = if is_giving_receipts { Verb::Reserve } else { Verb::Take };
        let mut asks: Vec<Ask> = first.iter().map(|keyed| self.ask(keyed, verb)).collect();
        asks.extend(others.iter().map(|keyed| self.ask(keyed, Verb::Take)));
        if !self.store.is_one_call(&asks) {
            return self.spend_spread((first, others), is_giving_receipts, &terms).await;
        }
        let told = self.store.ask_many(asks, first.len(), terms).await?;
        let mut answered = self.read_all(first.iter().chain(others), &told)?;
        let alone = answered.split_off(first.len());
        let mut together = together(answered);
        if !is_giving_receipts {
            together.receipts.clear();
        }
        Ok(Errands { together, alone: alone.into_iter().map(|answered| answered.decision).collect() })
    }

    /// What `on_failure` answers these checks in place of Redis, all or nothing; `None` if it leaves one undecided.
    #[cfg(feature = "rules")]
    pub(crate) fn substitute(
        &self,
        checks: &[Check<'_>],
        on_failure: &dyn Fn(usize) -> Option<OnFailure>,
    ) -> Option<Vec<Decision>> {
        let decide = |verb: Verb| -> Option<Vec<Decision>> {
            let decide_one = |(index, check): (usize, &Check<'_>)| {
                let key = RedisKey::try_from(check.key).ok()?;
                let asking = Asking::new(verb, check.cost);
                let on_failure = on_failure(index).unwrap_or(self.store.on_failure());
                with_strategy!(check.limit, |S, limit| {
                    let decided =
                        Holds::<S>::limiter(self).substitute.decide(on_failure, &key, (limit, asking));
                    decided.map(|decision| S::core(&decision))
                })
            };
            checks.iter().enumerate().map(decide_one).collect()
        };
        let foreseen = decide(Verb::Peek)?;
        if foreseen.iter().all(Decision::is_allowed) { decide(Verb::Take) } else { Some(foreseen) }
    }

    fn ask(&self, keyed: &Keyed<'_>, verb: Verb) -> Ask {
        let asking = Asking::new(verb, keyed.check.cost);
        with_strategy!(keyed.check.limit, |S, limit| {
            Holds::<S>::limiter(self).ask(&keyed.key, Some(limit), asking)
        })
    }

    async fn settle(&self, keyed: &Keyed<'_>, terms: &Terms) -> Result<(), RedisFailure> {
        with_strategy!(keyed.check.limit, |S, limit| {
            Holds::<S>::limiter(self).settle(&keyed.key, limit, terms.clone()).await
        })
    }

    fn read_all<'k, 'a: 'k>(
        &self,
        keyed: impl Iterator<Item = &'k Keyed<'a>>,
        told: &[Told],
    ) -> Result<Vec<Answered>, RedisFailure> {
        let mut told = told.iter();
        let missing = || RedisFailure::new(RedisFailureKind::BadReply, "an answer is missing");
        keyed.map(|keyed| self.read(keyed, told.next().ok_or_else(missing)?)).collect()
    }

    fn read(&self, keyed: &Keyed<'_>, told: &Told) -> Result<Answered, RedisFailure> {
        let asking = Asking::new(Verb::Take, keyed.check.cost);
        with_strategy!(keyed.check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            let reserved =
                limiter.reservation(&keyed.key, limit, limiter.read(limit, asking, told.clone())?);
            Ok(Answered { decision: S::core(&reserved.decision), receipt: reserved.receipt })
        })
    }

    fn tell(&self, keyed: &[Keyed<'_>], decisions: &[Decision], started: Timestamp) {
        let Some(observer) = self.store.observer() else { return };
        let latency_us = SystemClock.now().as_micros().saturating_sub(started.as_micros());
        let latency = Duration::from_micros(latency_us);
        for (Keyed { check, key }, decision) in keyed.iter().zip(decisions) {
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

fn together(answered: Vec<Answered>) -> Together<Receipt> {
    let is_allowed = answered.iter().all(|answered| answered.decision.is_allowed());
    let decisions = answered.iter().map(|answered| answered.decision).collect();
    let receipts = answered.into_iter().map(|answered| answered.receipt).collect();
    Together { is_allowed, decisions, receipts: if is_allowed { receipts } else { Vec::new() } }
}

fn checked(checks: &[Check<'_>]) -> Result<(), TrypemaError> {
    problem_with(checks).map_or(Ok(()), |reason| Err(TrypemaError::InvalidChecks { reason }))
}

macro_rules! holds {
    ($($strategy:ident: $field:ident),+ $(,)?) => {
        $(
            impl Holds<$strategy> for RedisRateLimiterProvider {
                fn limiter(&self) -> &Limiter<$strategy> {
                    &self.$field
                }
            }
        )+
    };
}

holds! {
    Absolute: absolute,
    Suppressed: suppressed,
    TokenBucket: token_bucket,
    SlidingWindow: sliding_window,
    FixedWindow: fixed_window,
    Abuse: abuse,
}
