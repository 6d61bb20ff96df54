//! Metrics of failed logins.

use super::{Counter, Exposition, Kind};

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
            Kind::Counter,
            "Requests with a wrong token; `blocked` are those from addresses that had failed too often.",
        );
        text.sample(&[("reason", "wrong_token")], self.failed.get());
        text.sample(&[("reason", "blocked")], self.blocked.get());
    }
}
