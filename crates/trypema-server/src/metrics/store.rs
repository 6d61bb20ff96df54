//! Metrics of calls to Redis.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use trypema::TrypemaError;
use trypema::observer::{Event, Observer, StoreCall};
use trypema::redis::{RedisFailure, RedisFailureKind};

use super::histogram::Histogram;
use super::{Counter, Exposition, MetricType};

/// The latency of calls to Redis, and the number of failures by kind.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    latency: Histogram,
    unavailable: Counter,
    unknown: Counter,
    refused: Counter,
    /// Calls that Redis refused because its user lacks a permission; not among `refused`.
    pub(crate) not_permitted: Counter,
    bad_reply: Counter,
    /// Requests that ended with an error because of these failures.
    pub(crate) undecided: Counter,
    /// The first error since [`StoreMetrics::take_error`].
    error: Mutex<Option<String>>,
    /// Whether `error` is set, so that further failures need no lock.
    has_error: AtomicBool,
}

impl Observer for StoreMetrics {
    /// Does nothing: decisions are counted from the verdicts of rules.
    fn decided(&self, _: &Event<'_>) {}

    fn store_called(&self, call: &StoreCall<'_>) {
        let Some(TrypemaError::RedisError(failure)) = call.error else {
            return self.latency.add(call.latency);
        };
        self.note_error(failure);
        // A call that was never sent says nothing about the latency of Redis.
        if failure.kind() != RedisFailureKind::Unavailable {
            self.latency.add(call.latency);
        }
        match failure.kind() {
            _ if failure.is_not_permitted() => self.not_permitted.add_one(),
            RedisFailureKind::Unavailable => self.unavailable.add_one(),
            RedisFailureKind::OutcomeUnknown => self.unknown.add_one(),
            RedisFailureKind::Refused => self.refused.add_one(),
            _ => self.bad_reply.add_one(),
        }
    }
}

impl StoreMetrics {
    /// Returns the number of calls that failed.
    pub(crate) fn failures(&self) -> u64 {
        let kinds = [&self.unavailable, &self.unknown, &self.refused, &self.not_permitted, &self.bad_reply];
        kinds.map(Counter::get).iter().sum()
    }

    /// Returns the first error since the last call of this method.
    pub(crate) fn take_error(&self) -> Option<String> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.has_error.store(false, Ordering::Relaxed);
        error
    }

    fn note_error(&self, failure: &RedisFailure) {
        if !self.has_error.swap(true, Ordering::Relaxed) {
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure.to_string());
        }
    }

    pub(super) fn write(&self, text: &mut Exposition) {
        text.family(
            "trypema_store_latency_seconds",
            MetricType::Histogram,
            "Latency of calls sent to Redis, including failures.",
        );
        self.latency.write(text, &[]);
        text.family("trypema_store_errors_total", MetricType::Counter, "Failed calls to Redis, by kind.");
        text.sample(&[("kind", "unavailable")], self.unavailable.get());
        text.sample(&[("kind", "outcome_unknown")], self.unknown.get());
        text.sample(&[("kind", "refused")], self.refused.get());
        text.sample(&[("kind", "not_permitted")], self.not_permitted.get());
        text.sample(&[("kind", "bad_reply")], self.bad_reply.get());
    }
}
