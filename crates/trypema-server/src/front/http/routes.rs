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
use http::header::{ALLOW, HeaderValue};
use http::{Method, StatusCode};
use serde_json::json;
use trypema::rules::{Override, Rule, Rules};

pub(super) use self::check::parts_at_a_time;
pub(super) use self::operation::SharedText;
pub(super) use self::path::Parameters;
pub(super) use self::rules::RulesetPermits;
use self::rules::candidates::CandidatesResponse;
use self::rules::lists::ListsResponse;
use self::rules::one::EnabledChange;
use self::rules::overrides::{OverrideChange, OverridesResponse};
use self::rules::whole::RevertRequest;
use self::rules::{EditResponse, ItemResponse, RulesResponse};
use super::openapi::About;
use super::problem::ApiError;
use super::{Api, Exchange, RouteListener, RouteResult};
use crate::refusal::Permission;
use crate::service::json::{ReleaseRequest, RenewRequest, RequestDescription, ReserveRequest, SettleRequest};
use crate::service::report::{
    ExplainResponse, KeyResponse, ReleaseHolderResponse, RenewResponse, ReserveResponse, ResetResponse,
    SettleResponse,
};

/// One row of the table: a method of a path, or several methods with the same handler.
#[derive(Debug)]
pub(super) struct Route {
    handler: Handler,
    /// The methods, or `ANY`.
    pub(super) methods: &'static str,
    /// The path. `{name}` is one segment, and `{name..}` one or more.
    pub(super) path: &'static str,
    pub(super) listeners: &'static [RouteListener],
    pub(super) permission: Permission,
    /// The label `route` of metrics, and the name of spans.
    label: &'static str,
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
    ($($route:ident: $methods:literal $path:literal $listeners:ident $permission:ident $label:literal
        $handler:ident $($boxed:ident)?, $summary:literal, $example:literal, $about:expr;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Handler { $($route),* }

        /// The rows. Of several paths that match, the first counts.
        pub(super) const ROUTES: &[Route] = &[$(Route {
            handler: Handler::$route,
            methods: $methods,
            path: $path,
            listeners: $listeners,
            permission: Permission::$permission,
            label: $label,
            summary: $summary,
            example: $example,
            about: $about,
        }),*];

        impl Api {
            pub(super) async fn handle(&self, handler: Handler, exchange: Exchange<'_>) -> RouteResult {
                match handler {
                    $(Handler::$route => self.$handler(exchange)$(.$boxed())?.await,)*
                }
            }
        }
    };
}

#[rustfmt::skip]
routes! {
    Check: "POST" "/v1/check" CHECK Decide "check" check,
        "Check a request, or an array of requests", r#"{"attributes": {"user": "ann"}, "cost": 1}"#, check::describe;
    ForwardAuth: "ANY" "/v1/forward-auth" CHECK Open "forward_auth" forward_auth,
        "Check a proxied request: nginx auth_request, Caddy forward_auth, Traefik forwardAuth", "",
        forward_auth::describe;
    ForwardAuthProfile: "ANY" "/v1/forward-auth/{profile..}" CHECK Open "forward_auth" forward_auth,
        "Check a proxied request by a profile of the configuration file", "", forward_auth::describe;
    Reserve: "POST" "/v1/reserve" CHECK Decide "reserve" reserve boxed,
        "Reserve the estimated cost of a request", r#"{"attributes": {"user": "ann"}, "costs": {"requests": 1}, "ttl": "120s"}"#,
        |about| about.reads::<ReserveRequest>().answers::<ReserveResponse<'_>>("The decision, and the reservation if the request is allowed.").fails(&["4XX", "5XX"])
            .takes_report_options().says("Takes the cost from every rule that applies, all or nothing, and holds slots of concurrency rules. Needs a caller token if the server has one. A denial is that of a check. 409: another request has used the id.");
    Settle: "POST" "/v1/settle" CHECK Decide "settle" settle boxed,
        "Settle a reservation at the real cost", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg", "costs": {"requests": 1}}"#,
        |about| about.reads::<SettleRequest>().answers::<SettleResponse<'_>>("The result at every counter.").fails(&["500", "503"])
            .says("Refunds the units that were not spent where they were taken, and counts those that were spent beyond the estimate. Settling again changes nothing. A caller that chose an id may name the reservation by it. Needs a caller token if the server has one.");
    Release: "POST" "/v1/release" CHECK Decide "release" release boxed,
        "Release a reservation: give everything back", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg"}"#,
        |about| about.reads::<ReleaseRequest>().answers::<SettleResponse<'_>>("The result at every counter.").fails(&["500", "503"])
            .says("Gives back everything, as if the request had never been made. Needs a caller token if the server has one.");
    Renew: "POST" "/v1/renew" CHECK Decide "renew" renew boxed,
        "Let a reservation last longer", r#"{"reservation": "r1.kGxpbWl0aW5nLWlzLWZ1bg", "ttl": "120s"}"#,
        |about| about.reads::<RenewRequest>().answers::<RenewResponse>("Whether the reservation is still outstanding.").fails(&["500", "503"])
            .says("Needs a caller token if the server has one.");
    Health: "GET, HEAD" "/healthz" BOTH Open "operation" health boxed,
        "Tell whether the process runs", "", |about| about.responds("200", "The process runs.");
    Readiness: "GET, HEAD" "/readyz" CHECK Open "operation" readiness boxed,
        "Tell whether the server accepts requests", "", operation::describe_readiness;
    ReadinessInDetail: "GET, HEAD" "/readyz" ADMINISTRATION Open "operation" readiness_in_detail boxed,
        "Tell whether the server accepts requests, and with a token why rules were rejected", "",
        operation::describe_readiness;
    Explain: "POST" "/v1/explain" ADMINISTRATION Read "explain" explain boxed,
        "Explain the decision of every rule, and why others do not apply; spends nothing", r#"{"attributes": {"user": "ann"}, "cost": 1}"#,
        |about| about.reads::<RequestDescription>().answers::<ExplainResponse<'_>>("The decision of every rule.").fails(&["500", "503"]).says("Spends nothing.");
    ReleaseHolder: "DELETE" "/v1/keys/{key..}/reservations/{id}" ADMINISTRATION Change "keys" release_holder boxed,
        "Release one of the `holders` of a counter, at this counter alone", "",
        |about| about.answers::<ReleaseHolderResponse<'_>>("Whether the counter held the reservation.").fails(&["404", "500", "503"])
            .says("Gives back the units of the reservation at this counter. It stays as it is at its other counters.");
    ShowKey: "GET" "/v1/keys/{key..}" ADMINISTRATION Read "keys" show_key boxed,
        "Show a counter and its reservations (`holders`)", "",
        |about| about.answers::<KeyResponse<'_>>("The counter.").fails(&["404", "500", "503"]);
    ResetKey: "DELETE" "/v1/keys/{key..}" ADMINISTRATION Change "keys" reset_key boxed,
        "Reset a counter, and forget its reservations", "",
        |about| about.answers::<ResetResponse<'_>>("The counter was reset.").fails(&["404", "500", "503"]);
    RulesInForce: "GET" "/v1/rules" ADMINISTRATION Read "rules" rules_in_force boxed,
        "Show the rules in force on this server", "", |about| about.answers::<RulesResponse<'_>>("The rules.");
    CreateRule: "POST" "/v1/rules" ADMINISTRATION Change "rules" create_rule boxed,
        "Store a new rule", r#"{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}"#,
        |about| about.reads::<Rule>().edits("201");
    Promote: "POST" "/v1/rules/{id}/promote" ADMINISTRATION Read "rules" promote boxed,
        "Promote a candidate: replace the live rule with it, or with `?dry_run=true` show the changes", "",
        |about| about.may_be_dry().edits("200");
    ShowRule: "GET" "/v1/rules/{id}" ADMINISTRATION Read "rules" show_rule boxed,
        "Show a rule", "", |about| about.answers::<ItemResponse<'_, Rule>>("The rule.").fails(&["404", "422", "503"]);
    ChangeRule: "PUT" "/v1/rules/{id}" ADMINISTRATION Change "rules" change_rule boxed,
        "Change a rule", r#"{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}"#,
        |about| about.changes_a_revision().reads::<Rule>().edits("200");
    SwitchRule: "PATCH" "/v1/rules/{id}" ADMINISTRATION Change "rules" switch_rule boxed,
        "Enable or disable a rule", r#"{"enabled": false}"#,
        |about| about.changes_a_revision().reads::<EnabledChange>().edits("200");
    DeleteRule: "DELETE" "/v1/rules/{id}" ADMINISTRATION Change "rules" delete_rule boxed,
        "Delete a rule, and its overrides", "", |about| about.changes_a_revision().edits("200");
    Candidates: "GET" "/v1/candidates" ADMINISTRATION Read "rules" candidates boxed,
        "Compare candidates with their live rules, on the requests that this server has seen", "",
        |about| about.answers::<CandidatesResponse>("The comparisons.");
    Export: "GET" "/v1/ruleset" ADMINISTRATION Read "rules" export boxed,
        "Export the stored rules, now or after `?revision=N`, as JSON or YAML", "", rules::whole::describe_export;
    Apply: "PUT" "/v1/ruleset" ADMINISTRATION Read "rules" apply boxed,
        "Replace the stored rules, or with `?dry_run=true` show the changes", r#"{"rules": [{"id": "per-user", "scope": "user", "strategy": {"fixed_window": {"limit": 100, "window": "1m"}}}]}"#,
        |about| about.may_be_dry().reads::<Rules>().edits("200");
    History: "GET" "/v1/ruleset/history" ADMINISTRATION Read "rules" history boxed,
        "Show who changed what, the latest first (`?about=`, `?before=`, `?limit=`)", "",
        rules::whole::describe_history;
    Revert: "POST" "/v1/ruleset/revert" ADMINISTRATION Read "rules" revert boxed,
        "Restore the rules of a revision, or with `?dry_run=true` show the changes", r#"{"to": 17}"#,
        |about| about.may_be_dry().reads::<RevertRequest>().edits("200");
    Overrides: "GET" "/v1/overrides" ADMINISTRATION Read "rules" show_overrides boxed,
        "List overrides of single keys (`?rule=`)", "",
        |about| about.takes("rule", "Only overrides of this rule.", json!({"type": "string"}))
            .answers::<OverridesResponse<'_>>("The overrides.").fails(&["404", "503"]);
    ShowOverride: "GET" "/v1/overrides/{key..}" ADMINISTRATION Read "rules" show_override boxed,
        "Show the override of a key", "",
        |about| about.answers::<ItemResponse<'_, Override>>("The override.").fails(&["404", "503"]);
    SetOverride: "PUT" "/v1/overrides/{key..}" ADMINISTRATION Change "rules" set_override boxed,
        "Set the override of a key: another limit, an exemption or a block", r#"{"verdict": "block"}"#,
        |about| about.reads::<OverrideChange>().edits("200");
    RemoveOverride: "DELETE" "/v1/overrides/{key..}" ADMINISTRATION Change "rules" remove_override boxed,
        "Remove the override of a key", "", |about| about.edits("200");
    Lists: "GET" "/v1/lists" ADMINISTRATION Read "rules" show_lists boxed,
        "List values that pass every rule (`allow`), or none (`block`)", "",
        |about| about.answers::<ListsResponse<'_>>("The lists.").fails(&["404", "503"]);
    AddToList: "PUT" "/v1/lists/{list}/{attribute}/{value..}" ADMINISTRATION Change "rules" add_to_list boxed,
        "Add a value to a list", "",
        |about| about.answers::<EditResponse>("The changes.").fails(&["404", "422", "503"]);
    RemoveFromList: "DELETE" "/v1/lists/{list}/{attribute}/{value..}" ADMINISTRATION Change "rules" remove_from_list boxed,
        "Remove a value from a list", "",
        |about| about.answers::<EditResponse>("The changes.").fails(&["404", "422", "503"]);
    Metrics: "GET, HEAD" "/metrics" ADMINISTRATION Open "operation" metrics boxed,
        "Write metrics for Prometheus", "", |about| about.responds("200", "The metrics.");
    Description: "GET, HEAD" "/openapi.json" ADMINISTRATION Open "operation" description boxed,
        "Describe all of this for programs (OpenAPI 3.1)", "", |about| about.responds("200", "The document.");
    ListRoutes: "GET, HEAD" "/" ADMINISTRATION Open "operation" list_routes boxed,
        "List the routes", "", |about| about.responds("200", "The routes.");
}

impl Route {
    /// Returns the path as people write it.
    pub(super) fn shown_path(&self) -> String {
        self.path.replace("..}", "}")
    }
}

/// The part of the table that a request is about.
#[derive(Debug)]
pub(super) enum MatchedRoute {
    Route(&'static Route, Parameters),
    /// The path has routes, but none for the method. The first of its rows.
    WrongMethod(RouteListener, &'static Route),
    Unknown(RouteListener),
}

impl MatchedRoute {
    pub(super) fn new(listener: RouteListener, method: &Method, path: &str) -> Self {
        let mut matching = routes_of(listener).filter_map(|row| Some((row, path::matching(row.path, path)?)));
        let Some((first, parameters)) = matching.next() else { return Self::Unknown(listener) };
        let has_method = |row: &&Route| {
            row.methods == "ANY" || row.methods.split(", ").any(|name| name == method.as_str())
        };
        match routes_of(listener).filter(|row| row.path == first.path).find(has_method) {
            Some(row) => Self::Route(row, parameters),
            None => Self::WrongMethod(listener, first),
        }
    }

    fn row(&self) -> Option<&'static Route> {
        match self {
            Self::Route(row, _) | Self::WrongMethod(_, row) => Some(row),
            Self::Unknown(_) => None,
        }
    }

    pub(super) fn label(&self) -> &'static str {
        self.row().map_or("unknown", |row| row.label)
    }

