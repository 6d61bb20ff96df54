//! Responses for stored rules: with a working database, with a bad row, and with an unreachable database.

use serde_json::json;
use trypema_testkit::postgres::Server;

use super::answers::Comparison;
use crate::harness::trypema;
use crate::in_process::{InProcess, TOKEN};

/// An operation, with its path template and the request to send.
struct Operation {
    method: &'static str,
    path: &'static str,
    target: &'static str,
    body: String,
}

const KEY: &str = "/v1/overrides/{key}";
const VALUE: &str = "/v1/lists/{list}/{attribute}/{value}";
const NOTHING: &str = "";

/// Returns every operation, in an order in which each finds the rules that it needs.
fn operations() -> Vec<Operation> {
    let rule = |id: &str| json!({"id": id, "scope": "user", "strategy": {"fixed_window": {"limit": 5, "window": "1h"}}});
    let mut candidate = rule("next");
    candidate["candidate_for"] = json!("per-user");
    let document = json!({
        "rules": [rule("per-user"), candidate],
        "overrides": [
            {"rule": "per-user", "key": {"user": "ann"}, "verdict": "block"},
            {"rule": "per-user", "key": {"user": "bob"}, "verdict": "allow"},
        ],
        "allow": {"user": ["root"]},
        "block": {"ip": ["203.0.113.9"]},
    });
    let all = [
        ("post", "/v1/rules", "/v1/rules", rule("per-user").to_string()),
        ("get", "/v1/rules", "/v1/rules", NOTHING.to_owned()),
        ("put", "/v1/ruleset", "/v1/ruleset", document.to_string()),
        ("put", "/v1/ruleset", "/v1/ruleset?dry_run=true", document.to_string()),
        ("get", "/v1/ruleset", "/v1/ruleset", NOTHING.to_owned()),
        ("get", "/v1/rules/{id}", "/v1/rules/per-user", NOTHING.to_owned()),
        ("put", "/v1/rules/{id}", "/v1/rules/per-user", rule("per-user").to_string()),
        ("patch", "/v1/rules/{id}", "/v1/rules/per-user", json!({"enabled": true}).to_string()),
        ("put", KEY, "/v1/overrides/per-user%7Cuser=ann", json!({"verdict": "block"}).to_string()),
        ("get", KEY, "/v1/overrides/per-user%7Cuser=ann", NOTHING.to_owned()),
        ("get", "/v1/overrides", "/v1/overrides?rule=per-user", NOTHING.to_owned()),
        ("put", VALUE, "/v1/lists/block/ip/203.0.113.9", NOTHING.to_owned()),
        ("get", "/v1/lists", "/v1/lists", NOTHING.to_owned()),
        ("get", "/v1/candidates", "/v1/candidates", NOTHING.to_owned()),
        ("get", "/v1/ruleset/history", "/v1/ruleset/history?limit=5", NOTHING.to_owned()),
        ("post", "/v1/rules/{id}/promote", "/v1/rules/next/promote", NOTHING.to_owned()),
        ("delete", KEY, "/v1/overrides/per-user%7Cuser=ann", NOTHING.to_owned()),
        ("delete", VALUE, "/v1/lists/block/ip/203.0.113.9", NOTHING.to_owned()),
        ("delete", "/v1/rules/{id}", "/v1/rules/per-user", NOTHING.to_owned()),
        ("post", "/v1/ruleset/revert", "/v1/ruleset/revert", json!({"to": 1}).to_string()),
    ];
    all.map(|(method, path, target, body)| Operation { method, path, target, body }).into()
}

impl Comparison {
    fn stored(&mut self, service: &InProcess, operation: &Operation, headers: &[(&str, &str)]) -> u16 {
        let Operation { method, path, target, body } = operation;
        let reply = service.client().send(&method.to_uppercase(), target, headers, body);
        self.compare(method, path, &reply);
        reply.status
    }

