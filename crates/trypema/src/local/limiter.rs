//! A limiter of one strategy on the local provider, with every operation on its keys.

mod postpaid;
#[cfg(feature = "rules")]
mod reservations;

use std::sync::Arc;
#[cfg(feature = "rules")]
use std::sync::OnceLock;
use std::time::Duration;

use super::handle::LocalKeyHandle;
use super::map::{Bound, HashedKey, KeyCall, NewState, StateMap};
use super::receipt::{CommittedTake, DecisionWithReceipt, Granted, LocalReceipt};
use super::shard::Shard;
use crate::clock::{ClockSource, Timestamp};
use crate::decision::{Decision, DecisionTime};
use crate::observer::{Event, Observer};
#[cfg(feature = "rules")]
use crate::strategy::Concurrency;
use crate::strategy::{Call, Origin, Refund, Spend, Strategy, WindowOptions};
use crate::waiting::WaitQueues;

/// A rate limiter of one strategy, inside this process.
///
/// A key has one state per strategy, whatever limits it is called with. To apply two limits to one caller,
/// use two keys (`"ann:second"`, `"ann:hour"`), or one token bucket with both limits.
///
/// Every operation is atomic, applies the limit that it is given, and may be called from any thread. Takes on
/// known keys of up to 255 bytes do not allocate, except for the decision of a token bucket with more than
/// four limits. A key is forgotten once it would be treated like a fresh one.
///
/// ```
/// use std::time::Duration;
/// use trypema::{FixedWindowLimit, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let windows = rl.local().fixed_window();
/// let limit = FixedWindowLimit::new(10, Duration::from_secs(3600))?;
///
/// assert!(windows.take("ann", &limit, 4).is_allowed());
/// assert_eq!(windows.peek("ann", &limit, 1).remaining(), 5); // as if it had been taken
/// assert_eq!(windows.usage("ann", &limit).remaining(), 6);
/// assert_eq!(windows.take_up_to("ann", &limit, 100).units, 6);
/// assert!(windows.reset("ann"));
/// assert_eq!(windows.usage("ann", &limit).remaining(), 10);
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug)]
pub struct LocalLimiter<S: Strategy> {
    pub(super) map: StateMap<S>,
    pub(super) clock: ClockSource,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) waiters: WaitQueues,
    /// The window of `inc`.
    pub(super) windows: WindowOptions,
    /// The tables of reservations beside the counters, created when first used.
    #[cfg(feature = "rules")]
    tables: OnceLock<StateMap<Concurrency>>,
}

/// A cost to reserve, and the time in which it may be spent.
struct LeasedSpend {
    spend: Spend,
    lease: Duration,
}

/// The outcome of a call, and the time of its decision.
pub(crate) struct TimedOutcome<S: Strategy> {
    pub(crate) outcome: S::Outcome,
    pub(crate) decided_at: DecisionTime,
}

impl<S: Strategy> TimedOutcome<S> {
    #[inline(always)]
    pub(crate) fn decision(self, limit: &S::Limit) -> S::Decision<'_> {
        S::decision(limit, self.outcome, self.decided_at)
    }
}

/// A key whose state still matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveKey {
    /// The key. A key of more than 255 bytes is listed as its start and a digest.
    pub key: String,
    /// The time until the key is treated like a fresh one, if no further call is made.
    pub fresh_after: Duration,
}

impl<S: Strategy> LocalLimiter<S> {
    pub(crate) fn new(clock: ClockSource, bound: Option<Bound>, observer: Option<Arc<dyn Observer>>) -> Self {
        Self {
            map: StateMap::new(bound),
            clock,
            observer,
            windows: WindowOptions::DEFAULT,
            waiters: WaitQueues::default(),
            #[cfg(feature = "rules")]
            tables: OnceLock::new(),
        }
    }

