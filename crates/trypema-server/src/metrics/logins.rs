//! Metrics of failed logins.

use super::{Counter, Exposition, MetricType};

/// The number of requests whose token was rejected.
#[derive(Debug, Default)]
pub(crate) struct LoginMetrics {
    /// Requests with a wrong token, from addresses that were not blocked.
    pub(crate) failed: Counter,
    /// Requests with a wrong token, from addresses that were blocked after too many failures.
    pub(crate) blocked: Counter,
}

impl LoginMetrics {
    pub(super) fn write(&self, text: &mut Exposition) {
        text.family(
            "trypema_failed_logins_total",
            MetricType::Counter,
            "Requests with a wrong token. reason: wrong_token, or blocked if the address had failed too often.",
        );
        text.sample(&[("reason", "wrong_token")], self.failed.get());
        text.sample(&[("reason", "blocked")], self.blocked.get());
    }
}
