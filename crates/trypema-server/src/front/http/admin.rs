//! Who may look at rules and counters, and who may change them.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, StatusCode};

use super::Front;
use super::problem::Refusal;
use crate::tokens::{Actor, Role};

/// What proxies add: whoever asks is not on this machine, though the proxy may be.
const FORWARDED: [&str; 5] = ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];

impl Front {
    /// Lets through who may look.
    pub(super) fn admit_reader(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.admit(headers).map(drop)
    }

    /// Lets through who may change something, and says who that is.
    pub(super) fn admit_editor(&self, headers: &HeaderMap) -> Result<Actor, Refusal> {
        let actor = self.admit(headers)?;
        if actor.role < Role::Editor {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "this token may only look: this needs an admin token",
            ));
        }
        Ok(actor)
    }

    /// Lets through who knows a token; without any, everybody who can reach a service that only this machine can reach.
    fn admit(&self, headers: &HeaderMap) -> Result<Actor, Refusal> {
        if self.tokens.is_empty() {
            return self.admit_neighbour(headers);
        }
        let given = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let token = given
            .split_at_checked("bearer ".len())
            .and_then(|(scheme, token)| scheme.eq_ignore_ascii_case(b"bearer ").then_some(token));
        let actor = token.and_then(|token| self.tokens.find(token));
        actor.ok_or_else(|| Refusal::unauthorized("this needs a token"))
    }

    /// A browser on this machine is none of ours: what it is made to send by a page of somebody else's says so.
    fn admit_neighbour(&self, headers: &HeaderMap) -> Result<Actor, Refusal> {
        if !self.is_on_loopback {
            let detail = "the service can be reached from elsewhere and has no admin token: set admin_token";
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        if headers.contains_key(ORIGIN) || !host.is_none_or(is_this_machine) {
            let detail = "pages of other sites may not do this: set admin_token";
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
        }
        if FORWARDED.iter().any(|header| headers.contains_key(*header)) {
            let detail = "a proxy passes on what others ask: set admin_token";
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(Actor { name: "loopback".to_owned(), role: Role::Editor })
    }
}

/// Whether a `Host` names this machine, and is no name that somebody made to point here.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_this_machine() {
        for host in
            ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.1.2.3:80", "[::1]:8080", "[::ffff:127.0.0.1]"]
        {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["", "evil.example", "127.0.0.1.evil.example:8080", "localhost.evil.example", "10.0.0.1", "[::2]"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
