//! All-or-nothing takes of several checks, inside this process.
//!
//! The shards of all keys are locked, always in the same order. Then all checks are decided at one moment,
//! and all are taken or none. Each lock guard lives in a stack frame of its own, so the guards need no
//! allocation.

use std::any::TypeId;
use std::time::Duration;

use super::limiter::LocalLimiter;
use super::map::{HashedKey, KeyCall, NewState};
use super::provider::LocalRateLimiterProvider;
use super::receipt::{CommittedTake, LocalReceipt};
use super::shard::Shard;
use crate::check::{Check, MultiDecision, validate, validate_take};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime};
use crate::error::TrypemaError;
use crate::observer::Event;
use crate::strategy::{Call, Listed, SharedState, Spend, Strategy, with_strategy};

/// The location of a check's state.
struct CheckLocation<'c> {
    /// The index of the check.
    index: usize,
    check: &'c Check<'c>,
    /// The strategy's type. Its order is the same for all callers, and it is quicker to compare than the name.
    strategy: TypeId,
    shard: usize,
    key: HashedKey<'c>,
}

impl CheckLocation<'_> {
    fn is_in_same_shard(&self, other: &Self) -> bool {
        self.strategy == other.strategy && self.shard == other.shard
    }
}

/// The two passes over all checks while their shards are locked: the first decides, the second records.
struct Pass {
    now: Timestamp,
    is_recording: bool,
    with_receipts: bool,
    result: MultiDecision<LocalReceipt>,
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
    ///     Check::new("acme", &tenant, 1),
    ///     Check::new("ann", &user, 1),
    /// ];
    /// assert!(rl.local().take_all(&checks)?.is_allowed);
    /// let denied = rl.local().take_all(&checks)?;
    /// assert!(!denied.is_allowed && denied.decisions[0].is_allowed());
    /// let usage = rl.local().peek_all(&[Check { cost: 0, ..checks[0] }])?;
    /// assert_eq!(usage.decisions[0].remaining(), 999); // the second time nothing was spent
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn take_all(&self, checks: &[Check<'_>]) -> Result<MultiDecision<LocalReceipt>, TrypemaError> {
        self.take_checks(checks, TakeOptions::default())
    }

    /// Takes like [`take_all`](Self::take_all), and returns receipts for [`refund_all`](Self::refund_all).
    pub fn take_all_with_receipts(
        &self,
        checks: &[Check<'_>],
    ) -> Result<MultiDecision<LocalReceipt>, TrypemaError> {
        self.take_checks(checks, TakeOptions { with_receipts: true, ..TakeOptions::default() })
    }

    /// Returns the decision on each check as if it were the only one, without taking anything.
    pub fn peek_all(&self, checks: &[Check<'_>]) -> Result<MultiDecision<LocalReceipt>, TrypemaError> {
        validate(checks)?;
        let peek = |check: &Check<'_>| {
            with_strategy!(check.limit, |S, limit| {
                let peeked = self.limiter::<S>().peek_at(check.key, limit, check.spend());
                S::core(&peeked.decision(limit))
            })
        };
        let decisions: Vec<Decision> = checks.iter().map(peek).collect();
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        Ok(MultiDecision { is_allowed, decisions, receipts: Vec::new() })
    }

    /// Refunds the takes of `receipts`, which [`take_all_with_receipts`](Self::take_all_with_receipts) returned for the same
    /// checks.
    pub fn refund_all(&self, checks: &[Check<'_>], receipts: &[Option<LocalReceipt>]) {
        for (check, receipt) in checks.iter().zip(receipts) {
            if let Some(receipt) = receipt {
                with_strategy!(check.limit, |S, limit| {
                    self.limiter::<S>().refund(check.key, limit, receipt);
                });
            }
        }
    }

    fn take_checks(
        &self,
        checks: &[Check<'_>],
        options: TakeOptions,
    ) -> Result<MultiDecision<LocalReceipt>, TrypemaError> {
        validate_take(checks)?;
        let started = self.observed_from();
        let result = match checks {
            [check] if !options.with_receipts && !check.is_postpaid => self.take_single(check),
            checks => self.take_many(checks, options),
        };
        self.notify_decisions(started, checks.iter().zip(&result.decisions));
        Ok(result)
    }

    /// Returns the time from which the observer counts the latency of a call. `None` without an observer.
    pub(super) fn observed_from(&self) -> Option<Timestamp> {
        self.observer().map(|_| self.now())
    }

    /// Notifies the observer of decisions. No lock may be held: it may call the limiter.
    pub(super) fn notify_decisions<'c>(
        &self,
        started: Option<Timestamp>,
        decided: impl Iterator<Item = (&'c Check<'c>, &'c Decision)>,
    ) {
        let (Some(observer), Some(started)) = (self.observer(), started) else { return };
        let latency = Duration::from_micros(self.now().as_micros().saturating_sub(started.as_micros()));
        for (check, decision) in decided {
            let (strategy, key, cost) = (check.limit.strategy(), check.key, check.cost);
            observer.decided(&Event { strategy, key, cost, decision, latency });
        }
    }

    fn take_single(&self, check: &Check<'_>) -> MultiDecision<LocalReceipt> {
        let decision = with_strategy!(check.limit, |S, limit| {
            S::core(&self.limiter::<S>().take_unobserved(check.key, limit, check.cost))
        });
        MultiDecision { is_allowed: decision.is_allowed(), decisions: vec![decision], receipts: Vec::new() }
    }

    /// Takes all of `checks` or none, without notifying the observer.
    pub(super) fn take_many(
        &self,
        checks: &[Check<'_>],
        options: TakeOptions,
    ) -> MultiDecision<LocalReceipt> {
        let mut locations: Vec<CheckLocation<'_>> =
            checks.iter().enumerate().map(|(index, check)| self.locate(index, check)).collect();
        locations.sort_unstable_by_key(|location| (location.strategy, location.shard));
        let undecided = Decision::refused();
        let receipts = if options.with_receipts { vec![None; checks.len()] } else { Vec::new() };
        let mut pass = Pass {
            now: Timestamp::default(),
            is_recording: false,
            with_receipts: options.with_receipts,
            result: MultiDecision {
                is_allowed: !options.is_denied_elsewhere,
                decisions: vec![undecided; checks.len()],
                receipts,
            },
        };
        self.lock(&locations, &mut pass, &mut |_| {});
        if !pass.result.is_allowed {
            pass.result.receipts.clear();
        }
        pass.result
    }

    fn locate<'c>(&self, index: usize, check: &'c Check<'c>) -> CheckLocation<'c> {
        with_strategy!(check.limit, |S, _limit| {
            let map = &self.limiter::<S>().map;
            let key = map.hash_key(check.key);
            let (strategy, shard) = (TypeId::of::<S>(), map.shard_index(key.hash));
            CheckLocation { index, check, strategy, shard, key }
        })
    }

    /// Locks the shards of `locations`, which must be sorted, in one stack frame each. Then `visit` runs over
    /// all of them twice: to decide, and to record.
    fn lock(&self, locations: &[CheckLocation<'_>], pass: &mut Pass, visit: &mut dyn FnMut(&mut Pass)) {
        let Some(first) = locations.first() else {
            pass.now = self.now();
            visit(pass);
            pass.is_recording = true;
            return visit(pass);
        };
        let count = locations.iter().take_while(|location| location.is_in_same_shard(first)).count();
        let (in_shard, others) = locations.split_at(count);
        with_strategy!(first.check.limit, |S, _limit| {
            let limiter = self.limiter::<S>();
            let mut shard = limiter.map.shard_at(first.shard);
            self.lock(others, pass, &mut |pass| {
                visit(pass);
                if pass.is_recording {
                    in_shard.iter().for_each(|location| record::<S>(limiter, &mut shard, location, pass));
                } else {
                    decide::<S>(limiter, &mut shard, in_shard, pass);
                }
            });
        });
    }
}

/// The options of a take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TakeOptions {
    pub(super) with_receipts: bool,
    /// Whether the request is denied whatever these checks decide. Nothing is spent then, and only strategies
    /// that count denials record it.
    pub(super) is_denied_elsewhere: bool,
}

/// Decides the checks of one shard.
fn decide<S: Listed>(
    limiter: &LocalLimiter<S>,
    shard: &mut Shard<S>,
    in_shard: &[CheckLocation<'_>],
    pass: &mut Pass,
) {
    if in_shard.iter().any(|location| !is_known(shard, location)) {
        // Sweep only before the first decision: a state that is forgotten after that could not be recorded as
        // it was decided.
        limiter.map.sweep(shard, pass.now);
    }
    if limiter.map.is_bounded() {
        for location in in_shard.iter().filter(|location| !is_known(shard, location)).collect::<Vec<_>>() {
            if let Some(limit) = S::limit_of(location.check.limit) {
                limiter.map.ensure_state(shard, KeyCall { key: &location.key, limit, now: pass.now });
            }
        }
    }
    let mut shared = SharedStates::prepare(limiter, shard, in_shard, pass.now);
    for location in in_shard {
        let Some(limit) = S::limit_of(location.check.limit) else { continue };
        let call = location.check.spend().at(pass.now);
        let outcome = match shard.find(location.key.hash, &location.key.key) {
            Some(state) => S::decide(limit, state, call),
            None => shared.decide(shard, limit, call),
        };
        pass.result.is_allowed &= S::is_admitted(&outcome);
        let decision = S::core(&S::decision(limit, outcome, DecisionTime::exactly(call.now)));
        pass.result.decisions[location.index] = decision;
    }
}

/// The shared states of the keys in one shard that have no state of their own. Several keys may share one
/// state, so each check has to fit in addition to the checks before it. Several keys are therefore decided on
/// condensed copies of their states.
struct SharedStates<S: Strategy> {
    keys: usize,
    copies: Vec<(usize, S::State)>,
}

impl<S: Listed> SharedStates<S> {
    /// Creates the shared states that keys of `in_shard` without a state of their own use. No state is added
    /// or removed after that, so positions stay valid until everything is recorded.
    fn prepare(
        limiter: &LocalLimiter<S>,
        shard: &mut Shard<S>,
        in_shard: &[CheckLocation<'_>],
        now: Timestamp,
    ) -> Self {
        let mut keys = 0;
        if limiter.map.is_bounded() {
            for location in in_shard {
                if let (false, Some(limit)) = (is_known(shard, location), S::limit_of(location.check.limit)) {
                    shard.overflow().prepare(limit, now);
                    keys += 1;
                }
            }
        }
        Self { keys, copies: Vec::new() }
    }

    fn decide(&mut self, shard: &mut Shard<S>, limit: &S::Limit, call: Call) -> S::Outcome {
        let location = (self.keys > 0).then(|| shard.overflow().index_of(limit)).flatten();
        let Some(location) = location else { return S::decide(limit, &S::State::default(), call) };
        if self.keys == 1
            && let Some(state) = shard.overflow().state_at(location, limit)
        {
            return S::decide(limit, state, call);
        }
        let copy = match self.copies.iter().position(|(other, _)| *other == location) {
            Some(copy) => copy,
            None => {
                self.copies.push((location, shard.overflow().copy_of(location, call.now)));
                self.copies.len() - 1
            }
        };
        let state = &mut self.copies[copy].1;
        state.adopt(limit);
        let outcome = S::decide(limit, state, call);
        S::commit(limit, state, call, &outcome);
        outcome
    }
}

/// Whether a key has a state of its own.
fn is_known<S: Listed>(shard: &mut Shard<S>, location: &CheckLocation<'_>) -> bool {
    shard.find(location.key.hash, &location.key.key).is_some()
}

/// Records a check after all were decided. Deciding it again has the same outcome: the shard is still locked,
/// and nothing was forgotten in between.
fn record<S: Listed>(
    limiter: &LocalLimiter<S>,
    shard: &mut Shard<S>,
    location: &CheckLocation<'_>,
    pass: &mut Pass,
) {
    let Some(limit) = S::limit_of(location.check.limit) else { return };
    let (call, is_allowed) = (location.check.spend().at(pass.now), pass.result.is_allowed);
    let mut commit = |state: &mut S::State| {
        let outcome = S::decide(limit, state, call);
        if is_allowed || !S::is_admitted(&outcome) {
            S::commit(limit, state, call, &outcome);
            return (outcome, S::origin(state));
        }
        let decision = &mut pass.result.decisions[location.index];
        if decision.is_allowed() {
            let left = S::decide(limit, state, Spend::NOTHING.at(call.now));
            *decision = S::core(&S::decision(limit, left, DecisionTime::exactly(call.now)));
        }
        S::record_denied_elsewhere(limit, state, call, &outcome);
        (outcome, S::origin(state))
    };
    let (outcome, origin) = match shard.find(location.key.hash, &location.key.key) {
        Some(state) => commit(state),
        None => match limiter.map.is_bounded().then(|| shard.prepared(limit)).flatten() {
            Some(state) => commit(state),
            None => {
                let mut state = S::State::default();
                let committed = commit(&mut state);
                limiter.map.insert_reserved(shard, &location.key, NewState { state, limit, now: call.now });
                committed
            }
        },
    };
    if is_allowed && pass.with_receipts {
        let receipt = LocalLimiter::receipt(
            shard,
            CommittedTake { key: &location.key, limit, call, outcome: &outcome, origin },
        );
        pass.result.receipts[location.index] = receipt;
    }
}
