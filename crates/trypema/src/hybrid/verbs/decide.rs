//! Deciding a take: by what is held, by a lease that is asked for, or in Redis.

use std::sync::Arc;

use futures_channel::oneshot;

use crate::clock::{Clock, Source, Span, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::hybrid::background::{FinishInBackground, Found, LeaseRequest, Shared};
use crate::hybrid::state::{Grant, Replied, TakeArgs, Taken, Trip};
use crate::redis::RedisFailure;
use crate::strategy::{Back, Leasable, Leased};
use crate::waiting::{Sleep, before};

/// A call that waited for others' replies this often asks for itself.
const MAX_WAITS: usize = 4;

/// What became of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reached<O> {
    Found(Found<O>),
    /// A plain take has to decide it, until this deadline.
    Cold(Timestamp),
}

/// What can be said of a call without waiting.
#[derive(Debug)]
pub(super) enum Here<S: Leasable> {
    Decided(Found<S::Outcome>),
    /// Nothing is known of the key that would be worth it: it is a plain take.
    Cold,
    /// A lease is worth asking for.
    Ask(LeaseRequest<S>),
    /// Another call has asked: its reply.
    Wait(oneshot::Receiver<Replied>),
}

/// Whether a call is new, or was counted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Again,
}

/// How a call is decided: whether it is counted, and until when. Without a deadline it has the time of any call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) turn: Turn,
    pub(super) deadline: Option<Timestamp>,
}

impl Attempt {
    /// A new call, with the time of any call.
    pub(super) const FIRST: Self = Self { turn: Turn::First, deadline: None };
}

/// How a key stands, for a call that is asked together with others.
#[derive(Debug, Clone, Copy)]
pub(super) enum Standing {
    /// Redis has to be asked.
    Cold,
    /// It is decided by leases.
    Leased,
    /// It is sure to be denied.
    Denied(Decision),
}

impl<S: Leasable> Shared<S> {
    /// Decides a call by what is held, waiting for Redis where that does not do. Tells where what it spends of leases was recorded.
    pub(super) async fn decide(
        self: &Arc<Self>,
        take: TakeArgs<'_, S::Limit>,
        Attempt { mut turn, mut deadline }: Attempt,
        mut tell: impl FnMut(Back),
    ) -> Result<Reached<S::Outcome>, RedisFailure> {
        for _ in 0..MAX_WAITS {
            match self.here(take, std::mem::replace(&mut turn, Turn::Again), &mut tell) {
                Here::Decided(found) => return Ok(Reached::Found(found)),
                Here::Cold => break,
                Here::Wait(reply) => {
                    let deadline = *deadline.get_or_insert_with(|| self.redis.deadline_from_now());
                    let patience = self.redis.patience(deadline);
                    // A request that was dropped is asked again.
                    if let Some(Ok(replied)) = before(reply, Sleep::until(&Source::System, patience)).await {
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

    /// What can be said of a call at once; what it costs is spent.
    #[inline]
    pub(super) fn here(
        self: &Arc<Self>,
        take: TakeArgs<'_, S::Limit>,
        turn: Turn,
        mut tell: impl FnMut(Back),
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
            // A call that asks for nothing is no reason for a lease.
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

    /// The same for a call that cannot wait: `None` if it would have to, and nothing is asked for.
    pub(super) fn here_only(
        self: &Arc<Self>,
        take: TakeArgs<'_, S::Limit>,
        turn: Turn,
        tell: impl FnMut(Back),
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

    /// Whether a call is worth deciding by leases, or sure to be denied.
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

    /// What a peek finds without asking Redis.
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

    /// Remembers that a plain take, asked for at `asked_at`, was denied.
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
        let leased = Leased { units: 0, recorded: found.now, outcome: found.outcome.clone() };
        let grant = Grant { leased, now: found.now, resets: 0 };
        self.table.with_new(take, trip.answered_at, |entry| {
            if entry.holding.limit() == take.limit {
                entry.holding.denied(take.cost, trip, &grant);
            }
        });
    }
}
