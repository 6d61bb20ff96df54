//! All-or-nothing takes of several checks, inside this process.
//!
//! The shards of all keys are locked, always in the same order. Then all checks are decided at one moment,
//! and all are taken or none. Each lock guard lives in a stack frame of its own, so the guards need no
//! allocation.

use std::sync::Arc;
use std::time::Duration;

use super::limiter::Limiter;
use super::map::{Hashed, Kept, KeyCall};
use super::provider::LocalRateLimiterProvider;
use super::receipt::{Receipt, Taken};
use super::shard::Shard;
use crate::check::{Check, Together, validate};
use crate::clock::Timestamp;
use crate::decision::{Decision, When};
use crate::error::TrypemaError;
use crate::observer::{Event, Observer};
use crate::strategy::{
    Absolute, Abuse, Call, FixedWindow, LimitOf, SlidingWindow, Strategy, Suppressed, TokenBucket,
    with_strategy,
};

/// A provider with a limiter of strategy `S`.
pub(crate) trait Holds<S: LimitOf> {
    fn limiter(&self) -> &Limiter<S>;
}

/// The location of a check's state.
struct Place<'c> {
    /// The index of the check.
    index: usize,
    check: Check<'c>,
    strategy: &'static str,
    shard: usize,
    key: Hashed<'c>,
}

impl Place<'_> {
    fn is_beside(&self, other: &Self) -> bool {
        self.strategy == other.strategy && self.shard == other.shard
    }
}

/// The two passes over all checks while their shards are locked: the first decides, the second records.
struct Pass {
    now: Timestamp,
    is_recording: bool,
    is_giving_receipts: bool,
    together: Together<Receipt>,
}

