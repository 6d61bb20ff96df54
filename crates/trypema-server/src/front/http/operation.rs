//! What whoever runs the service asks: is it alive, is it ready, what does it count, what is there?

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use super::answer::{json, json_bytes};
use super::problem::Refusal;
use super::{Answer, Asked, Front, openapi};
use crate::clock::Started;
use crate::metrics::CONTENT_TYPE as METRICS;

const HELP: &str = "\
Trypema, the rate limiter.

POST   /v1/check         may this request go ahead? {\"attributes\": {\"user\": \"ann\"}, \"cost\": 1}, or an array of them
                         ?deny_status=429 tells a denial by status, ?headers=standard|x-ratelimit what is left
ANY    /v1/forward-auth  the same for nginx auth_request, Caddy forward_auth and Traefik forwardAuth;
                         /v1/forward-auth/{profile} names a profile of the configuration file: attributes, cost, status
POST   /v1/refund        gives the cost back
POST   /v1/explain       what every rule says about a request; spends nothing
GET    /v1/keys/{key}    what a counter has left; DELETE forgets it
GET    /v1/rules         the rules in force
GET    /v1/candidates    what candidates would have decided

With rules in PostgreSQL (changes need If-Match, the revision that they are for, and an admin token):
POST   /v1/rules         stores a new rule; GET, PUT, PATCH, DELETE /v1/rules/{id}
POST   /v1/rules/{id}/promote     makes a candidate the live rule
GET    /v1/ruleset       everything that is stored; PUT makes it exactly what is sent, ?dry_run=true only shows what would change
GET    /v1/ruleset/history        who changed what; POST /v1/ruleset/revert {\"to\": 17} goes back to a revision
GET    /v1/overrides     what single keys get; GET, PUT, DELETE /v1/overrides/{key} {\"verdict\": \"block\"}
GET    /v1/lists         PUT, DELETE /v1/lists/{list}/{attribute}/{value}, where the list is allow or block

GET    /healthz /readyz /metrics /openapi.json
";

impl Front {
    pub(super) fn operation(&self, request: &Request<Incoming>) -> Asked {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return Err(Refusal::wrong_method("GET, HEAD"));
        }
        Ok(match request.uri().path() {
            "/healthz" => text("text/plain; charset=utf-8", "ok\n"),
            "/readyz" => {
                let mut readiness = self.app.readiness();
                if self.admit_reader(request.headers()).is_err() {
                    readiness.refused_rules = None;
                }
                let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                json(status, &readiness)
            }
            "/metrics" => text(METRICS, self.metrics.text(|| self.app.exposition())),
            "/openapi.json" => json_bytes(StatusCode::OK, openapi::document()),
            _ => text("text/plain; charset=utf-8", HELP),
        })
    }
}

fn text(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The last text of metrics, where it is so long that making it for everybody who asks would be an attack.
#[derive(Debug, Default)]
pub(super) struct SharedText {
    last: ArcSwapOption<(Started, Bytes)>,
    making: Mutex<()>,
}

/// Texts from here on are shared: those of some hundred rules are not.
const LONG: usize = 256 * 1024;
/// For how long.
const SHARED_FOR: Duration = Duration::from_secs(1);

impl SharedText {
    fn text(&self, make: impl FnOnce() -> String) -> Bytes {
        let last = self.last.load_full();
        // While one makes a long one, others are content with the one before.
        let _making = match (self.making.try_lock(), &last) {
            (Ok(making), Some(last)) if last.0.ago() >= SHARED_FOR => Some(making),
            (_, Some(last)) => return last.1.clone(),
            (making, None) => making.ok(),
        };
        let text = Bytes::from(make());
        let is_long = text.len() >= LONG;
        self.last.store(is_long.then(|| Arc::new((Started::now(), text.clone()))));
        text
    }
}
