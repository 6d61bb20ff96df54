//! Who may read rules and counters, and who may change them.

use std::net::IpAddr;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use super::problem::Refusal;
use crate::logins::LoginGuard;
use crate::net::Place;
use crate::tokens::{Actor, Role, Tokens};

/// The tokens of one listener, and its limit on failed logins.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) tokens: Tokens,
    pub(crate) guard: LoginGuard,
}

impl Access {
    /// Admits a request with any valid token.
    pub(super) fn admit_reader(&self, headers: &HeaderMap, place: &Place) -> Result<(), Refusal> {
        self.admit(headers, place.connection.peer.ip()).map(drop)
    }

    /// Admits a request with an editor's token, and returns the editor.
    pub(super) fn admit_editor(&self, headers: &HeaderMap, place: &Place) -> Result<Actor, Refusal> {
        let actor = self.admit(headers, place.connection.peer.ip())?;
        if actor.role < Role::Editor {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "this token may only look: this needs an admin token",
            ));
        }
        Ok(actor)
    }

    /// A request without a token is refused and not counted: it guesses nothing. A blocked address is refused before its
    /// token is compared, so a block cannot be ended, or guessed through, by sending more tokens.
    fn admit(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Actor, Refusal> {
        let given = headers.get(AUTHORIZATION).ok_or_else(no_token)?.as_bytes();
        let token = given
            .split_at_checked("bearer ".len())
            .and_then(|(scheme, token)| scheme.eq_ignore_ascii_case(b"bearer ").then_some(token))
            .filter(|token| !token.is_empty())
            .ok_or_else(no_token)?;
        if let Some(wait) = self.guard.blocked_for(peer) {
            return Err(Refusal::too_many_logins(wait));
        }
        match (self.tokens.find(token), self.tokens.is_empty()) {
            (Some(actor), _) => Ok(actor),
            (None, true) => {
                Err(Refusal::unauthorized("this needs a token, and this service has none: set admin_token"))
            }
            (None, false) => Err(match self.guard.failed(peer) {
                Some(wait) => Refusal::too_many_logins(wait),
                None => Refusal::unauthorized("this token is not known here"),
            }),
        }
    }
}

fn no_token() -> Refusal {
    Refusal::unauthorized("this needs a token: send it as `Authorization: Bearer TOKEN`")
}
