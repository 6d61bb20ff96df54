//! Routes for operators: liveness, readiness, metrics, and descriptions of the API.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Mutex;

use super::problem::ApiError;
use super::response::{json, json_bytes};
use super::response_body::ResponseBody;
use super::{AdminApi, HttpResponse, RouteResult, openapi};
use crate::app::Readiness;
use crate::background_worker::{BackgroundWorkers, Worker, WorkerError};
use crate::clock::Started;
use crate::metrics::CONTENT_TYPE as METRICS;

const PLAIN: &str = "text/plain; charset=utf-8";

const HELP: &str = "\
Trypema, a rate limiting server.

The check listener (setting `listen`, 127.0.0.1:8080 by default; checks and reservations need a caller
token if one is set):

POST   /v1/check         check a request: {\"attributes\": {\"user\": \"ann\"}, \"cost\": 1}, or an array of them
                         ?deny_status=429 sends a denial with that status; ?headers=standard|x-ratelimit reports the remaining units
ANY    /v1/forward-auth  the same for nginx auth_request, Caddy forward_auth and Traefik forwardAuth;
                         /v1/forward-auth/{profile} names a profile of the configuration file: attributes, cost, status
POST   /v1/reserve       reserve an estimated cost: {\"attributes\": {\"user\": \"ann\"}, \"costs\": {\"tokens\": 800}, \"ttl\": \"120s\"}
POST   /v1/settle        settle it at the real cost: {\"reservation\": \"r1.…\", \"costs\": {\"tokens\": 150}}
POST   /v1/release       give everything back; POST /v1/renew {\"reservation\": \"r1.…\", \"ttl\": \"120s\"} lets it last longer
GET    /healthz /readyz

This listener (setting `admin_listen`, 127.0.0.1:8081 by default; paths under /v1 need a reader token or
an admin token):

POST   /v1/explain       show the decision of every rule; spends nothing
GET    /v1/keys/{key}    show a counter and its reservations; DELETE resets it
DELETE /v1/keys/{key}/reservations/{id}   release one reservation at this counter
GET    /v1/rules         the rules in force
GET    /v1/candidates    compare candidates with their live rules
GET    /healthz /readyz /metrics /openapi.json

With rules in PostgreSQL (changes need an admin token, and If-Match with the revision that they are based on):
POST   /v1/rules         store a new rule; GET, PUT, PATCH, DELETE /v1/rules/{id}
POST   /v1/rules/{id}/promote     replace the live rule with its candidate
GET    /v1/ruleset       export the rule set; PUT replaces it, ?dry_run=true only shows the changes
GET    /v1/ruleset/history        history of changes; POST /v1/ruleset/revert {\"to\": 17} restores a revision
GET    /v1/overrides     overrides of single keys; GET, PUT, DELETE /v1/overrides/{key} {\"verdict\": \"block\"}
GET    /v1/lists         PUT, DELETE /v1/lists/{list}/{attribute}/{value}, where the list is allow or block
";

impl AdminApi {
    /// Answers `/healthz` and `/readyz`. The response to a reader token or an admin token also says why rules
    /// were rejected.
    pub(super) fn health(&self, request: &Request<Incoming>) -> RouteResult {
        let readiness = self.app.readiness();
        let is_reader = self.access.is_reader(request.headers());
        health(&if is_reader { readiness } else { readiness.without_details() }, request)
    }

    /// Answers `/metrics`, `/openapi.json` and `/`.
    pub(super) async fn operation(&self, request: &Request<Incoming>) -> RouteResult {
        only_reading(request)?;
        Ok(match request.uri().path() {
            "/metrics" => {
                let app = Arc::clone(&self.app);
                text(METRICS, self.metrics.text(self.app.workers(), move || app.exposition()).await?)
            }
            "/openapi.json" => {
                let document = self.app.workers().run(Worker::Operators, openapi::document).await?;
                json_bytes(StatusCode::OK, document)
            }
            _ => text(PLAIN, HELP),
        })
    }
}

/// Answers `/healthz` and `/readyz` on both listeners.
pub(super) fn health(readiness: &Readiness, request: &Request<Incoming>) -> RouteResult {
    only_reading(request)?;
    if request.uri().path() == "/healthz" {
        return Ok(text(PLAIN, "ok\n"));
    }
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(json(status, readiness))
}

fn only_reading(request: &Request<Incoming>) -> Result<(), ApiError> {
    if request.method() == Method::GET || request.method() == Method::HEAD {
        return Ok(());
    }
    Err(ApiError::wrong_method("GET, HEAD"))
}

fn text(content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(ResponseBody::from(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A cache of the metrics text, which the operators' worker writes. A long text is shared between requests,
/// because writing it for every request would let clients overload the server.
#[derive(Debug, Default)]
pub(super) struct SharedText {
    last: ArcSwapOption<(Started, Bytes)>,
    making: Mutex<()>,
}

/// The size from which a text is shared. The text of a few hundred rules is smaller.
const LONG: usize = 256 * 1024;
/// The time for which a text is shared.
const SHARED_FOR: Duration = Duration::from_secs(1);

impl SharedText {
    async fn text(
        &self,
        workers: &BackgroundWorkers,
        make: impl FnOnce() -> String + Send + 'static,
    ) -> Result<Bytes, WorkerError> {
        let last = self.last.load_full();
        // While one request writes a new text, others get the previous one.
        let _making = match (self.making.try_lock(), &last) {
            (Ok(making), Some(last)) if last.0.ago() >= SHARED_FOR => Some(making),
            (_, Some(last)) => return Ok(last.1.clone()),
            (making, None) => making.ok(),
        };
        let text = Bytes::from(workers.run(Worker::Operators, make).await?);
        let is_long = text.len() >= LONG;
        self.last.store(is_long.then(|| Arc::new((Started::now(), text.clone()))));
        Ok(text)
    }
}
