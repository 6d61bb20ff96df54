//! Decides a take: with held units, with a new lease, or in Redis.

use std::sync::Arc;

use futures_channel::oneshot;

use crate::clock::{Clock, ClockSource, SystemClock, Timestamp};
use crate::decision::{Decision, DecisionTime};
use crate::hybrid::background::{FinishInBackground, LeaseRequest, LimiterState};
use crate::hybrid::state::{LeaseDecision, LocalDecision, RequestTiming};
use crate::local::TimedOutcome;
use crate::redis::{KeySpend, LeaseResponse, RedisFailure, RedisLimiter};
use crate::strategy::{Leasable, LeaseGrant, LeasedUnits, Origin};
use crate::waiting::{Sleep, with_timeout};

/// The maximum number of attempts to decide a call with a lease. After that, a plain take in Redis decides
/// it.
const MAX_WAITS: usize = 4;

/// The result of trying to decide a call without waiting.
pub(super) enum TryDecide<S: Leasable> {
    Decided(TimedOutcome<S>),
    /// The key is not worth a lease: a plain take in Redis has to decide.
    NeedsRedis,
    /// The caller should send this lease request.
    RequestLease(LeaseRequest<S>),
    /// Another call has sent a lease request, and this is its reply.
    Wait(oneshot::Receiver<Result<(), RedisFailure>>),
}

/// Whether to count a call in the key's demand: `No` if it is counted already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountCall {
    Yes,
    No,
}

/// The conditions of a decision: whether the call is counted, and its deadline. `None` stands for the usual
/// timeout.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) count: CountCall,
    pub(super) deadline: Option<Timestamp>,
}

impl Attempt {
    /// Returns a new call with the usual timeout.
    pub(super) fn first() -> Self {
        Self { count: CountCall::Yes, deadline: None }
    }

    /// Returns the deadline. The usual timeout starts when it is first needed, so that a decision with leases reads no
    /// clock for it.
    pub(super) fn deadline<S: Leasable>(&mut self, redis: &RedisLimiter<S>) -> Timestamp {
        *self.deadline.get_or_insert_with(|| redis.deadline_from_now())
    }
}

/// The source of the decision on a check of an all-or-nothing request.
#[derive(Debug, Clone, Copy)]
pub(super) enum DecidedBy {
    /// Redis has to decide.
    Redis,
    /// Leases decide.
    Lease,
    /// A remembered denial decides.
    Denial(Decision),
}

