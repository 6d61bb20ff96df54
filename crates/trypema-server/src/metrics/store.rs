//! Metrics of calls to Redis.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use trypema::TrypemaError;
use trypema::observer::{Event, Observer, StoreCall};
use trypema::redis::RedisFailureKind;

use super::histogram::Histogram;
use super::{Counter, metrics};

metrics! {
    /// The latency of calls to Redis, and the number of failures by kind.
    CallMetrics {
        "trypema_store_latency_seconds", "Latency of calls sent to Redis, including failures." { latency: Histogram }
        "trypema_store_errors_total", "Failed calls to Redis, by kind.", by "kind" {
            unavailable: Counter,
            outcome_unknown: Counter,
            refused: Counter,
            /// Calls that Redis refused because its user lacks a permission; not among `refused`.
            not_permitted: Counter,
            bad_reply: Counter,
        }
    }
}

/// The calls to Redis, and their errors for the log.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    pub(crate) calls: CallMetrics,
    /// Requests that ended with an error because of failed calls.
    pub(crate) undecided: Counter,
    /// The first error since [`StoreMetrics::take_error`].
    error: ArcSwapOption<String>,
}

impl Observer for StoreMetrics {
    /// Does nothing: decisions are counted from the verdicts of rules.
    fn decided(&self, _: &Event<'_>) {}

    fn store_called(&self, call: &StoreCall<'_>) {
        let Some(TrypemaError::RedisError(failure)) = call.error else {
            return self.calls.latency.add(call.latency);
        };
        if self.error.load().is_none() {
            self.error.store(Some(Arc::new(failure.to_string())));
        }
        // A call that was never sent says nothing about the latency of Redis.
        if failure.kind() != RedisFailureKind::Unavailable {
            self.calls.latency.add(call.latency);
        }
        let calls = &self.calls;
        match failure.kind() {
            _ if failure.is_not_permitted() => calls.not_permitted.add_one(),
            RedisFailureKind::Unavailable => calls.unavailable.add_one(),
            RedisFailureKind::OutcomeUnknown => calls.outcome_unknown.add_one(),
            RedisFailureKind::Refused => calls.refused.add_one(),
            _ => calls.bad_reply.add_one(),
        }
    }
}

impl StoreMetrics {
    /// Returns the number of calls that failed.
    pub(crate) fn failures(&self) -> u64 {
        let CallMetrics { latency: _, unavailable, outcome_unknown, refused, not_permitted, bad_reply } =
            &self.calls;
        [unavailable, outcome_unknown, refused, not_permitted, bad_reply].map(Counter::get).iter().sum()
    }

    /// Returns the first error since the last call of this method.
    pub(crate) fn take_error(&self) -> Option<String> {
        self.error.swap(None).map(|error| error.to_string())
    }
}
