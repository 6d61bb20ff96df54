//! Decides a take: with held units, with a new lease, or in Redis.

use std::sync::Arc;

use futures_channel::oneshot;

use crate::clock::{Clock, ClockSource, Span, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::hybrid::background::{FinishInBackground, Found, LeaseRequest, Shared};
use crate::hybrid::state::{Grant, Replied, TakeArgs, Taken, Trip};
use crate::redis::RedisFailure;
use crate::strategy::{Leasable, LeaseGrant, UnspentUnits};
use crate::waiting::{Sleep, with_timeout};

/// The maximum number of attempts to decide a call with a lease. After that, a plain take in Redis decides
/// it.
const MAX_WAITS: usize = 4;

/// The result of trying to decide a call with leases.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reached<O> {
    Found(Found<O>),
    /// A plain take in Redis has to decide the call, before this deadline.
    Cold(Timestamp),
}

/// The result of trying to decide a call without waiting.
#[derive(Debug)]
pub(super) enum Here<S: Leasable> {
    Decided(Found<S::Outcome>),
    /// The key is not worth a lease: a plain take in Redis has to decide.
    Cold,
    /// The caller should send this lease request.
    Ask(LeaseRequest<S>),
    /// Another call has sent a lease request, and this is its reply.
    Wait(oneshot::Receiver<Replied>),
}

/// Whether a call is new, or already counted in the key's demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Again,
}

/// The conditions of a decision: whether the call is counted, and its deadline. `None` stands for the usual
/// timeout.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) turn: Turn,
    pub(super) deadline: Option<Timestamp>,
}

impl Attempt {
    /// A new call with the usual timeout.
    pub(super) const FIRST: Self = Self { turn: Turn::First, deadline: None };
}

/// The state of a key, for a check of an all-or-nothing request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Standing {
    /// Redis has to decide.
    Cold,
    /// Leases decide.
    Leased,
    /// A remembered denial decides.
    Denied(Decision),
}

impl<S: Leasable> Shared<S> {
    /// Decides a call with leases, and waits for a lease if necessary. Passes each part that it spends to
    /// `tell`, with the time at which Redis recorded it.
    pub(super) async fn decide(
        self: &Arc<Self>,
        take: TakeArgs<'_, S::Limit>,
        Attempt { mut turn, mut deadline }: Attempt,
        mut tell: impl FnMut(UnspentUnits),
    ) -> Result<Reached<S::Outcome>, RedisFailure> {
        for _ in 0..MAX_WAITS {
            match self.here(take, std::mem::replace(&mut turn, Turn::Again), &mut tell) {
                Here::Decided(found) => return Ok(Reached::Found(found)),
                Here::Cold => break,
                Here::Wait(reply) => {
                    let deadline = *deadline.get_or_insert_with(|| self.redis.deadline_from_now());
                    let patience = self.redis.patience(deadline);
                    // If the request was dropped, the next iteration sends another.
                    if let Some(Ok(replied)) =
                        with_timeout(reply, Sleep::until(&ClockSource::System, patience)).await
                    {
                        replied?;
                    }
                    if SystemClock.now() >= patience {
                        break;
                    }
                }
                Here::Ask(request) => {
                    let deadline = *deadline.get_or_insert_with(|| self.redis.deadline_from_now());
                    let sent = Box::pin(self.send(request.until(deadline)));
                    let reply = FinishInBackground::new(sent, &self.instance).await?;
                    if let Some(found) = reply.found {
                        reply.spent.into_iter().for_each(&mut tell);
                        return Ok(Reached::Found(found));
                    }
                }
            }
        }
        Ok(Reached::Cold(deadline.unwrap_or_else(|| self.redis.deadline_from_now())))
    }

