//! What a call is answered when Redis cannot be asked.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::ask::Verb;
use super::key::RedisKey;
use super::key_call::{Asking, KeyCall};
use crate::clock::{Source, Timestamp};
use crate::decision::When;
use crate::local::{Bound, Limiter as LocalLimiter, WhenFull};
use crate::strategy::{Call, Strategy, Wire};

/// What a failure of Redis means for the caller. Decisions that are made in its place say so
/// ([`Decision::is_substitute`](crate::Decision::is_substitute)); the observer is told of every failure.
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
    /// The call is an `Err`.
    #[default]
    Fail,
    /// The call is allowed, unless its cost could never fit.
    Allow,
    /// The call is denied.
    Deny,
    /// The call is decided in this process, where every unit counts as often as there are instances. What is
    /// admitted is taken from Redis when it is back, as far as it fits.
    Local {
        /// How many instances share the limit. Where [`keep_in_sync`](crate::hybrid::HybridRateLimiterProvider::keep_in_sync)
        /// knows of more, it is those.
        instances: NonZeroU32,
    },
}

/// Keys that are counted for in this process at most while Redis is away, per strategy.
const MAX_KEYS: usize = 100_000;

/// What is counted in this process while Redis is away.
#[derive(Debug)]
pub(super) struct Substitute<S: Strategy> {
    local: OnceLock<LocalLimiter<S>>,
    /// What Redis does not know of yet.
    unsettled: Mutex<HashMap<RedisKey, Debt>>,
}

/// Units that were admitted without Redis.
#[derive(Debug, Clone, Copy)]
struct Debt {
    units: u64,
    /// When they no longer count, and need not be settled.
    counts_until: Timestamp,
}

impl<S: Wire> Substitute<S> {
    pub(super) fn new() -> Self {
        Self { local: OnceLock::new(), unsettled: Mutex::default() }
    }