impl<S: Leasable> LimiterState<S> {
    /// Decides a call with leases, and waits for a lease if necessary. Passes each part that it spends to
    /// `on_spent`, with the time at which Redis recorded it. `None`: a plain take in Redis has to decide, before the
    /// deadline of the attempt.
    pub(super) async fn decide(
        self: &Arc<Self>,
        take: KeySpend<'_, '_, S::Limit>,
        attempt: &mut Attempt,
        mut on_spent: impl FnMut(LeasedUnits),
    ) -> Result<Option<TimedOutcome<S>>, RedisFailure> {
        for _ in 0..MAX_WAITS {
            match self.try_decide(take, std::mem::replace(&mut attempt.count, CountCall::No), &mut on_spent) {
                TryDecide::Decided(found) => return Ok(Some(found)),
                TryDecide::NeedsRedis => break,
                TryDecide::Wait(reply) => {
                    let wait_until = self.redis.shared_wait_deadline(attempt.deadline(&self.redis));
                    // If the request was dropped, the next iteration sends another.
                    if let Some(Ok(result)) =
                        with_timeout(reply, Sleep::until(&ClockSource::System, wait_until)).await
                    {
                        result?;
                    }
                    if SystemClock.now() >= wait_until {
                        break;
                    }
                }
                TryDecide::RequestLease(request) => {
                    let sent = Box::pin(self.send(request.with_deadline(attempt.deadline(&self.redis))));
                    if let Some((found, spent)) = FinishInBackground::new(sent, &self.instance).await? {
                        if spent.units > 0 {
                            on_spent(spent);
                        }
                        return Ok(Some(found));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Tries to decide a call without waiting, and spends its cost.
    #[inline]
    pub(super) fn try_decide(
        self: &Arc<Self>,
        take: KeySpend<'_, '_, S::Limit>,
        count: CountCall,
        mut on_spent: impl FnMut(LeasedUnits),
    ) -> TryDecide<S> {
        let now = self.instance.clock.now();
        let mut shard = self.table.shard(take.key);
        let known = match count {
            CountCall::Yes => self.table.count_call(&mut shard, take, now),
            CountCall::No => self.table.find(&mut shard, take),
        };
        let Some(entry) = known else { return TryDecide::NeedsRedis };
        match entry.holding.take_with(now, take.spend.cost, &mut on_spent) {
            LocalDecision::Decided(decided) => {
                if decided.is_low && self.instance.queue.is_open() {
                    let request = self.lease_request(entry, 0);
                    drop(shard);
                    self.queue(request);
                }
                TryDecide::Decided(timed(decided))
            }
            // A cost of 0 is no reason for a lease.
            LocalDecision::NeedsRedis if take.spend.cost == 0 => TryDecide::NeedsRedis,
            LocalDecision::NeedsRedis if entry.holding.is_requesting(now) => {
                TryDecide::Wait(entry.wait_for_reply())
            }
            LocalDecision::NeedsRedis if entry.holding.is_worth_leasing(now) => {
                TryDecide::RequestLease(self.lease_request(entry, take.spend.cost))
            }
            LocalDecision::NeedsRedis => TryDecide::NeedsRedis,
        }
    }

    /// Same as [`try_decide`](Self::try_decide), for a call that cannot wait. Returns `None` if the call
    /// would have to wait, and requests no lease for it.
    pub(super) fn decide_now(
        self: &Arc<Self>,
        take: KeySpend<'_, '_, S::Limit>,
        count: CountCall,
        on_spent: impl FnMut(LeasedUnits),
    ) -> Option<TimedOutcome<S>> {
        match self.try_decide(take, count, on_spent) {
            TryDecide::Decided(found) => Some(found),
            TryDecide::RequestLease(request) => {
                self.withdraw(&request);
                None
            }
            TryDecide::NeedsRedis | TryDecide::Wait(_) => None,
        }
    }

    /// Returns whether leases, a remembered denial or Redis decides a call.
    pub(super) fn decided_by(&self, take: KeySpend<'_, '_, S::Limit>, count: CountCall) -> DecidedBy {
        let now = self.instance.clock.now();
        let mut shard = self.table.shard(take.key);
        let known = match count {
            CountCall::Yes => self.table.count_call(&mut shard, take, now),
            CountCall::No => self.table.find(&mut shard, take),
        };
        let Some(entry) = known else { return DecidedBy::Redis };
        if let Some(decision) = entry.holding.denial(now, take.spend.cost) {
            return DecidedBy::Denial(decision);
        }
        let is_leased = entry.holding.held(now) >= take.spend.cost.max(1)
            || entry.holding.is_requesting(now)
            || entry.holding.is_worth_leasing(now);
        if is_leased { DecidedBy::Lease } else { DecidedBy::Redis }
    }

    /// Peeks without calling Redis; `None` if Redis has to decide.
    pub(super) fn peek(&self, take: KeySpend<'_, '_, S::Limit>) -> Option<TimedOutcome<S>> {
        let now = self.instance.clock.now();
        let peeked = self.table.with(take.key, |entry| {
            (entry.holding.limit() == take.limit).then(|| entry.holding.peek(now, take.spend.cost))
        });
        match peeked.flatten() {
            Some(LocalDecision::Decided(decided)) => Some(timed(decided)),
            Some(LocalDecision::NeedsRedis) | None => None,
        }
    }

    /// Remembers the denial of a plain take that was sent at `requested_at`.
    pub(super) fn remember_denial(
        &self,
        take: KeySpend<'_, '_, S::Limit>,
        requested_at: Timestamp,
        (outcome, now): (&S::Outcome, Timestamp),
    ) {
        let decision = S::core(&S::decision(take.limit, outcome.clone(), DecisionTime::exactly(now)));
        if !S::REMEMBERS_DENIALS || decision.is_never() {
            return;
        }
        let timing = RequestTiming { requested_at, replied_at: self.instance.clock.now() };
        let lease =
            LeaseGrant { units: 0, recorded: now, origin: Origin::default(), outcome: outcome.clone() };
        let grant = LeaseResponse { lease, now, instances: 0, resets: 0 };
        self.table.with_or_insert(take, timing.replied_at, |entry| {
            if entry.holding.limit() == take.limit {
                entry.holding.remember_denial(take.spend.cost, timing, &grant);
            }
        });
    }
}

fn timed<S: Leasable>(decided: LeaseDecision<S::Outcome>) -> TimedOutcome<S> {
    TimedOutcome { outcome: decided.outcome, decided_at: DecisionTime::exactly(decided.now) }
}
