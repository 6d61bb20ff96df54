//! The table of routes. Dispatch, `GET /`, the texts of 404 and 405, the labels of metrics and spans, the OpenAPI
//! document and the table in docs/server.md derive from it.

mod check;
mod explain;
mod forward_auth;
mod keys;
mod operation;
mod path;
mod reservations;
pub(super) mod rules;

use std::fmt::Write;

use futures_util::FutureExt;
use http::{Method, StatusCode};

pub(super) use self::check::parts_at_a_time;
pub(super) use self::operation::SharedText;
pub(super) use self::path::Parameters;
pub(super) use self::rules::RulesetPermits;
use super::openapi::About;
use super::problem::ApiError;
use super::{Api, Exchange, RouteListener, RouteResult};
use crate::metrics::RouteLabel;
use crate::refusal::Permission;

/// One row of the table: a method of a path, or several methods with the same handler.
#[derive(Debug)]
pub(super) struct Row {
    route: Route,
    /// The methods, or `ANY`.
    pub(super) methods: &'static str,
    /// The path. `{name}` is one segment, and `{name..}` one or more.
    pub(super) path: &'static str,
    pub(super) listeners: &'static [RouteListener],
    pub(super) permission: Permission,
    label: RouteLabel,
    /// The effect of the route, in one sentence.
    pub(super) summary: &'static str,
    /// A body, as in `{"cost": 1}`.
    pub(super) example: &'static str,
    pub(super) about: About,
}

const CHECK: &[RouteListener] = &[RouteListener::Check];
const ADMINISTRATION: &[RouteListener] = &[RouteListener::Administration];
const BOTH: &[RouteListener] = &[RouteListener::Check, RouteListener::Administration];