    /// Takes `cost` if all of it fits. A cost of 0 returns the usage and records nothing.
    #[inline(always)]
    pub fn take<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        self.take_observed(key, limit, cost).decision(limit)
    }

    /// Takes like [`LocalLimiter::take`], but does not notify the observer.
    pub(super) fn take_unobserved<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        self.take_at(key, limit, cost).decision(limit)
    }

    /// Returns the decision that [`LocalLimiter::take`] would return, without taking anything.
    pub fn peek<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        self.peek_at(key, limit, cost.into()).decision(limit)
    }

    /// Returns the used and the remaining units: a [`LocalLimiter::peek`] with a cost of 0.
    pub fn usage<'l>(&self, key: &str, limit: &'l S::Limit) -> S::Decision<'l> {
        self.peek(key, limit, 0)
    }

    /// Takes as much of `cost` as fits, possibly nothing.
    pub fn take_up_to<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> Granted<S::Decision<'l>> {
        self.with_observer(
            key,
            cost,
            |granted: &Granted<_>| S::core(&granted.decision),
            || self.take_up_to_at(&self.map.hash_key(key), limit, cost),
        )
    }

    fn take_up_to_at<'l>(
        &self,
        key: &HashedKey<'_>,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Granted<S::Decision<'l>> {
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        self.with_state(shard, KeyCall { key, limit, now }, |state| {
            let units = S::available(limit, state, Call::new(now, cost));
            // If nothing fits, the decision says why a single unit does not. It is not recorded.
            let call = Call::new(now, if units == 0 { cost.min(1) } else { units });
            let outcome = S::decide(limit, state, call);
            if units > 0 {
                S::commit(limit, state, call, &outcome);
            }
            Granted { units, decision: S::decision(limit, outcome, DecisionTime::exactly(now)) }
        })
    }

    /// Takes `cost` if all of it fits, and returns a receipt for [`LocalLimiter::refund`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::{FixedWindowLimit, RateLimiter};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let windows = rl.local().fixed_window();
    /// let limit = FixedWindowLimit::new(10, Duration::from_secs(3600))?;
    ///
    /// let receipt = windows.take_with_receipt("ann", &limit, 4).receipt.expect("it fits");
    /// assert_eq!(windows.refund("ann", &limit, &receipt), 4);
    /// assert_eq!(windows.refund("ann", &limit, &receipt), 0); // once is enough
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn take_with_receipt<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        cost: u64,
    ) -> DecisionWithReceipt<S::Decision<'l>> {
        self.take_with_receipt_for(key, limit, cost, Duration::ZERO)
    }

    /// Reserves units that may be spent until `lease` has passed, and otherwise works like
    /// [`LocalLimiter::take_with_receipt`].
    ///
    /// The units count from now on, as if they were spent at the end of the lease, or at the end of an aligned
    /// window if that is sooner (see [`LocalReceipt::recorded_at`]). So no interval of a window's length exceeds the limit.
    pub fn take_with_receipt_for<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        cost: u64,
        lease: Duration,
    ) -> DecisionWithReceipt<S::Decision<'l>> {
        self.with_observer(
            key,
            cost,
            |reserved: &DecisionWithReceipt<_>| S::core(&reserved.decision),
            || self.reserve_at(&self.map.hash_key(key), limit, LeasedSpend { spend: cost.into(), lease }),
        )
    }

    fn reserve_at<'l>(
        &self,
        key: &HashedKey<'_>,
        limit: &'l S::Limit,
        request: LeasedSpend,
    ) -> DecisionWithReceipt<S::Decision<'l>> {
        let LeasedSpend { spend, lease } = request;
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        let call = spend.at(now).with_stamp(now + lease);
        let (outcome, origin) = self.commit_exactly(shard, KeyCall { key, limit, now }, call);
        let receipt = Self::receipt(shard, CommittedTake { key, limit, call, outcome: &outcome, origin });
        DecisionWithReceipt { decision: S::decision(limit, outcome, DecisionTime::exactly(now)), receipt }
    }

    /// Returns the receipt of a committed take, if it took anything.
    pub(super) fn receipt(shard: &mut Shard<S>, take: CommittedTake<'_, S>) -> Option<LocalReceipt> {
        let CommittedTake { key, limit, call, outcome, origin } = take;
        (S::is_admitted(outcome) && call.cost > 0).then(|| LocalReceipt {
            id: shard.refunded.get_or_insert_default().next_id(),
            hash: key.hash,
            recorded: S::recorded_at(limit, outcome, call),
            origin,
            units: S::recorded_units(limit, outcome, call),
        })
    }

    /// Refunds the units of `receipt` that still count. Returns the number of units refunded. A second
    /// refund, or one with another key, changes nothing and returns 0.
    pub fn refund(&self, key: &str, limit: &S::Limit, receipt: &LocalReceipt) -> u64 {
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        let until = receipt.recorded + Duration::from_micros(S::retention_us(limit));
        let refunded = shard.refunded.get_or_insert_default();
        if receipt.hash != key.hash || until <= now || !refunded.mark_refunded(receipt.id, until, now) {
            return 0;
        }
        let refund = Refund { now, units: receipt.units, recorded: Some(receipt.recorded()) };
        self.refund_in(shard, &key, limit, refund)
    }

    /// Refunds up to `units`, the oldest first. Returns the number of units that still counted. Prefer
    /// [`LocalLimiter::refund`], which refunds exactly the take of the receipt, and only once.
    pub fn refund_units(&self, key: &str, limit: &S::Limit, units: u64) -> u64 {
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        let refund = Refund { now: self.clock.now(), units, recorded: None };
        self.refund_in(shard, &key, limit, refund)
    }

    /// Forgets the state of `key`, and the reservations that rules made by it. Returns whether there was a state.
    pub fn reset(&self, key: &str) -> bool {
        // To settle a reservation of units that are forgotten would refund units of other calls.
        #[cfg(feature = "rules")]
        let _locked = self.forget_reservations(key);
        self.reset_counter(key)
    }

    pub(super) fn reset_counter(&self, key: &str) -> bool {
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        self.map.remove(shard, &key)
    }

    /// Returns a handle to `key` that skips hashing, for callers that check one key in a tight loop.
    pub fn key<'a>(&'a self, key: &'a str) -> LocalKeyHandle<'a, S> {
        LocalKeyHandle::new(self, key)
    }

    /// Returns the keys whose state still matters, in no particular order, for inspection. Only one shard at
    /// a time is locked and copied, so keys that are added or removed meanwhile may or may not be listed.
    pub fn live_keys(&self) -> impl Iterator<Item = LiveKey> {
        let now = self.clock.now();
        let shards = (0..).map_while(move |index| self.map.live_keys_in(index, now));
        shards.flatten().map(move |(key, fresh_from)| LiveKey {
            key,
            fresh_after: Duration::from_micros(fresh_from.as_micros() - now.as_micros()),
        })
    }

    /// Returns the number of keys in memory. Some may no longer matter: they are removed as new keys arrive,
    /// or by [`LocalLimiter::forget_stale`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether no key is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets every key that has been equivalent to a fresh one for `stale_for`, shard by shard. No state
    /// that still matters is lost.
    pub fn forget_stale(&self, stale_for: Duration) {
        let stale_us = u64::try_from(stale_for.as_micros()).unwrap_or(u64::MAX);
        let moment = self.clock.now().as_micros().saturating_sub(stale_us);
        self.map.forget_fresh_since(Timestamp::from_micros(moment));
        #[cfg(feature = "rules")]
        if let Some(tables) = self.tables.get() {
            tables.forget_fresh_since(Timestamp::from_micros(moment));
        }
    }

    /// Takes, and notifies the observer if there is one.
    #[inline(always)]
    pub(crate) fn take_observed(&self, key: &str, limit: &S::Limit, cost: u64) -> TimedOutcome<S> {
        if self.observer.is_none() {
            return self.take_at(key, limit, cost);
        }
        let core =
            |found: &TimedOutcome<S>| S::core(&S::decision(limit, found.outcome.clone(), found.decided_at));
        self.with_observer(key, cost, core, || self.take_at(key, limit, cost))
    }

    /// Returns the outcome that a take would have, without taking anything.
    pub(crate) fn peek_at(&self, key: &str, limit: &S::Limit, spend: Spend) -> TimedOutcome<S> {
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        let call = spend.at(now);
        let outcome = match shard.find(key.hash, &key.key) {
            Some(state) => S::decide(limit, state, call),
            None => shard.peek_shared(limit, now, |state| S::decide(limit, state, call)),
        };
        TimedOutcome { outcome, decided_at: DecisionTime::exactly(now) }
    }

    #[inline(always)]
    fn take_at(&self, key: &str, limit: &S::Limit, cost: u64) -> TimedOutcome<S> {
        self.take_bytes(key.as_bytes(), limit, cost)
    }

    /// Takes for a key of any bytes, without notifying the observer.
    #[inline(always)]
    pub(crate) fn take_bytes(&self, key: &[u8], limit: &S::Limit, cost: u64) -> TimedOutcome<S> {
        let Some(hash) = self.map.short_hash(key) else { return self.take_long(key, limit, cost) };
        let shard = &mut *self.map.shard(hash);
        if let Some(state) = shard.find(hash, key) {
            return self.take_known(state, limit, cost);
        }
        self.take_new(shard, &HashedKey { key: key.into(), hash }, limit, cost)
    }

    #[cold]
    #[inline(never)]
    fn take_long(&self, key: &[u8], limit: &S::Limit, cost: u64) -> TimedOutcome<S> {
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        match shard.find(key.hash, &key.key) {
            Some(state) => self.take_known(state, limit, cost),
            None => self.take_new(shard, &key, limit, cost),
        }
    }

    /// Decides and records a take.
    #[inline(always)]
    pub(super) fn take_known(&self, state: &mut S::State, limit: &S::Limit, cost: u64) -> TimedOutcome<S> {
        let now = self.clock.now();
        TimedOutcome { outcome: S::take(limit, state, now, cost), decided_at: DecisionTime::exactly(now) }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn take_new(
        &self,
        shard: &mut Shard<S>,
        key: &HashedKey<'_>,
        limit: &S::Limit,
        cost: u64,
    ) -> TimedOutcome<S> {
        let now = self.clock.now();
        let (outcome, _) = self.commit_exactly(shard, KeyCall { key, limit, now }, Call::new(now, cost));
        TimedOutcome { outcome, decided_at: DecisionTime::exactly(now) }
    }

    /// Decides and records `call` at the exact time. Returns also the count that its units joined.
    fn commit_exactly(&self, shard: &mut Shard<S>, on: KeyCall<'_, S>, call: Call) -> (S::Outcome, Origin) {
        let limit = on.limit;
        self.with_state(shard, on, |state| {
            let outcome = S::decide(limit, state, call);
            S::commit(limit, state, call, &outcome);
            (outcome, S::origin(state))
        })
    }

    /// Runs `change` on the state of the called key, and keeps the state if it then matters.
    pub(super) fn with_state<R>(
        &self,
        shard: &mut Shard<S>,
        call: KeyCall<'_, S>,
        change: impl FnOnce(&mut S::State) -> R,
    ) -> R {
        let KeyCall { key, limit, now } = call;
        if let Some(state) = shard.find(key.hash, &key.key) {
            return change(state);
        }
        self.map.sweep(shard, now);
        if !self.map.try_reserve(shard, now)
            && let Some(state) = shard.shared(limit, now)
        {
            return change(state);
        }
        let mut state = shard.start(limit, now);
        let result = change(&mut state);
        self.map.insert_reserved(shard, key, NewState { state, limit, now });
        result
    }

    /// Changes the state of a key that is in memory. Returns whether it is.
    pub(super) fn change(&self, key: &str, change: impl FnOnce(&mut S::State)) -> bool {
        let key = self.map.hash_key(key);
        self.map.shard(key.hash).find(key.hash, &key.key).map(change).is_some()
    }

    fn refund_in(&self, shard: &mut Shard<S>, key: &HashedKey<'_>, limit: &S::Limit, refund: Refund) -> u64 {
        // A key without a state of its own has nothing to refund, or shares its state with other keys.
        shard.find(key.hash, &key.key).map_or(0, |state| S::refund(limit, state, refund))
    }

    /// Runs `work`, and notifies the observer, if there is one, of the decision.
    fn with_observer<R>(
        &self,
        key: &str,
        cost: u64,
        core: impl Fn(&R) -> Decision,
        work: impl FnOnce() -> R,
    ) -> R {
        let Some(observer) = &self.observer else { return work() };
        let started = self.clock.now();
        let result = work();
        let ended = self.clock.now();
        let latency = Duration::from_micros(ended.as_micros().saturating_sub(started.as_micros()));
        observer.decided(&Event { strategy: S::NAME, key, cost, decision: &core(&result), latency });
        result
    }
}
