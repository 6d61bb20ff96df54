//! Provokes every response in the document and compares it with its description.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trypema_testkit::program::FreePort;
use trypema_testkit::redis::{Server, wait_until};

use super::schema::Document;
use super::{document, operations};
use crate::client::Reply;
use crate::harness::Service;
use crate::in_process::InProcess;

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: paced, scope: user, action: throttle, max_delay: 1s, on_store_failure: error, strategy: {token_bucket: {limits: [{limit: 5, window: 1s}, {limit: 9, window: 1m, burst: 12}]}}}
  - {id: shadow, scope: global, action: log_only, plan_tiers: [free], strategy: {suppressed: {limit: 5, window: 10s, hard_limit_factor: 1.5}}}
  - {id: guard, scope: user, key_pattern: '{login}', endpoints: [POST /login], strategy: {abuse: {temp: {window: 60s, threshold: 3, block: 10m}, long: {window: 24h, threshold: 20, block: 24h}}}}
  - {id: address, scope: ip, enabled: false, priority: -5, name: Addresses, strategy: {sliding_window: {limit: 5, window: 10s}}}
  - {id: exact, scope: endpoint, strategy: {absolute: {limit: 5, window: 10s, group: 20ms}}}
block:
  user: [mallory]
";

const PROFILES: &str = "
forward_auth:
  profiles:
    ann: {attributes: {user: {value: ann}}}
    mallory: {attributes: {user: {value: mallory}}, deny_status: 401}
";

/// Compares responses with their descriptions, and records which descriptions were seen.
pub(super) struct Comparison {
    document: Document,
    seen: BTreeSet<(String, String, String)>,
}

impl Comparison {
    /// Asserts that the document describes a reply.
    pub(super) fn compare(&mut self, method: &str, path: &str, reply: &Reply) {
        let status = reply.status.to_string();
        let operation = &self.document.0["paths"][path][method];
        let described =
            |name: &str| operation["responses"].get(name).map(|response| (name.to_owned(), response));
        let ranged = format!("{}XX", &status[..1]);
        let (name, response) = described(&status)
            .or_else(|| described(&ranged))
            .or_else(|| described("default"))
            .unwrap_or_else(|| panic!("{method} {path} is described without {status}: {reply:?}"));
        if let Some(content) = response.get("content").and_then(Value::as_object) {
            let media_type = reply.header("content-type").unwrap();
            let described = content.get(media_type);
            let described = described.unwrap_or_else(|| panic!("{method} {path} {status} is {media_type}"));
            if let Some(schema) = described.get("schema").filter(|_| media_type.ends_with("json")) {
                let faults =
                    self.document.faults(schema, &reply.json(), &format!("{method} {path} {status}"));
                assert!(faults.is_empty(), "{}\n{}", faults.join("\n"), reply.body);
            }
        }
        self.seen.insert((path.to_owned(), method.to_owned(), name));
    }

    /// Sends a request and compares its response. `path` is the path template of the document.
    fn provoke(&mut self, service: &InProcess, asking: Asking<'_>) {
        let Asking { method, path, query, profile, headers, body } = asking;
        let path_asked = path
            .replace("{key}", "per-user%7Cuser=ann")
            .replace("{id}", "6e8f68a9b8f462567a56f5f50f41098a")
            .replace("{profile}", profile);
        let target = format!("{path_asked}{query}");
        let reply = service.client().send(&method.to_uppercase(), &target, headers, body);
        self.compare(method, path, &reply);
    }
}

#[derive(Clone, Copy)]
struct Asking<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    profile: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a str,
}

fn asking<'a>(method: &'a str, path: &'a str, body: &'a str) -> Asking<'a> {
    Asking { method, path, query: "", profile: "", headers: &[], body }
}

const ANN: &str = r#"{"attributes": {"user": "ann", "plan": "free", "endpoint": "/login", "method": "POST", "login": "ann"}}"#;
const FORWARDED: &[(&str, &str)] = &[("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.1")];

