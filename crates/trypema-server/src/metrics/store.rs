//! Metrics of calls to Redis.

use trypema::TrypemaError;
use trypema::observer::{Event, Observer, StoreCall};
use trypema::redis::RedisFailureKind;

use super::histogram::Histogram;
use super::{Counter, Exposition, Kind};

/// The latency of calls to Redis, and the number of failures by kind.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    latency: Histogram,
    unavailable: Counter,
    unknown: Counter,
    refused: Counter,
    bad_reply: Counter,
}

impl Observer for StoreMetrics {
    /// Does nothing: decisions are counted from the verdicts of rules.
    fn decided(&self, _: &Event<'_>) {}

    fn store_called(&self, call: &StoreCall<'_>) {
        let Some(TrypemaError::RedisError(failure)) = call.error else {
            return self.latency.add(call.latency);
        };
        // A call that was never sent says nothing about the latency of Redis.
        if failure.kind() != RedisFailureKind::Unavailable {
            self.latency.add(call.latency);
        }
        match failure.kind() {
            RedisFailureKind::Unavailable => self.unavailable.add_one(),
            RedisFailureKind::OutcomeUnknown => self.unknown.add_one(),
            RedisFailureKind::Refused => self.refused.add_one(),
            _ => self.bad_reply.add_one(),
        }
    }
}

impl StoreMetrics {
    pub(super) fn write(&self, text: &mut Exposition) {
        text.family(
            "trypema_store_latency_seconds",
            Kind::Histogram,
            "How long calls that were sent to Redis took, failures included.",
        );
        self.latency.write(text, &[]);
        text.family(
            "trypema_store_errors_total",
            Kind::Counter,
            "Calls that Redis did not answer with a decision.",
        );
        text.sample(&[("kind", "unavailable")], self.unavailable.get());
        text.sample(&[("kind", "outcome_unknown")], self.unknown.get());
        text.sample(&[("kind", "refused")], self.refused.get());
        text.sample(&[("kind", "bad_reply")], self.bad_reply.get());
    }
}