/// Makes the rows, and calls the handler of each. Boxes all handlers but those of decisions, because hyper moves the
/// whole future of a request.
macro_rules! routes {
    ($($route:ident: $methods:literal $path:literal $listeners:ident $permission:ident $label:ident
        $handler:ident $($boxed:ident)?, $about:path, $summary:literal, $example:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Route { $($route),* }

        /// The rows. Of several paths that match, the first counts.
        pub(super) const ROWS: &[Row] = &[$(Row {
            route: Route::$route,
            methods: $methods,
            path: $path,
            listeners: $listeners,
            permission: Permission::$permission,
            label: RouteLabel::$label,
            summary: $summary,
            example: $example,
            about: $about,
        }),*];

        impl Api {
            pub(super) async fn handle(&self, route: Route, exchange: Exchange<'_>) -> RouteResult {
                match route {
                    $(Route::$route => call!(self.$handler(exchange) $($boxed)?),)*
                }
            }
        }
    };
}

macro_rules! call {
    ($api:ident.$handler:ident($exchange:ident)) => {
        $api.$handler($exchange).await
    };
    ($api:ident.$handler:ident($exchange:ident) boxed) => {
        $api.$handler($exchange).boxed().await
    };
}

#[rustfmt::skip]
routes! {
    Check: "POST" "/v1/check" CHECK Decide Check check, check::describe,
        "Check a request, or an array of requests", r#"{"attributes": {"user": "ann"}, "cost": 1}"#;
    ForwardAuth: "ANY" "/v1/forward-auth" CHECK Open ForwardAuth forward_auth, forward_auth::describe,
        "Check a proxied request: nginx auth_request, Caddy forward_auth, Traefik forwardAuth", "";
    ForwardAuthProfile: "ANY" "/v1/forward-auth/{profile..}" CHECK Open ForwardAuth forward_auth, forward_auth::describe,
        "Check a proxied request by a profile of the configuration file", "";
    Reserve: "POST" "/v1/reserve" CHECK Decide Reserve reserve boxed, reservations::describe_reserve,
        "Reserve the estimated cost of a request", r#"{"attributes": {"user": "ann"}, "costs": {"requests": 1}, "ttl": "120s"}"#;
    Settle: "POST" "/v1/settle" CHECK Decide Settle settle boxed, reservations::describe_settle,
        "Settle a reservation at the real cost", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg", "costs": {"requests": 1}}"#;
    Release: "POST" "/v1/release" CHECK Decide Release release boxed, reservations::describe_release,
        "Release a reservation: give everything back", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg"}"#;
    Renew: "POST" "/v1/renew" CHECK Decide Renew renew boxed, reservations::describe_renew,
        "Let a reservation last longer", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg", "ttl": "120s"}"#;
    Health: "GET, HEAD" "/healthz" BOTH Open Operation health boxed, operation::describe_health,
        "Tell whether the process runs", "";
    Readiness: "GET, HEAD" "/readyz" CHECK Open Operation readiness boxed, operation::describe_readiness,
        "Tell whether the server accepts requests", "";
    ReadinessInDetail: "GET, HEAD" "/readyz" ADMINISTRATION Open Operation readiness_in_detail boxed, operation::describe_readiness,
        "Tell whether the server accepts requests, and with a token why rules were rejected", "";
    Explain: "POST" "/v1/explain" ADMINISTRATION Read Explain explain boxed, explain::describe,
        "Explain the decision of every rule, and why others do not apply; spends nothing", r#"{"attributes": {"user": "ann"}, "cost": 1}"#;
    ReleaseHolder: "DELETE" "/v1/keys/{key..}/reservations/{id}" ADMINISTRATION Change Keys release_holder boxed, keys::describe_release,
        "Release one of the `holders` of a counter, at this counter alone", "";
    ShowKey: "GET" "/v1/keys/{key..}" ADMINISTRATION Read Keys show_key boxed, keys::describe_show,
        "Show a counter and its reservations (`holders`)", "";
    ResetKey: "DELETE" "/v1/keys/{key..}" ADMINISTRATION Change Keys reset_key boxed, keys::describe_reset,
        "Reset a counter, and forget its reservations", "";
    RulesInForce: "GET" "/v1/rules" ADMINISTRATION Read Rules rules_in_force boxed, rules::describe_in_force,
        "Show the rules in force on this server", "";
    CreateRule: "POST" "/v1/rules" ADMINISTRATION Change Rules create_rule boxed, rules::one::describe_create,
        "Store a new rule", r#"{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}"#;
    Promote: "POST" "/v1/rules/{id}/promote" ADMINISTRATION Read Rules promote boxed, rules::whole::describe_promote,
        "Promote a candidate: replace the live rule with it, or with `?dry_run=true` show the changes", "";
    ShowRule: "GET" "/v1/rules/{id}" ADMINISTRATION Read Rules show_rule boxed, rules::one::describe_show,
        "Show a rule", "";
    ChangeRule: "PUT" "/v1/rules/{id}" ADMINISTRATION Change Rules change_rule boxed, rules::one::describe_change,
        "Change a rule", r#"{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}"#;
    SwitchRule: "PATCH" "/v1/rules/{id}" ADMINISTRATION Change Rules switch_rule boxed, rules::one::describe_switch,
        "Enable or disable a rule", r#"{"enabled": false}"#;
    DeleteRule: "DELETE" "/v1/rules/{id}" ADMINISTRATION Change Rules delete_rule boxed, rules::one::describe_delete,
        "Delete a rule, and its overrides", "";
    Candidates: "GET" "/v1/candidates" ADMINISTRATION Read Rules candidates boxed, rules::candidates::describe_candidates,
        "Compare candidates with their live rules, on the requests that this server has seen", "";
    Export: "GET" "/v1/ruleset" ADMINISTRATION Read Rules export boxed, rules::whole::describe_export,
        "Export the stored rules, now or after `?revision=N`, as JSON or YAML", "";
    Apply: "PUT" "/v1/ruleset" ADMINISTRATION Read Rules apply boxed, rules::whole::describe_apply,
        "Replace the stored rules, or with `?dry_run=true` show the changes", r#"{"rules": [{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}]}"#;
    History: "GET" "/v1/ruleset/history" ADMINISTRATION Read Rules history boxed, rules::whole::describe_history,
        "Show who changed what, the latest first (`?about=`, `?before=`, `?limit=`)", "";
    Revert: "POST" "/v1/ruleset/revert" ADMINISTRATION Read Rules revert boxed, rules::whole::describe_revert,
        "Restore the rules of a revision, or with `?dry_run=true` show the changes", r#"{"to": 17}"#;
    Overrides: "GET" "/v1/overrides" ADMINISTRATION Read Rules show_overrides boxed, rules::overrides::describe_overrides,
        "List overrides of single keys (`?rule=`)", "";
    ShowOverride: "GET" "/v1/overrides/{key..}" ADMINISTRATION Read Rules show_override boxed, rules::overrides::describe_show_override,
        "Show the override of a key", "";
    SetOverride: "PUT" "/v1/overrides/{key..}" ADMINISTRATION Change Rules set_override boxed, rules::overrides::describe_set_override,
        "Set the override of a key: another limit, an exemption or a block", r#"{"verdict": "block"}"#;
    RemoveOverride: "DELETE" "/v1/overrides/{key..}" ADMINISTRATION Change Rules remove_override boxed, rules::overrides::describe_remove_override,
        "Remove the override of a key", "";
    Lists: "GET" "/v1/lists" ADMINISTRATION Read Rules show_lists boxed, rules::lists::describe_lists,
        "List values that pass every rule (`allow`), or none (`block`)", "";
    AddToList: "PUT" "/v1/lists/{list}/{attribute}/{value..}" ADMINISTRATION Change Rules add_to_list boxed, rules::lists::describe_edit_list,
        "Add a value to a list", "";
    RemoveFromList: "DELETE" "/v1/lists/{list}/{attribute}/{value..}" ADMINISTRATION Change Rules remove_from_list boxed, rules::lists::describe_edit_list,
        "Remove a value from a list", "";
    Metrics: "GET, HEAD" "/metrics" ADMINISTRATION Open Operation metrics boxed, operation::describe_metrics,
        "Write metrics for Prometheus", "";
    Description: "GET, HEAD" "/openapi.json" ADMINISTRATION Open Operation description boxed, operation::describe_description,
        "Describe all of this for programs (OpenAPI 3.1)", "";
    ListRoutes: "GET, HEAD" "/" ADMINISTRATION Open Operation list_routes boxed, operation::describe_list_routes,
        "List the routes", "";
}

/// The part of the table that a request is about.
#[derive(Debug)]
pub(super) enum Found {
    Route(&'static Row, Parameters),
    /// The path has routes, but none for the method. The first of its rows.
    WrongMethod(RouteListener, &'static Row),
    Unknown(RouteListener),
}

impl Found {
    pub(super) fn new(listener: RouteListener, method: &Method, path: &str) -> Self {
        let mut matching = rows_of(listener).filter_map(|row| Some((row, path::matching(row.path, path)?)));
        let Some((first, parameters)) = matching.next() else { return Self::Unknown(listener) };
        let has_method =
            |row: &&Row| row.methods == "ANY" || row.methods.split(", ").any(|name| name == method.as_str());
        match rows_of(listener).filter(|row| row.path == first.path).find(has_method) {
            Some(row) => Self::Route(row, parameters),
            None => Self::WrongMethod(listener, first),
        }
    }

    fn row(&self) -> Option<&'static Row> {
        match self {
            Self::Route(row, _) | Self::WrongMethod(_, row) => Some(row),
            Self::Unknown(_) => None,
        }
    }

    pub(super) fn label(&self) -> RouteLabel {
        self.row().map_or(RouteLabel::Unknown, |row| row.label)
    }

    /// Whether any web page may call the route. A forward-auth request carries the headers of the proxied request, so
    /// its `Origin` says nothing about the caller.
    pub(super) fn is_open_to_pages(&self) -> bool {
        self.label() == RouteLabel::ForwardAuth
            || self.row().is_some_and(|row| matches!(row.path, "/healthz" | "/readyz"))
    }

    /// Returns the permission that the request needs. One with a wrong method changes nothing, but not everybody may
    /// learn which methods there are.
    pub(super) fn permission(&self) -> Permission {
        match self {
            Self::Route(row, _) => row.permission,
            Self::WrongMethod(_, row) => row.permission.min(Permission::Read),
            Self::Unknown(_) => Permission::Open,
        }
    }

    pub(super) fn into_route(self) -> Result<(Route, Parameters), ApiError> {
        match self {
            Self::Route(row, parameters) => Ok((row.route, parameters)),
            Self::WrongMethod(listener, row) => Err(ApiError::wrong_method(&methods_of(listener, row.path))),
            Self::Unknown(RouteListener::Administration) => Err(ApiError::not_found()),
            Self::Unknown(RouteListener::Check) => {
                let paths: Vec<&str> = rows_of(RouteListener::Check)
                    .map(|row| row.path)
                    .filter(|path| !path.contains('{'))
                    .collect();
                let detail = format!(
                    "the check listener serves {}; administration and /metrics are at admin_listen",
                    paths.join(", ")
                );
                Err(ApiError::new(StatusCode::NOT_FOUND, detail))
            }
        }
    }
}

fn rows_of(listener: RouteListener) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.listeners.contains(&listener))
}

