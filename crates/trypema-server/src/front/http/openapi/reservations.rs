//! Reservations.

use serde_json::{Value, json};

use super::checks::report_options;
use super::{Schemas, body, responses};
use crate::service::json::{ReleaseRequest, RenewRequest, ReserveRequest, SettleRequest};
use crate::service::report::{RenewResponse, ReserveResponse, SettleResponse};

/// The error statuses of the routes that take the text of a reservation.
const PROBLEMS: [&str; 6] = ["400", "401", "403", "413", "500", "503"];

pub(in super::super) fn reserve(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<ReserveResponse<'_>>();
    json!({
        "description": "Takes the cost from every rule that applies, all or nothing, and holds slots of concurrency rules. Needs a caller token if the server has one. A denial is that of a check. 409: another request has used the id.",
        "parameters": report_options(),
        "requestBody": body(&schemas.of_request::<ReserveRequest>()),
        "responses": responses("The decision, and the reservation if the request is allowed.", &answer, &["4XX", "5XX"]),
    })
}

pub(in super::super) fn settle(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<SettleResponse<'_>>();
    json!({
        "description": "Refunds the units that were not spent where they were taken, and counts those that were spent beyond the estimate. Settling again changes nothing. A caller that chose an id may name the reservation by it. Needs a caller token if the server has one.",
        "requestBody": body(&schemas.of_request::<SettleRequest>()),
        "responses": responses("The result at every counter.", &answer, &PROBLEMS),
    })
}

pub(in super::super) fn release(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<SettleResponse<'_>>();
    json!({
        "description": "Gives back everything, as if the request had never been made. Needs a caller token if the server has one.",
        "requestBody": body(&schemas.of_request::<ReleaseRequest>()),
        "responses": responses("The result at every counter.", &answer, &PROBLEMS),
    })
}

pub(in super::super) fn renew(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<RenewResponse>();
    json!({
        "description": "Needs a caller token if the server has one.",
        "requestBody": body(&schemas.of_request::<RenewRequest>()),
        "responses": responses("Whether the reservation is still outstanding.", &answer, &PROBLEMS),
    })
}