impl LocalRateLimiterProvider {
    /// Takes all of `checks`, which may be of different strategies, or none of them. No other caller ever
    /// sees a part of it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::{Check, FixedWindowLimit, Limit, RateLimiter, TokenBucketLimits, TokenLimit};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let tenant = Limit::from(FixedWindowLimit::new(1_000, Duration::from_secs(60))?);
    /// let user = Limit::from(TokenBucketLimits::from(TokenLimit::new(1, Duration::from_secs(60))?));
    /// let checks = [
    ///     Check { key: "acme", limit: &tenant, cost: 1 },
    ///     Check { key: "ann", limit: &user, cost: 1 },
    /// ];
    /// assert!(rl.local().take_all(&checks)?.is_allowed);
    /// let denied = rl.local().take_all(&checks)?;
    /// assert!(!denied.is_allowed && denied.decisions[0].is_allowed());
    /// let usage = rl.local().peek_all(&[Check { cost: 0, ..checks[0] }])?;
    /// assert_eq!(usage.decisions[0].remaining(), 999); // the second time nothing was spent
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn take_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        self.spend_all(checks, Spending::default())
    }

    /// Takes like [`take_all`](Self::take_all), and returns receipts for [`refund_all`](Self::refund_all).
    pub fn reserve_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        self.spend_all(checks, Spending { is_giving_receipts: true })
    }

    /// Returns the decision on each check as if it were the only one, without taking anything.
    pub fn peek_all(&self, checks: &[Check<'_>]) -> Result<Together<Receipt>, TrypemaError> {
        validate(checks)?;
        let peek = |check: &Check<'_>| {
            with_strategy!(check.limit, |S, limit| {
                S::core(&Holds::<S>::limiter(self).peek(check.key, limit, check.cost))
            })
        };
        let decisions: Vec<Decision> = checks.iter().map(peek).collect();
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        Ok(Together { is_allowed, decisions, receipts: Vec::new() })
    }

    /// Refunds the takes of `receipts`, which [`reserve_all`](Self::reserve_all) returned for the same
    /// checks.
    pub fn refund_all(&self, checks: &[Check<'_>], receipts: &[Option<Receipt>]) {
        for (check, receipt) in checks.iter().zip(receipts) {
            if let Some(receipt) = receipt {
                with_strategy!(check.limit, |S, limit| {
                    Holds::<S>::limiter(self).refund(check.key, limit, receipt);
                });
            }
        }
    }

    fn spend_all(&self, checks: &[Check<'_>], spending: Spending) -> Result<Together<Receipt>, TrypemaError> {
        validate(checks)?;
        let started = self.observer().map(|_| self.now());
        let together = match checks {
            [check] if !spending.is_giving_receipts => self.spend_one(check),
            checks => self.spend_many(checks, spending),
        };
        if let (Some(observer), Some(started)) = (self.observer(), started) {
            let latency_us = self.now().as_micros().saturating_sub(started.as_micros());
            tell(observer, checks, &together.decisions, Duration::from_micros(latency_us));
        }
        Ok(together)
    }

    fn spend_one(&self, check: &Check<'_>) -> Together<Receipt> {
        let decision = with_strategy!(check.limit, |S, limit| {
            S::core(&Holds::<S>::limiter(self).take_untold(check.key, limit, check.cost))
        });
        Together { is_allowed: decision.is_allowed(), decisions: vec![decision], receipts: Vec::new() }
    }

    fn spend_many(&self, checks: &[Check<'_>], spending: Spending) -> Together<Receipt> {
        let mut places: Vec<Place<'_>> =
            checks.iter().enumerate().map(|(index, check)| self.place(index, *check)).collect();
        places.sort_unstable_by_key(|place| (place.strategy, place.shard));
        let undecided = Decision::refused();
        let receipts = if spending.is_giving_receipts { vec![None; checks.len()] } else { Vec::new() };
        let mut pass = Pass {
            now: Timestamp::default(),
            is_recording: false,
            is_giving_receipts: spending.is_giving_receipts,
            together: Together { is_allowed: true, decisions: vec![undecided; checks.len()], receipts },
        };
        self.lock(&places, &mut pass, &mut |_| {});
        if !pass.together.is_allowed {
            pass.together.receipts.clear();
        }
        pass.together
    }

    fn place<'c>(&self, index: usize, check: Check<'c>) -> Place<'c> {
        with_strategy!(check.limit, |S, _limit| {
            let map = &Holds::<S>::limiter(self).map;
            let key = map.hashed(check.key);
            Place { index, check, strategy: S::NAME, shard: map.shard_of(key.hash), key }
        })
    }

    /// Locks the shards of `places`, which must be sorted, in one stack frame each. Then `visit` runs over
    /// all of them twice: to decide, and to record.
    fn lock(&self, places: &[Place<'_>], pass: &mut Pass, visit: &mut dyn FnMut(&mut Pass)) {
        let Some(first) = places.first() else {
            pass.now = self.now();
            visit(pass);
            pass.is_recording = true;
            return visit(pass);
        };
        let beside = places.iter().take_while(|place| place.is_beside(first)).count();
        let (here, further) = places.split_at(beside);
        with_strategy!(first.check.limit, |S, _limit| {
            let limiter = Holds::<S>::limiter(self);
            let mut shard = limiter.map.shard_at(first.shard);
            self.lock(further, pass, &mut |pass| {
                visit(pass);
                if pass.is_recording {
                    here.iter().for_each(|place| record::<S>(limiter, &mut shard, place, pass));
                } else {
                    decide::<S>(limiter, &mut shard, here, pass);
                }
            });
        });
    }
}

/// The options of a take.
#[derive(Debug, Clone, Copy, Default)]
struct Spending {
    is_giving_receipts: bool,
}

/// Decides the checks of one shard.
fn decide<S: LimitOf>(limiter: &Limiter<S>, shard: &mut Shard<S>, here: &[Place<'_>], pass: &mut Pass) {
    if here.iter().any(|place| !is_known(shard, place)) {
        // Sweep only before the first decision: a state that is forgotten after that could not be recorded as
        // it was decided.
        limiter.map.sweep(shard, pass.now);
    }
    if limiter.map.is_bounded() {
        for place in here.iter().filter(|place| !is_known(shard, place)).collect::<Vec<_>>() {
            if let Some(limit) = S::limit_of(place.check.limit) {
                limiter.map.settle(shard, KeyCall { key: &place.key, limit, now: pass.now });
            }
        }
    }
    let mut sharing = Sharing::prepare(limiter, shard, here, pass.now);
    for place in here {
        let Some(limit) = S::limit_of(place.check.limit) else { continue };
        let call = Call::new(pass.now, place.check.cost);
        let outcome = match shard.find(place.key.hash, &place.key.key) {
            Some(state) => {
                S::sharpen(state, call.now);
                S::decide(limit, state, call)
            }
            None => sharing.decide(shard, limit, call),
        };
        pass.together.is_allowed &= S::is_admitted(&outcome);
        let decision = S::core(&S::decision(limit, outcome, When::exactly(call.now)));
        pass.together.decisions[place.index] = decision;
    }
}

/// The shared states of the keys in one shard that have no state of their own. Several of these keys may
/// share a state, and each check has to fit beside the ones before it. If there are several keys, they are
/// decided on condensed copies.
struct Sharing<S: Strategy> {
    keys: usize,
    copies: Vec<(usize, S::State)>,
}

impl<S: LimitOf> Sharing<S> {
    /// Creates the states that the keys of `here` share. Their positions then stay valid until everything is
    /// recorded.
    fn prepare(limiter: &Limiter<S>, shard: &mut Shard<S>, here: &[Place<'_>], now: Timestamp) -> Self {
        let mut keys = 0;
        if limiter.map.is_bounded() {
            for place in here {
                if let (false, Some(limit)) = (is_known(shard, place), S::limit_of(place.check.limit)) {
                    shard.overflow().prepare(limit, now);
                    keys += 1;
                }
            }
        }
        Self { keys, copies: Vec::new() }
    }

    fn decide(&mut self, shard: &mut Shard<S>, limit: &S::Limit, call: Call) -> S::Outcome {
        let place = (self.keys > 0).then(|| shard.overflow().place(limit)).flatten();
        let Some(place) = place else { return S::decide(limit, &S::State::default(), call) };
        if self.keys == 1
            && let Some(state) = shard.overflow().at(place, limit)
        {
            return S::decide(limit, state, call);
        }
        let copy = match self.copies.iter().position(|(other, _)| *other == place) {
            Some(copy) => copy,
            None => {
                self.copies.push((place, shard.overflow().copy_of(place, call.now)));
                self.copies.len() - 1
            }
        };
        let state = &mut self.copies[copy].1;
        S::adopt(limit, state);
        let outcome = S::decide(limit, state, call);
        S::commit(limit, state, call, &outcome);
        outcome
    }
}

/// Whether a key has a state of its own.
fn is_known<S: LimitOf>(shard: &mut Shard<S>, place: &Place<'_>) -> bool {
    shard.find(place.key.hash, &place.key.key).is_some()
}

/// Records a check after all were decided. Deciding it again has the same outcome: the shard is still locked,
/// and nothing was forgotten in between.
fn record<S: LimitOf>(limiter: &Limiter<S>, shard: &mut Shard<S>, place: &Place<'_>, pass: &mut Pass) {
    let Some(limit) = S::limit_of(place.check.limit) else { return };
    let (call, is_allowed) = (Call::new(pass.now, place.check.cost), pass.together.is_allowed);
    let commit = |state: &mut S::State| {
        let outcome = S::decide(limit, state, call);
        if is_allowed || !S::is_admitted(&outcome) {
            S::commit(limit, state, call, &outcome);
        } else {
            S::forgo(limit, state, call, &outcome);
        }
        outcome
    };
    let outcome = match shard.find(place.key.hash, &place.key.key) {
        Some(state) => commit(state),
        None => match limiter.map.is_bounded().then(|| shard.prepared(limit)).flatten() {
            Some(state) => commit(state),
            None => {
                let mut state = S::State::default();
                let outcome = commit(&mut state);
                limiter.map.keep_own(shard, &place.key, Kept { state, limit, now: call.now });
                outcome
            }
        },
    };
    if is_allowed && pass.is_giving_receipts {
        let receipt = Limiter::receipt(shard, Taken { key: &place.key, limit, call, outcome: &outcome });
        pass.together.receipts[place.index] = receipt;
    }
}

fn tell(observer: &Arc<dyn Observer>, checks: &[Check<'_>], decisions: &[Decision], latency: Duration) {
    for (check, decision) in checks.iter().zip(decisions) {
        let (strategy, key, cost) = (check.limit.strategy(), check.key, check.cost);
        observer.decided(&Event { strategy, key, cost, decision, latency });
    }
}

macro_rules! holds {
    ($($strategy:ident: $method:ident),+ $(,)?) => {
        $(
            impl Holds<$strategy> for LocalRateLimiterProvider {
                #[inline]
                fn limiter(&self) -> &Limiter<$strategy> {
                    self.$method()
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
