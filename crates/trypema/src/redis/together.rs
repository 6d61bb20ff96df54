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
use super::substitute::OnFailure;
use crate::check::{Check, Together, problem_with};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::observer::{Event, Failure};
use crate::strategy::{LimitOf, Strategy, Wire, with_strategy};

/// The limiter of each strategy.
pub(crate) trait Holds<S: LimitOf + Wire> {
    fn limiter(&self) -> &Limiter<S>;
}

/// Checks to be spent all or nothing, and others that are asked for on the way, each on its own.
#[derive(Clone, Copy, Default)]
pub(crate) struct Errand<'a> {
    pub(crate) together: &'a [Check<'a>],
    pub(crate) alone: &'a [Check<'a>],
    /// Whether receipts are wanted of those that are spent together.
    pub(crate) is_giving_receipts: bool,
    /// What those are answered whose server cannot be reached, while others can; where there is nothing, all fail.
    pub(crate) substitute: Option<&'a Substituted<'a>>,
}

/// What a check is answered in place of its server, if anything.
pub(crate) type Substituted<'a> = dyn Fn(usize) -> Option<Decision> + Sync + 'a;

/// What became of an errand.
#[derive(Debug)]
pub(crate) struct Errands {
    pub(crate) together: Together<Receipt>,
    /// What each was told; `None` where that failed, which is nobody else's matter.
    pub(crate) alone: Vec<Option<Decision>>,
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
        match self.spend((&first, &others), errand).await {
            Ok(done) => {
                self.tell(first.iter().zip(&done.together.decisions), started);
                let told = others.iter().zip(&done.alone);
                self.tell(told.filter_map(|(keyed, decision)| Some((keyed, decision.as_ref()?))), started);
                Ok(done)
            }
            Err(failure) => Err(self.failed(&first, failure)),
        }
    }

    async fn spend(
        &self,
        (first, others): (&[Keyed<'_>], &[Keyed<'_>]),
        errand: Errand<'_>,
    ) -> Result<Errands, RedisFailure> {
        let terms = self.store.terms();
        for keyed in first.iter().chain(others) {
            self.settle(keyed, &terms).await?;
        }
        let verb = if errand.is_giving_receipts { Verb::Reserve } else { Verb::Take };
        let mut asks: Vec<Ask> = first.iter().map(|keyed| self.ask(keyed, verb)).collect();
        asks.extend(others.iter().map(|keyed| self.ask(keyed, Verb::Take)));
        if !self.store.is_one_call(&asks) {
            return self.spend_spread((first, others), errand, &terms).await;
        }
        let mut told = self.store.ask_many(asks, first.len(), terms).await?.into_iter();
        let answered = self.read_all(first, told.by_ref().take(first.len()))?;
        let alone = others.iter().zip(told).map(|(keyed, told)| self.read(keyed, &told?));
        let mut together = together(answered);
        if !errand.is_giving_receipts {
            together.receipts.clear();
        }
        let alone = alone.map(|answered| answered.ok().map(|answered| answered.decision)).collect();
        Ok(Errands { together, alone })
    }

    /// What a check is answered in place of Redis, by `on_failure` or else as the limiter was built; `None` if that
    /// leaves it undecided.
    pub(crate) fn take_without(&self, check: &Check<'_>, on_failure: Option<OnFailure>) -> Option<Decision> {
        self.substitute(check, Verb::Take, on_failure)
    }

    /// The same, spending nothing.
    pub(crate) fn peek_without(&self, check: &Check<'_>, on_failure: Option<OnFailure>) -> Option<Decision> {
        self.substitute(check, Verb::Peek, on_failure)
    }

    fn substitute(&self, check: &Check<'_>, verb: Verb, on_failure: Option<OnFailure>) -> Option<Decision> {
        let key = RedisKey::try_from(check.key).ok()?;
        let on_failure = on_failure.unwrap_or(self.store.on_failure());
        let asking = Asking::new(verb, check.cost);
        with_strategy!(check.limit, |S, limit| {
            let decided = Holds::<S>::limiter(self).substitute.decide(on_failure, &key, (limit, asking));
            decided.map(|decision| S::core(&decision))
        })
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

    fn read_all(
        &self,
        keyed: &[Keyed<'_>],
        told: impl Iterator<Item = Result<Told, RedisFailure>>,
    ) -> Result<Vec<Answered>, RedisFailure> {
        let answered: Vec<Answered> =
            keyed.iter().zip(told).map(|(keyed, told)| self.read(keyed, &told?)).collect::<Result<_, _>>()?;
        let missing = || RedisFailure::new(RedisFailureKind::BadReply, "an answer is missing");
        if answered.len() == keyed.len() { Ok(answered) } else { Err(missing()) }
    }

    fn read(&self, keyed: &Keyed<'_>, told: &Told) -> Result<Answered, RedisFailure> {
        let asking = Asking::new(Verb::Take, keyed.check.cost);
        with_strategy!(keyed.check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            let reserved = limiter.reservation(&keyed.key, limit, limiter.read(limit, asking, told.clone())?);
            Ok(Answered { decision: S::core(&reserved.decision), receipt: reserved.receipt })
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

fn together(answered: Vec<Answered>) -> Together<Receipt> {
    let is_allowed = answered.iter().all(|answered| answered.decision.is_allowed());
    let decisions = answered.iter().map(|answered| answered.decision).collect();
    let receipts = answered.into_iter().map(|answered| answered.receipt).collect();
    Together { is_allowed, decisions, receipts: if is_allowed { receipts } else { Vec::new() } }
}

fn checked(checks: &[Check<'_>]) -> Result<(), TrypemaError> {
    problem_with(checks).map_or(Ok(()), |reason| Err(TrypemaError::InvalidChecks { reason }))
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
