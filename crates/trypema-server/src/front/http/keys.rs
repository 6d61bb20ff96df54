//! `/v1/keys/{key}`: shows or resets one counter.

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;

use super::accounting::{Accounting, with_accounting};
use super::problem::ApiError;
use super::response::{BlockReport, counted_unit, json, milliseconds, rounded_up};
use super::text::decoded_path;
use super::{AdminApi, RouteResult, begin};
use crate::net::ConnectionSlot;

/// The state of a counter.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct KeyResponse<'a> {
    /// The name of the counter, as responses contain it.
    key: &'a str,
    /// The id of its rule.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The unit that the rule counts, if it is not `requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a str>,
    /// The maximum number of units.
    limit: u64,
    /// The number of units that are left.
    remaining: u64,
    /// Whether an abuse rule or an override blocks the key.
    blocked: bool,
    /// Milliseconds, rounded up, until the key has a unit left and is not blocked; 0 if that is now, `null`
    /// if an override blocks the key.
    retry_after_ms: Option<u64>,
    /// Milliseconds, rounded up, until no spent units count any more.
    reset_after_ms: u64,
    #[serde(flatten)]
    block: BlockReport,
}

/// A counter that was reset.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ResetResponse<'a> {
    /// The name of the counter.
    key: &'a str,
    /// Whether the counter held any state.
    existed: bool,
}

impl AdminApi {
    pub(super) async fn keys(&self, request: &Request<Incoming>, slot: &ConnectionSlot) -> RouteResult {
        let name = request.uri().path().strip_prefix("/v1/keys/").unwrap_or_default();
        let key = decoded_path(name);
        let key = key.ok_or_else(|| ApiError::bad_request("the key is not percent-encoded UTF-8"))?;
        match *request.method() {
            Method::GET => {
                self.access.admit_reader(request.headers(), slot)?;
                begin(slot)?;
                self.inspect(&key).await
            }
            Method::DELETE => {
                let who = self.access.admit_admin(request.headers(), slot)?;
                begin(slot)?;
                let existed = self.app.reset(&key).await?.ok_or_else(no_rule)?;
                tracing::info!(key = &*key, existed, who = who.name, "keys: counter reset through the API");
                let response = json(StatusCode::OK, &ResetResponse { key: &key, existed });
                Ok(with_accounting(response, Accounting::MustSend))
            }
            _ => {
                self.access.admit_reader(request.headers(), slot)?;
                Err(ApiError::wrong_method("GET, DELETE"))
            }
        }
    }

    async fn inspect(&self, key: &str) -> RouteResult {
        let verdict = self.app.inspect(key, 0).await?.ok_or_else(no_rule)?;
        let rule = verdict.rules().next().ok_or_else(no_rule)?;
        let decision = rule.decision;
        // A key that is not blocked but exhausted has a wait, too. An abuse rule has waits only while it
        // blocks.
        let is_exhausted =
            decision.is_allowed() && decision.remaining() == 0 && decision.attempts().is_none();
        let retry_after = match is_exhausted {
            true => {
                let next_unit = self.app.inspect(key, 1).await?.ok_or_else(no_rule)?;
                next_unit.rules().next().and_then(|rule| rule.decision.retry_after())
            }
            false => decision.retry_after(),
        };
        Ok(json(
            StatusCode::OK,
            &KeyResponse {
                key: rule.key,
                rule: &rule.rule.id,
                name: rule.rule.name.as_deref(),
                unit: counted_unit(rule.rule),
                limit: decision.limit(),
                remaining: decision.remaining(),
                blocked: !decision.is_allowed(),
                retry_after_ms: milliseconds(retry_after),
                reset_after_ms: rounded_up(decision.reset_after()),
                block: BlockReport::from(decision),
            },
        ))
    }
}

fn no_rule() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown key; use it as responses contain it, for example per-user|user=ann",
    )
}
