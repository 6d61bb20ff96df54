//! `POST /v1/check`: decides whether a request may proceed.

use std::thread;

use futures_util::future::join_all;
use http::StatusCode;
use serde::Serialize;
use tokio::sync::Semaphore;
use trypema::http::{ErrorCode, HeaderStyle, Policy, Problem};
use trypema::rules::Verdict;

use crate::attributes::OwnedRequest;
use crate::deny_status::DenyStatus;
use crate::front::http::accounting::{Accounting, with_accounting};
use crate::front::http::openapi::{PROBLEM, Schemas, in_query, json_body, responses};
use crate::front::http::problem::ApiError;
use crate::front::http::query::ReportOptions;
use crate::front::http::response::{json_bytes, json_response};
use crate::front::http::{Api, Exchange, HttpResponse, RouteResult};
use crate::mode::Mode;
use crate::net::Work;
use crate::service::json::{self as requests, CheckRequest};
use crate::service::report::CheckResponse;
use crate::service::{Caller, Check};
use crate::settings::Provider;
use serde_json::{Value, json};

/// The number of requests of a batch that are sent to Redis at a time: enough for one round trip to serve
/// many, few enough that the last ones meet the Redis deadline.
const REQUESTS_AT_A_TIME: usize = 32;
/// The number of batch parts that wait for Redis at a time.
const PARTS_IN_REDIS: usize = 2;

/// Returns the number of batch parts that are decided at a time, so that batches do not delay single
/// checks. In memory, decisions never wait, so they may use half of the processors. Batches take turns
/// after every part.
pub(in crate::front::http) fn parts_at_a_time(provider: Provider) -> usize {
    match provider {
        Provider::Memory => thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2)),
        Provider::Redis | Provider::Hybrid => PARTS_IN_REDIS,
    }
}

/// The bytes that are reserved for the response to one request of a batch, before any request spends units.
/// With a few rules the response is smaller.
const RESPONSE_BYTES: usize = 1_024;
/// The length of the shortest usual request in a batch, which gives an estimate of the batch's size before
/// it is parsed.
const SHORTEST_REQUEST: usize = 24;

impl Api {
    pub(super) async fn check(&self, exchange: Exchange<'_>) -> RouteResult {
        let options = ReportOptions::read(exchange.query())?;
        let (work, caller) = (exchange.work, exchange.caller.clone());
        let body = exchange.body(self.max_body).await?;
        if requests::is_batch(&body) {
            return self.check_batch(&body, &caller, work).await;
        }
        let (mode, request) = requests::read::<CheckRequest>(&body)?.into_parts()?;
        let verdict = self.service.call(&caller, work, Check { mode, request: &request }).await?;
        let response = decision_response(&verdict, options, &CheckResponse::new(&verdict, mode));
        Ok(match mode {
            Mode::Peek => response,
            Mode::Check | Mode::Record => with_accounting(response, Accounting::MustSend),
        })
    }

    /// Decides a batch. Memory for the response is reserved before the batch is parsed, so a batch that
    /// finds no memory costs next to nothing.
    async fn check_batch(&self, body: &[u8], caller: &Caller, work: &Work) -> RouteResult {
        // A batch that waits for its turn has spent nothing yet, so its connection may still be evicted.
        let _permit = work.batch_permit().await;
        let most = (body.len() / SHORTEST_REQUEST + 1).min(self.max_batch);
        let mut reserved = work.reserve(most * RESPONSE_BYTES).await.ok_or_else(ApiError::out_of_memory)?;
        let checks = {
            // The semaphore is never closed.
            let _part = self.batches(work).acquire().await;
            requests::read_batch(body, self.max_batch)?
        };
        if !reserved.grow_to(checks.len() * RESPONSE_BYTES).await {
            return Err(ApiError::out_of_memory());
        }
        work.begin_decision()?;
        let response = Box::pin(self.check_each(&checks, caller, work)).await;
        reserved.into_unread_response(response.len());
        Ok(with_accounting(json_bytes(StatusCode::OK, response), Accounting::Reserved))
    }

    /// Returns the semaphore for batch parts. Crowded peers have their own: their tasks run on threads of low
    /// priority, and could hold a shared permit for a long time while other peers wait for it.
    fn batches(&self, work: &Work) -> &Semaphore {
        if work.is_crowded() { &self.crowded_batches } else { &self.batches }
    }

