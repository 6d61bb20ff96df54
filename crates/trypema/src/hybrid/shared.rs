//! One strategy of an instance: what it holds of each key, and how it asks for more.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::errand::{Driven, Job};
use super::heat::Heat;
use super::holding::{Chore, Decided, Grant, Taken, Trip};
use super::hub::{Errand, Hub};
use super::pace::Pace;
use super::table::{Entry, Shard, Table, find, find_or_add};
use crate::clock::{Clock, Span, SystemClock, Timestamp};
use crate::decision::{Decision, When};
use crate::redis::{Limiter as RedisLimiter, RedisFailure, RedisFailureKind, RedisKey, Sharer};
use crate::strategy::{Back, Leasable, LeaseAsk, Leased};

/// A call that waited for others' answers this often asks for itself.
const MAX_WAITS: usize = 4;

#[derive(Debug)]
pub(super) struct Shared<S: Leasable> {
    pub(super) redis: RedisLimiter<S>,
    pub(super) table: Table<S>,
    pub(super) hub: Arc<Hub>,
    heat: Heat,
    /// Leases to ask for in the background.
    jobs: Mutex<Vec<Job<S>>>,
}

/// A decision, by whatever means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<O> {
    pub(super) outcome: O,
    /// The time by the clock of Redis, about.
    pub(super) now: Timestamp,
}

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
    Ask(Job<S>),
    /// Somebody is asking; so many answers there have been.
    Wait(u64),
}

