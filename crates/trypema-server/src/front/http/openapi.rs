//! The OpenAPI document, generated from the request and response types.

mod reservations;
mod rules;

use std::sync::LazyLock;

use bytes::Bytes;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Value, json};

use super::explain::ExplainResponse;
use super::keys::{KeyResponse, ReleaseHolderResponse, ResetResponse};
use super::request::{CheckRequest, RequestDescription};
use super::response::CheckResponse;

/// Returns the document as JSON.
pub(super) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(format!("{:#}\n", build())));
    DOCUMENT.clone()
}

fn build() -> Value {
    let mut read = generator().for_deserialize().into_generator();
    let mut written = generator().for_serialize().into_generator();
    let mut paths = paths(&mut read, &mut written);
    if let Some(paths) = paths.as_object_mut() {
        paths.extend(reservations::paths(&mut read, &mut written));
        paths.extend(rules::paths(&mut read, &mut written));
        paths.iter_mut().for_each(|(path, operations)| add_servers_and_errors(path, operations));
    }
    let mut components = written.take_definitions(true);
    components.extend(read.take_definitions(true));
    components.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trypema",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Rate limiting. A denial is a normal response; errors are application/problem+json. Checks and administration have separate listeners: `servers` of each path names its listener.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [check_listener(), admin_listener()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "admin": {"type": "http", "scheme": "bearer", "description": "A reader token reads; an admin token also changes."},
                "caller": {"type": "http", "scheme": "bearer", "description": "A caller token (setting caller_token). If the server has one, the check listener takes no other token."},
            },
        },
    })
}

fn check_listener() -> Value {
    json!({"url": "http://127.0.0.1:8080", "description": "The check listener (setting listen)."})
}

fn admin_listener() -> Value {
    json!({"url": "http://127.0.0.1:8081", "description": "The administration listener (setting admin_listen)."})
}

/// Adds the listeners of a path, and the errors that all of its operations share.
fn add_servers_and_errors(path: &str, operations: &mut Value) {
    let is_health = ["/healthz", "/readyz"].contains(&path);
    let is_forward_auth = path.starts_with("/v1/forward-auth");
    let servers = match path {
        _ if is_health => vec![check_listener(), admin_listener()],
        "/v1/check" | "/v1/reserve" | "/v1/settle" | "/v1/release" | "/v1/renew" => vec![check_listener()],
        _ if is_forward_auth => vec![check_listener()],
        _ => vec![admin_listener()],
    };
    let Some(operations) = operations.as_object_mut() else { return };
    for operation in operations.values_mut() {
        let has_token = operation.get("security").is_some();
        let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else { continue };
        if responses.contains_key("4XX") {
            continue;
        }
        if has_token {
            // Too many wrong tokens from the client's address.
            responses.insert("429".to_owned(), problem_response());
        }
        if !is_health && !is_forward_auth {
            // At least a web page whose origin is not allowed.
            responses.insert("403".to_owned(), problem_response());
        }
    }
    operations.insert("servers".to_owned(), json!(servers));
}

/// Returns the settings of the schema generator: OpenAPI 3.1 uses JSON Schema 2020-12.
fn generator() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    })
}

