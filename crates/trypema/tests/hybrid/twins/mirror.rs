//! The expected replies of Redis, computed by the Rust strategies and the documented rules of leases.

use trypema::DecisionTime;
use trypema::clock::Timestamp;
use trypema::strategy::{Call, Leasable, LeaseCall, LeaseGrant, LeaseParams, LeasedUnits, Refund, Strategy};
use trypema_testkit::model::LiveInstances;
use trypema_testkit::subject::RedisStrategy;

use super::CoreOf;
use super::steps::{From, Step, Verb};

/// The expected state of one key.
pub(crate) struct Mirror<M: RedisStrategy<Strategy: Leasable>> {
    state: Option<<CoreOf<M> as Strategy>::State>,
    resets: u32,
    /// The time of each instance's last lease request.
    instances: LiveInstances<u64>,
    /// The reservations, each with whether it was refunded.
    receipts: Vec<(LeasedUnits, bool)>,
    /// The leases granted so far, to be refunded by later steps.
    pub(crate) granted: Vec<LeasedUnits>,
    pub(crate) leased_units: u64,
    pub(crate) last_remaining: u64,
    pub(crate) last_wait_us: u64,
}

impl<M: RedisStrategy<Strategy: Leasable>> Default for Mirror<M> {
    fn default() -> Self {
        Self {
            state: None,
            resets: 0,
            instances: LiveInstances::default(),
            receipts: Vec::new(),
            granted: Vec::new(),
            leased_units: 0,
            last_remaining: 0,
            last_wait_us: 0,
        }
    }
}

/// Formats a decision for comparison, with every field that a caller can read.
pub(crate) fn seen<M: RedisStrategy>(decision: &<CoreOf<M> as Strategy>::Decision<'_>) -> String {
    let core = CoreOf::<M>::core(decision);
    let numbers = (core.is_allowed(), core.limit(), core.remaining());
    let (wait, reset) = (core.retry_after(), core.reset_after());
    format!("{numbers:?} wait {wait:?} reset {reset:?} {:?}", M::detail(decision))
}

/// Formats a lease for comparison.
pub(crate) fn shown<M: RedisStrategy<Strategy: Leasable>>(
    limit: &<CoreOf<M> as Strategy>::Limit,
    leased: &LeaseGrant<<CoreOf<M> as Strategy>::Outcome>,
    now: Timestamp,
) -> String {
    let decision = CoreOf::<M>::decision(limit, leased.outcome.clone(), DecisionTime::exactly(now));
    // An empty lease has no time, and joins no count.
    let recorded = (leased.units > 0).then_some((leased.recorded.as_micros(), leased.origin));
    let allows_local_draws = CoreOf::<M>::allows_local_draws(&leased.outcome);
    format!("{} units at {recorded:?}, drawing {allows_local_draws}: {}", leased.units, seen::<M>(&decision))
}

impl<M: RedisStrategy<Strategy: Leasable>> Mirror<M> {
    /// Computes the reply to `step`. `is_reset` comes from Redis, because Redis keeps some keys for longer
    /// than their state matters.
    pub(crate) fn play(&mut self, step: &Step<M>, is_reset: bool) -> String {
        let limit = M::limit(&step.limit);
        let now = Timestamp::from_micros(step.now_us);
        match step.verb {
            Verb::Lease { ask, from } => self.lease(&limit, now, ask, from),
            Verb::Take(cost) => self.decide(&limit, Call::new(now, cost), true),
            Verb::Postpaid(cost) => self.decide(&limit, Call::new(now, cost).postpaid(), true),
            Verb::Debit(cost) => self.decide(&limit, Call::new(now, cost).debit(), true),
            Verb::Peek(cost) => self.decide(&limit, Call::new(now, cost), false),
            Verb::Reserve(cost) => self.take_with_receipt(&limit, Call::new(now, cost)),
            Verb::Refund(index) => self.refund(&limit, now, index),
            Verb::RefundUnits(units) => self.give_back(&limit, Refund { now, units, recorded: None }),
            Verb::Reset => {
                self.state = None;
                self.resets += u32::from(is_reset);
                String::new()
            }
        }
    }

