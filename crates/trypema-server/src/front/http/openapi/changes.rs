//! Parts that the descriptions of changes share.

use serde_json::{Value, json};

use super::{Schemas, in_query, json_body, responses};
use crate::front::http::routes::rules::EditResponse;

/// The error statuses of every change.
const CHANGING: [&str; 7] = ["400", "401", "403", "404", "409", "422", "503"];

pub(in crate::front::http) fn edited(schemas: &mut Schemas, more: &[&str]) -> Value {
    let edit = schemas.of_response::<EditResponse>();
    responses("The changes.", &edit, &[&CHANGING[..], more].concat())
}

pub(in crate::front::http) fn edited_whole(
    schemas: &mut Schemas,
    schema: fn(&mut Schemas) -> Value,
) -> Value {
    let body = json_body(&schema(schemas));
    json!({
        "parameters": [if_match_unless_dry_run(), dry_run()],
        "requestBody": body,
        "responses": edited(schemas, &["413", "428"]),
    })
}

pub(in crate::front::http) fn if_match() -> Value {
    json!({"name": "If-Match", "in": "header", "required": true, "description": "The revision that the change is based on, from ETag, or *.",
        "schema": {"type": "string"}, "example": "\"17\""})
}

pub(in crate::front::http) fn if_match_unless_dry_run() -> Value {
    let mut parameter = if_match();
    parameter["required"] = json!(false);
    parameter["description"] =
        json!("The revision that the change is based on, from ETag, or *. Required unless dry_run is true.");
    parameter
}

pub(in crate::front::http) fn dry_run() -> Value {
    in_query("dry_run", "Whether the change is only shown, and not made.", &json!({"type": "boolean"}))
}
