//! Failed logins.

use super::{Counter, Exposition, Kind};

/// Counts of requests whose token was refused.
#[derive(Debug, Default)]
pub(crate) struct LoginMetrics {
    /// Requests with a wrong token.
    pub(crate) failed: Counter,
    /// Requests refused unseen, because their address had failed too often.
    pub(crate) blocked: Counter,
}

impl LoginMetrics {
    pub(super) fn write(&self, text: &mut Exposition) {
        text.family(
            "trypema_failed_logins_total",
            Kind::Counter,
            "Requests whose token was refused: wrong, or from an address that is blocked after too many wrong ones.",
        );
        text.sample(&[("reason", "wrong_token")], self.failed.get());
        text.sample(&[("reason", "blocked")], self.blocked.get());
    }
}
