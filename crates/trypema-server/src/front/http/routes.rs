//! The table of routes. Dispatch, `GET /`, the texts of 404 and 405, the labels of metrics and spans, the OpenAPI
//! document and the table in docs/server.md derive from it.

/// Makes the rows of a module: methods, path, listeners, permission, label and handler, then summary and example, then
/// the rest of the description.
macro_rules! routes {
    ($($methods:literal $path:literal $listeners:ident $permission:ident $label:literal $handler:ident $($boxed:ident)?,
        $summary:literal, $example:literal, $about:expr;)*) => {
        pub(in crate::front::http::routes) const ROUTES: &[$crate::front::http::routes::Route] =
            &[$($crate::front::http::routes::Route {
                handler: handler!($handler $($boxed)?),
                methods: $methods,
                path: $path,
                listeners: $crate::front::http::routes::$listeners,
                permission: $crate::refusal::Permission::$permission,
                label: $label,
                summary: $summary,
                example: $example,
                about: $about,
            }),*];
    };
}

macro_rules! handler {
    ($handler:ident) => {
        $crate::front::http::routes::Handler::$handler
    };
    ($handler:ident boxed) => {
        $crate::front::http::routes::Handler::Boxed(|api, exchange| Box::pin(api.$handler(exchange)))
    };
}

mod check;
mod explain;
mod forward_auth;
mod keys;
mod operation;
mod path;
mod reservations;
pub(super) mod rules;

use std::fmt::Write;

use futures_util::future::BoxFuture;
use http::header::{ALLOW, HeaderValue};
use http::{Method, StatusCode};

pub(super) use self::check::parts_at_a_time;
pub(super) use self::operation::SharedText;
pub(super) use self::path::Parameters;
pub(super) use self::rules::RulesetPermits;
use super::openapi::About;
use super::problem::ApiError;
use super::{Api, Exchange, RouteListener, RouteResult};
use crate::refusal::Permission;

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

/// The rows of all modules. Of several paths that match, the first counts.
const TABLES: [&[Route]; 11] = [
    check::ROUTES,
    forward_auth::ROUTES,
    reservations::ROUTES,
    explain::ROUTES,
    keys::ROUTES,
    rules::ROUTES,
    rules::one::ROUTES,
    rules::whole::ROUTES,
    rules::overrides::ROUTES,
    rules::lists::ROUTES,
    operation::ROUTES,
];

/// The code that answers. All handlers but those of decisions box their futures, because hyper moves the whole future
/// of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Handler {
    Check,
    ForwardAuth,
    Boxed(for<'e> fn(&'e Api, Exchange<'e>) -> BoxFuture<'e, RouteResult>),
}

impl Api {
    pub(super) async fn handle(&self, handler: Handler, exchange: Exchange<'_>) -> RouteResult {
        match handler {
            Handler::Check => self.check(exchange).await,
            Handler::ForwardAuth => self.forward_auth(exchange).await,
            Handler::Boxed(handler) => handler(self, exchange).await,
        }
    }
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

pub(super) fn all() -> impl Iterator<Item = &'static Route> {
    TABLES.into_iter().flatten()
}

fn routes_of(listener: RouteListener) -> impl Iterator<Item = &'static Route> {
    all().filter(move |row| row.listeners.contains(&listener))
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
    use crate::metrics::http::ROUTE_LABELS;

    /// `UPDATE_DOCS=1` rewrites the table.
    #[test]
    fn the_page_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let text = std::fs::read_to_string(page).unwrap();
        let (before, rest) = text.split_once("<!-- routes -->\n").unwrap();
        let (_, after) = rest.split_once("<!-- end of routes -->").unwrap();
        let mut table = "| listener | route | does | token |\n| --- | --- | --- | --- |\n".to_owned();
        for route @ Route { methods, listeners, summary, permission, .. } in all() {
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
        assert!(all().all(|route| ROUTE_LABELS.contains(&route.label)));
    }

    #[test]
    fn a_path_leads_to_its_first_row() {
        let route = |listener, method: &str, path: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            match MatchedRoute::new(listener, &method, path) {
                MatchedRoute::Route(row, _) => Ok(row.path),
                other => Err(other.into_handler().unwrap_err().to_json()),
            }
        };
        let admin = |method, path| route(RouteListener::Administration, method, path);
        for (method, path, expected) in [
            ("DELETE", "/v1/keys/a/b", "/v1/keys/{key..}"),
            ("DELETE", "/v1/keys/a/reservations/0f", "/v1/keys/{key..}/reservations/{id}"),
            ("POST", "/v1/rules/a/promote", "/v1/rules/{id}/promote"),
            ("PUT", "/v1/lists/block/ip/10.0.0.0/8", "/v1/lists/{list}/{attribute}/{value..}"),
        ] {
            assert_eq!(admin(method, path).as_deref(), Ok(expected));
        }
        assert_eq!(route(RouteListener::Check, "POST", "/v1/check").as_deref(), Ok("/v1/check"));
        let forwarded = route(RouteListener::Check, "PURGE", "/v1/forward-auth/nginx");
        assert_eq!(forwarded.as_deref(), Ok("/v1/forward-auth/{profile..}"));
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
