//! One strategy of the hybrid provider: every verb, for every key.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::decide::{Attempt, CountCall, TryDecide};
use super::handle::HybridKeyHandle;
use super::receipt::{HybridReceipt, SpentLease, UnitsOrigin};
use super::split::Split;
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::hybrid::background::LimiterState;
use crate::hybrid::state::HybridBound;
use crate::local::{DecisionWithReceipt, Granted, TimedOutcome};
use crate::redis::{
    KeySpend, LeaseArgs, LeaseSending, RedisFailure, RedisFailureKind, RedisKey, RedisLimiter, RedisReceipt,
    both,
};
use crate::strategy::{Effect, Leasable, LeaseParams, LeasedUnits};

/// A limiter of one strategy, shared through Redis by every process that uses the same server and prefix.
/// It decides in this process when it holds a lease.
///
/// The verbs are those of [`redis::RedisLimiter`](crate::redis::RedisLimiter), work on the same counters and
/// have the same meaning: no more is admitted than Redis would admit. A busy key is decided at once, with
/// units that were leased before. Any other key takes one call to Redis.
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
/// Clones are cheap and share their state.
#[derive(Debug)]
pub struct HybridLimiter<S: Leasable> {
    pub(super) shared: Arc<LimiterState<S>>,
}

impl<S: Leasable> Clone for HybridLimiter<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Leasable> HybridLimiter<S> {
    /// Takes `cost` if it fits. A cost of 0 reports the usage and records nothing.
    ///
    /// If this future is dropped while it waits for Redis, the take may have been sent already, and then
    /// stays spent.
    pub async fn take<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let (take, started) = (KeySpend::new(key, limit, cost), self.redis().started());
        let found = self.take_outcome(take, Attempt::first()).await;
        let decided = found.map(|found| found.decision(limit));
        let decision = self.redis().or_fallback(Effect::Take, take, decided);
        self.redis().notify_decision(key, cost, started, decision.as_ref().ok().map(S::core));
        decision
    }

    /// Takes `cost` in Redis if at least one unit is free, see
    /// [`RedisLimiter::take_postpaid`](crate::redis::RedisLimiter::take_postpaid). Leased units are not free.
    pub async fn take_postpaid<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.redis().take_postpaid(key, limit, cost).await
    }

    /// Records `cost` in Redis even if nothing is left, see
    /// [`RedisLimiter::debit`](crate::redis::RedisLimiter::debit).
    pub async fn debit<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.redis().debit(key, limit, cost).await
    }

    /// Same as [`HybridLimiter::take`], without waiting. Returns `None` and spends nothing if the decision
    /// needs Redis.
    ///
    /// For a busy key this soon returns a decision: if
    /// [`keep_in_sync`](super::HybridRateLimiterProvider::keep_in_sync) runs, it requests the missing units
    /// in the background.
    pub fn try_take<'l>(&self, key: &RedisKey, limit: &'l S::Limit, cost: u64) -> Option<S::Decision<'l>> {
        let started = self.redis().started();
        match self.shared.try_decide(KeySpend::new(key, limit, cost), CountCall::Yes, |_| {}) {
            TryDecide::Decided(found) => {
                let decision = found.decision(limit);
                self.redis().notify_decision(key, cost, started, Some(S::core(&decision)));
                Some(decision)
            }
            TryDecide::RequestLease(request) => {
                self.shared.queue(request.without_caller());
                None
            }
            TryDecide::NeedsRedis | TryDecide::Wait(_) => None,
        }
    }

    /// Returns the decision that [`HybridLimiter::take`] would make. Spends nothing.
    pub async fn peek<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        match self.shared.peek(KeySpend::new(key, limit, cost)) {
            Some(found) => Ok(found.decision(limit)),
            None => self.redis().peek(key, limit, cost).await,
        }
    }

    /// Returns the used and the remaining units: a [`HybridLimiter::peek`] with a cost of 0.
    pub async fn usage<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.peek(key, limit, 0).await
    }

    /// Takes as much of `cost` as fits, possibly nothing: held units first, and the rest from Redis.
    pub async fn take_up_to<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<Granted<S::Decision<'l>>, TrypemaError> {
        let held = self.held(key).min(cost);
        let taken = KeySpend::new(key, limit, held);
        let local = if held > 0 { self.shared.decide_now(taken, CountCall::Yes, |_| {}) } else { None };
        let local = local.filter(|found| S::is_admitted(&found.outcome));
        let Some(found) = local else { return self.redis().take_up_to(key, limit, cost).await };
        let started = self.redis().started();
        let mut granted = Granted { units: held, decision: found.decision(limit) };
        // The held units are spent, so a failure of the rest is not an error.
        if held < cost
            && let Ok(rest) = self.redis().take_up_to_unobserved(key, limit, cost - held).await
            && rest.units > 0
        {
            granted = Granted { units: held + rest.units, decision: rest.decision };
        }
        self.redis().notify_decision(key, cost, started, Some(S::core(&granted.decision)));
        Ok(granted)
    }

    /// Takes `cost` if it fits, and issues a receipt for a later [`HybridLimiter::refund`].
    pub async fn take_with_receipt<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, HybridReceipt>, TrypemaError> {
        let (take, started) = (KeySpend::new(key, limit, cost), self.redis().started());
        let (mut spent, mut attempt) = (Vec::new(), Attempt::first());
        let decided =
            match self.shared.decide(take, &mut attempt, |units: LeasedUnits| spent.push(units)).await {
                Ok(None) => {
                    let DecisionWithReceipt { decision, receipt } =
                        self.redis().take_with_receipt(key, limit, cost).await?;
                    let receipt = receipt.map(|receipt| self.redis_receipt(key, receipt));
                    return Ok(DecisionWithReceipt { decision, receipt });
                }
                Ok(Some(found)) => Ok(found.decision(limit)),
                Err(failure) => Err(failure),
            };
        let decision = self.redis().or_fallback(Effect::Take, take, decided)?;
        self.redis().notify_decision(key, cost, started, Some(S::core(&decision)));
        Ok(DecisionWithReceipt { decision, receipt: self.leased_receipt(key, limit, spent) })
    }

    /// Refunds the units of `receipt` that still count. Returns their number. A receipt of another key, or
    /// one that was used before, refunds nothing. Leased units go back to their lease or, if it has ended,
    /// to Redis in the background.
    pub async fn refund(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &HybridReceipt,
    ) -> Result<u64, TrypemaError> {
        self.refund_with_deadline(self.redis().deadline_from_now(), key, limit, receipt).await
    }

    /// Same as [`HybridLimiter::refund`], with a deadline.
    pub(super) async fn refund_with_deadline(
        &self,
        deadline: Timestamp,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &HybridReceipt,
    ) -> Result<u64, TrypemaError> {
        match receipt.redeem::<S>(key) {
            None => Ok(0),
            Some(UnitsOrigin::Redis(receipt)) => {
                self.redis().refund_with_deadline(deadline, key, limit, &receipt).await
            }
            Some(UnitsOrigin::Leased(spent)) => Ok(self.restore(key, limit, spent)),
        }
    }

    /// Returns a receipt for units that were taken from Redis.
    pub(super) fn redis_receipt(&self, key: &RedisKey, receipt: RedisReceipt) -> HybridReceipt {
        HybridReceipt::new::<S>(key, UnitsOrigin::Redis(receipt))
    }

    /// Returns a receipt for units that came out of leases, if there are any.
    pub(super) fn leased_receipt(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        units: Vec<LeasedUnits>,
    ) -> Option<HybridReceipt> {
        if units.is_empty() {
            return None;
        }
        let resets = self.shared.table.with(key, |entry| entry.resets).unwrap_or(0);
        Some(HybridReceipt::new::<S>(
            key,
            UnitsOrigin::Leased(SpentLease { units, resets, retention_us: S::retention_us(limit) }),
        ))
    }

    /// Returns units to their leases, as far as they still count. Returns their number.
    pub(super) fn restore(&self, key: &RedisKey, limit: &S::Limit, spent: SpentLease) -> u64 {
        let now = self.shared.instance.clock.now();
        let restored = self.shared.table.with_or_insert(KeySpend::new(key, limit, 0), now, |entry| {
            if entry.resets != spent.resets || spent.retention_us != S::retention_us(entry.holding.limit()) {
                return 0;
            }
            let counting = spent.units.into_iter().filter(|units| entry.holding.is_counted(units, now));
            let counting: Vec<LeasedUnits> = counting.collect();
            counting.iter().for_each(|units| entry.holding.restore(*units));
            counting.iter().map(|units| units.units).sum()
        });
        restored.unwrap_or(0)
    }

    /// Refunds up to `units` in Redis, oldest first. Returns the units that still counted. Prefer
    /// [`HybridLimiter::refund`], which refunds where the take was recorded, and only once.
    pub async fn refund_units(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        units: u64,
    ) -> Result<u64, TrypemaError> {
        self.redis().refund_units(key, limit, units).await
    }

    /// Deletes the state of `key` and voids its receipts. Returns whether there was a state. Other
    /// instances may still spend the units that they hold for up to an interval ([`bound`](Self::bound)),
    /// or until their leases end if they cannot reach Redis.
    pub async fn reset(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        self.reset_with_deadline(self.redis().deadline_from_now(), key).await
    }

    /// Same as [`HybridLimiter::reset`], with a deadline.
    pub(super) async fn reset_with_deadline(
        &self,
        deadline: Timestamp,
        key: &RedisKey,
    ) -> Result<bool, TrypemaError> {
        self.forget(key);
        let was_any = self.redis().reset_with_deadline(deadline, key).await;
        // The reset in Redis also deleted units that were leased meanwhile.
        self.forget(key);
        was_any
    }

    pub(super) fn forget(&self, key: &RedisKey) {
        self.shared.table.with(key, |entry| entry.forget());
    }

    /// Ends the leases of a key and drops its remembered denials. The unspent units are returned to Redis
    /// later.
    pub(super) fn end_leases(&self, key: &RedisKey) {
        self.shared.table.with(key, |entry| entry.end_all());
    }

    /// Returns a handle to `key`, for callers that check it in a tight loop.
    pub fn key<'a>(&'a self, key: &'a RedisKey) -> HybridKeyHandle<'a, S> {
        HybridKeyHandle { limiter: self, key }
    }

    /// Returns the units of `key` that this instance has leased and not spent. They already count against
    /// the limit.
    pub fn held(&self, key: &RedisKey) -> u64 {
        let now = self.shared.instance.clock.now();
        self.shared.table.with(key, |entry| entry.holding.held(now)).unwrap_or(0)
    }

    /// Returns the worst-case effect of leases under `limit`.
    pub fn bound(&self, limit: &S::Limit) -> HybridBound {
        HybridBound::new(self.shared.table.pace(limit), S::window_us(limit))
    }

    /// Returns this limiter with each key split into `parts` keys, on different servers of a Cluster.
    pub fn split(&self, parts: NonZeroU32) -> Split<S> {
        Split::new(self.clone(), parts)
    }

    pub(super) fn redis(&self) -> &RedisLimiter<S> {
        &self.shared.redis
    }

    /// Decides a call with leases, or in Redis.
    pub(super) async fn take_outcome(
        &self,
        take: KeySpend<'_, '_, S::Limit>,
        mut attempt: Attempt,
    ) -> Result<TimedOutcome<S>, RedisFailure> {
        match self.shared.decide(take, &mut attempt, |_| {}).await? {
            Some(found) => Ok(found),
            None => self.take_in_redis(take, attempt.deadline(self.redis())).await,
        }
    }

    /// Decides a call in Redis, and remembers a denial.
    async fn take_in_redis(
        &self,
        take: KeySpend<'_, '_, S::Limit>,
        deadline: Timestamp,
    ) -> Result<TimedOutcome<S>, RedisFailure> {
        let requested_at = self.shared.instance.clock.now();
        let taken = self.redis().take_without_policy(deadline, take);
        let (_, taken) = both(self.report(deadline, take.key, take.limit), taken).await;
        let found = taken?;
        if !S::is_admitted(&found.outcome)
            && let Some(now) = found.decided_at.moment()
        {
            self.shared.remember_denial(take, requested_at, (&found.outcome, now));
        }
        Ok(found)
    }

    /// Reports the abuse attempts that were denied here to Redis. Strategies with leases report theirs with
    /// lease requests.
    async fn report(&self, deadline: Timestamp, key: &RedisKey, limit: &S::Limit) {
        if S::IS_LEASED {
            return;
        }
        let reported = self.shared.table.with(key, |entry| entry.holding.take_unreported()).unwrap_or(0);
        let params = LeaseParams { reported, ..LeaseParams::default() };
        let args = LeaseArgs { params, instance: self.shared.instance.leaving() };
        // A report is no request for a lease.
        let sending = LeaseSending { deadline, sent: &Arc::default() };
        if reported > 0
            && let Err(failure) = self.redis().send_lease(sending, key, limit, args).await
            && failure.kind() == RedisFailureKind::Unavailable
        {
            self.shared.table.with(key, |entry| entry.holding.report_denied(reported));
        }
    }
}