    /// Whether any web page may call the route. A forward-auth request carries the headers of the proxied request, so
    /// its `Origin` says nothing about the caller.
    pub(super) fn is_open_to_pages(&self) -> bool {
        self.label() == "forward_auth"
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

    pub(super) fn into_handler(self) -> Result<(Handler, Parameters), ApiError> {
        match self {
            Self::Route(row, parameters) => Ok((row.handler, parameters)),
            Self::WrongMethod(listener, row) => {
                let of_path = routes_of(listener).filter(|other| other.path == row.path);
                let methods = of_path.map(|row| row.methods).collect::<Vec<_>>().join(", ");
                let detail = format!("method not allowed; use {methods}");
                let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, detail);
                Err(match HeaderValue::try_from(methods) {
                    Ok(methods) => error.with_header(ALLOW, methods),
                    Err(_) => error,
                })
            }
            Self::Unknown(RouteListener::Administration) => Err(ApiError::unknown_path()),
            Self::Unknown(RouteListener::Check) => {
                let paths: Vec<&str> = routes_of(RouteListener::Check)
                    .map(|row| row.path)
                    .filter(|path| !path.contains('{'))
                    .collect();
                let detail = format!(
                    "the check listener serves {}; administration and /metrics are at admin_listen",
                    paths.join(", ")
                );
                Err(ApiError::not_found(detail))
            }
        }
    }
}

fn routes_of(listener: RouteListener) -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(move |row| row.listeners.contains(&listener))
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
        for route @ Route { methods, summary, example, .. } in routes_of(listener) {
            let (path, colon) = (route.shown_path(), if example.is_empty() { "" } else { ": " });
            let _ = writeln!(text, "{methods:<10}{path:<38}{summary}{colon}{example}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ROUTE_LABELS;

    /// `UPDATE_DOCS=1` rewrites the table.
    #[test]
    fn the_page_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let text = std::fs::read_to_string(page).unwrap();
        let (before, rest) = text.split_once("<!-- routes -->\n").unwrap();
        let (_, after) = rest.split_once("<!-- end of routes -->").unwrap();
        let mut table = "| listener | route | does | token |\n| --- | --- | --- | --- |\n".to_owned();
        for route @ Route { methods, listeners, summary, permission, .. } in ROUTES {
            let listeners = listeners.iter().map(|listener| match listener {
                RouteListener::Check => "check",
                RouteListener::Administration => "administration",
            });
            let listeners = listeners.collect::<Vec<_>>().join(", ");
            let token = match permission {
                Permission::Open => "none",
                Permission::Decide => "caller, if set",
                Permission::Read if summary.contains("dry_run") => "admin, of a dry run also reader",
                Permission::Read => "reader, admin",
                Permission::Change => "admin",
            };
            let path = route.shown_path();
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
    fn every_label_is_counted() {
        assert!(ROUTES.iter().all(|route| ROUTE_LABELS.contains(&route.label)));
    }

    #[test]
    fn a_path_leads_to_its_first_row() {
        let route = |listener, method: &str, path: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            MatchedRoute::new(listener, &method, path)
                .into_handler()
                .map(|(route, _)| route)
                .map_err(|error| error.to_json())
        };
        let admin = |method, path| route(RouteListener::Administration, method, path);
        assert_eq!(route(RouteListener::Check, "POST", "/v1/check"), Ok(Handler::Check));
        assert_eq!(
            route(RouteListener::Check, "PURGE", "/v1/forward-auth/nginx"),
            Ok(Handler::ForwardAuthProfile)
        );
        assert_eq!(admin("DELETE", "/v1/keys/a/b"), Ok(Handler::ResetKey));
        assert_eq!(admin("DELETE", "/v1/keys/a/reservations/0f"), Ok(Handler::ReleaseHolder));
        assert_eq!(admin("POST", "/v1/rules/a/promote"), Ok(Handler::Promote));
        assert_eq!(admin("PUT", "/v1/lists/block/ip/10.0.0.0/8"), Ok(Handler::AddToList));
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
