//! Permissions: every route, with every kind of token and without one.

#[path = "access/routes.rs"]
mod routes;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};

use self::routes::{For, Route};
use crate::client::{Client, Reply};
use crate::harness::{Service, trypema};
use crate::scene::{Scene, per_user};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Starts a server with tokens. The editors are `ann` (`secret-token-to-edit`) and `ci@example.com`
/// (`secret-token-to-deploy`), and the reader's token is `secret-token-to-look`.
pub fn guarded(scene: &Scene) -> Service {
    with_tokens(scene, &[])
}

/// Starts a server with the tokens of [`guarded`] and these variables.
fn with_tokens(scene: &Scene, variables: &[(&str, &str)]) -> Service {
    Service::of(|directory| {
        let [editors, readers, url] = ["editors", "readers", "url"].map(|name| directory.join(name));
        fs::write(&editors, "ann secret-token-to-edit\n\n  ci@example.com \t secret-token-to-deploy \n")
            .unwrap();
        fs::write(&readers, "secret-token-to-look").unwrap();
        fs::write(&url, scene.database.url() + "\n").unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command.arg("--admin-token-file").arg(editors).env("TRYPEMA_READER_TOKEN_FILE", readers);
        command.arg("--database-url-file").arg(url).envs(variables.iter().copied());
        command
    })
}

/// Returns the `Authorization` header of a client that may use a route.
fn proof_for(route: &Route) -> Option<&'static str> {
    match route.used_by {
        For::Everybody => None,
        For::Callers => Some("Bearer secret-token-to-call"),
        For::Readers | For::Editors => Some("Bearer secret-token-to-edit"),
    }
}

/// Sends a request with an optional `Authorization` header.
fn with(service: &Service, proof: Option<&str>, (method, path): (&str, &str), body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut headers = vec![("if-match", "*")];
    headers.extend(proof.map(|proof| ("authorization", proof)));
    service.client().send(method, path, &headers, &body)
}

fn ask(service: &Service, proof: Option<&str>, route: &Route) -> Reply {
    with(service, proof, (route.method, route.path), &route.body)
}

/// Returns everything that a request might have changed: rules, history and a counter.
fn everything(service: &Service) -> Vec<Value> {
    let paths = ["/v1/ruleset", "/v1/ruleset/history", "/v1/keys/per-user%7Cuser=ann", "/v1/rules"];
    let mut said = paths
        .map(|path| with(service, Some("Bearer secret-token-to-edit"), ("GET", path), &Value::Null).json());
    // The reset time decreases while the test runs.
    said[2]["reset_after_ms"].take();
    said.into()
}

/// Starts a server with rules, a candidate and other entries, so that every route works. Its caller token is
/// `secret-token-to-call`.
fn prepared(scene: &Scene) -> Service {
    let service = with_tokens(scene, &[("TRYPEMA_CALLER_TOKEN", "secret-token-to-call")]);
    let mut next = per_user("next", 3);
    next["candidate_for"] = json!("per-user");
    let special = json!({"rule": "per-user", "key": {"user": "bob"}, "verdict": "block"});
    let set =
        json!({"rules": [per_user("per-user", 2), next], "overrides": [special], "block": {"user": ["joe"]}});
    assert_eq!(with(&service, Some("Bearer secret-token-to-edit"), ("PUT", "/v1/ruleset"), &set).status, 200);
    let ann = json!({"attributes": {"user": "ann"}});
    let spent = with(&service, Some("Bearer secret-token-to-call"), ("POST", "/v1/check"), &ann);
    assert_eq!(spent.status, 200);
    service
}

#[test]
fn every_route_is_for_those_who_may_use_it() {
    let scene = Scene::start();
    let service = prepared(&scene);
    let routes = routes::all();
    assert_eq!(described(&service), listed(&routes), "each route needs a line in routes.rs");
    let before = everything(&service);
    let for_some = || routes.iter().filter(|route| route.used_by != For::Everybody);
    let unproven =
        [None, Some(""), Some("Bearer "), Some("Basic secret-token-to-edit"), Some("secret-token-to-edit")];
    // Fewer failures than block this address. `conform/api/admin.rs` tests more.
    let wrong = [
        "Bearer secret-token-to-edi",
        "Bearer ann secret-token-to-edit",
        "Bearer secret-token-to-edit secret-token-to-deploy",
    ];
    for (route, proof) in for_some().take(3).flat_map(|route| wrong.map(|proof| (route, proof))) {
        assert_eq!(
            ask(&service, Some(proof), route).status,
            401,
            "{} {} with {proof}",
            route.method,
            route.path
        );
    }
    for route in for_some() {
        for proof in unproven {
            let refused = ask(&service, proof, route);
            assert_eq!(refused.status, 401, "{} {} with {proof:?}: {refused:?}", route.method, route.path);
        }
        // Without a token, an unsupported method is answered like a supported one.
        for method in METHODS {
            assert_eq!(
                with(&service, None, (method, route.path), &route.body).status,
                401,
                "{method} {}",
                route.path
            );
        }
        let expected = if route.used_by == For::Readers { 200 } else { 403 };
        let answer = ask(&service, Some("Bearer secret-token-to-look"), route);
        assert_eq!(answer.status, expected, "{} {}: {answer:?}", route.method, route.path);
        // A caller token does not open administration, and an admin token does not open checks and reservations.
        let foreign = if route.used_by == For::Callers { "to-edit" } else { "to-call" };
        let refused = ask(&service, Some(&format!("Bearer secret-token-{foreign}")), route);
        assert_eq!(refused.status, 403, "{} {}: {refused:?}", route.method, route.path);
    }
    for path in for_some().map(|route| route.path).collect::<BTreeSet<_>>() {
        let known: Vec<&str> =
            for_some().filter(|route| route.path == path).map(|route| route.method).collect();
        for method in METHODS.into_iter().filter(|method| !known.contains(method)) {
            let refused = with(&service, Some("Bearer secret-token-to-look"), (method, path), &Value::Null);
            assert!([403, 405, 404].contains(&refused.status), "{method} {path}: {refused:?}");
        }
    }
    assert_eq!(everything(&service), before);
    for route in &routes {
        let done = ask(&service, proof_for(route), route);
        assert!((200..300).contains(&done.status), "{} {}: {done:?}", route.method, route.path);
    }
}