    /// Tries to decide a call without waiting, and spends its cost.
    #[inline]
    pub(super) fn here(
        self: &Arc<Self>,
        take: TakeArgs<'_, S::Limit>,
        turn: Turn,
        mut tell: impl FnMut(UnspentUnits),
    ) -> Here<S> {
        let mut now = self.instance.clock.recent();
        let mut shard = self.table.shard(take.key);
        let known = match turn {
            Turn::First => self.table.called(&mut shard, take, now),
            Turn::Again => self.table.known(&mut shard, take),
        };
        let Some(entry) = known else { return Here::Cold };
        let mut taken = entry.holding.take_telling(now, take.cost, &mut tell);
        if let Taken::Unclear = taken {
            now = Span::at(self.instance.clock.narrow(now));
            taken = entry.holding.take_telling(now, take.cost, &mut tell);
        }
        match taken {
            Taken::Decided(decided) => {
                if decided.is_low && self.instance.queue.is_open() {
                    let request = self.lease_request(entry, 0);
                    drop(shard);
                    self.queue(request);
                }
                Here::Decided(Found::from(decided))
            }
            // A cost of 0 is no reason for a lease.
            Taken::Unknown | Taken::Unclear if take.cost == 0 => Here::Cold,
            Taken::Unknown | Taken::Unclear if entry.holding.is_asking(now.latest) => {
                Here::Wait(entry.wait_for_reply())
            }
            Taken::Unknown | Taken::Unclear if entry.holding.is_worth_leasing(now.latest) => {
                Here::Ask(self.lease_request(entry, take.cost))
            }
            Taken::Unknown | Taken::Unclear => Here::Cold,
        }
    }

    /// Same as [`here`](Self::here), for a call that cannot wait. Returns `None` if the call would have to
    /// wait, and requests no lease for it.
    pub(super) fn here_only(
        self: &Arc<Self>,
        take: TakeArgs<'_, S::Limit>,
        turn: Turn,
        tell: impl FnMut(UnspentUnits),
    ) -> Option<Found<S::Outcome>> {
        match self.here(take, turn, tell) {
            Here::Decided(found) => Some(found),
            Here::Ask(request) => {
                self.withdraw(&request);
                None
            }
            Here::Cold | Here::Wait(_) => None,
        }
    }

    /// Returns whether leases, a remembered denial or Redis decides a call.
    pub(super) fn standing(&self, take: TakeArgs<'_, S::Limit>, turn: Turn) -> Standing {
        let now = Span::at(self.instance.clock.now());
        let mut shard = self.table.shard(take.key);
        let known = match turn {
            Turn::First => self.table.called(&mut shard, take, now),
            Turn::Again => self.table.known(&mut shard, take),
        };
        let Some(entry) = known else { return Standing::Cold };
        if let Some(decision) = entry.holding.denial(now, take.cost) {
            return Standing::Denied(decision);
        }
        let is_leased = entry.holding.held(now.latest) >= take.cost.max(1)
            || entry.holding.is_asking(now.latest)
            || entry.holding.is_worth_leasing(now.latest);
        if is_leased { Standing::Leased } else { Standing::Cold }
    }

    /// Peeks without calling Redis; `None` if Redis has to decide.
    pub(super) fn peeked(&self, take: TakeArgs<'_, S::Limit>) -> Option<Found<S::Outcome>> {
        let now = Span::at(self.instance.clock.now());
        let peeked = self.table.with(take.key, |entry| {
            (entry.holding.limit() == take.limit).then(|| entry.holding.peek(now, take.cost))
        });
        match peeked.flatten() {
            Some(Taken::Decided(decided)) => Some(Found::from(decided)),
            Some(Taken::Unclear | Taken::Unknown) | None => None,
        }
    }

    /// Remembers the denial of a plain take that was sent at `asked_at`.
    pub(super) fn denied(
        &self,
        take: TakeArgs<'_, S::Limit>,
        asked_at: Timestamp,
        found: &Found<S::Outcome>,
    ) {
        if S::core(&found.clone().decision::<S>(take.limit)).is_never() {
            return;
        }
        let trip = Trip { asked_at, answered_at: self.instance.clock.now() };
        let leased = LeaseGrant { units: 0, recorded: found.now, outcome: found.outcome.clone() };
        let grant = Grant { leased, now: found.now, resets: 0 };
        self.table.with_new(take, trip.answered_at, |entry| {
            if entry.holding.limit() == take.limit {
                entry.holding.denied(take.cost, trip, &grant);
            }
        });
    }
}