    /// Stores the rules that every operation needs.
    fn restored(&mut self, service: &InProcess) {
        assert_eq!(self.stored(service, &operations()[2], &ANY), 200);
    }

    /// Announces a body beyond the limit, and sends none of it.
    fn announced(&mut self, service: &InProcess, operation: &Operation) {
        let Operation { method, path, target, .. } = operation;
        let head = format!(
            "{} {target} HTTP/1.1\r\nhost: localhost\r\nif-match: *\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 20000000\r\n\r\n",
            method.to_uppercase()
        );
        let mut client = service.admin_client();
        client.write(head.as_bytes()).unwrap();
        self.compare(method, path, &client.read().unwrap());
    }

    /// Sends the same operation to other targets.
    fn elsewhere(
        &mut self,
        service: &InProcess,
        (method, path): (&'static str, &'static str),
        targets: &[&'static str],
    ) {
        for target in targets {
            let body = if method == "put" { r#"{"verdict": "block"}"# } else { "" };
            self.stored(
                service,
                &Operation { method, path, target, body: body.to_owned() },
                &[("if-match", "*")],
            );
        }
    }
}

/// Provokes responses to web pages, and to an address that has sent too many wrong tokens.
fn pages_and_guesses(comparison: &mut Comparison, settings: &str) {
    let service = InProcess::start(settings);
    for operation in operations() {
        comparison.stored(&service, &operation, &[("origin", "https://evil.example")]);
    }
    let guess = ("authorization", "Bearer guess");
    for _ in 0..10 {
        service.admin_client().send("GET", "/v1/rules", &[guess], "");
    }
    for operation in operations() {
        assert_eq!(comparison.stored(&service, &operation, &[guess]), 429);
    }
}

const ANY: [(&str, &str); 1] = [("if-match", "*")];

/// Provokes every response of the operations on stored rules.
pub(super) fn compare(comparison: &mut Comparison) {
    let database = Server::start().unwrap();
    let mut migrate = trypema();
    let migrated = migrate.args(["rules", "migrate", "--database-url", &database.url()]).status();
    assert!(migrated.unwrap().success());
    let settings = format!("database_url: {}\nmax_body_bytes: 2000", database.url());
    let service = InProcess::start(&settings);
    for operation in operations() {
        let status = comparison.stored(&service, &operation, &ANY);
        assert!((200..300).contains(&status), "{} {}: {status}", operation.method, operation.target);
    }
    let yaml = service.client().send("GET", "/v1/ruleset", &[("accept", "application/yaml")], "");
    comparison.compare("get", "/v1/ruleset", &yaml);
    mistakes(comparison, &service);
    let guarded = InProcess::start(&format!(
        "{settings}\nadmin_token: token-of-an-editor\nreader_token: token-of-a-reader"
    ));
    for operation in operations() {
        comparison.stored(&guarded, &operation, &[]);
        comparison.stored(
            &guarded,
            &operation,
            &[("authorization", "Bearer token-of-a-reader"), ("if-match", "*")],
        );
    }
    pages_and_guesses(comparison, &settings);
    a_bad_row(comparison, &service, &database);
    database.kill_9().unwrap();
    for operation in operations() {
        comparison.stored(&service, &operation, &ANY);
    }
    in_a_file(comparison);
}

/// While a row is unreadable, no other change is accepted, and no revert to that revision either.
fn a_bad_row(comparison: &mut Comparison, service: &InProcess, database: &Server) {
    comparison.restored(service);
    let by_hand = |statement: &str| database.sql(statement).unwrap();
    by_hand(
        "ALTER TABLE rate_limit_rules DROP CONSTRAINT scope_is_known, DROP CONSTRAINT key_pattern_fits_the_scope",
    );
    by_hand("ALTER TABLE rate_limit_rules DROP CONSTRAINT limit_count_is_allowed");
    by_hand("UPDATE rate_limit_rules SET limit_count = 0 WHERE id = 'per-user'");
    let invalid = by_hand("SELECT revision FROM rate_limit_state");
    by_hand("UPDATE rate_limit_rules SET limit_count = 5 WHERE id = 'per-user'");
    let (method, path) = ("post", "/v1/ruleset/revert");
    let body = format!("{{\"to\": {invalid}}}");
    assert_eq!(comparison.stored(service, &Operation { method, path, target: path, body }, &ANY), 422);
    by_hand(
        "INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds)
         VALUES ('bad', 'nobody', 'fixed_window', 1, 1)",
    );
    let bad =
        Operation { method: "get", path: "/v1/rules/{id}", target: "/v1/rules/bad", body: String::new() };
    assert_eq!(comparison.stored(service, &bad, &ANY), 422);
    let of_one_thing =
        |operation: &Operation| operation.method == "get" || !operation.path.starts_with("/v1/ruleset");
    for operation in operations().into_iter().filter(of_one_thing) {
        comparison.stored(service, &operation, &ANY);
    }
}

/// Provokes responses to client errors.
fn mistakes(comparison: &mut Comparison, service: &InProcess) {
    for operation in operations() {
        if operation.method == "get" {
            continue;
        }
        comparison.restored(service);
        for headers in [&[("if-match", "\"999\"")][..], &[("if-match", "x")], &[]] {
            comparison.stored(service, &operation, headers);
        }
        comparison.restored(service);
        let limit = json!({"fixed_window": {"limit": 0, "window": "1h"}});
        let invalid = json!({"id": "per-user", "scope": "user", "strategy": limit});
        if !operation.body.is_empty() {
            comparison.announced(service, &operation);
        }
        for body in
            ["{", &invalid.to_string(), &json!({"rules": [invalid]}).to_string(), r#"{"to": 999}"#, "{}"]
        {
            let body = if operation.body.is_empty() { NOTHING } else { body };
            comparison.stored(service, &Operation { body: body.to_owned(), ..operation }, &ANY);
        }
    }
    let limit = json!({"fixed_window": {"limit": 0, "window": "1h"}});
    let body = json!({"id": "other", "scope": "user", "strategy": limit}).to_string();
    comparison.stored(
        service,
        &Operation { method: "post", path: "/v1/rules", target: "/v1/rules", body },
        &ANY,
    );
    let nobody = &["/v1/rules/nobody"];
    for method in ["get", "patch", "delete"] {
        let body = if method == "patch" { r#"{"enabled": true}"# } else { "" };
        let operation =
            Operation { method, path: "/v1/rules/{id}", target: nobody[0], body: body.to_owned() };
        comparison.stored(service, &operation, &ANY);
    }
    for method in ["get", "put", "delete"] {
        comparison.elsewhere(service, (method, KEY), &["/v1/overrides/%zz", "/v1/overrides/nobody%7Cuser=x"]);
    }
    for method in ["put", "delete"] {
        let places = [
            "/v1/lists/block/ip/%zz",
            "/v1/lists/grey/ip/1.2.3.4",
            "/v1/lists/block/ip/x",
            "/v1/lists/block/i%20p/x",
        ];
        comparison.elsewhere(service, (method, VALUE), &places);
    }
    comparison.elsewhere(
        service,
        ("get", "/v1/ruleset"),
        &["/v1/ruleset?revision=x", "/v1/ruleset?revision=999"],
    );
    comparison.elsewhere(service, ("get", "/v1/ruleset/history"), &["/v1/ruleset/history?x=1"]);
    comparison.elsewhere(service, ("get", "/v1/overrides"), &["/v1/overrides?x=1"]);
}

/// Rules in a file cannot be changed through the API. On a public address, a client without a token cannot
/// read them either.
fn in_a_file(comparison: &mut Comparison) {
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let service = InProcess::listening(address, "");
        for operation in operations() {
            comparison.stored(&service, &operation, &ANY);
        }
    }
}
