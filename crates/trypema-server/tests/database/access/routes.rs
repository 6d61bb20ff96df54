//! Every route and method, its permission, and a request that works.

use serde_json::{Value, json};

use crate::scene::per_user;

/// The clients that may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Everybody,
    /// Clients with a caller token.
    Callers,
    Readers,
    Editors,
}

/// A reservation that no counter knows.
const UNKNOWN: &str = "r1.bo9omtz0YlZo9Vb1D0EJqg";

/// A method of a route, and a request for it that works.
pub struct Route {
    pub method: &'static str,
    /// The path template of the OpenAPI document.
    pub template: &'static str,
    pub path: &'static str,
    pub body: Value,
    pub used_by: For,
}

/// Returns all routes, in an order in which each works, with the rule `per-user` and its candidate `next`.
pub fn all() -> Vec<Route> {
    let route = |used_by, method, template, path, body| Route { method, template, path, body, used_by };
    let plain = |used_by, method, path| route(used_by, method, path, path, Value::Null);
    let ann = json!({"attributes": {"user": "ann"}});
    let (rule, promote) = ("/v1/rules/{id}", "/v1/rules/{id}/promote");
    let (key, special) = ("/v1/keys/{key}", "/v1/overrides/{key}");
    let holder = "/v1/keys/{key}/reservations/{id}";
    let held = "/v1/keys/per-user%7Cuser=ann/reservations/6e8f68a9b8f462567a56f5f50f41098a";
    let (spent, blocked) = ("/v1/keys/per-user%7Cuser=ann", "/v1/overrides/per-user%7Cuser=eve");
    let (listed, eve) = ("/v1/lists/{list}/{attribute}/{value}", "/v1/lists/block/user/eve");
    let (readers, editors) = (For::Readers, For::Editors);
    vec![
        plain(For::Everybody, "GET", "/"),
        plain(For::Everybody, "GET", "/healthz"),
        plain(For::Everybody, "GET", "/readyz"),
        plain(For::Everybody, "GET", "/metrics"),
        plain(For::Everybody, "GET", "/openapi.json"),
        route(For::Callers, "POST", "/v1/check", "/v1/check", ann.clone()),
        route(readers, "POST", "/v1/explain", "/v1/explain", ann.clone()),
        plain(readers, "GET", "/v1/rules"),
        plain(readers, "GET", "/v1/candidates"),
        route(readers, "GET", rule, "/v1/rules/per-user", Value::Null),
        plain(readers, "GET", "/v1/ruleset"),
        plain(readers, "GET", "/v1/ruleset/history"),
        plain(readers, "GET", "/v1/overrides"),
        plain(readers, "GET", "/v1/lists"),
        route(readers, "GET", key, spent, Value::Null),
        route(readers, "GET", special, "/v1/overrides/per-user%7Cuser=bob", Value::Null),
        route(For::Callers, "POST", "/v1/reserve", "/v1/reserve", ann),
        route(For::Callers, "POST", "/v1/settle", "/v1/settle", json!({"reservation": UNKNOWN, "costs": {}})),
        route(For::Callers, "POST", "/v1/release", "/v1/release", json!({"reservation": UNKNOWN})),
        route(For::Callers, "POST", "/v1/renew", "/v1/renew", json!({"reservation": UNKNOWN})),
        route(editors, "DELETE", holder, held, Value::Null),
        route(editors, "DELETE", key, spent, Value::Null),
        route(editors, "PUT", special, blocked, json!({"verdict": "block"})),
        route(editors, "DELETE", special, blocked, Value::Null),
        route(editors, "PUT", listed, eve, Value::Null),
        route(editors, "DELETE", listed, eve, Value::Null),
        route(editors, "PATCH", rule, "/v1/rules/per-user", json!({"enabled": false})),
        route(editors, "POST", promote, "/v1/rules/next/promote", Value::Null),
        route(editors, "PUT", rule, "/v1/rules/per-user", per_user("per-user", 9)),
        route(editors, "DELETE", rule, "/v1/rules/per-user", Value::Null),
        route(editors, "POST", "/v1/rules", "/v1/rules", per_user("new", 9)),
        route(editors, "POST", "/v1/ruleset/revert", "/v1/ruleset/revert", json!({"to": 1})),
        route(editors, "PUT", "/v1/ruleset", "/v1/ruleset", json!({"rules": [per_user("other", 9)]})),
    ]
}