fn paths(read: &mut SchemaGenerator, written: &mut SchemaGenerator) -> Value {
    let check_request = read.subschema_for::<CheckRequest<'_>>();
    let description = json!(read.subschema_for::<RequestDescription<'_>>());
    let check = written.subschema_for::<CheckResponse<'_>>();
    let explain = json!(written.subschema_for::<ExplainResponse<'_>>());
    let key = json!(written.subschema_for::<KeyResponse<'_>>());
    let reset = json!(written.subschema_for::<ResetResponse<'_>>());
    let release = json!(written.subschema_for::<ReleaseHolderResponse<'_>>());
    let failed = json!({"type": "object", "required": ["error"], "properties": {"error": {"$ref": PROBLEM}}});
    let one_or_many = json!({"oneOf": [check_request, {"type": "array", "items": check_request}]});
    let answers = json!({"oneOf": [check, {"type": "array", "items": {"anyOf": [check, failed]}}]});
    let key_name = json!({"name": "key", "in": "path", "required": true, "description": "The key as responses contain it, percent-encoded.",
        "schema": {"type": "string"}, "example": "per-user|user=ann"});
    let admin = json!([{"admin": []}]);
    json!({
        "/v1/check": {"post": {
            "summary": "Check a request",
            "description": "One request or an array. An array is decided in order; with Redis, in groups whose members may overtake each other. Needs a caller token if the server has one.",
            "security": caller(),
            "parameters": [deny_status(), headers()],
            "requestBody": request_body(&one_or_many),
            "responses": responses("The decision for each request.", &answers, &["4XX", "5XX"]),
        }},
        "/v1/forward-auth": forward_auth(&[]),
        "/v1/forward-auth/{profile}": forward_auth(&[json!({"name": "profile", "in": "path", "required": true,
            "description": "A profile of the configuration file. It sets attributes, cost and the status of a denial. Built in: default (429), nginx (401).",
            "schema": {"type": "string", "pattern": "^[a-z0-9_-]{1,64}$"}, "example": "nginx"})]),
        "/v1/explain": {"post": {
            "summary": "Explain a decision",
            "description": "Spends nothing.",
            "security": admin,
            "requestBody": request_body(&description),
            "responses": responses("The decision of every rule.", &explain, &["400", "401", "403", "413", "500", "503"]),
        }},
        "/v1/keys/{key}": {
            "parameters": [key_name],
            "get": {
                "summary": "Show a counter",
                "security": admin,
                "responses": responses("The counter.", &key, &["400", "401", "403", "404", "500", "503"]),
            },
            "delete": {
                "summary": "Reset a counter",
                "security": admin,
                "responses": responses("The counter was reset.", &reset, &["400", "401", "403", "404", "500", "503"]),
            },
        },
        "/v1/keys/{key}/reservations/{id}": {
            "parameters": [key_name, json!({"name": "id", "in": "path", "required": true, "description": "The id of a reservation, as `holders` of the counter contains it.",
                "schema": {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}, "example": "6e8f68a9b8f462567a56f5f50f41098a"})],
            "delete": {
                "summary": "Release a reservation at one counter",
                "description": "Gives back the units of the reservation at this counter. It stays as it is at its other counters.",
                "security": admin,
                "responses": responses("Whether the counter held the reservation.", &release, &["400", "401", "403", "404", "500", "503"]),
            },
        },
        "/": {"get": {"summary": "List the routes", "responses": {"200": {"description": "The routes."}}}},
        "/healthz": {"get": {"summary": "Liveness", "responses": {"200": {"description": "The process runs."}}}},
        "/readyz": {"get": {"summary": "Readiness", "responses": {
            "200": {"description": "The server accepts requests. `warnings` lists what an operator should repair."}, "503": {"description": "The server is stopping."},
        }}},
        "/metrics": {"get": {"summary": "Prometheus metrics", "responses": {"200": {"description": "The metrics."}}}},
        "/openapi.json": {"get": {"summary": "This document", "responses": {"200": {"description": "The document."}}}},
    })
}

/// Returns the security of the routes for callers: `{}` is for servers without a caller token.
fn caller() -> Value {
    json!([{"caller": []}, {}])
}

const PROBLEM: &str = "#/components/schemas/Problem";

/// Describes forward-auth, which treats all methods alike.
fn forward_auth(parameters: &[Value]) -> Value {
    let header = |name: &str, is_required: bool, example: &str| json!({"name": name, "in": "header", "required": is_required, "schema": {"type": "string"}, "example": example});
    let headers = [
        header("X-Forwarded-Uri", true, "/search?q=x"),
        header("X-Forwarded-For", true, "203.0.113.9"),
        header("X-Forwarded-Method", false, "GET"),
        header("X-Forwarded-Host", false, "example.com"),
    ];
    let parameters = [parameters, &headers].concat();
    let operation = json!({
        "summary": "Check a proxied request",
        "description": "X-Forwarded-Uri, -Method, -Host and -For describe the request, unless the profile names other headers. Without a profile in the path it is `default`. Anything else in the path, and any query, is a 400: it may be the client's. A path with dot segments or with too many readings is a 400, or the deny_status of profiles for which it is 401 or 403; the header Trypema-Refused says why.",
        "parameters": parameters,
        "responses": {"200": {"description": "The request may proceed."}, "4XX": problem_response(), "5XX": problem_response()},
    });
    let methods = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];
    Value::Object(methods.into_iter().map(|method| (method.to_owned(), operation.clone())).collect())
}

fn deny_status() -> Value {
    let schema = json!({"type": "integer", "minimum": 400, "maximum": 499, "not": {"enum": [407, 408, 421, 425, 426]}});
    parameter(
        "deny_status",
        "The status of a denial. Without it, a denial is a 200 with the decision in the body.",
        &schema,
    )
}

fn headers() -> Value {
    let schema = json!({"type": "string", "enum": ["standard", "x-ratelimit", "none"]});
    parameter("headers", "The headers that report the remaining units.", &schema)
}

fn request_body(schema: &Value) -> Value {
    let example = json!({"attributes": {"user": "ann"}, "cost": 1});
    json!({"required": true, "content": {"application/json": {"schema": schema, "example": example}}})
}

fn parameter(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": schema})
}

fn responses(description: &str, schema: &Value, problems: &[&str]) -> Value {
    let answer = json!({"description": description, "content": {"application/json": {"schema": schema}}});
    let problems = problems.iter().map(|status| ((*status).to_owned(), problem_response()));
    Value::Object(std::iter::once(("200".to_owned(), answer)).chain(problems).collect())
}

fn problem_response() -> Value {
    json!({"description": "The error.", "content": {"application/problem+json": {"schema": {"$ref": PROBLEM}}}})
}

fn problem() -> Value {
    json!({
        "type": "object",
        "description": "RFC 9457.",
        "required": ["type", "title", "status"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "violated-policies": {"type": "array", "items": {"type": "string"}},
            "retry_after": {"type": "integer"},
        },
    })
}
