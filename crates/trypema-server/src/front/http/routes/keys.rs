//! `/v1/keys/{key}`: shows or resets one counter. `/v1/keys/{key}/reservations/{id}`: releases one of its
//! reservations.

use http::StatusCode;

use crate::background_worker::Worker;
use crate::front::http::accounting::{Accounting, with_accounting};
use crate::front::http::openapi::{Schemas, responses};
use crate::front::http::problem::ApiError;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::refusal::Refusal;
use crate::service::report::{KeyResponse, ReleaseHolderResponse, ResetResponse};
use crate::service::{Inspect, ReleaseHolder, Reset};
use serde_json::{Value, json};

/// The most holders that are listed on a thread that decides. A counter may have 4,096.
const MANY_HOLDERS: usize = 64;
/// The parameters of the path.
const KEY: usize = 0;
const ID: usize = 1;

impl Api {
    pub(super) async fn show_key(&self, exchange: Exchange<'_>) -> RouteResult {
        let key = exchange.decoded(KEY, "the key is")?;
        let counter = self.service.call(&exchange.caller, exchange.work, Inspect(&key)).await?;
        let is_long = counter.holders.as_ref().is_some_and(|holders| holders.len() > MANY_HOLDERS);
        let write = move || -> RouteResult {
            let response = KeyResponse::new(&counter).ok_or(Refusal::UnknownKey)?;
            Ok(json_response(StatusCode::OK, &response))
        };
        if is_long { self.app().workers().run(Worker::Reads, write).await? } else { write() }
    }

    pub(super) async fn reset_key(&self, exchange: Exchange<'_>) -> RouteResult {
        // Somebody who means a reservation must not reset a counter.
        if exchange.parameter(KEY).contains("/reservations/") {
            return Err(ApiError::not_found());
        }
        let (key, who) = (exchange.decoded(KEY, "the key is")?, &exchange.caller);
        let existed = self.service.call(who, exchange.work, Reset(&key)).await?;
        tracing::info!(key, existed, who = who.name(), "keys: counter reset through the API");
        let response = json_response(StatusCode::OK, &ResetResponse { key: &key, existed });
        Ok(with_accounting(response, Accounting::MustSend))
    }

    /// Releases one reservation at one counter. It stays as it is at its other counters.
    pub(super) async fn release_holder(&self, exchange: Exchange<'_>) -> RouteResult {
        let (key, who) = (exchange.decoded(KEY, "the key is")?, &exchange.caller);
        let id = exchange.parameter(ID);
        let released = self.service.call(who, exchange.work, ReleaseHolder { key: &key, id }).await?;
        tracing::info!(key, id, released, who = who.name(), "keys: reservation released through the API");
        let response = json_response(StatusCode::OK, &ReleaseHolderResponse { key: &key, id, released });
        Ok(with_accounting(response, Accounting::MustSend))
    }
}

/// The error statuses of these routes.
const PROBLEMS: [&str; 6] = ["400", "401", "403", "404", "500", "503"];

pub(super) fn describe_show(schemas: &mut Schemas) -> Value {
    json!({"responses": responses("The counter.", &schemas.of_response::<KeyResponse<'_>>(), &PROBLEMS)})
}

pub(super) fn describe_reset(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<ResetResponse<'_>>();
    json!({"responses": responses("The counter was reset.", &answer, &PROBLEMS)})
}

pub(super) fn describe_release(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<ReleaseHolderResponse<'_>>();
    json!({
        "description": "Gives back the units of the reservation at this counter. It stays as it is at its other counters.",
        "responses": responses("Whether the counter held the reservation.", &answer, &PROBLEMS),
    })
}
