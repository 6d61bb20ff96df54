//! Rules in force and stored rules.

use serde_json::{Value, json};
use trypema::rules::{Override, Rule, Rules};

use super::{Schemas, body, in_query, responses};
use crate::front::http::routes::rules::{
    CandidatesResponse, EditResponse, EnabledChange, HistoryResponse, ItemResponse, ListsResponse,
    OverrideChange, OverridesResponse, RevertRequest, RulesResponse,
};

/// The error statuses of every read of stored rules: a wrong token, or rules in a file.
const READING: [&str; 4] = ["401", "403", "404", "503"];
/// The error statuses of every change.
const CHANGING: [&str; 7] = ["400", "401", "403", "404", "409", "422", "503"];

pub(in super::super) fn in_force(schemas: &mut Schemas) -> Value {
    json!({"responses": responses("The rules.", &schemas.of_response::<RulesResponse<'_>>(), &["401", "403"])})
}

pub(in super::super) fn create(schemas: &mut Schemas) -> Value {
    let mut responses = edited(schemas, &["413"]);
    if let Some(responses) = responses.as_object_mut()
        && let Some(done) = responses.remove("200")
    {
        responses.insert("201".to_owned(), done);
    }
    json!({"requestBody": body(&schemas.of_request::<Rule>()), "responses": responses})
}

pub(in super::super) fn show(schemas: &mut Schemas) -> Value {
    let rule = schemas.of_response::<ItemResponse<'_, Rule>>();
    json!({"responses": responses("The rule.", &rule, &["401", "403", "404", "422", "503"])})
}

pub(in super::super) fn change(schemas: &mut Schemas) -> Value {
    let body = body(&schemas.of_request::<Rule>());
    json!({"parameters": [if_match()], "requestBody": body, "responses": edited(schemas, &["413", "428"])})
}

pub(in super::super) fn switch(schemas: &mut Schemas) -> Value {
    let body = body(&schemas.of_request::<EnabledChange>());
    json!({"parameters": [if_match()], "requestBody": body, "responses": edited(schemas, &["413", "428"])})
}

pub(in super::super) fn delete(schemas: &mut Schemas) -> Value {
    json!({"parameters": [if_match()], "responses": edited(schemas, &["428"])})
}

pub(in super::super) fn promote(schemas: &mut Schemas) -> Value {
    json!({"parameters": [if_match_unless_dry_run(), dry_run()], "responses": edited(schemas, &["428"])})
}

pub(in super::super) fn candidates(schemas: &mut Schemas) -> Value {
    let comparisons = schemas.of_response::<CandidatesResponse>();
    json!({"responses": responses("The comparisons.", &comparisons, &["401", "403"])})
}

pub(in super::super) fn export(schemas: &mut Schemas) -> Value {
    let rules = schemas.of_response::<Rules>();
    let mut responses = responses("The rules.", &rules, &["400", "401", "403", "404", "422", "503"]);
    responses["200"]["content"]["application/yaml"] = json!({"schema": {"type": "string"}});
    let revision = json!({"type": "integer", "minimum": 0});
    json!({
        "description": "As YAML if Accept asks for it.",
        "parameters": [in_query("revision", "Export this revision instead of the current one.", &revision)],
        "responses": responses,
    })
}

pub(in super::super) fn apply(schemas: &mut Schemas) -> Value {
    edited_whole(schemas, Schemas::of_request::<Rules>)
}

pub(in super::super) fn revert(schemas: &mut Schemas) -> Value {
    edited_whole(schemas, Schemas::of_request::<RevertRequest>)
}

pub(in super::super) fn history(schemas: &mut Schemas) -> Value {
    let number = |minimum: u64| json!({"type": "integer", "minimum": minimum});
    let mut limit = number(1);
    limit["maximum"] = json!(1000);
    json!({
        "parameters": [
            in_query("about", "Only changes of this rule or unit, or of the list `allow` or `block`.", &json!({"type": "string"})),
            in_query("before", "Only entries before this id.", &number(0)),
            in_query("limit", "The maximum number of entries.", &limit),
        ],
        "responses": responses("The changes.", &schemas.of_response::<HistoryResponse>(), &["400", "401", "403", "404", "503"]),
    })
}

pub(in super::super) fn overrides(schemas: &mut Schemas) -> Value {
    let overrides = schemas.of_response::<OverridesResponse<'_>>();
    json!({
        "parameters": [in_query("rule", "Only overrides of this rule.", &json!({"type": "string"}))],
        "responses": responses("The overrides.", &overrides, &["400", "401", "403", "404", "503"]),
    })
}

pub(in super::super) fn show_override(schemas: &mut Schemas) -> Value {
    let item = schemas.of_response::<ItemResponse<'_, Override>>();
    json!({"responses": responses("The override.", &item, &["400", "401", "403", "404", "503"])})
}

pub(in super::super) fn set_override(schemas: &mut Schemas) -> Value {
    let body = body(&schemas.of_request::<OverrideChange>());
    json!({"requestBody": body, "responses": edited(schemas, &["413"])})
}

pub(in super::super) fn remove_override(schemas: &mut Schemas) -> Value {
    json!({"responses": edited(schemas, &[])})
}

pub(in super::super) fn lists(schemas: &mut Schemas) -> Value {
    json!({"responses": responses("The lists.", &schemas.of_response::<ListsResponse<'_>>(), &READING)})
}

pub(in super::super) fn edit_list(schemas: &mut Schemas) -> Value {
    let edit = schemas.of_response::<EditResponse>();
    json!({"responses": responses("The changes.", &edit, &["400", "401", "403", "404", "422", "503"])})
}

/// Describes the responses of a change, which has `more` error statuses than others.
fn edited(schemas: &mut Schemas, more: &[&str]) -> Value {
    let edit = schemas.of_response::<EditResponse>();
    responses("The changes.", &edit, &[&CHANGING[..], more].concat())
}

/// Describes a change of the whole rule set.
fn edited_whole(schemas: &mut Schemas, schema: fn(&mut Schemas) -> Value) -> Value {
    let body = body(&schema(schemas));
    json!({
        "parameters": [if_match_unless_dry_run(), dry_run()],
        "requestBody": body,
        "responses": edited(schemas, &["413", "428"]),
    })
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
    in_query("dry_run", "Whether the change is only shown, and not made.", &json!({"type": "boolean"}))
}
