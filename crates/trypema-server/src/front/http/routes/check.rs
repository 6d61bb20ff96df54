//! `POST /v1/check`: decides whether a request may proceed.

use std::thread;

use futures_util::future::join_all;
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;
use trypema::http::{ErrorCode, HeaderStyle, Policy, Problem};
use trypema::rules::Verdict;

use crate::attributes::OwnedRequest;
use crate::deny_status::DenyStatus;
use crate::front::http::accounting::{must_send, reserved};
use crate::front::http::openapi::{Description, PROBLEM};
use crate::front::http::problem::ApiError;
use crate::front::http::query::ReportOptions;
use crate::front::http::response::{empty, json_response, response};
use crate::front::http::{Api, Exchange, HttpResponse, RouteResult};
use crate::mode::Mode;
use crate::net::Work;
use crate::refusal::Permission;
use crate::service::Call;
use crate::service::json::{self as requests, CheckRequest};
use crate::service::report::CheckResponse;
use crate::settings::Provider;

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

#[rustfmt::skip]
routes! {
    "POST" "/v1/check" CHECK Decide "check" Check,
        "Check a request, or an array of requests", r#"{"attributes": {"user": "ann"}, "cost": 1}"#, describe;
}

impl Api {
    pub(super) async fn check(&self, exchange: Exchange<'_>) -> RouteResult {
        let options = ReportOptions::read(exchange.request.uri().query())?;
        let (body, call) = exchange.body(self.max_body()).await?;
        if requests::is_batch(&body) {
            return self.check_batch(&body, &call).await;
        }
        let (mode, request) = requests::read::<CheckRequest>(&body)?.into_parts()?;
        let verdict = call.check(mode, &request).await?;
        let response = decision_response(&verdict, options, &CheckResponse::new(&verdict, mode));
        Ok(if mode == Mode::Peek { response } else { must_send(response) })
    }

    /// Decides a batch. Memory for the response is reserved before the batch is parsed, so a batch that
    /// finds no memory costs next to nothing.
    async fn check_batch(&self, body: &[u8], call: &Call<'_>) -> RouteResult {
        let work = call.work;
        // A batch that waits for its turn has spent nothing yet, so its connection may still be evicted.
        let _permit = work.batch_permit().await;
        let most = (body.len() / SHORTEST_REQUEST + 1).min(self.config.values.max_batch);
        let mut memory = work.reserve(most * RESPONSE_BYTES).await.ok_or_else(ApiError::out_of_memory)?;
        let checks = {
            // The semaphore is never closed.
            let _part = self.batches(work).acquire().await;
            requests::read_batch(body, self.config.values.max_batch)?
        };
        if !memory.grow_to(checks.len() * RESPONSE_BYTES).await {
            return Err(ApiError::out_of_memory());
        }
        call.begin(Permission::Decide)?;
        let text = Box::pin(self.check_each(&checks, call)).await;
        memory.into_unread_response(text.len());
        Ok(reserved(response(StatusCode::OK, "application/json", text)))
    }

    /// Returns the semaphore for batch parts. Crowded peers have their own: their tasks run on threads of low
    /// priority, and could hold a shared permit for a long time while other peers wait for it.
    fn batches(&self, work: &Work) -> &Semaphore {
        if work.is_crowded() { &self.crowded_batches } else { &self.batches }
    }

    /// Decides all requests in order, [`REQUESTS_AT_A_TIME`] at a time. With Redis, these share one round
    /// trip.
    async fn check_each(&self, checks: &[(Mode, OwnedRequest)], call: &Call<'_>) -> Vec<u8> {
        let (batches, mut all) = (self.batches(call.work), vec![b'[']);
        for some in checks.chunks(REQUESTS_AT_A_TIME) {
            // The semaphore is never closed.
            let turn = batches.acquire().await;
            let verdicts = join_all(some.iter().map(|(mode, request)| call.check(*mode, request))).await;
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
/// unavailable store is a 503, whatever `status` is. A blocked client gets 403 instead of 429.
pub(super) fn denial_response(verdict: &Verdict, status: DenyStatus, headers: HeaderStyle) -> HttpResponse {
    let Some(problem) = Problem::of_verdict(verdict) else { return empty() };
    let problem = match problem.code() {
        ErrorCode::ServiceUnavailable => problem,
        ErrorCode::Blocked if status == DenyStatus::TOO_MANY_REQUESTS => problem,
        _ => problem.with_status(status.status()),
    };
    let mut response = ApiError::Library(Box::new(problem)).into_response();
    headers.write(Policy::of_verdict(verdict), response.headers_mut());
    response
}

fn describe(about: Description<'_>) -> Description<'_> {
    about
        .says("One request or an array. An array is decided in order; with Redis, in groups whose members may overtake each other. Needs a caller token if the server has one.")
        .takes_report_options()
        .reads_as::<CheckRequest>(|one| json!({"oneOf": [one, {"type": "array", "items": one}]}))
        .answers_as::<CheckResponse<'_>>("200", "The decision for each request.", |one| {
            let failed = json!({"type": "object", "required": ["error"], "properties": {"error": {"$ref": PROBLEM}}});
            json!({"oneOf": [one, {"type": "array", "items": {"anyOf": [one, failed]}}]})
        })
        .fails(&["4XX", "5XX"])
}
