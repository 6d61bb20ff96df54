//! The part of the OpenAPI document about stored rules.

use schemars::generate::SchemaGenerator;
use serde_json::{Map, Value, json};
use trypema::rules::{Override, Rule, Rules};

use super::{parameter, responses};
use crate::front::http::rules::{
    CandidatesResponse, EditResponse, EnabledChange, HistoryResponse, ItemResponse, ListsResponse,
    OverrideChange, OverridesResponse, RevertRequest, RulesResponse,
};

/// The error statuses of every read: a wrong token, or rules in a file.
const LOOKING: [&str; 4] = ["401", "403", "404", "503"];
/// The error statuses of every change.
const CHANGING: [&str; 7] = ["400", "401", "403", "404", "409", "422", "503"];

pub(super) fn paths(read: &mut SchemaGenerator, written: &mut SchemaGenerator) -> Map<String, Value> {
    let rules = json!(written.subschema_for::<RulesResponse<'_>>());
    let edit = json!(written.subschema_for::<EditResponse>());
    let one = json!(written.subschema_for::<ItemResponse<'_, Rule>>());
    let special = json!(written.subschema_for::<ItemResponse<'_, Override>>());
    let specials = json!(written.subschema_for::<OverridesResponse<'_>>());
    let lists = json!(written.subschema_for::<ListsResponse<'_>>());
    let history = json!(written.subschema_for::<HistoryResponse>());
    let candidates = json!(written.subschema_for::<CandidatesResponse>());
    let whole = json!(written.subschema_for::<Rules>());
    let rule = body(&json!(read.subschema_for::<Rule>()), &example_rule());
    let enabled = body(&json!(read.subschema_for::<EnabledChange>()), &json!({"enabled": false}));
    let verdict = body(&json!(read.subschema_for::<OverrideChange>()), &json!({"verdict": "block"}));
    let document = body(&json!(read.subschema_for::<Rules>()), &json!({"rules": [example_rule()]}));
    let target = body(&json!(read.subschema_for::<RevertRequest>()), &json!({"to": 17}));
    let edited = |more: &[&str]| responses("The changes.", &edit, &[&CHANGING[..], more].concat());
    let paths = json!({
        "/v1/rules": {
            "get": operation("The rules in force on this server", json!({"responses": responses("The rules.", &rules, &["401", "403"])})),
            "post": operation("Store a new rule", json!({"requestBody": rule, "responses": created(&edited(&["413"]))})),
        },
        "/v1/rules/{id}": {
            "parameters": [in_path("id", "A rule's id.", "per-user")],
            "get": operation("One rule", json!({"responses": responses("The rule.", &one, &["401", "403", "404", "422", "503"])})),
            "put": operation("Change a rule", json!({"parameters": [if_match()], "requestBody": rule, "responses": edited(&["413", "428"])})),
            "patch": operation("Enable or disable a rule", json!({"parameters": [if_match()], "requestBody": enabled, "responses": edited(&["413", "428"])})),
            "delete": operation("Delete a rule, and its overrides", json!({"parameters": [if_match()], "responses": edited(&["428"])})),
        },
        "/v1/rules/{id}/promote": {
            "parameters": [in_path("id", "The id of a candidate.", "per-user-next")],
            "post": operation("Promote a candidate: replace the live rule with it", json!({"parameters": [if_match_unless_dry_run(), dry_run()], "responses": edited(&["428"])})),
        },
        "/v1/ruleset": {
            "get": operation("Export the stored rule set", json!({
                "description": "As YAML if Accept asks for it.",
                "parameters": [parameter("revision", "Export this revision instead of the current one.", &json!({"type": "integer", "minimum": 0}))],
                "responses": in_yaml(responses("The rules.", &whole, &["400", "401", "403", "404", "422", "503"])),
            })),
            "put": operation("Replace the stored rule set", json!({
                "parameters": [if_match_unless_dry_run(), dry_run()], "requestBody": document, "responses": edited(&["413", "428"]),
            })),
        },
        "/v1/ruleset/history": {"get": operation("The history of changes, the latest first", json!({
            "parameters": [
                parameter("about", "Only changes of this rule or unit, or of the list `allow` or `block`.", &json!({"type": "string"})),
                parameter("before", "Only entries before this id.", &json!({"type": "integer", "minimum": 0})),
                parameter("limit", "The maximum number of entries.", &json!({"type": "integer", "minimum": 1, "maximum": 1000})),
            ],
            "responses": responses("The changes.", &history, &["400", "401", "403", "404", "503"]),
        }))},
        "/v1/ruleset/revert": {"post": operation("Restore the rule set of a revision", json!({
            "parameters": [if_match_unless_dry_run(), dry_run()], "requestBody": target, "responses": edited(&["413", "428"]),
        }))},
        "/v1/overrides": {"get": operation("List overrides of single keys", json!({
            "parameters": [parameter("rule", "Only overrides of this rule.", &json!({"type": "string"}))],
            "responses": responses("The overrides.", &specials, &["400", "401", "403", "404", "503"]),
        }))},
        "/v1/overrides/{key}": {
            "parameters": [in_path("key", "The key as responses contain it, percent-encoded.", "per-user|user=ann")],
            "get": operation("Show the override of a key", json!({"responses": responses("The override.", &special, &["400", "401", "403", "404", "503"])})),
            "put": operation("Set the override of a key: another limit, an exemption or a block", json!({"requestBody": verdict, "responses": edited(&["413"])})),
            "delete": operation("Remove the override of a key", json!({"responses": edited(&[])})),
        },
        "/v1/lists": {"get": operation("List allowed and blocked values", json!({"responses": responses("The lists.", &lists, &LOOKING)}))},
        "/v1/lists/{list}/{attribute}/{value}": {
            "parameters": [
                in_path("list", "allow or block.", "block"),
                in_path("attribute", "An attribute.", "ip"),
                in_path("value", "A value, percent-encoded; of ip an address or a network.", "203.0.113.9"),
            ],
            "put": operation("Add a value to a list", json!({"responses": listed(&edit)})),
            "delete": operation("Remove a value from a list", json!({"responses": listed(&edit)})),
        },
        "/v1/candidates": {"get": operation("Compare the decisions of candidates with those of their live rules, as counted by this server", json!({
            "responses": responses("The comparisons.", &candidates, &["401", "403"]),
        }))},
    });
    match paths {
        Value::Object(paths) => paths,
        _ => Map::new(),
    }
}

fn example_rule() -> Value {
    json!({"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}})
}

/// Describes an operation that needs a token.
fn operation(summary: &str, mut about: Value) -> Value {
    about["summary"] = json!(summary);
    about["security"] = json!([{"admin": []}]);
    about
}

fn body(schema: &Value, example: &Value) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": schema, "example": example}}})
}

fn created(edited: &Value) -> Value {
    let mut responses = edited.clone();
    if let Some(responses) = responses.as_object_mut()
        && let Some(done) = responses.remove("200")
    {
        responses.insert("201".to_owned(), done);
    }
    responses
}

fn listed(edit: &Value) -> Value {
    responses("The changes.", edit, &["400", "401", "403", "404", "422", "503"])
}

fn in_yaml(mut responses: Value) -> Value {
    responses["200"]["content"]["application/yaml"] = json!({"schema": {"type": "string"}});
    responses
}

fn in_path(name: &str, description: &str, example: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": description, "schema": {"type": "string"}, "example": example})
}

fn if_match() -> Value {
    json!({"name": "If-Match", "in": "header", "required": true, "description": "The revision that the change is based on, from ETag, or *.",
        "schema": {"type": "string"}, "example": "\"17\""})
}

/// Describes `If-Match` of an operation that needs none for a dry run.
fn if_match_unless_dry_run() -> Value {
    let mut parameter = if_match();
    parameter["required"] = json!(false);
    parameter["description"] =
        json!("The revision that the change is based on, from ETag, or *. Required unless dry_run is true.");
    parameter
}

fn dry_run() -> Value {
    parameter("dry_run", "Whether the change is only shown, and not made.", &json!({"type": "boolean"}))
}
