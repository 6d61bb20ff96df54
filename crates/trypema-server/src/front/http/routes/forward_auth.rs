//! `/v1/forward-auth/PROFILE`: decides whether a proxied request may proceed. For nginx `auth_request`,
//! Caddy `forward_auth` and Traefik `forwardAuth`.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use trypema::TrypemaError;
use trypema::http::{Policy, Problem, TrustedProxies};

use super::check::denial_response;
use crate::attributes::{Fields, OwnedRequest, OwnedSet};
use crate::forward_auth::{DEFAULT, Profile, is_profile_name};
use crate::front::http::accounting::{Accounting, with_accounting};
use crate::front::http::openapi::{Schemas, problem_response};
use crate::front::http::problem::{ApiError, FRAGMENT};
use crate::front::http::{Api, Exchange, HttpResponse, RouteResult};
use crate::mode::Mode;
use crate::refusal::Refusal;
use crate::service::{Caller, Check};
use serde_json::{Value, json};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Says why a path was refused. A proxy with `auth_request` cannot tell a refusal from a denial otherwise.
const REFUSED: HeaderName = HeaderName::from_static("trypema-refused");

/// The problem that the client shall get, for a proxy with `auth_request`, which drops the body of a denial.
const PROBLEM: HeaderName = HeaderName::from_static("trypema-problem");

impl Api {
    pub(super) async fn forward_auth(&self, exchange: Exchange<'_>) -> RouteResult {
        let peer = exchange.work.peer_address().ip();
        if !self.trusted_proxies.trusts(peer) {
            let detail = format!("{} is not one of the trusted proxies", peer.to_canonical());
            return Err(ApiError::new(StatusCode::FORBIDDEN, detail));
        }
        let profile = self.profile(&exchange)?;
        let fields = Forwarded { request: &exchange.request, peer, proxies: &self.trusted_proxies };
        let attributes = profile.attributes.read(&fields).map_err(|refusal| profile.error(refusal))?;
        let set = OwnedSet { attributes, requests: Some(profile.cost.get()), ..OwnedSet::default() };
        let check = Check { mode: Mode::Check, request: &OwnedRequest::from(set) };
        let verdict = self.service.call(&Caller::proxy(), exchange.work, check).await;
        let verdict = verdict.map_err(|refusal| profile.error(refusal))?;
        if !verdict.is_allowed() {
            let mut response = denial_response(&verdict, profile.deny_status, profile.headers);
            if profile.is_for_auth_request()
                && let Some(problem) = Problem::of_verdict(&verdict)
                && let Ok(problem) = HeaderValue::from_str(&problem.to_json())
            {
                response.headers_mut().insert(PROBLEM, problem);
            }
            return Ok(with_accounting(response, Accounting::MustSend));
        }
        let mut response = HttpResponse::default();
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
        self.profiles.get(name).ok_or_else(|| {
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
        let (reason, detail): (_, Cow<'static, str>) = match refusal {
            Refusal::Fragment => ("fragment", FRAGMENT.into()),
            Refusal::Failed(error @ TrypemaError::DotSegments) => ("dot-segments", error.to_string().into()),
            Refusal::Failed(error @ TrypemaError::AmbiguousPath { .. }) => {
                ("ambiguous-path", error.to_string().into())
            }
            other => return other.into(),
        };
        let header = Some((REFUSED, HeaderValue::from_static(reason)));
        ApiError::Request { status: self.refusal_status(), detail, header }
    }
}

pub(super) fn describe(_: &mut Schemas) -> Value {
    let header = |name: &str, is_required: bool, example: &str| json!({"name": name, "in": "header", "required": is_required, "schema": {"type": "string"}, "example": example});
    json!({
        "description": "X-Forwarded-Uri, -Method, -Host and -For describe the request, unless the profile names other headers. Without a profile in the path it is `default`. Anything else in the path, and any query, is a 400: it may be the client's. A path with dot segments or with too many readings is a 400, or the deny_status of profiles for which it is 401 or 403; the header Trypema-Refused says why. With these profiles, a denial has its problem, as the client shall see it, in the header Trypema-Problem.",
        "parameters": [
            header("X-Forwarded-Uri", true, "/search?q=x"),
            header("X-Forwarded-For", true, "203.0.113.9"),
            header("X-Forwarded-Method", false, "GET"),
            header("X-Forwarded-Host", false, "example.com"),
        ],
        "responses": {"200": {"description": "The request may proceed."}, "4XX": problem_response(), "5XX": problem_response()},
    })
}
