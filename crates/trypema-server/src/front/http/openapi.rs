//! The description of all this for programs, made of the types that are read and written.

use std::sync::LazyLock;

use bytes::Bytes;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Value, json};

use super::answer::CheckAnswer;
use super::explain::{ExplainAnswer, RulesAnswer};
use super::keys::{KeyAnswer, ResetAnswer};
use super::question::Question;
use super::refund::RefundAnswer;

/// The document, as JSON.
pub(super) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(format!("{:#}\n", written())));
    DOCUMENT.clone()
}

fn written() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = false);
    let mut schemas = settings.into_generator();
    let paths = paths(&mut schemas);
    let mut components = schemas.take_definitions(true);
    components.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Trypema",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Limits on what callers may do. A denial is an answer, not an error; errors are application/problem+json.",
            "license": {"name": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"admin": {"type": "http", "scheme": "bearer", "description": "Only where an admin token is set."}},
        },
    })
}

fn paths(schemas: &mut SchemaGenerator) -> Value {
    let question = schemas.subschema_for::<Question<'_>>();
    let check = schemas.subschema_for::<CheckAnswer<'_>>();
    let explain = schemas.subschema_for::<ExplainAnswer<'_>>();
    let refund = schemas.subschema_for::<RefundAnswer<'_>>();
    let key = schemas.subschema_for::<KeyAnswer<'_>>();
    let reset = schemas.subschema_for::<ResetAnswer<'_>>();
    let rules = schemas.subschema_for::<RulesAnswer<'_>>();
    let one_or_many = json!({"oneOf": [question, {"type": "array", "items": question}]});
    let failed = json!({"type": "object", "required": ["error"], "properties": {"error": {"$ref": "#/components/schemas/Problem"}}});
    let answers = json!({"oneOf": [check, {"type": "array", "items": {"anyOf": [check, failed]}}]});
    let example = json!({"attributes": {"user": "ann"}, "cost": 1});
    let asking = |schema: Value| json!({"required": true, "content": {"application/json": {"schema": schema, "example": example}}});
    let deny_status = parameter(
        "deny_status",
        "The status of a denial; 200 leaves it to the body.",
        &json!({"type": "integer", "minimum": 200, "maximum": 599}),
    );
    let headers = parameter(
        "headers",
        "The headers that tell what is left.",
        &json!({"type": "string", "enum": ["standard", "x-ratelimit", "none"]}),
    );
    let name = json!({"name": "key", "in": "path", "required": true, "description": "A key as answers tell it, percent-encoded.", "schema": {"type": "string"}, "example": "per-user|user=ann"});
    let admin = json!([{}, {"admin": []}]);
    json!({
        "/v1/check": {"post": {
            "summary": "May this request go ahead?",
            "description": "One request, or an array of them, which are asked in their order and answered by an array.",
            "parameters": [deny_status, headers],
            "requestBody": asking(one_or_many),
            "responses": responses(&[("200", "What each may do.", answers)], &["400", "413", "429", "503"]),
        }},
        "/v1/forward-auth": {"get": {
            "summary": "May the request that a proxy holds go ahead?",
            "description": "Understands every method. X-Forwarded-Uri, -Method, -Host and -For say which request it is; every other parameter of the query is an attribute.",
            "parameters": [deny_status, headers,
                parameter("cost", "What the request spends.", &json!({"type": "integer", "minimum": 0})),
                {"name": "X-Forwarded-Uri", "in": "header", "required": true, "schema": {"type": "string"}, "example": "/search?q=x"},
                {"name": "X-Forwarded-Method", "in": "header", "schema": {"type": "string"}},
            ],
            "responses": {"200": {"description": "It may."}, "400": problem_response(), "403": problem_response(), "429": problem_response(), "503": problem_response()},
        }},
        "/v1/explain": {"post": {
            "summary": "Why would a request get what it gets?",
            "description": "Spends nothing.",
            "security": admin,
            "requestBody": asking(json!(question)),
            "responses": responses(&[("200", "What every rule says.", json!(explain))], &["400", "401", "403", "413", "503"]),
        }},
        "/v1/refund": {"post": {
            "summary": "Give the cost back",
            "description": "To every rule that applies, each on its own.",
            "requestBody": asking(json!(question)),
            "responses": responses(&[("200", "What was given back.", json!(refund))], &["400", "413", "503"]),
        }},
        "/v1/keys/{key}": {
            "parameters": [name],
            "get": {
                "summary": "What does a counter have left?",
                "security": admin,
                "responses": responses(&[("200", "What it has.", json!(key))], &["400", "401", "403", "404", "503"]),
            },
            "delete": {
                "summary": "Forget a counter",
                "security": admin,
                "responses": responses(&[("200", "It is forgotten.", json!(reset))], &["400", "401", "403", "404", "503"]),
            },
        },
        "/v1/rules": {"get": {
            "summary": "The rules in force",
            "security": admin,
            "responses": responses(&[("200", "The rules.", json!(rules))], &["401", "403"]),
        }},
        "/healthz": {"get": {"summary": "Is it alive?", "responses": {"200": {"description": "It is."}}}},
        "/readyz": {"get": {"summary": "Does it want requests?", "responses": {"200": {"description": "It does."}, "503": {"description": "It is about to stop."}}}},
        "/metrics": {"get": {"summary": "What Prometheus reads", "responses": {"200": {"description": "Metrics."}}}},
    })
}

fn parameter(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": schema})
}

fn responses(answers: &[(&str, &str, Value)], problems: &[&str]) -> Value {
    let answers = answers.iter().map(|(status, description, schema)| {
        let content = json!({"application/json": {"schema": schema}});
        ((*status).to_owned(), json!({"description": description, "content": content}))
    });
    let problems = problems.iter().map(|status| ((*status).to_owned(), problem_response()));
    Value::Object(answers.chain(problems).collect())
}

fn problem_response() -> Value {
    json!({"description": "Why not.", "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}})
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
