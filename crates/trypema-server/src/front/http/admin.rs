//! Who may look at counters, give back to them and reset them.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, StatusCode};

use super::Front;
use super::problem::Refusal;

impl Front {
    /// Lets through who knows the token; without one, everybody who can reach a service that only this machine can reach.
    pub(super) fn admit_admin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.admin_token else { return self.admit_neighbour(headers) };
        let given = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let is_right = given
            .split_at_checked("bearer ".len())
            .is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"bearer ") && token.is(given));
        if is_right { Ok(()) } else { Err(Refusal::unauthorized("this needs the admin token")) }
    }

    /// A browser on this machine is none of ours: what it is made to send by a page of somebody else's says so.
    fn admit_neighbour(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if !self.is_on_loopback {
            let detail = "the service can be reached from elsewhere and has no admin token: set admin_token";
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        if headers.contains_key(ORIGIN) || !host.is_none_or(is_this_machine) {
            let detail = "pages of other sites may not do this: set admin_token";
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(())
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
