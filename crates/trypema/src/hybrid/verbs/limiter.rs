//! One strategy on the hybrid provider: every verb, for every key.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::decide::{Attempt, Here, Reached, Turn};
use super::handle::KeyHandle;
use super::receipt::{Origin, Receipt, Reservation, Spent};
use super::split::Split;
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::hybrid::background::{Found, Shared};
use crate::hybrid::state::{HybridBound, TakeArgs};
use crate::local::Granted;
use crate::redis::{Limiter as RedisLimiter, RedisFailure, RedisFailureKind, RedisKey, both};
use crate::strategy::{Back, Leasable, LeaseAsk};

/// Limits by one strategy, shared through Redis by every process that uses the same server and prefix, and decided in
/// this process where it holds a lease.
///
/// The verbs are those of [`redis::Limiter`](crate::redis::Limiter), with the same counters, and mean the same: no more is
/// admitted than Redis would admit. A key that is called often is answered at once, by units that were leased before;
/// any other is one call of Redis, as there.
///
/// ```no_run
/// use std::time::Duration;
/// use trypema::redis::{RedisConnection, RedisKey};
/// use trypema::{AbsoluteLimit, RateLimiter};
///
/// # async fn example() -> Result<(), trypema::TrypemaError> {
/// let rl = RateLimiter::builder().redis(RedisConnection::connect("redis://127.0.0.1").await?).build()?;
/// tokio::spawn(rl.hybrid().keep_in_sync());
///
/// let limit = AbsoluteLimit::per_window(600_000, Duration::from_secs(60))?;
/// let everyone = RedisKey::try_from("everyone")?;
/// let decision = match rl.hybrid().absolute().try_take(&everyone, &limit, 1) {
///     Some(decision) => decision,
///     None => rl.hybrid().absolute().take(&everyone, &limit, 1).await?,
/// };
/// println!("{} left", decision.remaining());
/// # Ok(())
/// # }
/// ```
///
/// Clones are cheap, and the same limiter.
#[derive(Debug)]
pub struct Limiter<S: Leasable> {
    pub(super) shared: Arc<Shared<S>>,
}

/// A receipt, and the key that it is to be redeemed for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Redeemed<'a> {
    pub(super) key: &'a RedisKey,
    pub(super) receipt: &'a Receipt,
}

impl<S: Leasable> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Leasable> Limiter<S> {
    pub(super) fn of(shared: &Arc<Shared<S>>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    /// Takes `cost` if it fits. A cost of 0 reports what is used and records nothing.
    ///
    /// If this future is dropped while it waits for Redis, the take may have been sent, and then stays spent.
    pub async fn take<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let (take, started) = (TakeArgs { key, limit, cost }, self.redis().started());
        let found = self.found(take, Attempt::FIRST).await;
        let decided = found.map(|found| found.decision::<S>(limit));
        let decision = self.redis().or_substitute_take(key, (limit, cost), decided);
        self.redis().tell(key, cost, started, decision.as_ref().ok().map(S::core));
        decision
    }