/// Requests that are sent to every server, regardless of the outcome.
const ALL: [(&str, &str, &str); 15] = [
    ("post", "/v1/check", ANN),
    ("post", "/v1/explain", ANN),
    ("post", "/v1/reserve", ANN),
    (
        "post",
        "/v1/settle",
        r#"{"reservation": "r1.bo9oqbj0YlZ6VvX1D0EJig4AcGFjZWR8dXNlcj1hbm4", "costs": {}}"#,
    ),
    ("post", "/v1/release", r#"{"reservation": "r1.bo9oqbj0YlZ6VvX1D0EJig4AcGFjZWR8dXNlcj1hbm4"}"#),
    ("post", "/v1/renew", r#"{"reservation": "r1.bo9oqbj0YlZ6VvX1D0EJig4AcGFjZWR8dXNlcj1hbm4"}"#),
    ("delete", "/v1/keys/{key}/reservations/{id}", ""),
    ("get", "/v1/keys/{key}", ""),
    ("delete", "/v1/keys/{key}", ""),
    ("get", "/v1/rules", ""),
    ("get", "/healthz", ""),
    ("get", "/readyz", ""),
    ("get", "/metrics", ""),
    ("get", "/openapi.json", ""),
    ("get", "/", ""),
];

#[test]
fn every_answer_is_as_described() {
    let mut comparison = Comparison { document: document(), seen: BTreeSet::new() };
    decisions(&mut comparison);
    mistakes(&mut comparison);
    services_that_refuse(&mut comparison);
    pages_and_guesses(&mut comparison);
    a_store_that_refuses(&mut comparison);
    draining(&mut comparison);
    super::stored::compare(&mut comparison);
    let described = operations(&comparison.document).into_iter().flat_map(|(path, method, about)| {
        let statuses: Vec<String> = about["responses"].as_object().unwrap().keys().cloned().collect();
        statuses.into_iter().map(move |status| (path.clone(), method.clone(), status))
    });
    let missing: Vec<_> = described
        .filter(|(path, method, _)| !path.starts_with("/v1/forward-auth") || method == "get")
        .filter(|described| !comparison.seen.contains(described))
        .collect();
    assert!(missing.is_empty(), "described, and never seen: {missing:?}");
}

/// Provokes decisions of every kind.
fn decisions(comparison: &mut Comparison) {
    let service = InProcess::start(PROFILES).ruled_by(RULES);
    for _ in 0..8 {
        for (method, path, body) in ALL {
            comparison.provoke(&service, asking(method, path, body));
        }
        let record = ANN.replace("}}", r#"}, "mode": "record"}"#);
        comparison.provoke(&service, asking("post", "/v1/check", &record));
    }
    let questions = json!([
        {"attributes": {"user": "mallory"}},
        {"attributes": {"user": "bob"}, "cost": u64::MAX},
        {"attributes": {"user": "bob"}, "cost": 5},
    ]);
    comparison.provoke(&service, asking("post", "/v1/check", &questions.to_string()));
    for question in questions.as_array().unwrap() {
        let body = question.to_string();
        comparison.provoke(&service, asking("post", "/v1/check", &body));
        comparison.provoke(&service, asking("post", "/v1/explain", &body));
        for query in
            ["?deny_status=429", "?deny_status=403&headers=standard", "?deny_status=499", "?deny_status=599"]
        {
            comparison.provoke(&service, Asking { query, ..asking("post", "/v1/check", &body) });
        }
    }
    comparison.provoke(&service, Asking { headers: FORWARDED, ..asking("get", "/v1/forward-auth", "") });
    let auth = Asking { headers: FORWARDED, ..asking("get", "/v1/forward-auth/{profile}", "") };
    for profile in ["nginx", "mallory", "nobody", "deny_status=401"] {
        comparison.provoke(&service, Asking { profile, ..auth });
        comparison.provoke(&service, Asking { path: "/v1/forward-auth", ..auth });
    }
}

fn mistakes(comparison: &mut Comparison) {
    let service = InProcess::start("max_body_bytes: 200").ruled_by(RULES);
    let large = format!("{ANN:300}");
    for path in ["/v1/check", "/v1/explain", "/v1/reserve", "/v1/settle", "/v1/release", "/v1/renew"] {
        comparison.provoke(&service, asking("post", path, "{"));
        comparison.provoke(&service, asking("post", path, &large));
    }
    comparison.provoke(&service, asking("get", "/v1/forward-auth", ""));
    for method in ["get", "delete"] {
        for target in ["/v1/keys/%zz", "/v1/keys/nobody"] {
            let reply = service.client().send(&method.to_uppercase(), target, &[], "");
            comparison.compare(method, "/v1/keys/{key}", &reply);
        }
    }
    let id = "6e8f68a9b8f462567a56f5f50f41098a";
    for target in [format!("nobody/reservations/{id}"), "per-user%7Cuser=ann/reservations/1".to_owned()] {
        let reply = service.client().send("DELETE", &format!("/v1/keys/{target}"), &[], "");
        comparison.compare("delete", "/v1/keys/{key}/reservations/{id}", &reply);
    }
}

/// Servers with a token, on a public address, for untrusted proxies, and without Redis.
fn services_that_refuse(comparison: &mut Comparison) {
    let nobody = FreePort::any().unwrap();
    let settings = [
        ("127.0.0.1:0", "admin_token: secret-of-the-service".to_owned()),
        ("127.0.0.1:0", "admin_token: secret-of-the-service\ncaller_token: secret-of-the-callers".to_owned()),
        ("0.0.0.0:0", "trusted_proxies: [10.0.0.0/8]".to_owned()),
        ("127.0.0.1:0", format!("redis_url: redis://127.0.0.1:{}", nobody.number())),
    ];
    for (address, settings) in settings {
        let service = InProcess::listening(address, &format!("{settings}\n{PROFILES}")).ruled_by(RULES);
        for (method, path, body) in ALL {
            comparison.provoke(&service, asking(method, path, body));
        }
        let batch = format!("[{ANN}, {{\"attributes\": {{}}}}]");
        comparison.provoke(&service, asking("post", "/v1/check", &batch));
        let auth = Asking { headers: FORWARDED, ..asking("get", "/v1/forward-auth/{profile}", "") };
        comparison.provoke(&service, Asking { profile: "ann", ..auth });
        comparison.provoke(&service, Asking { path: "/v1/forward-auth", ..auth });
    }
}

/// Provokes responses to web pages, and to an address that has sent too many wrong tokens.
fn pages_and_guesses(comparison: &mut Comparison) {
    let service = InProcess::start("").ruled_by(RULES);
    for (method, path, body) in ALL {
        let headers = &[("origin", "https://evil.example")];
        comparison.provoke(&service, Asking { headers, ..asking(method, path, body) });
    }
    let settings = "admin_token: secret-of-the-service\ncaller_token: secret-of-the-callers";
    for service in [service, InProcess::start(settings).ruled_by(RULES)] {
        for _ in 0..12 {
            for (method, path, body) in ALL {
                let headers = &[("authorization", "Bearer guess")];
                comparison.provoke(&service, Asking { headers, ..asking(method, path, body) });
            }
        }
    }
}

/// Redis forbids the commands that the server needs: a mistake in its configuration.
fn a_store_that_refuses(comparison: &mut Comparison) {
    let redis = Server::start().unwrap();
    let service = InProcess::start(&format!("redis_url: {}\nredis_deadline: 20s\n{PROFILES}", redis.url()))
        .ruled_by(RULES);
    redis.control().unwrap().command(&["ACL", "SETUSER", "default", "-@all"]).unwrap();
    for (method, path, body) in ALL {
        comparison.provoke(&service, asking(method, path, body));
    }
    let auth = Asking { headers: FORWARDED, ..asking("get", "/v1/forward-auth/{profile}", "") };
    comparison.provoke(&service, Asking { profile: "ann", ..auth });
    comparison.provoke(&service, Asking { path: "/v1/forward-auth", ..auth });
}

fn draining(comparison: &mut Comparison) {
    let mut service = Service::with_rules(RULES, &["--shutdown-delay", "60s"]);
    service.program.signal("TERM").unwrap();
    wait_until("the service to be unready", || service.get("/readyz").status == 503).unwrap();
    comparison.compare("get", "/readyz", &service.get("/readyz"));
    service.program.signal("TERM").unwrap();
    service.program.end().unwrap();
}