/// Whether a call is new, or was counted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Again,
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
    pub(super) fn new(redis: RedisLimiter<S>, hub: Arc<Hub>) -> Arc<Self> {
        let (table, heat, jobs) = (Table::new(), Heat::new(), Mutex::default());
        Arc::new(Self { redis, table, hub, heat, jobs })
    }

    pub(super) fn pace(&self, limit: &S::Limit) -> Pace {
        Pace::of::<S>(limit, self.hub.sync_us)
    }

    /// Decides a call by what is held, waiting for Redis where that does not do, until `deadline` or else for as long as a
    /// call may take. Tells where what it spends of leases was recorded.
    pub(super) async fn decide(
        self: &Arc<Self>,
        key: &RedisKey,
        (limit, cost): (&S::Limit, u64),
        (mut turn, mut deadline): (Turn, Option<Timestamp>),
        mut tell: impl FnMut(Back),
    ) -> Result<Reached<S::Outcome>, RedisFailure> {
        for _ in 0..MAX_WAITS {
            match self.here(key, (limit, cost), std::mem::replace(&mut turn, Turn::Again), &mut tell) {
                Here::Decided(found) => return Ok(Reached::Found(found)),
                Here::Cold => break,
                Here::Wait(answers) => {
                    let deadline = *deadline.get_or_insert_with(|| self.redis.deadline_from_now());
                    let patience = self.redis.patience(deadline);
                    self.answered(key, answers, patience).await?;
                    if SystemClock.now() >= patience {
                        break;
                    }
                }
                Here::Ask(job) => {
                    let deadline = *deadline.get_or_insert_with(|| self.redis.deadline_from_now());
                    let errand = Box::pin(self.run(Job { deadline, ..job }));
                    let answer = Driven::new(errand, Arc::clone(&self.hub)).await?;
                    if let Some(found) = answer.found {
                        answer.spent.into_iter().for_each(&mut tell);
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
        key: &RedisKey,
        (limit, cost): (&S::Limit, u64),
        turn: Turn,
        tell: impl FnMut(Back),
    ) -> Here<S> {
        let hash = self.table.hash(key);
        let mut now = self.hub.clock.recent();
        let mut shard = self.table.shard(Table::<S>::place(hash));
        let Some(entry) = self.entry(&mut shard, (hash, key), limit, now) else { return Here::Cold };
        if turn == Turn::First {
            entry.holding.count(now, cost);
        }
        let mut tell = tell;
        let mut taken = entry.holding.take_telling(now, cost, &mut tell);
        if let Taken::Unclear = taken {
            now = Span::at(self.hub.clock.narrow(now));
            taken = entry.holding.take_telling(now, cost, &mut tell);
        }
        match taken {
            Taken::Decided(decided) => {
                if decided.is_low && self.hub.is_running() {
                    let job = self.job(entry, 0);
                    drop(shard);
                    self.queue(job);
                }
                Here::Decided(Found::from(decided))
            }
            // A call that asks for nothing is no reason for a lease.
            Taken::Unknown | Taken::Unclear if cost == 0 => Here::Cold,
            Taken::Unknown | Taken::Unclear if entry.holding.is_asking(now.latest) => {
                Here::Wait(entry.answers)
            }
            Taken::Unknown | Taken::Unclear if entry.holding.is_worth_leasing(now.latest) => {
                Here::Ask(self.job(entry, cost))
            }
            Taken::Unknown | Taken::Unclear => Here::Cold,
        }
    }

    /// What is known of a key, if it is hot or something is known already, and under this limit.
    #[inline]
    pub(super) fn entry<'s>(
        &self,
        shard: &'s mut Shard<S>,
        (hash, key): (u64, &RedisKey),
        limit: &S::Limit,
        now: Span,
    ) -> Option<&'s mut Entry<S>> {
        if find(shard, hash, key).is_none() {
            let pace = self.pace(limit);
            let is_hot = S::IS_LEASED && self.heat.count(hash, now.earliest.as_micros(), pace.interval_us);
            let added =
                is_hot.then(|| find_or_add(shard, (hash, key), (limit, pace), now.earliest)).flatten()?;
            added.holding.warm(now);
            return Some(added);
        }
        let entry = find(shard, hash, key)?;
        if entry.holding.limit() != limit {
            let pace = self.pace(limit);
            entry.change_limit(limit, pace);
            return None;
        }
        Some(entry)
    }

    /// Whether a call is worth deciding by leases, or sure to be denied.
    pub(super) fn standing(&self, key: &RedisKey, (limit, cost): (&S::Limit, u64), turn: Turn) -> Standing {
        let hash = self.table.hash(key);
        let now = Span::at(self.hub.clock.now());
        let mut shard = self.table.shard(Table::<S>::place(hash));
        let Some(entry) = self.entry(&mut shard, (hash, key), limit, now) else { return Standing::Cold };
        if turn == Turn::First {
            entry.holding.count(now, cost);
        }
        if let Some(decision) = entry.holding.denial(now, cost) {
            return Standing::Denied(decision);
        }
        let is_leased = entry.holding.held(now.latest) >= cost.max(1)
            || entry.holding.is_asking(now.latest)
            || entry.holding.is_worth_leasing(now.latest);
        if is_leased { Standing::Leased } else { Standing::Cold }
    }

    /// A lease to ask for, for a call that needs `need`.
    pub(super) fn job(&self, entry: &mut Entry<S>, need: u64) -> Job<S> {
        entry.failure = None;
        let ask = entry.holding.ask(self.hub.clock.now(), need);
        self.job_of(entry, ask, self.hub.sharer())
    }

    fn job_of(&self, entry: &mut Entry<S>, ask: LeaseAsk, sharer: Sharer) -> Job<S> {
        let (key, limit) = (entry.key.clone(), entry.holding.limit().clone());
        let (asked_at, deadline) = (self.hub.clock.now(), self.redis.deadline_from_now());
        Job { key, limit, ask, sharer, asked_at, deadline, version: entry.version }
    }

    /// Leaves a job to the background.
    pub(super) fn queue(&self, job: Job<S>) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        self.hub.ring();
    }

    /// Nobody will do this job.
    pub(super) fn drop_job(&self, job: &Job<S>) {
        self.table.with(&job.key, |entry| entry.holding.failed(&job.ask, true));
    }

    /// Notes what became of a job; returns the answer for the call that needed it, if it is decided.
    pub(super) fn finish(
        &self,
        job: &Job<S>,
        told: Result<&Grant<S::Outcome>, &RedisFailure>,
    ) -> Option<Found<S::Outcome>> {
        let trip = Trip { asked_at: job.asked_at, answered_at: self.hub.clock.now() };
        let (found, waiting) = self.table.with(&job.key, |entry| {
            entry.answers += 1;
            entry.failure = told.err().cloned();
            let found = match told {
                Ok(grant) if entry.version == job.version => entry.holding.granted(&job.ask, trip, grant),
                Ok(_) => {
                    // It was granted under a limit, or before a reset, that is no more: it stays counted until it leaves.
                    entry.holding.failed(&job.ask, false);
                    None
                }
                Err(failure) => {
                    let is_unspent =
                        matches!(failure.kind(), RedisFailureKind::Unavailable | RedisFailureKind::Refused);
                    entry.holding.failed(&job.ask, is_unspent);
                    None
                }
            };
            (found, std::mem::take(&mut entry.waiting))
        })?;
        waiting.into_iter().for_each(Waker::wake);
        let now = told.ok().map(|grant| grant.now)?;
        found.map(|outcome| Found { outcome, now })
    }

    /// Notes that a job was dropped.
    pub(super) fn abandon(&self, job: &Job<S>, is_sent: bool) {
        let waiting = self.table.with(&job.key, |entry| {
            (entry.answers, entry.failure) = (entry.answers + 1, None);
            entry.holding.failed(&job.ask, !is_sent);
            std::mem::take(&mut entry.waiting)
        });
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// Remembers that a plain take was denied.
    pub(super) fn denied(
        &self,
        key: &RedisKey,
        (limit, cost): (&S::Limit, u64),
        (trip, found): (Trip, Found<S::Outcome>),
    ) {
        let decision = S::core(&S::decision(limit, found.outcome.clone(), When::exactly(found.now)));
        if decision.is_never() {
            return;
        }
        let leased = Leased { units: 0, recorded: found.now, outcome: found.outcome };
        let grant = Grant { leased, now: found.now, resets: 0 };
        let remember = |entry: &mut Entry<S>| {
            if entry.holding.limit() == limit {
                entry.holding.denied(cost, trip, &grant);
            }
        };
        self.table.with_new(key, (limit, self.pace(limit)), (trip.answered_at, remember));
    }

    /// The errands that were left to the background since.
    pub(super) fn waiting_errands(self: &Arc<Self>, into: &mut Vec<Errand>) {
        let jobs = std::mem::take(&mut *self.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        into.extend(jobs.into_iter().map(|job| self.errand(job)));
    }

    /// Looks after keys that nobody calls for: gives back what has ended, and forgets what is over.
    pub(super) fn chores(self: &Arc<Self>, into: &mut Vec<Errand>) {
        let now = self.hub.clock.now();
        let mut jobs = Vec::new();
        self.table.sweep(|entry| match entry.holding.chore(now) {
            Chore::Nothing => true,
            Chore::Settle => {
                let ask = entry.holding.settle(now);
                // Nobody shares attempts.
                let sharer = if S::IS_LEASED { self.hub.sharer() } else { self.hub.leaver() };
                jobs.push(self.job_of(entry, ask, sharer));
                true
            }
            Chore::Forget => !entry.waiting.is_empty(),
        });
        into.extend(jobs.into_iter().map(|job| self.errand(job)));
    }

    /// Ends every lease, and gives back what is left of it.
    pub(super) fn release(self: &Arc<Self>, into: &mut Vec<Errand>) {
        let mut jobs = Vec::new();
        let now = self.hub.clock.now();
        self.table.sweep(|entry| {
            entry.holding.end_all();
            while entry.holding.is_owing() || entry.holding.is_unreported() {
                let ask = entry.holding.settle(now);
                jobs.push(self.job_of(entry, ask, self.hub.leaver()));
            }
            true
        });
        into.extend(jobs.into_iter().map(|job| self.errand(job)));
    }

    /// Units held now, of all keys.
    pub(super) fn held(&self) -> u64 {
        let (now, mut held) = (self.hub.clock.now(), 0);
        self.table.sweep(|entry| {
            held += entry.holding.held(now);
            true
        });
        held
    }
}

impl<O> From<Decided<O>> for Found<O> {
    fn from(decided: Decided<O>) -> Self {
        Self { outcome: decided.outcome, now: decided.now }
    }
}
