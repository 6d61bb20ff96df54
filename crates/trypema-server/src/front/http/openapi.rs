//! The OpenAPI document, made of the table of routes and of the request and response types.

pub(super) mod changes;

use std::sync::LazyLock;

use bytes::Bytes;
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::RouteListener;
use super::routes::{ROWS, Row};
use crate::refusal::Permission;

/// Describes what the table does not say about a route: parameters, the schema of its body, and responses.
pub(super) type About = fn(&mut Schemas) -> Value;

/// The schemas that the document uses.
#[derive(Debug)]
pub(super) struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    /// Returns the schema of a type that the server reads.
    pub(super) fn of_request<T: JsonSchema>(&mut self) -> Value {
        json!(self.read.subschema_for::<T>())
    }

    /// Returns the schema of a type that the server writes.
    pub(super) fn of_response<T: JsonSchema>(&mut self) -> Value {
        json!(self.written.subschema_for::<T>())
    }

    fn into_components(mut self) -> Map<String, Value> {
        let mut components = self.written.take_definitions(true);
        components.extend(self.read.take_definitions(true));
        components.insert("Problem".to_owned(), problem());
        components
    }
}

/// Returns the document as JSON.
pub(super) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(format!("{:#}\n", build())));
    DOCUMENT.clone()
}

fn build() -> Value {
    let mut schemas = Schemas {
        read: generator().for_deserialize().into_generator(),
        written: generator().for_serialize().into_generator(),
    };
    let mut paths = Map::new();
    for row in ROWS {
        let path = row.path.replace("..}", "}");
        let of_path = paths
            .entry(&path)
            .or_insert_with(|| json!({"parameters": path_parameters(&path), "servers": servers(&path)}));
        let operation = operation(row, &mut schemas);
        for method in methods(row) {
            of_path[method] = operation.clone();
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trypema",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Rate limiting. A denial is a normal response; errors are application/problem+json. Checks and administration have separate listeners: `servers` of each path names its listener.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [server(RouteListener::Check), server(RouteListener::Administration)],
        "paths": paths,
        "components": {
            "schemas": schemas.into_components(),
            "securitySchemes": {
                "admin": {"type": "http", "scheme": "bearer", "description": "A reader token reads; an admin token also changes."},
                "caller": {"type": "http", "scheme": "bearer", "description": "A caller token (setting caller_token). If the server has one, the check listener takes no other token."},
            },
        },
    })
}

/// Returns the methods under which the document describes a row. It leaves out `HEAD`, which is like `GET`.
fn methods(row: &Row) -> Vec<String> {
    let methods = match row.methods {
        "ANY" => "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE",
        "GET, HEAD" => "GET",
        methods => methods,
    };
    methods.split(", ").map(str::to_lowercase).collect()
}

fn server(listener: RouteListener) -> Value {
    match listener {
        RouteListener::Check => {
            json!({"url": "http://127.0.0.1:8080", "description": "The check listener (setting listen)."})
        }
        RouteListener::Administration => {
            json!({"url": "http://127.0.0.1:8081", "description": "The administration listener (setting admin_listen)."})
        }
    }
}

/// Returns the listeners that have a path.
fn servers(path: &str) -> Vec<Value> {
    let has_path = |listener: &RouteListener| {
        ROWS.iter().any(|row| row.path.replace("..}", "}") == path && row.listeners.contains(listener))
    };
    [RouteListener::Check, RouteListener::Administration].into_iter().filter(has_path).map(server).collect()
}

/// Returns the description of a row, with the errors that all routes of its kind share.
fn operation(row: &Row, schemas: &mut Schemas) -> Value {
    let mut operation = (row.about)(schemas);
    operation["summary"] = json!(row.summary);
    let has_token = match row.permission {
        Permission::Open => false,
        Permission::Decide => {
            // `{}` is for servers without a caller token.
            operation["security"] = json!([{"caller": []}, {}]);
            true
        }
        Permission::Read | Permission::Change => {
            operation["security"] = json!([{"admin": []}]);
            true
        }
    };
    if let Some(example) =
        operation.pointer_mut("/requestBody/content/application~1json").and_then(Value::as_object_mut)
        && let Ok(value) = serde_json::from_str(row.example)
    {
        example.insert("example".to_owned(), value);
    }
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    if let Some(responses) = responses.filter(|responses| !responses.contains_key("4XX")) {
        if has_token {
            // Too many wrong tokens from the client's address.
            responses.insert("429".to_owned(), problem_response());
        }
        if !matches!(row.path, "/healthz" | "/readyz") {
            // At least a web page whose origin is not allowed.
            responses.insert("403".to_owned(), problem_response());
        }
    }
    operation
}

/// Describes the parameters of a path.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let described = names.map(|name| {
        let (description, example) = match name {
            "key" => ("The key as responses contain it, percent-encoded.", "per-user|user=ann"),
            "profile" => (
                "A profile of the configuration file. It sets attributes, cost and the status of a denial. Built in: default (429), nginx (401).",
                "nginx",
            ),
            "list" => ("allow or block.", "block"),
            "attribute" => ("An attribute.", "ip"),
            "value" => ("A value, percent-encoded; of ip an address or a network.", "203.0.113.9"),
            _ if path.contains("/reservations/") => (
                "The id of a reservation, as `holders` of the counter contains it.",
                "6e8f68a9b8f462567a56f5f50f41098a",
            ),
            _ => ("A rule's id.", "per-user"),
        };
        let mut schema = json!({"type": "string"});
        match example {
            "nginx" => schema["pattern"] = json!("^[a-z0-9_-]{1,64}$"),
            "6e8f68a9b8f462567a56f5f50f41098a" => schema["pattern"] = json!("^[0-9a-fA-F]{32}$"),
            _ => {}
        }
        json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema, "example": example})
    });
    described.collect()
}

/// Returns the settings of the schema generator: OpenAPI 3.1 uses JSON Schema 2020-12.
fn generator() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    })
}

pub(super) const PROBLEM: &str = "#/components/schemas/Problem";

/// Describes a body. The table has its example.
pub(super) fn json_body(schema: &Value) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": schema}}})
}

pub(super) fn in_query(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": schema})
}

pub(super) fn responses(description: &str, schema: &Value, problems: &[&str]) -> Value {
    let answer = json!({"description": description, "content": {"application/json": {"schema": schema}}});
    let problems = problems.iter().map(|status| ((*status).to_owned(), problem_response()));
    Value::Object(std::iter::once(("200".to_owned(), answer)).chain(problems).collect())
}

pub(super) fn problem_response() -> Value {
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
