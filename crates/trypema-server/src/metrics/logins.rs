//! Metrics of failed logins.

use super::{Counter, metrics};

metrics! {
    /// The number of requests whose token was rejected.
    LoginMetrics {
        "trypema_failed_logins_total",
        "Requests with a wrong token. reason: wrong_token, or blocked if the address had failed too often.",
        by "reason" {
            /// Requests from addresses that were not blocked.
            wrong_token: Counter,
            /// Requests from addresses that were blocked after too many failures.
            blocked: Counter,
        }
    }
}
