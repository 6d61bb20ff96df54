//! Seeing what limiters do: a hook that is called after every decision, and costs nothing when unused.

use std::fmt::Debug;
use std::time::Duration;

use crate::decision::Decision;
use crate::error::TrypemaError;

/// Told of every take. Runs on the caller's thread, outside of any lock: be quick.
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
    /// A take was decided.
    fn decided(&self, event: &Event<'_>);

    /// A take could not be decided.
    fn failed(&self, failure: &Failure<'_>) {
        let _ = failure;
    }

    /// The store was asked, for whatever reason: a take, a look, a lease. Calls that travelled together are told of one by
    /// one.
    fn asked(&self, call: &StoreCall<'_>) {
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
    /// What was asked for.
    pub cost: u64,
    /// What was decided.
    pub decision: &'a Decision,
    /// How long that took.
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
    /// What went wrong.
    pub error: &'a TrypemaError,
}

/// A call to the store.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StoreCall<'a> {
    /// How long its caller waited.
    pub latency: Duration,
    /// What went wrong, if the store gave no answer.
    pub error: Option<&'a TrypemaError>,
}

/// Emits a `tracing` debug event per decision and a warning per failure, under the target `trypema`.
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
            latency = ?event.latency,
            "decided"
        );
    }

    fn failed(&self, failure: &Failure<'_>) {
        tracing::warn!(
            target: "trypema",
            strategy = failure.strategy,
            key = failure.key,
            error = %failure.error,
            "not decided"
        );
    }
}
