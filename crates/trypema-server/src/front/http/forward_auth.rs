//! `/v1/forward-auth`: may a request that a proxy holds go ahead? For nginx `auth_request`, Caddy `forward_auth`, Traefik `forwardAuth`.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Request, StatusCode};
use hyper::body::Incoming;
use trypema::http::Policy;
use trypema::rules::Request as Asking;

use super::check::denied;
use super::problem::Refusal;
use super::query::{Choices, Pair};
use super::question::{NO_ADDRESS, is_address};
use super::{Answer, Asked, Front, begin};
use crate::app::Mode;
use crate::net::Place;

const FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

impl Front {
    pub(super) async fn forward_auth(&self, request: &Request<Incoming>, place: &Place) -> Asked {
        begin(place)?;
        let address = place.connection.peer.ip();
        if !self.trusted_proxies.trusts(address) {
            let detail = format!("{} is not one of the trusted proxies", address.to_canonical());
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
        }
        let usual = Choices { deny_status: StatusCode::TOO_MANY_REQUESTS, headers: self.headers };
        let mut attributes: Vec<Pair<'_>> = Vec::with_capacity(8);
        let mut cost = 1;
        let choices = usual.read(choices_of(request.uri().path()), |(name, value)| {
            if name == "cost" {
                cost = value.parse().map_err(|_| Refusal::bad_request("cost: need a whole number"))?;
            } else {
                attributes.push((name, value));
            }
            Ok(())
        })?;
        if choices.deny_status == StatusCode::OK {
            return Err(Refusal::bad_request("deny_status: 200 would let through what is denied"));
        }
        self.describe(request, address, &mut attributes)?;
        let attributes: Vec<(&str, &str)> =
            attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        let asking = Asking::new(&attributes).costing(cost);
        let verdict = self.app.ask(Mode::Check, &asking).await?;
        if !verdict.is_allowed() {
            return Ok(denied(&verdict, choices));
        }
        let mut answer = Answer::default();
        choices.headers.write(Policy::of_verdict(&verdict), answer.headers_mut());
        Ok(answer)
    }

    /// Adds what the proxy says of the request. What its configuration says in the path comes first, because the first of a name
    /// counts.
    fn describe<'r>(
        &'r self,
        request: &'r Request<Incoming>,
        peer: IpAddr,
        attributes: &mut Vec<Pair<'r>>,
    ) -> Result<(), Refusal> {
        let headers = request.headers();
        for attribute in &self.attributes {
            if let Some(value) = only_one(headers, &attribute.header)? {
                attributes.push((Cow::Borrowed(&attribute.name), Cow::Borrowed(value)));
            }
        }
        let has = |name: &str, attributes: &[Pair<'_>]| attributes.iter().any(|(given, _)| given == name);
        if !has("endpoint", attributes) {
            let missing = || {
                Refusal::bad_request(
                    "X-Forwarded-Uri is missing: the proxy has to tell which request this is",
                )
            };
            attributes.push((
                Cow::Borrowed("endpoint"),
                Cow::Borrowed(path_of(only_one(headers, &FORWARDED_URI)?.ok_or_else(missing)?)?),
            ));
        }
        if !has("method", attributes) {
            let method = only_one(headers, &FORWARDED_METHOD)?.unwrap_or(request.method().as_str());
            attributes.push((Cow::Borrowed("method"), Cow::Borrowed(method)));
        }
        if let Some(host) = only_one(headers, &FORWARDED_HOST)? {
            attributes.push((Cow::Borrowed("host"), Cow::Owned(one_spelling(host))));
        }
        if let Some((_, given)) = attributes.iter().find(|(name, _)| name == "ip") {
            if !is_address(given) {
                return Err(Refusal::bad_request(NO_ADDRESS));
            }
        } else {
            if !headers.contains_key(FORWARDED_FOR) {
                return Err(Refusal::bad_request(
                    "X-Forwarded-For is missing: without it all clients would share the proxy's own address",
                ));
            }
            let client = self.trusted_proxies.client_address(peer, headers);
            attributes.push((Cow::Borrowed("ip"), Cow::Owned(client.to_string())));
        }
        Ok(())
    }
}

/// What the proxy's configuration chooses: it stands in the path, as in `/v1/forward-auth/deny_status=401&plan=free`. A query is not looked
/// at, because it may be the client's: some proxies pass it on.
fn choices_of(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/forward-auth/")
}

/// The value of a header that a proxy sets: if there are two, one is the client's.
fn only_one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::bad_request(format!(
            "{name} is given twice: the proxy has to replace what clients send"
        )));
    }
    // Other bytes would have to be told apart, too, or those who send them would share a counter.
    let text = std::str::from_utf8(first.as_bytes());
    text.map(Some).map_err(|_| Refusal::bad_request(format!("{name} is not UTF-8")))
}

/// A host as it is counted: whoever writes it another way is still the same.
fn one_spelling(host: &str) -> String {
    let is_address = host.starts_with('[');
    let end = if is_address { host.find(']').map(|end| end + 1) } else { host.find(':') };
    host[..end.unwrap_or(host.len())].trim_end_matches('.').to_ascii_lowercase()
}

/// The path of what a client asked for, which may be written with its host.
fn path_of(uri: &str) -> Result<&str, Refusal> {
    let uri = uri.split(['?', '#']).next().unwrap_or_default();
    let path = match uri.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            rest.find('/').map_or("/", |start| &rest[start..])
        }
        _ => uri,
    };
    if path.starts_with('/') || path == "*" {
        return Ok(path);
    }
    Err(Refusal::bad_request("X-Forwarded-Uri: need a path, as in /search?q=x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_what_proxies_send() {
        let paths = [
            ("/a/b?x=/y", "/a/b"),
            ("/", "/"),
            ("http://host/a?b", "/a"),
            ("https://host:1/a#b", "/a"),
            ("http://host", "/"),
            ("http://host?x=/y", "/"),
            ("*", "*"),
            ("/a?u=http://b/c", "/a"),
        ];
        for (uri, path) in paths {
            assert_eq!(path_of(uri).ok(), Some(path), "{uri}");
        }
        assert!(["", "x", "?a", "x/y"].iter().all(|uri| path_of(uri).is_err()));
    }

    #[test]
    fn hosts_are_written_in_one_way() {
        for host in ["Example.COM", "example.com.", "example.com:443", "example.com.:8080"] {
            assert_eq!(one_spelling(host), "example.com");
        }
        assert_eq!(one_spelling("[2001:DB8::1]:443"), "[2001:db8::1]");
    }
}
