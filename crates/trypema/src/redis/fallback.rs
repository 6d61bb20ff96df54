//! The failure policy of the Redis provider: decides calls while Redis is unreachable.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::key::RedisKey;
use super::key_spend::KeySpend;
use crate::clock::{ClockSource, Timestamp};
#[cfg(feature = "rules")]
use crate::decision::Decision;
use crate::decision::DecisionTime;
use crate::local::{Bound, LocalLimiter, WhenFull};
#[cfg(feature = "rules")]
use crate::strategy::RecordedUnits;
use crate::strategy::{Call, Effect, Payment, Spend, Strategy, Wire};

/// The failure policy: the result of a call that Redis did not answer.
///
/// Decisions of the policy are marked as such
/// ([`Decision::is_substitute`](crate::Decision::is_substitute)), and the observer is notified of every
/// failure.
///
/// ```no_run
/// use trypema::RateLimiter;
/// use trypema::redis::{OnFailure, RedisConnection};
///
/// # async fn example() -> Result<(), trypema::TrypemaError> {
/// let rl = RateLimiter::builder()
///     .redis(RedisConnection::connect("redis://127.0.0.1").await?)
///     .on_redis_failure(OnFailure::Allow)
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// The call returns an `Err`.
    #[default]
    Fail,
    /// The call is allowed, unless its cost can never fit.
    Allow,
    /// The call is denied.
    Deny,
    /// The call is decided in this process, which counts every unit once per instance, so that all
    /// instances together stay within the limit. When Redis is back, it is charged for the admitted units,
    /// as far as they fit.
    Local {
        /// The number of instances that share the limit. If
        /// [`keep_in_sync`](crate::hybrid::HybridRateLimiterProvider::keep_in_sync) knows of more live
        /// instances, that number is used.
        instances: NonZeroU32,
    },
}

/// The maximum number of keys per strategy that this process counts while Redis is unreachable.
const MAX_KEYS: usize = 100_000;

/// The counters of this process for the time while Redis is unreachable.
#[derive(Debug)]
pub(super) struct FallbackCounters<S: Strategy> {
    local: OnceLock<LocalLimiter<S>>,
    /// Units that Redis has not been charged for yet.
    uncharged_by_key: Mutex<HashMap<RedisKey, UnchargedUnits>>,
}

/// Units of one key that were admitted without Redis.
#[derive(Debug, Clone, Copy)]
struct UnchargedUnits {
    units: u64,
    /// The time at which the units stop counting; Redis need not be charged for them after it.
    counts_until: Timestamp,
}

impl<S: Wire> FallbackCounters<S> {
    pub(super) fn new() -> Self {
        Self { local: OnceLock::new(), uncharged_by_key: Mutex::default() }
    }