fn methods_of(listener: RouteListener, path: &str) -> String {
    let of_path = rows_of(listener).filter(|row| row.path == path).map(|row| row.methods);
    of_path.collect::<Vec<_>>().join(", ")
}

/// Returns the answer of `GET /`.
fn help() -> String {
    let mut text = "Trypema, a rate limiting server.\n".to_owned();
    for (listener, about) in [
        (
            RouteListener::Check,
            "The check listener (setting `listen`, 127.0.0.1:8080 by default; checks and reservations need a caller \
             token if one is set):",
        ),
        (
            RouteListener::Administration,
            "This listener (setting `admin_listen`, 127.0.0.1:8081 by default; paths under /v1 need a reader token or \
             an admin token, and changes an admin token):",
        ),
    ] {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\n{about}\n\n");
        for Row { methods, path, summary, example, .. } in rows_of(listener) {
            let (path, colon) = (path.replace("..}", "}"), if example.is_empty() { "" } else { ": " });
            let _ = writeln!(text, "{methods:<10}{path:<38}{summary}{colon}{example}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_DOCS=1` rewrites the table.
    #[test]
    fn the_page_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let text = std::fs::read_to_string(page).unwrap();
        let (before, rest) = text.split_once("<!-- routes -->\n").unwrap();
        let (_, after) = rest.split_once("<!-- end of routes -->").unwrap();
        let mut table = "| listener | route | does | token |\n| --- | --- | --- | --- |\n".to_owned();
        for Row { methods, path, listeners, summary, permission, .. } in ROWS {
            let listeners = listeners.iter().map(|listener| match listener {
                RouteListener::Check => "check",
                RouteListener::Administration => "administration",
            });
            let listeners = listeners.collect::<Vec<_>>().join(", ");
            let token = match permission {
                Permission::Open => "none",
                Permission::Decide => "caller, if set",
                Permission::Read => "reader, admin",
                Permission::Change => "admin",
            };
            let path = path.replace("..}", "}");
            table += &format!("| {listeners} | `{methods} {path}` | {summary} | {token} |\n");
        }
        let written = format!("{before}<!-- routes -->\n{table}<!-- end of routes -->{after}");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(page, written).unwrap();
        } else {
            assert_eq!(text, written, "UPDATE_DOCS=1 rewrites it");
        }
    }

    #[test]
    fn a_path_leads_to_its_first_row() {
        let route = |listener, method: &str, path: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            Found::new(listener, &method, path)
                .into_route()
                .map(|(route, _)| route)
                .map_err(|error| error.to_json())
        };
        let admin = |method, path| route(RouteListener::Administration, method, path);
        assert_eq!(route(RouteListener::Check, "POST", "/v1/check"), Ok(Route::Check));
        assert_eq!(
            route(RouteListener::Check, "PURGE", "/v1/forward-auth/nginx"),
            Ok(Route::ForwardAuthProfile)
        );
        assert_eq!(admin("DELETE", "/v1/keys/a/b"), Ok(Route::ResetKey));
        assert_eq!(admin("DELETE", "/v1/keys/a/reservations/0f"), Ok(Route::ReleaseHolder));
        assert_eq!(admin("POST", "/v1/rules/a/promote"), Ok(Route::Promote));
        assert_eq!(admin("PUT", "/v1/lists/block/ip/10.0.0.0/8"), Ok(Route::AddToList));
        for (method, path, expected) in [
            ("TRACE", "/v1/rules/a", "use GET, PUT, PATCH, DELETE"),
            ("POST", "/metrics", "use GET, HEAD"),
            ("PUT", "/v1/keys/a", "use GET, DELETE"),
            ("GET", "/v1/keys/a/reservations/0f", "use DELETE"),
            ("GET", "/v1/check", "unknown path"),
            ("GET", "/v1/keys", "unknown path"),
            ("GET", "/v1/rules/a/b", "unknown path"),
        ] {
            let error = admin(method, path).unwrap_err();
            assert!(error.contains(expected), "{method} {path}: {error}");
        }
        let unknown = route(RouteListener::Check, "GET", "/metrics").unwrap_err();
        assert!(unknown.contains("serves /v1/check, /v1/forward-auth, /v1/reserve"), "{unknown}");
    }
}
