//! The OpenAPI document, made of the table of routes and of the request and response types.

use std::sync::LazyLock;

use bytes::Bytes;
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::RouteListener;
use super::routes::{self, Route};
use crate::refusal::Permission;

/// Describes what the other columns of the table do not say about a route: parameters, the body, and responses.
pub(super) type About = for<'s> fn(Description<'s>) -> Description<'s>;

/// The description of one route, made step by step. A step adds the errors that come with it.
#[derive(Debug)]
pub(super) struct Description<'s> {
    read: &'s mut SchemaGenerator,
    written: &'s mut SchemaGenerator,
    operation: Value,
}

impl Description<'_> {
    pub(super) fn says(mut self, text: &str) -> Self {
        self.operation["description"] = json!(text);
        self
    }

    /// Adds a parameter of the query.
    pub(super) fn takes(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter(json!({"name": name, "in": "query", "description": description, "schema": schema}))
    }

    pub(super) fn parameter(mut self, parameter: Value) -> Self {
        match self.operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(parameter),
            None => self.operation["parameters"] = json!([parameter]),
        }
        self.fails(&["400"])
    }

    /// Adds `If-Match`.
    pub(super) fn changes_a_revision(self) -> Self {
        self.if_match(true, "The revision that the change is based on, from ETag, or *.")
    }

    /// Adds `dry_run`, and `If-Match`, which only a change needs.
    pub(super) fn may_be_dry(self) -> Self {
        let about =
            "The revision that the change is based on, from ETag, or *. Required unless dry_run is true.";
        let of_dry_run = "Whether the change is only shown, and not made.";
        self.if_match(false, about).takes("dry_run", of_dry_run, json!({"type": "boolean"}))
    }

    fn if_match(self, is_required: bool, about: &str) -> Self {
        let parameter = json!({"name": "If-Match", "in": "header", "required": is_required, "description": about,
            "schema": {"type": "string"}, "example": "\"17\""});
        self.parameter(parameter).fails(&["428"])
    }

    /// Adds a body of this type. The table has its example.
    pub(super) fn reads<T: JsonSchema>(self) -> Self {
        self.reads_as::<T>(|schema| schema).fails(&["400", "413"])
    }

    /// Adds a body whose schema `make` derives from that of a type.
    pub(super) fn reads_as<T: JsonSchema>(mut self, make: fn(Value) -> Value) -> Self {
        let schema = make(json!(self.read.subschema_for::<T>()));
        self.operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
        self
    }

    /// Adds the usual response, which is of this type.
    pub(super) fn answers<T: JsonSchema>(self, description: &str) -> Self {
        self.answers_as::<T>("200", description, |schema| schema)
    }

    /// Adds the usual response, whose schema `make` derives from that of a type.
    pub(super) fn answers_as<T: JsonSchema>(
        self,
        status: &str,
        description: &str,
        make: fn(Value) -> Value,
    ) -> Self {
        let schema = make(json!(self.written.subschema_for::<T>()));
        let mut described = self.responds(status, description);
        described.operation["responses"][status]["content"] = json!({"application/json": {"schema": schema}});
        described
    }

    /// Adds another media type of the usual response.
    pub(super) fn answers_also(mut self, media_type: &str) -> Self {
        self.operation["responses"]["200"]["content"][media_type] = json!({"schema": {"type": "string"}});
        self
    }

    /// Adds a response without a schema.
    pub(super) fn responds(mut self, status: &str, description: &str) -> Self {
        self.operation["responses"][status] = json!({"description": description});
        self
    }

    /// Adds errors.
    pub(super) fn fails(mut self, statuses: &[&str]) -> Self {
        for status in statuses {
            self.operation["responses"][status] = json!({"description": "The error.",
                "content": {"application/problem+json": {"schema": {"$ref": PROBLEM}}}});
        }
        self
    }
}

/// Returns the document as JSON.
pub(super) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(format!("{:#}\n", build())));
    DOCUMENT.clone()
}

fn build() -> Value {
    let (mut read, mut written) =
        (generator().for_deserialize().into_generator(), generator().for_serialize().into_generator());
    let has_path = |listener, path: &str| {
        routes::all().any(|route| route.shown_path() == path && route.listeners.contains(&listener))
    };
    let mut paths = Map::new();
    for route in routes::all() {
        let path = route.shown_path();
        let of_path = paths
            .entry(&path)
            .or_insert_with(|| json!({"parameters": path_parameters(&path), "servers": servers(|listener| has_path(listener, &path))}));
        let operation =
            operation(route, Description { read: &mut read, written: &mut written, operation: json!({}) });
        for method in methods(route) {
            of_path[method] = operation.clone();
        }
    }
    let mut schemas = written.take_definitions(true);
    schemas.extend(read.take_definitions(true));
    schemas.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trypema",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Rate limiting. A denial is a normal response; errors are application/problem+json. Checks and administration have separate listeners: `servers` of each path names its listener.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": servers(|_| true),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "admin": {"type": "http", "scheme": "bearer", "description": "A reader token reads; an admin token also changes."},
                "caller": {"type": "http", "scheme": "bearer", "description": "A caller token (setting caller_token). If the server has one, the check listener takes no other token."},
            },
        },
    })
}

/// Returns the methods under which the document describes a route. It leaves out `HEAD`, which is like `GET`.
fn methods(route: &Route) -> Vec<String> {
    let methods = match route.methods {
        "ANY" => "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE",
        "GET, HEAD" => "GET",
        methods => methods,
    };
    methods.split(", ").map(str::to_lowercase).collect()
}

/// The listeners, each with its usual address.
const SERVERS: [(RouteListener, &str, &str); 2] = [
    (RouteListener::Check, "http://127.0.0.1:8080", "The check listener (setting listen)."),
    (
        RouteListener::Administration,
        "http://127.0.0.1:8081",
        "The administration listener (setting admin_listen).",
    ),
];

/// Describes the listeners that `is_wanted` names.
fn servers(is_wanted: impl Fn(RouteListener) -> bool) -> Vec<Value> {
    let wanted = SERVERS.into_iter().filter(|(listener, ..)| is_wanted(*listener));
    wanted.map(|(_, url, description)| json!({"url": url, "description": description})).collect()
}

/// Returns the description of a route, with the errors that all routes of its kind share.
fn operation(route: &Route, description: Description<'_>) -> Value {
    let mut described = (route.about)(description);
    let has_ranges = described.operation["responses"].get("4XX").is_some();
    // `{}` is for servers without a caller token.
    let security = match route.permission {
        Permission::Open => None,
        Permission::Decide => Some(json!([{"caller": []}, {}])),
        Permission::Read | Permission::Change => Some(json!([{"admin": []}])),
    };
    if let Some(security) = security {
        described.operation["security"] = security;
        // 429: too many wrong tokens came from the client's address.
        described = described.fails(&["401", "403", "429"]);
    }
    if !matches!(route.path, "/healthz" | "/readyz") {
        // At least a web page whose origin is not allowed.
        described = described.fails(&["403"]);
    }
    if route.path.contains("..}") {
        // It is decoded.
        described = described.fails(&["400"]);
    }
    let mut operation = described.operation;
    operation["summary"] = json!(route.summary);
    if let Ok(example) = serde_json::from_str::<Value>(route.example) {
        operation["requestBody"]["content"]["application/json"]["example"] = example;
    }
    if let Some(responses) = operation["responses"].as_object_mut().filter(|_| has_ranges) {
        responses.retain(|status, _| status == "4XX" || !status.starts_with('4'));
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
