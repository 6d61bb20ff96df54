//! `/v1/forward-auth/PROFILE`: decides whether a proxied request may proceed. For nginx `auth_request`,
//! Caddy `forward_auth` and Traefik `forwardAuth`.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use hyper::body::Incoming;
use trypema::TrypemaError;
use trypema::http::Policy;
use trypema::rules::{Request as RulesRequest, has_dot_segments};

use super::accounting::{Accounting, with_accounting};
use super::check::denial_response;
use super::problem::ApiError;
use super::request::{NO_ADDRESS, is_address};
use super::{CheckApi, HttpResponse, RouteResult, begin};
use crate::attributes::MAX_ATTRIBUTE_VALUE;
use crate::forward_auth::{Attribute, AttributeKind, AttributeSource, DEFAULT, Profile, is_profile_name};
use crate::mode::Mode;
use crate::net::ConnectionSlot;
use crate::settings::forward_auth::DotSegments;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Says why a path was refused. A proxy with `auth_request` cannot tell a refusal from a denial otherwise.
const REFUSED: HeaderName = HeaderName::from_static("trypema-refused");

/// nginx passes a `#` on to the application. URL parsers end the path there, and other servers, such as Go's, do not.
const FRAGMENT: &str = "invalid path: it has a `#`, which no client sends; a `#` in a path needs to be `%23`";

impl CheckApi {
    pub(super) async fn forward_auth(
        &self,
        request: &Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> RouteResult {
        begin(slot)?;
        let peer = slot.connection.peer_address.ip();
        if !self.trusted_proxies.trusts(peer) {
            let detail = format!("{} is not one of the trusted proxies", peer.to_canonical());
            return Err(ApiError::new(StatusCode::FORBIDDEN, detail));
        }
        let profile = self.profile(request.uri())?;
        let mut attributes: Vec<(&str, Cow<'_, str>)> = Vec::with_capacity(profile.attributes.len());
        for attribute in &profile.attributes {
            if let Some(value) = self.value(attribute, request, peer)? {
                profile.admit(attribute, &value)?;
                attributes.push((&attribute.name, value));
            }
        }
        let attributes: Vec<(&str, &str)> =
            attributes.iter().map(|(name, value)| (*name, &**value)).collect();
        let rules_request = RulesRequest::new(&attributes).costing(profile.cost.get());
        let verdict = self.app.check(Mode::Check, &rules_request).await;
        let verdict = verdict.map_err(|error| profile.error(error))?;
        if !verdict.is_allowed() {
            let response = denial_response(&verdict, profile.deny_status, profile.headers);
            return Ok(with_accounting(response, Accounting::MustSend));
        }
        let mut response = HttpResponse::default();
        profile.headers.write(Policy::of_verdict(&verdict), response.headers_mut());
        Ok(response)
    }

    /// Returns the profile that the path names. Nothing else is read from the path or the query: the server
    /// cannot distinguish text that a client wrote from the proxy's configuration.
    fn profile(&self, uri: &Uri) -> Result<&Profile, ApiError> {
        if uri.query().is_some() {
            return Err(ApiError::bad_request(
                "forward-auth takes no query, because it may come from the client; in Caddy, `rewrite /v1/forward-auth/PROFILE?` removes it",
            ));
        }
        let name = uri.path().strip_prefix("/v1/forward-auth/").unwrap_or(DEFAULT);
        if !is_profile_name(name) {
            return Err(ApiError::bad_request(
                "the path needs to be /v1/forward-auth/PROFILE and nothing more: attributes, cost and deny_status are set by \
                 `forward_auth.profiles` of the server's configuration file",
            ));
        }
        self.profiles.get(name).ok_or_else(|| {
            let detail = format!(
                "unknown profile {name:?}; define it in `forward_auth.profiles` of the server's configuration file"
            );
            ApiError::bad_request(detail)
        })
    }

    /// Returns the value of one attribute, or `None` if the request has none.
    fn value<'r>(
        &self,
        attribute: &'r Attribute,
        request: &'r Request<Incoming>,
        peer: IpAddr,
    ) -> Result<Option<Cow<'r, str>>, ApiError> {
        let given = match &attribute.source {
            AttributeSource::ClientAddress => return self.client_address(request.headers(), peer).map(Some),
            AttributeSource::Value(value) => Some(value.as_str()),
            AttributeSource::Header(header) => only_value(request.headers(), header)?,
        };
        let value = match (attribute.kind, given) {
            (AttributeKind::Endpoint | AttributeKind::Ip, None) => return Err(missing(attribute)),
            (AttributeKind::Endpoint, Some(uri)) => path_of(uri)?.into(),
            (AttributeKind::Ip, Some(address)) if !is_address(address) => {
                return Err(ApiError::bad_request(NO_ADDRESS));
            }
            (AttributeKind::Method, None) => request.method().as_str().into(),
            (AttributeKind::Host, Some(host)) => Cow::Owned(normalize_host(host)),
            (_, Some(value)) => value.into(),
            (_, None) => return Ok(None),
        };
        if value.len() > MAX_ATTRIBUTE_VALUE {
            let name = &attribute.name;
            return Err(ApiError::bad_request(format!(
                "the value of attribute {name:?} is longer than {MAX_ATTRIBUTE_VALUE} bytes"
            )));
        }
        Ok(Some(value))
    }

