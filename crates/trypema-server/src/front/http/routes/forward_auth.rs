//! `/v1/forward-auth/PROFILE`: decides whether a proxied request may proceed. For nginx `auth_request`,
//! Caddy `forward_auth` and Traefik `forwardAuth`.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;
use trypema::TrypemaError;
use trypema::http::{Policy, Problem, TrustedProxies};

use super::check::denial_response;
use crate::attributes::{Fields, OwnedRequest, OwnedSet};
use crate::forward_auth::{DEFAULT, Profile, is_profile_name};
use crate::front::http::accounting::must_send;
use crate::front::http::openapi::Description;
use crate::front::http::problem::ApiError;
use crate::front::http::response::empty;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::mode::Mode;
use crate::refusal::Refusal;
use crate::service::Caller;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Says why a path was refused. A proxy with `auth_request` cannot tell a refusal from a denial otherwise.
const REFUSED: HeaderName = HeaderName::from_static("trypema-refused");

/// The problem that the client shall get, for a proxy with `auth_request`, which drops the body of a denial.
const PROBLEM: HeaderName = HeaderName::from_static("trypema-problem");

#[rustfmt::skip]
routes! {
    "ANY" "/v1/forward-auth" CHECK Open "forward_auth" ForwardAuth,
        "Check a proxied request: nginx auth_request, Caddy forward_auth, Traefik forwardAuth", "",
        describe;
    "ANY" "/v1/forward-auth/{profile..}" CHECK Open "forward_auth" ForwardAuth,
        "Check a proxied request by a profile of the configuration file", "", describe;
}

impl Api {
    pub(super) async fn forward_auth(&self, exchange: Exchange<'_>) -> RouteResult {
        let peer = exchange.call.work.peer_address().ip();
        if !self.config.trusted_proxies.trusts(peer) {
            let detail = format!("{} is not one of the trusted proxies", peer.to_canonical());
            return Err(ApiError::new(StatusCode::FORBIDDEN, detail));
        }
        let profile = self.profile(&exchange)?;
        let fields = Forwarded { request: &exchange.request, peer, proxies: &self.config.trusted_proxies };
        let attributes = profile.attributes.read(&fields).map_err(|refusal| profile.error(refusal))?;
        let set = OwnedSet { attributes, requests: Some(profile.cost.get()), ..OwnedSet::default() };
        let call = self.service.call(Caller::proxy(), exchange.call.work);
        let verdict = call.check(Mode::Check, &OwnedRequest::from(set)).await;
        let verdict = verdict.map_err(|refusal| profile.error(refusal))?;
        if !verdict.is_allowed() {
            let mut response = denial_response(&verdict, profile.deny_status(&verdict), profile.headers);
            if profile.is_for_auth_request()
                && let Some(problem) = Problem::of_verdict(&verdict)
                && let Ok(problem) = HeaderValue::from_str(&problem.to_json())
            {
                response.headers_mut().insert(PROBLEM, problem);
            }
            return Ok(must_send(response));
        }
        let mut response = empty();
        profile.headers.write(Policy::of_verdict(&verdict), response.headers_mut());
        Ok(response)
    }

    /// Returns the profile that the path names. Nothing else is read from the path or the query: the server
    /// cannot distinguish text that a client wrote from the proxy's configuration.
    fn profile(&self, exchange: &Exchange<'_>) -> Result<&Profile, ApiError> {
        let uri = exchange.request.uri();
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
        self.config.profiles.get(name).ok_or_else(|| {
            let detail = format!(
                "unknown profile {name:?}; define it in `forward_auth.profiles` of the server's configuration file"
            );
            ApiError::bad_request(detail)
        })
    }
}

/// The headers of a proxied request.
struct Forwarded<'r> {
    request: &'r Request<Incoming>,
    peer: IpAddr,
    proxies: &'r TrustedProxies,
}

impl Fields for Forwarded<'_> {
    /// Returns the value of a header that the proxy sets. If the header occurs twice, one value is the client's,
    /// and the server cannot tell which.
    fn get(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut values = self.request.headers().get_all(name).iter();
        let Some(first) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Refusal::invalid(format!(
                "{name} occurs twice; configure the proxy to overwrite the header of the client"
            )));
        }
        // Replacing invalid bytes would give different values the same counter.
        let text = std::str::from_utf8(first.as_bytes())
            .map_err(|_| Refusal::invalid(format!("{name} is not UTF-8")))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    fn method(&self) -> &str {
        self.request.method().as_str()
    }

    fn client_address(&self) -> Result<IpAddr, Refusal> {
        if !self.request.headers().contains_key(FORWARDED_FOR) {
            return Err(Refusal::invalid(
                "x-forwarded-for is missing; without it, all clients would share the address of the proxy",
            ));
        }
        Ok(self.proxies.client_address(self.peer, self.request.headers()))
    }
}

impl Profile {
    /// Returns the response for a refusal, which says in a header if the path is why.
    fn error(&self, refusal: Refusal) -> ApiError {
        let reason = match &refusal {
            Refusal::Fragment => "fragment",
            Refusal::Failed(TrypemaError::DotSegments) => "dot-segments",
            Refusal::Failed(TrypemaError::AmbiguousPath { .. }) => "ambiguous-path",
            _ => return refusal.into(),
        };
        ApiError::new(self.refusal_status(), refusal.to_string())
            .with_header(REFUSED, HeaderValue::from_static(reason))
    }
}

fn describe(about: Description<'_>) -> Description<'_> {
    let header = |name: &str, is_required: bool, example: &str| json!({"name": name, "in": "header", "required": is_required, "schema": {"type": "string"}, "example": example});
    about
        .says("X-Forwarded-Uri, -Method, -Host and -For describe the request, unless the profile names other headers. Without a profile in the path it is `default`. Anything else in the path, and any query, is a 400: it may be the client's. A path with dot segments or with too many readings is a 400, or the deny_status of profiles for which it is 401 or 403; the header Trypema-Refused says why. With these profiles, a denial has its problem, as the client shall see it, in the header Trypema-Problem.")
        .parameter(header("X-Forwarded-Uri", true, "/search?q=x"))
        .parameter(header("X-Forwarded-For", true, "203.0.113.9"))
        .parameter(header("X-Forwarded-Method", false, "GET"))
        .parameter(header("X-Forwarded-Host", false, "example.com"))
        .responds("200", "The request may proceed.")
        .fails(&["4XX", "5XX"])
}
