//! Who may look, and who may change something: every route, with every kind of token and with none.

#[path = "access/routes.rs"]
mod routes;

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use self::routes::{For, Route};
use crate::client::Reply;
use crate::harness::{Service, trypema};
use crate::scene::{Scene, per_user};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// A service that asks for tokens: those of `ann` and `ci@example.com` are `edit` and `deploy`, and `look` may only look.
pub fn guarded(scene: &Scene) -> Service {
    Service::of(|directory| {
        let [editors, readers, url] = ["editors", "readers", "url"].map(|name| directory.join(name));
        fs::write(&editors, "ann edit\n\n  ci@example.com \t deploy \n").unwrap();
        fs::write(&readers, "look").unwrap();
        fs::write(&url, scene.database.url() + "\n").unwrap();
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command.arg("--admin-token-file").arg(editors).env("TRYPEMA_READER_TOKEN_FILE", readers);
        command.arg("--database-url-file").arg(url);
        command
    })
}

/// A request with what proves who sends it.
fn with(service: &Service, proof: Option<&str>, (method, path): (&str, &str), body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut headers = vec![("if-match", "*")];
    headers.extend(proof.map(|proof| ("authorization", proof)));
    service.client().send(method, path, &headers, &body)
}

fn ask(service: &Service, proof: Option<&str>, route: &Route) -> Reply {
    with(service, proof, (route.method, route.path), &route.body)
}

/// Everything that somebody might have changed: rules, history and a counter.
fn everything(service: &Service) -> Vec<Value> {
    let paths = ["/v1/ruleset", "/v1/ruleset/history", "/v1/keys/per-user%7Cuser=ann", "/v1/rules"];
    let mut said = paths.map(|path| with(service, Some("Bearer edit"), ("GET", path), &Value::Null).json());
    // Time passes.
    said[2]["reset_after_ms"].take();
    said.into()
}

/// A service with something of everything.
fn prepared(scene: &Scene) -> Service {
    let service = guarded(scene);
    let mut next = per_user("next", 3);
    next["candidate_for"] = json!("per-user");
    let special = json!({"rule": "per-user", "key": {"user": "bob"}, "verdict": "block"});
    let set =
        json!({"rules": [per_user("per-user", 2), next], "overrides": [special], "block": {"user": ["joe"]}});
    assert_eq!(with(&service, Some("Bearer edit"), ("PUT", "/v1/ruleset"), &set).status, 200);
    assert_eq!(service.post("/v1/check", "{\"attributes\": {\"user\": \"ann\"}}").status, 200);
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
    let unproven = [
        None,
        Some(""),
        Some("Bearer "),
        Some("Bearer edi"),
        Some("Bearer ann edit"),
        Some("Bearer edit deploy"),
        Some("Basic edit"),
        Some("edit"),
    ];
    for route in for_some() {
        for proof in unproven {
            let refused = ask(&service, proof, route);
            assert_eq!(refused.status, 401, "{} {} with {proof:?}: {refused:?}", route.method, route.path);
        }
        // Methods that are none tell nobody that they are none.
        for method in METHODS {
            assert_eq!(
                with(&service, None, (method, route.path), &route.body).status,
                401,
                "{method} {}",
                route.path
            );
        }
        let expected = if route.used_by == For::Readers { 200 } else { 403 };
        let answer = ask(&service, Some("Bearer look"), route);
        assert_eq!(answer.status, expected, "{} {}: {answer:?}", route.method, route.path);
    }
    for path in for_some().map(|route| route.path).collect::<BTreeSet<_>>() {
        let known: Vec<&str> =
            for_some().filter(|route| route.path == path).map(|route| route.method).collect();
        for method in METHODS.into_iter().filter(|method| !known.contains(method)) {
            let refused = with(&service, Some("Bearer look"), (method, path), &Value::Null);
            assert!([403, 405, 404].contains(&refused.status), "{method} {path}: {refused:?}");
        }
    }
    assert_eq!(everything(&service), before);
    for route in &routes {
        let proof = (route.used_by != For::Everybody).then_some("Bearer edit");
        let done = ask(&service, proof, route);
        assert!((200..300).contains(&done.status), "{} {}: {done:?}", route.method, route.path);
    }
}

