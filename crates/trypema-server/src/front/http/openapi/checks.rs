//! Checks, forward-auth and explanations.

use serde_json::{Value, json};

use super::{PROBLEM, Schemas, body, in_query, problem_response, responses};
use crate::service::json::{CheckRequest, RequestDescription};
use crate::service::report::{CheckResponse, ExplainResponse};

pub(in super::super) fn check(schemas: &mut Schemas) -> Value {
    let (request, answer) =
        (schemas.of_request::<CheckRequest>(), schemas.of_response::<CheckResponse<'_>>());
    let failed = json!({"type": "object", "required": ["error"], "properties": {"error": {"$ref": PROBLEM}}});
    let one_or_many = json!({"oneOf": [request, {"type": "array", "items": request}]});
    let answers = json!({"oneOf": [answer, {"type": "array", "items": {"anyOf": [answer, failed]}}]});
    json!({
        "description": "One request or an array. An array is decided in order; with Redis, in groups whose members may overtake each other. Needs a caller token if the server has one.",
        "parameters": report_options(),
        "requestBody": body(&one_or_many),
        "responses": responses("The decision for each request.", &answers, &["4XX", "5XX"]),
    })
}

/// Describes forward-auth, which treats all methods alike.
pub(in super::super) fn forward_auth(_: &mut Schemas) -> Value {
    let header = |name: &str, is_required: bool, example: &str| json!({"name": name, "in": "header", "required": is_required, "schema": {"type": "string"}, "example": example});
    json!({
        "description": "X-Forwarded-Uri, -Method, -Host and -For describe the request, unless the profile names other headers. Without a profile in the path it is `default`. Anything else in the path, and any query, is a 400: it may be the client's. A path with dot segments or with too many readings is a 400, or the deny_status of profiles for which it is 401 or 403; the header Trypema-Refused says why.",
        "parameters": [
            header("X-Forwarded-Uri", true, "/search?q=x"),
            header("X-Forwarded-For", true, "203.0.113.9"),
            header("X-Forwarded-Method", false, "GET"),
            header("X-Forwarded-Host", false, "example.com"),
        ],
        "responses": {"200": {"description": "The request may proceed."}, "4XX": problem_response(), "5XX": problem_response()},
    })
}

pub(in super::super) fn explain(schemas: &mut Schemas) -> Value {
    let answer = schemas.of_response::<ExplainResponse<'_>>();
    json!({
        "description": "Spends nothing.",
        "requestBody": body(&schemas.of_request::<RequestDescription>()),
        "responses": responses("The decision of every rule.", &answer, &["400", "401", "403", "413", "500", "503"]),
    })
}

/// Describes the query of a check or a reservation.
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
