//! Health, metrics and descriptions.

use serde_json::{Value, json};

use super::Schemas;

pub(in super::super) fn health(_: &mut Schemas) -> Value {
    json!({"responses": {"200": {"description": "The process runs."}}})
}

pub(in super::super) fn readiness(_: &mut Schemas) -> Value {
    json!({"responses": {
        "200": {"description": "The server accepts requests. `warnings` lists what an operator should repair."},
        "503": {"description": "The server is stopping."},
    }})
}

pub(in super::super) fn metrics(_: &mut Schemas) -> Value {
    json!({"responses": {"200": {"description": "The metrics."}}})
}

pub(in super::super) fn description(_: &mut Schemas) -> Value {
    json!({"responses": {"200": {"description": "The document."}}})
}

pub(in super::super) fn list_routes(_: &mut Schemas) -> Value {
    json!({"responses": {"200": {"description": "The routes."}}})
}
