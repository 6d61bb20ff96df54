//! Authenticates administration requests: readers may read, admins may also change.

use std::net::IpAddr;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use super::problem::ApiError;
use crate::logins::LoginGuard;
use crate::net::ConnectionSlot;
use crate::tokens::{Actor, TokenRole, Tokens};

/// The tokens of one listener, and its limit on failed logins.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) tokens: Tokens,
    pub(crate) guard: LoginGuard,
}

impl Access {
    /// Admits a request with any valid token.
    pub(super) fn admit_reader(&self, headers: &HeaderMap, slot: &ConnectionSlot) -> Result<(), ApiError> {
        self.admit(headers, slot.connection.peer_address.ip()).map(drop)
    }

    /// Admits a request with an admin token, and returns the admin.
    pub(super) fn admit_admin(&self, headers: &HeaderMap, slot: &ConnectionSlot) -> Result<Actor, ApiError> {
        let actor = self.admit(headers, slot.connection.peer_address.ip())?;
        if actor.role < TokenRole::Admin {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "a reader token cannot do this; use an admin token",
            ));
        }
        Ok(actor)
    }

    /// Whether the request has a valid token. Failures are not counted: health probes with an old token
    /// must not count as failed logins.
    pub(super) fn is_reader(&self, headers: &HeaderMap) -> bool {
        bearer(headers).is_some_and(|token| self.tokens.find(token).is_some())
    }

    /// Authenticates a request. A request without a token is refused but not counted, because it is not a
    /// guess. A valid token is admitted however often its address has failed, so that no client with the
    /// same address can lock the administrator out.
    fn admit(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Actor, ApiError> {
        let token = bearer(headers).ok_or_else(no_token)?;
        match (self.tokens.find(token), self.tokens.is_empty()) {
            (Some(actor), _) => Ok(actor),
            (None, true) => {
                Err(ApiError::unauthorized("no token is configured on this server; set admin_token"))
            }
            (None, false) => Err(match self.guard.failed(peer) {
                Some(wait) => ApiError::too_many_logins(wait),
                None => ApiError::unauthorized("unknown token"),
            }),
        }
    }
}

/// Returns the token of `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked("bearer ".len())?;
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

fn no_token() -> ApiError {
    ApiError::unauthorized("this needs a token: send it as `Authorization: Bearer TOKEN`")
}
