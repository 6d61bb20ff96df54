//! Who may look at counters, give back to them and reset them.

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use super::Front;
use super::problem::Refusal;

impl Front {
    /// Lets through who knows the token; without one, everybody who can reach a service that only this machine can reach.
    pub(super) fn admit_admin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.admin_token else {
            return if self.is_on_loopback {
                Ok(())
            } else {
                Err(Refusal::new(
                    StatusCode::FORBIDDEN,
                    "the service can be reached from elsewhere and has no admin token: set admin_token",
                ))
            };
        };
        let given = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let is_right = given
            .split_at_checked("bearer ".len())
            .is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"bearer ") && token.is(given));
        if is_right { Ok(()) } else { Err(Refusal::unauthorized("this needs the admin token")) }
    }
}