    /// Returns the decision of the policy; `None` if the policy is to fail.
    pub(super) fn decide<'l>(
        &self,
        on_failure: OnFailure,
        effect: Effect,
        call: KeySpend<'_, 'l, S::Limit>,
    ) -> Option<S::Decision<'l>> {
        let (now, limit) = (ClockSource::System.now(), call.limit);
        let spend = call.spend.at(now);
        let fresh = |call: Call| S::decide(limit, &S::State::default(), call);
        let decided_at = DecisionTime::exactly(now).uncounted();
        match on_failure {
            OnFailure::Fail => None,
            OnFailure::Allow => Some(S::decision(limit, fresh(spend), decided_at)),
            OnFailure::Deny => {
                // A denial is about the units that the call needs.
                let denied = S::denied(fresh(spend.with_cost(spend.needed)));
                Some(S::decision(limit, denied, decided_at))
            }
            OnFailure::Local { instances } => Some(self.decide_locally(instances, effect, call)),
        }
    }

    fn decide_locally<'l>(
        &self,
        instances: NonZeroU32,
        effect: Effect,
        KeySpend { key, limit, spend }: KeySpend<'_, 'l, S::Limit>,
    ) -> S::Decision<'l> {
        let (local, weighed) = (self.local(), weighed::<S>(instances, limit, spend));
        let found = match effect {
            Effect::Peek => local.peek_at(key.as_str(), limit, weighed),
            _ => local.spend_at(key.as_str(), limit, weighed),
        };
        let cost = spend.cost;
        if S::is_admitted(&found.outcome) && cost > 0 && effect != Effect::Peek {
            let counts_until = ClockSource::System.now() + Duration::from_micros(S::retention_us(limit));
            self.add_uncharged(key, UnchargedUnits { units: cost, counts_until });
        }
        S::decision(limit, found.outcome, found.decided_at.substitute())
    }

    fn local(&self) -> &LocalLimiter<S> {
        let bound = Bound { max_keys: MAX_KEYS, when_full: WhenFull::Share };
        self.local.get_or_init(|| LocalLimiter::new(ClockSource::System, Some(bound), None))
    }

    /// Adds to the units that Redis is to be charged for. If there are too many such keys, the units are
    /// dropped and never charged.
    fn add_uncharged(&self, key: &RedisKey, uncharged: UnchargedUnits) {
        let mut uncharged_by_key = self.uncharged_by_key();
        if uncharged_by_key.len() >= MAX_KEYS && !uncharged_by_key.contains_key(key) {
            let now = ClockSource::System.now();
            uncharged_by_key.retain(|_, uncharged| uncharged.counts_until > now);
            if uncharged_by_key.len() >= MAX_KEYS {
                return;
            }
        }
        let noted = uncharged_by_key.entry(key.clone()).or_insert(UnchargedUnits { units: 0, ..uncharged });
        noted.units = noted.units.saturating_add(uncharged.units);
        noted.counts_until = noted.counts_until.max(uncharged.counts_until);
    }

    /// Refunds units that were counted here and that Redis has not been charged for. Returns their number.
    #[cfg(feature = "rules")]
    pub(super) fn refund(&self, on_failure: OnFailure, call: KeySpend<'_, '_, S::Limit>) -> u64 {
        let KeySpend { key, limit, spend: Spend { cost: units, .. } } = call;
        if !matches!(on_failure, OnFailure::Local { .. }) {
            return 0;
        }
        let mut uncharged_by_key = self.uncharged_by_key();
        let Some(uncharged) = uncharged_by_key.get_mut(key) else { return 0 };
        let refunded = units.min(uncharged.units);
        uncharged.units -= refunded;
        if uncharged.units == 0 {
            uncharged_by_key.remove(key);
        }
        drop(uncharged_by_key);
        if let Some(local) = self.local.get() {
            // A taken unit may have been counted once per instance. Refunding it once is stricter, and
            // exact for a single instance.
            local.refund_units(key.as_str(), limit, refunded);
        }
        refunded
    }

    /// Decides a reservation, which the engine charges to Redis under its id. Returns the decision of the policy, and
    /// the units that the counters of this process recorded; `None` if the policy is to fail.
    #[cfg(feature = "rules")]
    pub(super) fn reserve(
        &self,
        on_failure: OnFailure,
        call: KeySpend<'_, '_, S::Limit>,
    ) -> Option<(Decision, Option<RecordedUnits>)> {
        let OnFailure::Local { instances } = on_failure else {
            return self.decide(on_failure, Effect::Take, call).map(|decision| (S::core(&decision), None));
        };
        let KeySpend { key, limit, spend } = call;
        let spent = self.local().spend_recorded(key.as_str(), limit, weighed::<S>(instances, limit, spend));
        let decision = S::core(&spent.decision);
        Some((Decision { decided_at: decision.decided_at.substitute(), ..decision }, spent.receipt))
    }

    /// Sets the cost of a reservation that was charged here.
    #[cfg(feature = "rules")]
    pub(super) fn settle(
        &self,
        on_failure: OnFailure,
        call: KeySpend<'_, '_, S::Limit>,
        charged: RecordedUnits,
    ) {
        let KeySpend { key, limit, spend: Spend { cost, .. } } = call;
        let (OnFailure::Local { instances }, Some(local)) = (on_failure, self.local.get()) else { return };
        // A weight has a bound, so the weight of a difference is not the difference of weights.
        let weight = weight_of::<S>(instances, limit, cost);
        if weight <= charged.units {
            let back = RecordedUnits { units: charged.units - weight, ..charged };
            local.refund_recorded(key.as_str(), limit, back);
        } else {
            let more = Spend { cost: weight - charged.units, payment: Payment::Debit };
            local.spend_at(key.as_str(), limit, more);
        }
    }

    /// Forgets the units that were counted here for a key.
    pub(super) fn forget(&self, key: &RedisKey) {
        let Some(local) = self.local.get() else { return };
        local.reset(key.as_str());
        self.uncharged_by_key().remove(key);
    }

    /// Removes and returns the units of a key that Redis is to be charged for now.
    pub(super) fn take_pending_charge<'a>(&'a self, key: &'a RedisKey) -> Option<PendingCharge<'a, S>> {
        self.local.get()?;
        let uncharged = self
            .uncharged_by_key()
            .remove(key)
            .filter(|uncharged| uncharged.counts_until > ClockSource::System.now())?;
        Some(PendingCharge { fallback: self, key, uncharged, unsent: Arc::default() })
    }

    /// Returns the part of `cost` that `take_up_to` tries to take while Redis is unreachable: at most this
    /// instance's share of the capacity.
    pub(super) fn capped_cost(&self, on_failure: OnFailure, limit: &S::Limit, cost: u64) -> u64 {
        let capacity = capacity_of::<S>(limit);
        match on_failure {
            OnFailure::Local { instances } => cost.min((capacity / u64::from(instances.get())).max(1)),
            OnFailure::Fail | OnFailure::Allow | OnFailure::Deny => cost.min(capacity.max(1)),
        }
    }

    fn uncharged_by_key(&self) -> MutexGuard<'_, HashMap<RedisKey, UnchargedUnits>> {
        self.uncharged_by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what is spent here for a spend.
