//! `/v1/keys/{key}`: shows or resets one counter. `/v1/keys/{key}/reservations/{id}`: releases one of its
//! reservations.

use http::StatusCode;

use crate::background_worker::Worker;
use crate::front::http::accounting::must_send;
use crate::front::http::problem::ApiError;
use crate::front::http::response::json_response;
use crate::front::http::{Api, Exchange, RouteResult};
use crate::refusal::Refusal;
use crate::service::report::{KeyResponse, ReleaseHolderResponse, ResetResponse};

/// The most holders that are listed on a thread that decides. A counter may have 4,096.
const MANY_HOLDERS: usize = 64;
/// The parameters of the path.
const KEY: usize = 0;
const ID: usize = 1;

#[rustfmt::skip]
routes! {
    "DELETE" "/v1/keys/{key..}/reservations/{id}" ADMINISTRATION Change "keys" release_holder boxed,
        "Release one of the `holders` of a counter, at this counter alone", "",
        |about| about.answers::<ReleaseHolderResponse<'_>>("Whether the counter held the reservation.").fails(&["404", "500", "503"])
            .says("Gives back the units of the reservation at this counter. It stays as it is at its other counters.");
    "GET" "/v1/keys/{key..}" ADMINISTRATION Read "keys" show_key boxed,
        "Show a counter and its reservations (`holders`)", "",
        |about| about.answers::<KeyResponse<'_>>("The counter.").fails(&["404", "500", "503"]);
    "DELETE" "/v1/keys/{key..}" ADMINISTRATION Change "keys" reset_key boxed,
        "Reset a counter, and forget its reservations", "",
        |about| about.answers::<ResetResponse<'_>>("The counter was reset.").fails(&["404", "500", "503"]);
}

impl Api {
    async fn show_key(&self, exchange: Exchange<'_>) -> RouteResult {
        let key = exchange.decoded(KEY, "the key is")?;
        let counter = exchange.call.inspect(&key).await?;
        let is_long = counter.holders.as_ref().is_some_and(|holders| holders.len() > MANY_HOLDERS);
        let write = move || -> RouteResult {
            let response = KeyResponse::new(&counter).ok_or(Refusal::UnknownKey)?;
            Ok(json_response(StatusCode::OK, &response))
        };
        if is_long { self.app().workers().run(Worker::Reads, write).await? } else { write() }
    }

    async fn reset_key(&self, exchange: Exchange<'_>) -> RouteResult {
        // Somebody who means a reservation must not reset a counter.
        if exchange.parameter(KEY).contains("/reservations/") {
            return Err(ApiError::unknown_path());
        }
        let (key, call) = (exchange.decoded(KEY, "the key is")?, &exchange.call);
        let existed = call.reset(&key).await?;
        tracing::info!(key, existed, who = call.caller.name(), "keys: counter reset through the API");
        Ok(must_send(json_response(StatusCode::OK, &ResetResponse { key: &key, existed })))
    }

    /// Releases one reservation at one counter. It stays as it is at its other counters.
    async fn release_holder(&self, exchange: Exchange<'_>) -> RouteResult {
        let (key, call) = (exchange.decoded(KEY, "the key is")?, &exchange.call);
        let id = exchange.parameter(ID);
        let released = call.release_holder(&key, id).await?;
        tracing::info!(
            key,
            id,
            released,
            who = call.caller.name(),
            "keys: reservation released through the API"
        );
        Ok(must_send(json_response(StatusCode::OK, &ReleaseHolderResponse { key: &key, id, released })))
    }
}
