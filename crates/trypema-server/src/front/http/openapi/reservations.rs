//! The part of the OpenAPI document about reservations.

use schemars::generate::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::{caller, deny_status, headers, responses};
use crate::front::http::renew::RenewResponse;
use crate::front::http::request::{ReleaseRequest, RenewRequest, ReserveRequest, SettleRequest};
use crate::front::http::reserve::ReserveResponse;
use crate::front::http::settle::SettleResponse;

/// The error statuses of the routes that take the text of a reservation.
const PROBLEMS: [&str; 6] = ["400", "401", "403", "413", "500", "503"];

/// A text that no counter knows.
const EXAMPLE: &str = "r1.kGxpbWl0aW5nLWlzLWZ1bg";

pub(super) fn paths(read: &mut SchemaGenerator, written: &mut SchemaGenerator) -> Map<String, Value> {
    let reserve = json!(read.subschema_for::<ReserveRequest<'_>>());
    let settle = json!(read.subschema_for::<SettleRequest<'_>>());
    let release = json!(read.subschema_for::<ReleaseRequest<'_>>());
    let renew = json!(read.subschema_for::<RenewRequest<'_>>());
    let reserved = json!(written.subschema_for::<ReserveResponse<'_>>());
    let settled = json!(written.subschema_for::<SettleResponse<'_>>());
    let renewed = json!(written.subschema_for::<RenewResponse>());
    let paths = json!({
        "/v1/reserve": {"post": {
            "summary": "Reserve the estimated cost of a request",
            "description": "Takes the cost from every rule that applies, all or nothing, and holds slots of concurrency rules. Needs a caller token if the server has one. A denial is that of a check. 409: another request has used the id.",
            "security": caller(),
            "parameters": [deny_status(), headers()],
            "requestBody": body(&reserve, &json!({"attributes": {"user": "ann"}, "costs": {"requests": 1}, "ttl": "120s"})),
            "responses": responses("The decision, and the reservation if the request is allowed.", &reserved, &["4XX", "5XX"]),
        }},
        "/v1/settle": {"post": {
            "summary": "Settle a reservation at the real cost",
            "description": "Refunds the units that were not spent where they were taken, and counts those that were spent beyond the estimate. Settling again changes nothing. A caller that chose an id may name the reservation by it. Needs a caller token if the server has one.",
            "security": caller(),
            "requestBody": body(&settle, &json!({"reservation": EXAMPLE, "costs": {"requests": 1}})),
            "responses": responses("The result at every counter.", &settled, &PROBLEMS),
        }},
        "/v1/release": {"post": {
            "summary": "Release a reservation",
            "description": "Gives back everything, as if the request had never been made. Needs a caller token if the server has one.",
            "security": caller(),
            "requestBody": body(&release, &json!({"reservation": EXAMPLE})),
            "responses": responses("The result at every counter.", &settled, &PROBLEMS),
        }},
        "/v1/renew": {"post": {
            "summary": "Let a reservation last longer",
            "description": "Needs a caller token if the server has one.",
            "security": caller(),
            "requestBody": body(&renew, &json!({"reservation": EXAMPLE, "ttl": "120s"})),
            "responses": responses("Whether the reservation is still outstanding.", &renewed, &PROBLEMS),
        }},
    });
    let Value::Object(paths) = paths else { return Map::new() };
    paths
}

fn body(schema: &Value, example: &Value) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": schema, "example": example}}})
}