    fn lease(
        &mut self,
        limit: &<CoreOf<M> as Strategy>::Limit,
        now: Timestamp,
        mut ask: LeaseParams,
        from: From,
    ) -> String {
        let instances = self.instances.heartbeat(from.instance, now.as_micros(), from.live_for_us);
        if ask.unspent.resets != self.resets {
            ask.unspent = LeasedUnits::default();
        }
        let state = self.state.get_or_insert_default();
        let leased = CoreOf::<M>::lease(limit, state, LeaseCall { now, params: &ask, instances });
        let answer = shown::<M>(limit, &leased, now);
        if leased.units > 0 {
            self.leased_units += leased.units;
            self.granted.push(LeasedUnits {
                units: leased.units,
                recorded: leased.recorded,
                origin: leased.origin,
                resets: self.resets,
            });
        }
        self.note(limit, leased.outcome, now);
        format!("{answer} of {instances} instances after {} resets", self.resets)
    }

    fn decide(&mut self, limit: &<CoreOf<M> as Strategy>::Limit, call: Call, is_spending: bool) -> String {
        let outcome = self.outcome(limit, call, is_spending);
        self.note(limit, outcome.clone(), call.now);
        seen::<M>(&CoreOf::<M>::decision(limit, outcome, DecisionTime::exactly(call.now)))
    }

    fn outcome(
        &mut self,
        limit: &<CoreOf<M> as Strategy>::Limit,
        call: Call,
        is_spending: bool,
    ) -> <CoreOf<M> as Strategy>::Outcome {
        let mut state = self.state.clone().unwrap_or_default();
        let outcome = CoreOf::<M>::decide(limit, &state, call);
        if is_spending {
            CoreOf::<M>::commit(limit, &mut state, call, &outcome);
            self.state = Some(state);
        }
        outcome
    }

    fn take_with_receipt(&mut self, limit: &<CoreOf<M> as Strategy>::Limit, call: Call) -> String {
        let outcome = self.outcome(limit, call, true);
        self.note(limit, outcome.clone(), call.now);
        let is_taken = CoreOf::<M>::is_admitted(&outcome) && call.cost > 0;
        if is_taken {
            let recorded = CoreOf::<M>::recorded_at(limit, &outcome, call);
            let origin = self.state.as_ref().map(CoreOf::<M>::origin).unwrap_or_default();
            let taken = LeasedUnits { units: call.cost, recorded, origin, resets: self.resets };
            self.receipts.push((taken, false));
        }
        let decision = CoreOf::<M>::decision(limit, outcome, DecisionTime::exactly(call.now));
        format!("{} {is_taken:?}", seen::<M>(&decision))
    }

    fn refund(&mut self, limit: &<CoreOf<M> as Strategy>::Limit, now: Timestamp, index: usize) -> String {
        let Some((back, is_given_back)) = self.receipts.get_mut(index) else { return String::new() };
        let counts_until = back.recorded.as_micros() + CoreOf::<M>::retention_us(limit);
        if *is_given_back || back.resets != self.resets || counts_until <= now.as_micros() {
            return "0".to_owned();
        }
        *is_given_back = true;
        let refund = Refund { now, units: back.units, recorded: Some(back.recorded()) };
        self.give_back(limit, refund)
    }

    fn give_back(&mut self, limit: &<CoreOf<M> as Strategy>::Limit, refund: Refund) -> String {
        let given_back = self.state.as_mut().map_or(0, |state| CoreOf::<M>::refund(limit, state, refund));
        given_back.to_string()
    }

    /// Remembers the remaining units and the wait, so that later steps can test these boundaries.
    fn note(
        &mut self,
        limit: &<CoreOf<M> as Strategy>::Limit,
        outcome: <CoreOf<M> as Strategy>::Outcome,
        now: Timestamp,
    ) {
        let core = CoreOf::<M>::core(&CoreOf::<M>::decision(limit, outcome, DecisionTime::exactly(now)));
        self.last_remaining = core.remaining();
        self.last_wait_us = core.retry_after().map_or(0, |wait| wait.as_micros() as u64);
    }

    pub(crate) fn receipts(&self) -> usize {
        self.receipts.len()
    }

    pub(crate) fn resets(&self) -> u32 {
        self.resets
    }
}