/// Returns the methods and paths that the server describes. Forward-auth is left out: it accepts every method
/// from every client.
fn described(service: &Service) -> BTreeSet<(String, String)> {
    let document = service.get("/openapi.json").json();
    let mut found = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        let methods = methods.filter(|method| !["parameters", "servers"].contains(&method.as_str()));
        if !path.starts_with("/v1/forward-auth") {
            found.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
        }
    }
    found
}

fn listed(routes: &[Route]) -> BTreeSet<(String, String)> {
    routes.iter().map(|route| (route.method.to_owned(), route.template.to_owned())).collect()
}

/// A reader may see the effect of a change.
#[test]
fn readers_may_try_out_changes() {
    let scene = Scene::start();
    let service = prepared(&scene);
    let before = everything(&service);
    for (method, path, body) in [
        ("PUT", "/v1/ruleset?dry_run=true", json!({"rules": []})),
        ("POST", "/v1/ruleset/revert?dry_run=true", json!({"to": 0})),
    ] {
        assert_eq!(with(&service, None, (method, path), &body).status, 401, "{path}");
        let shown = with(&service, Some("Bearer secret-token-to-look"), (method, path), &body);
        assert_eq!(shown.status, 200, "{shown:?}");
        assert_eq!(shown.json()["changes"].as_array().unwrap().len(), 4);
        for path in [path.replace("true", "false"), path.replace("?dry_run=true", "")] {
            assert_eq!(
                with(&service, Some("Bearer secret-token-to-look"), (method, &path), &body).status,
                403,
                "{path}"
            );
        }
    }
    assert_eq!(everything(&service), before);
}

#[test]
fn tokens_come_from_files_and_have_names() {
    let scene = Scene::start();
    let service = guarded(&scene);
    let create =
        |proof: &str, id: &str| with(&service, Some(proof), ("POST", "/v1/rules"), &per_user(id, 1)).status;
    assert_eq!(
        [
            create("Bearer secret-token-to-edit", "a"),
            create("bearer secret-token-to-deploy", "b"),
            create("Bearer secret-token-to-look", "c")
        ],
        [201, 201, 403]
    );
    let history =
        with(&service, Some("Bearer secret-token-to-look"), ("GET", "/v1/ruleset/history"), &Value::Null)
            .json();
    let names: Vec<&Value> =
        history["entries"].as_array().unwrap().iter().map(|entry| &entry["changed_by"]).collect();
    assert_eq!(names, ["ci@example.com", "ann"]);
    // The log contains no token.
    let log = service.program.log();
    assert!(log.contains("ci@example.com") && !log.contains("token-to"), "{log}");
}

/// Without a configured token the server generates one, also on a public address.
#[test]
fn rules_are_never_changed_without_a_token() {
    let scene = Scene::start();
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let service = scene.service(&["--admin-listen", listen]);
        let address = SocketAddr::from(([127, 0, 0, 1], service.admin_address().port()));
        let body = per_user("a", 1).to_string();
        let create = |headers: &[(&str, &str)]| {
            Client::connect(address).send("POST", "/v1/rules", headers, &body).status
        };
        assert_eq!((create(&[]), create(&[("authorization", "Bearer wrong")])), (401, 401));
        let token = format!("Bearer {}", service.admin.as_ref().unwrap().token.clone().unwrap());
        let proof = ("authorization", token.as_str());
        let evil = [proof, ("origin", "http://evil.example")];
        assert_eq!((create(&evil), create(&[proof])), (403, if listen.starts_with('1') { 201 } else { 409 }));
        let history = service.get("/v1/ruleset/history").json();
        assert_eq!(history["entries"][0]["changed_by"], json!("admin"));
    }
    // With a reader's token only, no client can change rules.
    let service = scene.service(&["--reader-token", "secret-token-to-look"]);
    let statuses = [None, Some("Bearer secret-token-to-look")]
        .map(|proof| with(&service, proof, ("POST", "/v1/rules"), &per_user("a", 1)).status);
    assert_eq!(statuses, [401, 403]);
}
