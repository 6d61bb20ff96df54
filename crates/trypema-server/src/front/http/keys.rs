//! `/v1/keys/{key}`: shows or resets one counter. `/v1/keys/{key}/reservations/{id}`: releases one of its
//! reservations.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::Serialize;
use trypema::rules::{Holder, Verdict};

use super::accounting::{Accounting, with_accounting};
use super::problem::ApiError;
use super::response::{BlockReport, counted_unit, json, milliseconds, rounded_down, rounded_up};
use super::text::decoded_path;
use super::{AdminApi, RouteResult, begin};
use crate::background_worker::Worker;
use crate::net::ConnectionSlot;

/// The most holders that are listed on a thread that decides. A counter may have 4,096.
const MANY_HOLDERS: usize = 64;

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
    /// The reservations that are neither settled nor expired, in the order in which they were made. Left out
    /// if there are none; `null` if Redis could not be asked, and `on_store_failure` decided the rest.
    #[serde(skip_serializing_if = "is_empty")]
    holders: Option<Vec<HolderReport>>,
}

/// A reservation that a counter holds.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct HolderReport {
    /// The id of the reservation, 32 hexadecimal digits: the same at each of its counters. It does not settle
    /// the reservation.
    id: String,
    /// The reserved units.
    units: u64,
    /// Milliseconds since the units were recorded.
    age_ms: u64,
    /// Milliseconds after which the reservation expires.
    expires_in_ms: u64,
}

#[allow(clippy::ref_option, reason = "serde asks for it")]
fn is_empty(holders: &Option<Vec<HolderReport>>) -> bool {
    holders.as_ref().is_some_and(Vec::is_empty)
}

impl From<Holder> for HolderReport {
    fn from(holder: Holder) -> Self {
        Self {
            units: holder.units,
            age_ms: rounded_down(holder.age),
            expires_in_ms: rounded_up(holder.expires_in),
            id: holder.id,
        }
    }
}

/// A reservation that was released at one counter.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ReleaseHolderResponse<'a> {
    /// The name of the counter.
    key: &'a str,
    /// The id of the reservation.
    id: &'a str,
    /// Whether the counter held the reservation, which it now does not.
    released: bool,
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
        // The key is percent-encoded, so a slash ends it.
        let (name, reservation) = match name.rsplit_once("/reservations/") {
            Some((name, id)) => (name, Some(id)),
            None => (name, None),
        };
        let key = decoded_path(name);
        let key = key.ok_or_else(|| ApiError::bad_request("the key is not percent-encoded UTF-8"))?;
        if let Some(id) = reservation {
            return self.release_holder(&key, id, request, slot).await;
        }
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

    /// Releases one reservation at one counter. It stays as it is at its other counters.
    async fn release_holder(
        &self,
        key: &str,
        id: &str,
        request: &Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> RouteResult {
        if request.method() != Method::DELETE {
            self.access.admit_reader(request.headers(), slot)?;
            return Err(ApiError::wrong_method("DELETE"));
        }
        let who = self.access.admit_admin(request.headers(), slot)?;
        begin(slot)?;
        let released = self.app.release_holder(key, id).await?.ok_or_else(no_rule)?;
        tracing::info!(key, id, released, who = who.name, "keys: reservation released through the API");
        let response = json(StatusCode::OK, &ReleaseHolderResponse { key, id, released });
        Ok(with_accounting(response, Accounting::MustSend))
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
        let holders = match self.app.holders(key).await {
            Ok(holders) => Some(holders.unwrap_or_default()),
            Err(error) if error.is_store_failure() => None,
            Err(error) => return Err(error.into()),
        };
        let is_long = holders.as_ref().is_some_and(|holders| holders.len() > MANY_HOLDERS);
        let write = move || key_response(&verdict, retry_after, holders);
        if is_long { self.app.workers().run(Worker::Reads, write).await? } else { write() }
    }
}

fn key_response(
    verdict: &Verdict,
    retry_after: Option<Duration>,
    holders: Option<Vec<Holder>>,
) -> RouteResult {
    let rule = verdict.rules().next().ok_or_else(no_rule)?;
    let decision = rule.decision;
    let response = KeyResponse {
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
        holders: holders.map(|holders| holders.into_iter().map(HolderReport::from).collect()),
    };
    Ok(json(StatusCode::OK, &response))
}

fn no_rule() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown key; use it as responses contain it, for example per-user|user=ann",
    )
}