    /// As [`Limiter::take`], where it can be answered without waiting; `None`, and nothing is spent, where it cannot.
    ///
    /// Where a key is called often it is soon answered: what is missing is asked for in the background, if
    /// [`keep_in_sync`](super::HybridRateLimiterProvider::keep_in_sync) runs.
    pub fn try_take<'l>(&self, key: &RedisKey, limit: &'l S::Limit, cost: u64) -> Option<S::Decision<'l>> {
        let started = self.redis().started();
        match self.shared.here(TakeArgs { key, limit, cost }, Turn::First, |_| {}) {
            Here::Decided(found) => {
                let decision = found.decision::<S>(limit);
                self.redis().tell(key, cost, started, Some(S::core(&decision)));
                Some(decision)
            }
            Here::Ask(request) => {
                self.shared.queue(request.for_nobody());
                None
            }
            Here::Cold | Here::Wait(_) => None,
        }
    }

    /// What [`Limiter::take`] would answer; nothing is spent.
    pub async fn peek<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        match self.shared.peeked(TakeArgs { key, limit, cost }) {
            Some(found) => Ok(found.decision::<S>(limit)),
            None => self.redis().peek(key, limit, cost).await,
        }
    }

    /// What is used and what is left: a [`Limiter::peek`] that asks for nothing.
    pub async fn usage<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.peek(key, limit, 0).await
    }

    /// Takes as much of `cost` as fits, possibly nothing: first what is held, and the rest in Redis.
    pub async fn take_up_to<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<Granted<S::Decision<'l>>, TrypemaError> {
        let held = self.held(key).min(cost);
        let taken = TakeArgs { key, limit, cost: held };
        let here = if held > 0 { self.shared.here_only(taken, Turn::First, |_| {}) } else { None };
        let here = here.filter(|found| S::is_admitted(&found.outcome));
        let Some(found) = here else { return self.redis().take_up_to(key, limit, cost).await };
        let started = self.redis().started();
        let mut granted = Granted { units: held, decision: found.decision::<S>(limit) };
        // What was taken here is taken, whatever becomes of the rest.
        if held < cost
            && let Ok(rest) = self.redis().take_up_to_untold(key, limit, cost - held).await
            && rest.units > 0
        {
            granted = Granted { units: held + rest.units, decision: rest.decision };
        }
        self.redis().tell(key, cost, started, Some(S::core(&granted.decision)));
        Ok(granted)
    }

    /// Takes `cost` if it fits, and gives a receipt for handing it back with [`Limiter::refund`].
    pub async fn reserve<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<Reservation<S::Decision<'l>>, TrypemaError> {
        let (take, started) = (TakeArgs { key, limit, cost }, self.redis().started());
        let mut spent = Vec::new();
        match self.shared.decide(take, Attempt::FIRST, |back: Back| spent.push(back)).await {
            Ok(Reached::Cold(_)) => {
                let reservation = self.redis().reserve(key, limit, cost).await?;
                let receipt =
                    reservation.receipt.map(|receipt| Receipt::new::<S>(key, Origin::Redis(receipt)));
                Ok(Reservation { decision: reservation.decision, receipt })
            }
            Ok(Reached::Found(found)) => {
                let receipt = self.leased_receipt(key, limit, spent);
                let decision = found.decision::<S>(limit);
                self.redis().tell(key, cost, started, Some(S::core(&decision)));
                Ok(Reservation { decision, receipt })
            }
            Err(failure) => {
                let decision = self.redis().or_substitute_take(key, (limit, cost), Err(failure))?;
                self.redis().tell(key, cost, started, Some(S::core(&decision)));
                Ok(Reservation { decision, receipt: None })
            }
        }
    }

    /// Gives back what `receipt` names, as far as it still counts; returns how many units that were. A second time, or
    /// with another key, nothing happens. What came out of a lease goes back to it, or to Redis in the background.
    pub async fn refund(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &Receipt,
    ) -> Result<u64, TrypemaError> {
        self.refund_until(self.redis().deadline_from_now(), limit, Redeemed { key, receipt }).await
    }

    /// The same until `deadline`.
    pub(super) async fn refund_until(
        &self,
        deadline: Timestamp,
        limit: &S::Limit,
        Redeemed { key, receipt }: Redeemed<'_>,
    ) -> Result<u64, TrypemaError> {
        match receipt.redeem::<S>(key) {
            None => Ok(0),
            Some(Origin::Redis(receipt)) => self.redis().refund_until(deadline, (key, limit), &receipt).await,
            Some(Origin::Leased(spent)) => Ok(self.put_back(key, limit, spent)),
        }
    }

    /// A receipt for units that came out of leases, if there are any.
    pub(super) fn leased_receipt(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        backs: Vec<Back>,
    ) -> Option<Receipt> {
        if backs.is_empty() {
            return None;
        }
        let resets = self.shared.table.with(key, |entry| entry.resets).unwrap_or(0);
        Some(Receipt::new::<S>(key, Origin::Leased(Spent { backs, resets, memory_us: S::memory_us(limit) })))
    }

    /// Puts back what came out of leases, as far as it still counts; how many units.
    pub(super) fn put_back(&self, key: &RedisKey, limit: &S::Limit, spent: Spent) -> u64 {
        let now = self.shared.instance.clock.now();
        let put = self.shared.table.with_new(TakeArgs { key, limit, cost: 0 }, now, |entry| {
            if entry.resets != spent.resets || spent.memory_us != S::memory_us(entry.holding.limit()) {
                return 0;
            }
            let counting = spent.backs.into_iter().filter(|back| entry.holding.is_counting(back, now));
            let counting: Vec<Back> = counting.collect();
            counting.iter().for_each(|back| entry.holding.put_back(*back));
            counting.iter().map(|back| back.units).sum()
        });
        put.unwrap_or(0)
    }

    /// Gives back up to `units` in Redis, the oldest first; returns how many were still counted. Prefer
    /// [`Limiter::refund`], which gives back where the take was recorded, and only once.
    pub async fn refund_units(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        units: u64,
    ) -> Result<u64, TrypemaError> {
        self.redis().refund_units(key, limit, units).await
    }

    /// Forgets what `key` has spent, and voids its receipts; whether there was anything. Other instances may still
    /// spend what they hold of it, for an interval ([`bound`](Self::bound)), or until their leases end where they do not reach Redis.
    pub async fn reset(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        self.reset_by(self.redis().deadline_from_now(), key).await
    }

    /// The same until `deadline`.
    pub(super) async fn reset_by(&self, deadline: Timestamp, key: &RedisKey) -> Result<bool, TrypemaError> {
        self.forget(key);
        let was_any = self.redis().reset_until(deadline, key).await;
        // What was leased in between is forgotten in Redis.
        self.forget(key);
        was_any
    }

    pub(super) fn forget(&self, key: &RedisKey) {
        self.shared.table.with(key, |entry| entry.forget());
    }

    /// Ends what is held of a key, to be given back, and forgets what is known.
    pub(super) fn end_leases(&self, key: &RedisKey) {
        self.shared.table.with(key, |entry| entry.end_all());
    }

    /// A handle to `key`, for callers that check it in a tight loop.
    pub fn key<'a>(&'a self, key: &'a RedisKey) -> KeyHandle<'a, S> {
        KeyHandle { limiter: self, key }
    }

    /// Units of `key` that this instance holds: counted by everyone, and not spent yet.
    pub fn held(&self, key: &RedisKey) -> u64 {
        let now = self.shared.instance.clock.now();
        self.shared.table.with(key, |entry| entry.holding.held(now)).unwrap_or(0)
    }

    /// What leases can cost under `limit`, at worst.
    pub fn bound(&self, limit: &S::Limit) -> HybridBound {
        HybridBound::new(self.shared.table.pace(limit), S::window_us(limit))
    }

    /// The same limiter, with each key as `parts` keys on different servers of a Cluster.
    pub fn split(&self, parts: NonZeroU32) -> Split<S> {
        Split::new(self.clone(), parts)
    }

    pub(super) fn redis(&self) -> &RedisLimiter<S> {
        &self.shared.redis
    }

    /// Decides a call: by what is held, or in Redis.
    pub(super) async fn found(
        &self,
        take: TakeArgs<'_, S::Limit>,
        attempt: Attempt,
    ) -> Result<Found<S::Outcome>, RedisFailure> {
        match self.shared.decide(take, attempt, |_| {}).await? {
            Reached::Found(found) => Ok(found),
            Reached::Cold(deadline) => self.plain(take, deadline).await,
        }
    }

    /// Takes from Redis itself, and remembers a denial.
    async fn plain(
        &self,
        take: TakeArgs<'_, S::Limit>,
        deadline: Timestamp,
    ) -> Result<Found<S::Outcome>, RedisFailure> {
        let TakeArgs { key, limit, cost } = take;
        let asked_at = self.shared.instance.clock.now();
        let taken = self.redis().plain_take(deadline, key, (limit, cost));
        let (_, taken) = both(self.report(deadline, key, limit), taken).await;
        let (outcome, now) = taken?;
        let found = Found { outcome, now };
        if !S::is_admitted(&found.outcome) {
            self.shared.denied(take, asked_at, &found);
        }
        Ok(found)
    }

    /// Tells Redis of attempts that were denied here.
    async fn report(&self, deadline: Timestamp, key: &RedisKey, limit: &S::Limit) {
        if S::IS_LEASED {
            return;
        }
        let seen = self.shared.table.with(key, |entry| entry.holding.take_unreported()).unwrap_or(0);
        let ask = LeaseAsk { seen, ..LeaseAsk::default() };
        if seen > 0
            && let Err(failure) =
                self.redis().lease_by(deadline, (key, limit), (ask, self.shared.instance.leaver())).await
            && failure.kind() == RedisFailureKind::Unavailable
        {
            self.shared.table.with(key, |entry| entry.holding.forgo(seen));
        }
    }
}
