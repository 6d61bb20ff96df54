//! Observing limiters: a hook that is called after every decision, and costs nothing when unused.

use std::fmt::Debug;
use std::time::Duration;

use crate::decision::Decision;
#[cfg(feature = "tracing")]
use crate::decision::{Attempts, BlockScope};
use crate::error::TrypemaError;

/// A hook that is called for every take. It runs on the caller's thread, outside of any lock, and must be
/// quick.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use trypema::observer::{Event, Observer};
/// use trypema::{RateLimit, RateLimiter};
///
/// #[derive(Debug, Default)]
/// struct Denials(AtomicU64);
///
/// impl Observer for Denials {
///     fn decided(&self, event: &Event<'_>) {
///         self.0.fetch_add(u64::from(!event.decision.is_allowed()), Ordering::Relaxed);
///     }
/// }
///
/// let denials = Arc::new(Denials::default());
/// let rl = RateLimiter::builder().observer(denials.clone()).build()?;
/// let once_a_minute = RateLimit::try_from(1.0 / 60.0)?;
/// for _ in 0..3 {
///     rl.local().absolute().inc("ann", &once_a_minute, 1);
/// }
/// assert_eq!(denials.0.load(Ordering::Relaxed), 2);
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
pub trait Observer: Debug + Send + Sync {
    /// Called when a take was decided.
    fn decided(&self, event: &Event<'_>);

    /// Called when a take could not be decided.
    fn failed(&self, failure: &Failure<'_>) {
        let _ = failure;
    }

    /// Called when a rule that only logs would have denied a request.
    fn shadowed(&self, denial: &ShadowDenial<'_>) {
        let _ = denial;
    }

    /// Called when a reservation has changed at one counter of a rule.
    fn reservation_changed(&self, event: &ReservationEvent<'_>) {
        let _ = event;
    }

    /// Called after a call to the store, of any kind: a take, a peek, a lease. Calls that were sent in one
    /// batch are reported one by one.
    fn store_called(&self, call: &StoreCall<'_>) {
        let _ = call;
    }
}

/// A decided take.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The strategy's name.
    pub strategy: &'static str,
    /// The key as the caller gave it.
    pub key: &'a str,
    /// The units that the caller requested.
    pub cost: u64,
    /// The decision. For an abuse limit, it has [`attempts`](Decision::attempts) and
    /// [`block_scope`](Decision::block_scope).
    pub decision: &'a Decision,
    /// The duration of the call.
    pub latency: Duration,
}

/// A take that could not be decided.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Failure<'a> {
    /// The strategy's name.
    pub strategy: &'static str,
    /// The key as the caller gave it.
    pub key: &'a str,
    /// The error.
    pub error: &'a TrypemaError,
}

/// A denial by a rule that only logs (`action: log_only`): the request passes the rule.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ShadowDenial<'a> {
    /// The rule's id.
    pub rule: &'a str,
    /// The name of the rule, or else its id.
    pub name: &'a str,
    /// The name of the counter for the request; empty if the request lacks an attribute of the key.
    pub key: &'a str,
    /// The cost of the request.
    pub cost: u64,
    /// The decision of the rule.
    pub decision: &'a Decision,
    /// The number of requests that the rule would have denied since it was loaded, including this one.
    pub count: u64,
}

/// A change of a reservation at one counter of a rule, by this process.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ReservationEvent<'a> {
    /// The rule's id.
    pub rule: &'a str,
    /// The name of the counter.
    pub key: &'a str,
    /// The change.
    pub change: ReservationChange,
}

/// A change of a reservation at one counter.
///
/// Expiry causes no event, because Redis does not report it. Count it from the times of the other changes.
/// Each reservation ends at the time that its last `Reserved` or `Renewed` reported, unless a `Settled` or
/// `Released` comes first, possibly in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservationChange {
    /// The reservation was made. Not reported of a repeated request, which made nothing.
    Reserved {
        /// The time after which it expires.
        expires_in: Duration,
    },
    /// The reservation was renewed.
    Renewed {
        /// The time after which it would have expired.
        was_left: Duration,
        /// The time after which it expires now.
        expires_in: Duration,
    },
    /// The reservation was settled at its real cost.
    Settled {
        /// The time after which it would have expired.
        was_left: Duration,
    },
    /// The reservation was released: its real cost is nothing.
    Released {
        /// The time after which it would have expired.
        was_left: Duration,
    },
    /// The reservation was to be settled, released or renewed, and the counter does not know it: it expired,
    /// or was settled or released before, or was never made.
    NotOutstanding,
}

impl ShadowDenial<'_> {
    /// After the first denials, one in this many is logged.
    const LOGGED_EVERY: u64 = 1_000;

    /// Whether the denial with this number, counted from 1, is logged. These are the 1st, 2nd, 4th, 8th … and
    /// every 1,000th denial of a rule, so that the first ones are seen immediately and the log does not grow
    /// with traffic.
    pub fn is_sampled(count: u64) -> bool {
        count.is_power_of_two() || count.is_multiple_of(Self::LOGGED_EVERY)
    }
}

/// A call to the store.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StoreCall<'a> {
    /// The time that the caller waited.
    pub latency: Duration,
    /// The error, if the store failed.
    pub error: Option<&'a TrypemaError>,
}

/// Emits `tracing` events under the target `trypema`: debug for each decision, a warning for each failure,
/// and info for [some](ShadowDenial::is_sampled) of the denials of rules that only log.
///
/// ```
/// use std::sync::Arc;
/// use trypema::RateLimiter;
/// use trypema::observer::TracingObserver;
///
/// let rl = RateLimiter::builder().observer(Arc::new(TracingObserver)).build()?;
/// # let _ = rl;
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[cfg(feature = "tracing")]
#[derive(Debug, Clone, Copy, Default)]
pub struct TracingObserver;

#[cfg(feature = "tracing")]
impl Observer for TracingObserver {
    fn decided(&self, event: &Event<'_>) {
        tracing::debug!(
            target: "trypema",
            strategy = event.strategy,
            key = event.key,
            cost = event.cost,
            is_allowed = event.decision.is_allowed(),
            remaining = event.decision.remaining(),
            retry_after = ?event.decision.retry_after(),
            scope = event.decision.block_scope().map(BlockScope::name),
            short_count = event.decision.attempts().map(Attempts::short_count),
            long_count = event.decision.attempts().map(Attempts::long_count),
            latency = ?event.latency,
            "rate limit decision"
        );
    }

    fn failed(&self, failure: &Failure<'_>) {
        tracing::warn!(
            target: "trypema",
            strategy = failure.strategy,
            key = failure.key,
            error = %failure.error,
            "rate limit check failed"
        );
    }

    fn shadowed(&self, denial: &ShadowDenial<'_>) {
        if ShadowDenial::is_sampled(denial.count) {
            tracing::info!(
                target: "trypema",
                rule = denial.rule,
                name = denial.name,
                key = denial.key,
                cost = denial.cost,
                count = denial.count,
                retry_after = ?denial.decision.retry_after(),
                "log_only rule would have denied a request"
            );
        }
    }
}