    /// What `on_failure` answers; `None` if it leaves the call undecided.
    pub(super) fn decide<'l>(
        &self,
        on_failure: OnFailure,
        call: KeyCall<'_, 'l, S::Limit>,
    ) -> Option<S::Decision<'l>> {
        let (now, limit, cost) = (Source::System.now(), call.limit, call.asking.cost);
        let fresh = || S::decide(limit, &S::State::default(), Call::new(now, cost));
        let when = When::exactly(now).uncounted();
        match on_failure {
            OnFailure::Fail => None,
            OnFailure::Allow => Some(S::decision(limit, fresh(), when)),
            OnFailure::Deny => Some(S::decision(limit, S::denied(fresh()), when)),
            OnFailure::Local { instances } => Some(self.decide_here(instances, call)),
        }
    }

    fn decide_here<'l>(&self, instances: NonZeroU32, call: KeyCall<'_, 'l, S::Limit>) -> S::Decision<'l> {
        let KeyCall { key, limit, asking: Asking { verb, cost, .. } } = call;
        let bound = Bound { max_keys: MAX_KEYS, when_full: WhenFull::Share };
        let local = self.local.get_or_init(|| LocalLimiter::new(Source::System, Some(bound), None));
        let weight = weight_of::<S>(instances, limit, cost);
        let found = match verb {
            Verb::Peek => local.foreseen(key.as_str(), limit, weight),
            _ => local.found(key.as_str(), limit, weight),
        };
        if S::is_admitted(&found.outcome) && cost > 0 && verb != Verb::Peek {
            let counts_until = Source::System.now() + Duration::from_micros(S::memory_us(limit));
            self.note(key, Debt { units: cost, counts_until });
        }
        S::decision(limit, found.outcome, found.when.substitute())
    }

    /// Notes what Redis is still to be told of.
    fn note(&self, key: &RedisKey, debt: Debt) {
        let mut unsettled = self.unsettled();
        if unsettled.len() >= MAX_KEYS && !unsettled.contains_key(key) {
            let now = Source::System.now();
            unsettled.retain(|_, debt| debt.counts_until > now);
            if unsettled.len() >= MAX_KEYS {
                return;
            }
        }
        let noted = unsettled.entry(key.clone()).or_insert(Debt { units: 0, ..debt });
        noted.units = noted.units.saturating_add(debt.units);
        noted.counts_until = noted.counts_until.max(debt.counts_until);
    }

    /// Refunds units that were counted here and that Redis has not been told of; 0 if there are none.
    #[cfg(feature = "rules")]
    pub(super) fn refund(&self, on_failure: OnFailure, call: KeyCall<'_, '_, S::Limit>) -> u64 {
        let KeyCall { key, limit, asking: Asking { cost: units, .. } } = call;
        if !matches!(on_failure, OnFailure::Local { .. }) {
            return 0;
        }
        let mut unsettled = self.unsettled();
        let Some(debt) = unsettled.get_mut(key) else { return 0 };
        let refunded = units.min(debt.units);
        debt.units -= refunded;
        if debt.units == 0 {
            unsettled.remove(key);
        }
        drop(unsettled);
        if let Some(local) = self.local.get() {
            // Taken units may have counted several times here; once is stricter, and right for one instance.
            local.refund_units(key.as_str(), limit, refunded);
        }
        refunded
    }

    /// Forgets what was counted here for a key.
    pub(super) fn forget(&self, key: &RedisKey) {
        let Some(local) = self.local.get() else { return };
        local.reset(key.as_str());
        self.unsettled().remove(key);
    }

    /// What was admitted here while Redis was away, to be taken there.
    pub(super) fn settling<'a>(&'a self, key: &'a RedisKey) -> Option<Settling<'a, S>> {
        self.local.get()?;
        let debt = self.unsettled().remove(key).filter(|debt| debt.counts_until > Source::System.now())?;
        Some(Settling { substitute: self, key, debt, unsent: Arc::default() })
    }

    /// How much of `cost` to ask for in place of Redis, where what fits is wanted.
    pub(super) fn most_of(&self, on_failure: OnFailure, limit: &S::Limit, cost: u64) -> u64 {
        let capacity = capacity_of::<S>(limit);
        match on_failure {
            OnFailure::Local { instances } => cost.min((capacity / u64::from(instances.get())).max(1)),
            OnFailure::Fail | OnFailure::Allow | OnFailure::Deny => cost.min(capacity.max(1)),
        }
    }

    fn unsettled(&self) -> MutexGuard<'_, HashMap<RedisKey, Debt>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The units to count here for a cost that `instances` may each admit. At least one call of its size fits, however many
/// instances there are.
fn weight_of<S: Strategy>(instances: NonZeroU32, limit: &S::Limit, cost: u64) -> u64 {
    cost.saturating_mul(u64::from(instances.get())).min(capacity_of::<S>(limit).max(cost))
}

/// What a fresh key admits at most.
fn capacity_of<S: Strategy>(limit: &S::Limit) -> u64 {
    S::fits(limit, &S::State::default(), Call::new(Timestamp::default(), u64::MAX))
}

/// Units that Redis is being told of; noted again if it is sure that it was not.
pub(super) struct Settling<'a, S: Wire> {
    substitute: &'a Substitute<S>,
    key: &'a RedisKey,
    debt: Debt,
    unsent: Arc<AtomicBool>,
}

impl<S: Wire> Settling<'_, S> {
    pub(super) fn units(&self) -> u64 {
        self.debt.units
    }

    /// To be set if nothing was sent when the caller goes away.
    pub(super) fn unsent(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.unsent)
    }

    /// Redis was not told.
    pub(super) fn put_off(&self) {
        self.unsent.store(true, Ordering::Release);
    }
}

impl<S: Wire> Drop for Settling<'_, S> {
    fn drop(&mut self) {
        if self.unsent.load(Ordering::Acquire) {
            self.substitute.note(self.key, self.debt);
        }
    }
}