    /// Decides all requests in order, [`REQUESTS_AT_A_TIME`] at a time. With Redis, these share one round
    /// trip.
    async fn check_each(&self, checks: &[(Mode, OwnedRequest)], caller: &Caller, work: &Work) -> Vec<u8> {
        let (batches, mut all) = (self.batches(work), vec![b'[']);
        for some in checks.chunks(REQUESTS_AT_A_TIME) {
            // The semaphore is never closed.
            let turn = batches.acquire().await;
            let checks = some.iter().map(|(mode, request)| Check { mode: *mode, request });
            let verdicts = join_all(checks.map(|check| self.service.call(caller, work, check))).await;
            for ((mode, _), verdict) in some.iter().zip(verdicts) {
                if all.len() > 1 {
                    all.push(b',');
                }
                match verdict {
                    Ok(verdict) => {
                        // Serialising text and numbers cannot fail.
                        let _ = serde_json::to_writer(&mut all, &CheckResponse::new(&verdict, *mode));
                    }
                    Err(refusal) => {
                        let error = ApiError::from(refusal).to_json();
                        all.extend_from_slice(format!("{{\"error\":{error}}}").as_bytes());
                    }
                }
            }
            drop(turn);
            // Decisions in memory never wait: without this, a long batch would keep its thread from all
            // other connections.
            tokio::task::yield_now().await;
        }
        all.push(b']');
        // Only the length is accounted for, so release the spare capacity.
        all.shrink_to_fit();
        all
    }
}

/// Returns the response in the form that the query asks for, with this body unless a denial has a status. A
/// denial by `on_store_failure`, for which nothing was counted, is always a 503.
pub(super) fn decision_response(
    verdict: &Verdict,
    options: ReportOptions,
    body: &impl Serialize,
) -> HttpResponse {
    let is_uncounted =
        verdict.is_substitute() && verdict.decided_by().is_some_and(|denied| denied.decision.is_uncounted());
    let store_failure_status = is_uncounted.then_some(DenyStatus::TOO_MANY_REQUESTS);
    if let (Some(status), false) = (options.deny_status.or(store_failure_status), verdict.is_allowed()) {
        return denial_response(verdict, status, options.headers);
    }
    let mut response = json_response(StatusCode::OK, body);
    options.headers.write(Policy::of_verdict(verdict), response.headers_mut());
    response
}

/// Returns a denial as an HTTP status with a problem body and `Retry-After`. A denial because of an
/// unavailable store is a 503, whatever `status` is. A blocked client gets 403 instead of 401 or 429.
pub(super) fn denial_response(verdict: &Verdict, status: DenyStatus, headers: HeaderStyle) -> HttpResponse {
    let Some(problem) = Problem::of_verdict(verdict) else { return HttpResponse::default() };
    let problem = match problem.code() {
        ErrorCode::ServiceUnavailable => problem,
        ErrorCode::Blocked if [DenyStatus::TOO_MANY_REQUESTS, DenyStatus::UNAUTHORIZED].contains(&status) => {
            problem
        }
        _ => problem.with_status(status.status()),
    };
    let mut response = ApiError::Library(Box::new(problem)).into_response();
    headers.write(Policy::of_verdict(verdict), response.headers_mut());
    response
}

pub(super) fn describe(schemas: &mut Schemas) -> Value {
    let (request, answer) =
        (schemas.of_request::<CheckRequest>(), schemas.of_response::<CheckResponse<'_>>());
    let failed = json!({"type": "object", "required": ["error"], "properties": {"error": {"$ref": PROBLEM}}});
    let one_or_many = json!({"oneOf": [request, {"type": "array", "items": request}]});
    let answers = json!({"oneOf": [answer, {"type": "array", "items": {"anyOf": [answer, failed]}}]});
    json!({
        "description": "One request or an array. An array is decided in order; with Redis, in groups whose members may overtake each other. Needs a caller token if the server has one.",
        "parameters": report_options(),
        "requestBody": json_body(&one_or_many),
        "responses": responses("The decision for each request.", &answers, &["4XX", "5XX"]),
    })
}

pub(super) fn report_options() -> Value {
    let status = json!({"type": "integer", "minimum": 400, "maximum": 499, "not": {"enum": [407, 408, 421, 425, 426]}});
    let headers = json!({"type": "string", "enum": ["standard", "x-ratelimit", "none"]});
    json!([
        in_query(
            "deny_status",
            "The status of a denial. Without it, a denial is a 200 with the decision in the body.",
            &status
        ),
        in_query("headers", "The headers that report the remaining units.", &headers),
    ])
}