/// Methods and paths that the service describes; those of forward-auth are every method, and for everybody.
fn described(service: &Service) -> BTreeSet<(String, String)> {
    let document = service.get("/openapi.json").json();
    let mut found = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys().filter(|method| *method != "parameters");
        if !path.starts_with("/v1/forward-auth") {
            found.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
        }
    }
    found
}

fn listed(routes: &[Route]) -> BTreeSet<(String, String)> {
    routes.iter().map(|route| (route.method.to_owned(), route.template.to_owned())).collect()
}

/// Who only looks may see what a change would change.
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
        let shown = with(&service, Some("Bearer look"), (method, path), &body);
        assert_eq!(shown.status, 200, "{shown:?}");
        assert_eq!(shown.json()["changes"].as_array().unwrap().len(), 4);
        for path in [path.replace("true", "false"), path.replace("?dry_run=true", "")] {
            assert_eq!(with(&service, Some("Bearer look"), (method, &path), &body).status, 403, "{path}");
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
        [create("Bearer edit", "a"), create("bearer deploy", "b"), create("Bearer look", "c")],
        [201, 201, 403]
    );
    let history = with(&service, Some("Bearer look"), ("GET", "/v1/ruleset/history"), &Value::Null).json();
    let names: Vec<&Value> =
        history["entries"].as_array().unwrap().iter().map(|entry| &entry["changed_by"]).collect();
    assert_eq!(names, ["ci@example.com", "ann"]);
    // Nobody's secret is told.
    let log = service.program.log();
    assert!(log.contains("ci@example.com") && !log.contains("deploy") && !log.contains("edit\n"), "{log}");
}

/// Without tokens, whoever is on this machine may; but not a page of somebody else's in a browser there.
#[test]
fn without_tokens_this_machine_may_change_rules() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let routes = routes::all();
    let body = json!({"rules": [per_user("per-user", 2)]});
    assert_eq!(with(&service, None, ("PUT", "/v1/ruleset"), &body).status, 200);
    let before = service.get("/v1/ruleset").json();
    for route in routes.iter().filter(|route| route.used_by == For::Editors) {
        let body = if route.body.is_null() { String::new() } else { route.body.to_string() };
        let evil = [("if-match", "*"), ("origin", "http://evil.example")];
        let refused = service.client().send(route.method, route.path, &evil, &body);
        assert_eq!(refused.status, 403, "{} {}: {refused:?}", route.method, route.path);
        let mut client = service.client();
        let head =
            format!("{} {} HTTP/1.1\r\nhost: evil.example\r\nif-match: *\r\n", route.method, route.path);
        client.write(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        let refused = client.read().unwrap();
        assert_eq!(refused.status, 403, "{} {}: {refused:?}", route.method, route.path);
    }
    assert_eq!(service.get("/v1/ruleset").json(), before);
    let history = service.get("/v1/ruleset/history").json();
    assert_eq!(history["entries"][0]["changed_by"], json!("loopback"));
    // A token that nobody asks for does no harm.
    assert_eq!(with(&service, Some("Bearer anything"), ("GET", "/v1/ruleset"), &Value::Null).status, 200);
}

#[test]
fn rules_cannot_be_changed_from_elsewhere_without_a_token() {
    let scene = Scene::start();
    let url = scene.database.url();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        for tokens in [&[][..], &["--reader-token", "look"]] {
            let output = trypema()
                .args(["serve", "--listen", listen, "--database-url", &url])
                .args(tokens)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{listen} {tokens:?}: {said}");
            assert!(said.contains("admin_token") && said.contains("others than this machine"), "{said}");
        }
    }
    // With a reader alone nobody changes anything, on this machine neither.
    let service = scene.service(&["--reader-token", "look"]);
    let statuses = [None, Some("Bearer look")]
        .map(|proof| with(&service, proof, ("POST", "/v1/rules"), &per_user("a", 1)).status);
    assert_eq!(statuses, [401, 403]);
}