    fn client_address(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Cow<'static, str>, ApiError> {
        if !headers.contains_key(FORWARDED_FOR) {
            return Err(ApiError::bad_request(
                "x-forwarded-for is missing; without it, all clients would share the address of the proxy",
            ));
        }
        Ok(Cow::Owned(self.trusted_proxies.client_address(peer, headers).to_string()))
    }
}

impl Profile {
    /// Fails if the profile refuses a path because of how a client has written it.
    fn admit(&self, attribute: &Attribute, value: &str) -> Result<(), ApiError> {
        // A literal is the operator's.
        let is_by_client = matches!(attribute.source, AttributeSource::Header(_));
        if attribute.kind != AttributeKind::Endpoint || !is_by_client {
            return Ok(());
        }
        if value.contains('#') {
            return Err(self.refusal("fragment", FRAGMENT.into()));
        }
        if self.dot_segments == DotSegments::Refuse && has_dot_segments(value) {
            return Err(self.error(TrypemaError::DotSegments));
        }
        Ok(())
    }

    /// Returns the response for an error, which says in a header if a path is refused.
    fn error(&self, error: TrypemaError) -> ApiError {
        let reason = match error {
            TrypemaError::DotSegments => "dot-segments",
            TrypemaError::AmbiguousPath { .. } => "ambiguous-path",
            other => return other.into(),
        };
        self.refusal(reason, error.to_string().into())
    }

    /// Returns the response for a path that is refused.
    fn refusal(&self, reason: &'static str, detail: Cow<'static, str>) -> ApiError {
        ApiError::Request {
            status: self.refusal_status(),
            detail,
            header: Some((REFUSED, HeaderValue::from_static(reason))),
        }
    }
}

/// Returns the error of a request that lacks a required attribute. Without it, rules would silently not
/// apply.
fn missing(attribute: &Attribute) -> ApiError {
    let name = &attribute.name;
    match &attribute.source {
        AttributeSource::Header(header) => ApiError::bad_request(format!(
            "{header} is missing; configure the proxy to send the attribute {name:?} in it"
        )),
        AttributeSource::Value(_) | AttributeSource::ClientAddress => {
            ApiError::bad_request(format!("attribute {name:?} is missing"))
        }
    }
}

/// Returns the value of a header that the proxy sets, or `None` if it is missing or empty. If the header
/// occurs twice, one value is the client's, and the server cannot tell which.
fn only_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::bad_request(format!(
            "{name} occurs twice; configure the proxy to overwrite the header of the client"
        )));
    }
    // Replacing invalid bytes would give different values the same counter.
    let text = std::str::from_utf8(first.as_bytes())
        .map_err(|_| ApiError::bad_request(format!("{name} is not UTF-8")))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Normalises a host, so that a client cannot get several counters by writing it differently.
fn normalize_host(host: &str) -> String {
    let is_address = host.starts_with('[');
    let end = if is_address { host.find(']').map(|end| end + 1) } else { host.find(':') };
    host[..end.unwrap_or(host.len())].trim_end_matches('.').to_ascii_lowercase()
}

/// Returns the path of a URI, which may include scheme and host. It keeps a fragment, which is a part of the
/// path for some applications.
fn path_of(uri: &str) -> Result<&str, ApiError> {
    let uri = uri.split('?').next().unwrap_or_default();
    let path = match uri.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            // A backslash ends the host for some applications; like a fragment, it gets 400 below.
            let (host, path) = rest.split_at(rest.find(['/', '\\', '#']).unwrap_or(rest.len()));
            match host {
                // The WHATWG standard takes the `x` of `http:///x/login` for the host.
                "" => "",
                // It removes tabs, so that nothing may be left.
                host if host.contains(|character| character <= ' ') => "",
                _ if path.is_empty() => "/",
                _ => path,
            }
        }
        _ => uri,
    };
    if path.starts_with('/') || path == "*" {
        return Ok(path);
    }
    Err(ApiError::bad_request("endpoint: need a path or a URI, as in /search?q=x"))
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
            ("https://host:1/a#b", "/a#b"),
            ("/a?b#c", "/a"),
            ("/a#b?c", "/a#b"),
            ("http://host", "/"),
            ("http://host?x=/y", "/"),
            ("*", "*"),
            ("/a?u=http://b/c", "/a"),
        ];
        for (uri, path) in paths {
            assert_eq!(path_of(uri).ok(), Some(path), "{uri}");
        }
        let others =
            ["", "x", "?a", "#a", "x/y", r"http://host\a/b", "http://host#a", "http:/a", "foo:http://x/a"];
        let without_host = [
            "http://",
            "http://?a",
            "http://#a",
            "http:///x/a",
            r"http://\x/a",
            r"http:///\x/a",
            "http://\t/x/a",
        ];
        for uri in others.iter().chain(&without_host) {
            assert!(path_of(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn hosts_are_written_in_one_way() {
        for host in ["Example.COM", "example.com.", "example.com:443", "example.com.:8080"] {
            assert_eq!(normalize_host(host), "example.com");
        }
        assert_eq!(normalize_host("[2001:DB8::1]:443"), "[2001:db8::1]");
    }
}