fn weighed<S: Strategy>(instances: NonZeroU32, limit: &S::Limit, spend: Spend) -> Spend {
    let cost = match spend.payment {
        Payment::Prepaid => weight_of::<S>(instances, limit, spend.cost),
        // These may overdraw the limit, so that they need not fit.
        Payment::Postpaid | Payment::Debit => spend.cost.saturating_mul(u64::from(instances.get())),
    };
    Spend { cost, ..spend }
}

/// Returns the units to count here for `cost`: once per instance, but no more than the capacity. So a
/// single call that fits the limit always fits, however many instances there are.
fn weight_of<S: Strategy>(instances: NonZeroU32, limit: &S::Limit, cost: u64) -> u64 {
    cost.saturating_mul(u64::from(instances.get())).min(capacity_of::<S>(limit).max(cost))
}

/// Returns the units that a fresh key admits.
fn capacity_of<S: Strategy>(limit: &S::Limit) -> u64 {
    S::available(limit, &S::State::default(), Call::new(Timestamp::default(), u64::MAX))
}

/// Units that Redis is being charged for. Dropping it restores them if they were certainly not charged.
pub(super) struct PendingCharge<'a, S: Wire> {
    fallback: &'a FallbackCounters<S>,
    key: &'a RedisKey,
    uncharged: UnchargedUnits,
    unsent: Arc<AtomicBool>,
}

impl<S: Wire> PendingCharge<'_, S> {
    pub(super) fn units(&self) -> u64 {
        self.uncharged.units
    }

    /// Returns the flag that the batcher sets if the caller is dropped before the request is sent.
    pub(super) fn unsent(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.unsent)
    }

    /// Marks the units as not charged.
    pub(super) fn mark_unsent(&self) {
        self.unsent.store(true, Ordering::Release);
    }
}

impl<S: Wire> Drop for PendingCharge<'_, S> {
    fn drop(&mut self) {
        if self.unsent.load(Ordering::Acquire) {
            self.fallback.add_uncharged(self.key, self.uncharged);
        }
    }
}
