//! Authenticates requests: callers may check and reserve, readers may read, admins may also change.

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
    /// Admits a request to check or to reserve: with a caller token if one is configured, otherwise every request.
    pub(super) fn admit_caller(&self, headers: &HeaderMap, slot: &ConnectionSlot) -> Result<(), ApiError> {
        if !self.tokens.has_callers() {
            return Ok(());
        }
        let token = bearer(headers).ok_or_else(|| {
            ApiError::unauthorized("this needs a caller token: send it as `Authorization: Bearer TOKEN`")
        })?;
        match self.authenticate(token, slot)?.role {
            TokenRole::Caller => Ok(()),
            TokenRole::Reader | TokenRole::Admin => Err(forbidden(
                "this needs a caller token (caller_token); the tokens of admins and readers are for administration",
            )),
        }
    }

    /// Admits a request with a reader token or an admin token.
    pub(super) fn admit_reader(&self, headers: &HeaderMap, slot: &ConnectionSlot) -> Result<(), ApiError> {
        match self.admit(headers, slot)?.role {
            TokenRole::Reader | TokenRole::Admin => Ok(()),
            TokenRole::Caller => {
                Err(forbidden("a caller token cannot do this; use a reader token or an admin token"))
            }
        }
    }

    /// Admits a request with an admin token, and returns the admin.
    pub(super) fn admit_admin(&self, headers: &HeaderMap, slot: &ConnectionSlot) -> Result<Actor, ApiError> {
        let actor = self.admit(headers, slot)?;
        match actor.role {
            TokenRole::Admin => Ok(actor.clone()),
            TokenRole::Reader => Err(forbidden("a reader token cannot do this; use an admin token")),
            TokenRole::Caller => Err(forbidden("a caller token cannot do this; use an admin token")),
        }
    }

    /// Whether the request has a reader token or an admin token. Failures are not counted: health probes
    /// with an old token must not count as failed logins.
    pub(super) fn is_reader(&self, headers: &HeaderMap) -> bool {
        let actor = bearer(headers).and_then(|token| self.tokens.find(token));
        actor.is_some_and(|actor| actor.role != TokenRole::Caller)
    }

    /// Authenticates a request to administration. A request without a token is refused but not counted,
    /// because it is not a guess.
    fn admit(&self, headers: &HeaderMap, slot: &ConnectionSlot) -> Result<&Actor, ApiError> {
        self.authenticate(bearer(headers).ok_or_else(no_token)?, slot)
    }

    /// Returns the owner of a token. A valid token is accepted however often its address has failed, so that
    /// no client with the same address can lock the administrator out.
    fn authenticate(&self, token: &[u8], slot: &ConnectionSlot) -> Result<&Actor, ApiError> {
        match (self.tokens.find(token), self.tokens.is_empty()) {
            (Some(actor), _) => Ok(actor),
            (None, true) => {
                Err(ApiError::unauthorized("no token is configured on this server; set admin_token"))
            }
            (None, false) => Err(match self.guard.failed(slot.connection.peer_address.ip()) {
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

fn forbidden(detail: &'static str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, detail)
}

fn no_token() -> ApiError {
    ApiError::unauthorized("this needs a token: send it as `Authorization: Bearer TOKEN`")
}
