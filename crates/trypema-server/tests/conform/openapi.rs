//! Compares `/openapi.json` with the server: every route, every response that a test can provoke, and every
//! example.

#[path = "openapi/answers.rs"]
mod answers;
#[path = "openapi/schema.rs"]
mod schema;
#[path = "openapi/stored.rs"]
mod stored;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use self::schema::Document;
use crate::in_process::InProcess;

/// The keys of a path in the document that are methods.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

fn document() -> Document {
    let reply = InProcess::start("").client().send("GET", "/openapi.json", &[], "");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    Document(reply.json())
}

/// Returns every operation: path, method, and description.
fn operations(document: &Document) -> Vec<(String, String, Value)> {
    let paths = document.0["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, methods)| {
        methods.as_object().unwrap().iter().map(move |(method, about)| (path, method, about))
    });
    let all = all.filter(|(_, method, _)| METHODS.contains(&method.as_str()));
    all.map(|(path, method, about)| (path.clone(), method.clone(), about.clone())).collect()
}

/// Calls `visit` with `value` and every value below it.
fn walk(value: &Value, visit: &mut impl FnMut(&Value)) {
    visit(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        Value::Object(members) => members.values().for_each(|member| walk(member, visit)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_used() {
    let document = document();
    let mut used = BTreeSet::new();
    walk(&document.0, &mut |value| {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            assert!(document.resolve(reference).is_some(), "{reference} leads nowhere");
            used.insert(reference.to_owned());
        }
    });
    for name in document.0["components"]["schemas"].as_object().unwrap().keys() {
        assert!(used.contains(&format!("#/components/schemas/{name}")), "{name} is not used");
    }
}

#[test]
fn every_security_scheme_is_described_and_used() {
    let document = document();
    let named = operations(&document).into_iter().flat_map(|(_, _, about)| {
        let requirements = about["security"].as_array().cloned().unwrap_or_default();
        requirements.into_iter().flat_map(|one| one.as_object().unwrap().keys().cloned().collect::<Vec<_>>())
    });
    let named: BTreeSet<String> = named.collect();
    let schemes = document.0["components"]["securitySchemes"].as_object().unwrap();
    assert_eq!(named, schemes.keys().cloned().collect());
    let security = |path: &str| document.0["paths"][path]["post"]["security"].clone();
    assert_eq!(security("/v1/check"), json!([{"caller": []}, {}]));
    assert_eq!(security("/v1/settle"), json!([{"caller": []}, {}]));
    assert_eq!(security("/v1/explain"), json!([{"admin": []}]));
    assert_eq!(document.0["paths"]["/v1/forward-auth"]["post"].get("security"), None);
}

/// Returns the paths of the table in docs/server.md. The start page (`/`) must list each of them.
fn documented_paths() -> BTreeSet<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
    let text = std::fs::read_to_string(page).unwrap();
    let table = text.split_once("<!-- routes -->").unwrap().1.split_once("<!-- end of routes -->").unwrap().0;
    let path = |row: &str| row.split('`').nth(1)?.rsplit_once(' ').map(|(_, path)| path.to_owned());
    table.lines().filter_map(path).collect()
}

#[test]
fn every_route_is_described_and_the_reverse() {
    let (document, documented) = (document(), documented_paths());
    let described: BTreeSet<String> = document.0["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(described, documented);
    assert!(documented.len() >= 26);
    let service = InProcess::start("");
    let mut client = service.client();
    let body = client.send("GET", "/", &[], "").body;
    for route in documented.iter().filter(|route| *route != "/") {
        let path = route.trim_end_matches("{profile}");
        assert!(body.contains(path), "{route} is not told to people");
    }
    for (path, method, _) in operations(&document) {
        let reply = client.send(
            &method.to_uppercase(),
            &path
                .replace("{key}", "per-user%7Cuser=ann")
                .replace("{list}", "block")
                .replace("{id}", "6e8f68a9b8f462567a56f5f50f41098a")
                .replace("{profile}", "nginx"),
            &[],
            "",
        );
        // The rules of this server are in a file. Some operations exist only for rules in a database.
        let is_there = ![404, 405].contains(&reply.status)
            || reply.body.contains("in a file")
            || reply.body.contains("no rule");
        assert!(is_there, "{method} {path} is described and not there: {reply:?}");
    }
}

#[test]
fn examples_are_what_they_are_examples_of_and_are_answered() {
    let document = document();
    let service = InProcess::start("");
    let mut client = service.client();
    let mut seen = 0;
    for (path, method, about) in operations(&document) {
        let Some(body) = about.pointer("/requestBody/content/application~1json") else { continue };
        let example = &body["example"];
        assert_eq!(document.faults(&body["schema"], example, &path), Vec::<String>::new());
        let target = path.replace("{id}", "per-user");
        let reply = client.send(&method.to_uppercase(), &target, &[("if-match", "*")], &example.to_string());
        let is_for_files = !path.contains("/rule") && !path.contains("/overrides");
        assert_eq!(reply.status, if is_for_files { 200 } else { 404 }, "{path}: {reply:?}");
        seen += 1;
    }
    assert_eq!(seen, 12, "check, explain, four for reservations, and six that change rules");
}

/// The server and the schema of requests refuse the same bodies.
#[test]
fn requests_are_valid_by_the_schema_if_they_are_taken() {
    let document = document();
    let schema =
        document.0.pointer("/paths/~1v1~1check/post/requestBody/content/application~1json/schema").unwrap();
    let service = InProcess::start("");
    let mut client = service.client();
    let requests = [
        json!({"attributes": {}}),
        json!({"attributes": {"user": "ann"}, "cost": 0, "mode": "peek"}),
        json!({"attributes": {"user": "ann"}, "cost": u64::MAX, "mode": "record"}),
        json!([]),
        json!([{"attributes": {}}, {"attributes": {"a": "b"}}]),
        json!({}),
        json!("x"),
        json!(null),
        json!({"attributes": {"user": 1}}),
        json!({"attributes": {"user": null}}),
        json!({"attributes": []}),
        json!({"attributes": {}, "cost": -1}),
        json!({"attributes": {}, "cost": 1.5}),
        json!({"attributes": {}, "cost": "1"}),
        json!({"attributes": {}, "cost": null}),
        json!({"attributes": {}, "costs": {"requests": 2}}),
        json!({"attributes": {}, "costs": {"requests": -2}}),
        json!({"attributes": {}, "costs": null}),
        json!({"attributes": {}, "cost": 1, "costs": {}}),
        json!({"attributes": null, "sets": [{"attributes": {}}]}),
        json!({"sets": [{"attributes": {}}, {"attributes": {"a": "b"}, "cost": 2}]}),
        json!({"sets": [{"attributes": {}, "cost": 1, "costs": {}}]}),
        json!({"sets": [{"attributes": {}}], "cost": 1}),
        json!({"sets": [{"attributes": {}}], "attributes": {}}),
        json!({"sets": []}),
        json!({"sets": vec![json!({"attributes": {}}); 33]}),
        json!({"attributes": {}, "mode": "burn"}),
        json!({"attributes": {}, "colour": "red"}),
        json!([{"attributes": {}}, 7]),
        json!([[]]),
        json!({"attributes": {"user": "v".repeat(8 * 1024 + 1)}}),
        json!({"attributes": (0..33).map(|n| (format!("a{n}"), json!("x"))).collect::<serde_json::Map<_, _>>()}),
    ];
    for request in requests {
        let faults = document.faults(schema, &request, "request");
        let status = client.send("POST", "/v1/check", &[], &request.to_string()).status;
        assert_eq!(
            faults.is_empty(),
            status == 200,
            "{request:.100} is {status}, and by the schema {faults:?}"
        );
    }
}

/// The validator itself finds wrong responses.
#[test]
fn wrong_answers_are_found() {
    let document = document();
    let schema = json!({"$ref": "#/components/schemas/CheckResponse"});
    let service = InProcess::start("");
    let right = service.client().send("POST", "/v1/check", &[], r#"{"attributes": {"user": "ann"}}"#).json();
    assert_eq!(document.faults(&schema, &right, "answer"), Vec::<String>::new());
    let spoilers: [fn(&mut Value); 6] = [
        |answer| answer["allowed"] = json!("yes"),
        |answer| answer["outcome"] = json!("maybe"),
        |answer| answer["retry_after_ms"] = json!(-1),
        |answer| answer["rules"][0]["limit"] = json!(1.5),
        |answer| answer["rules"][0]["action"] = json!("burn"),
        |answer| drop(answer.as_object_mut().unwrap().remove("rules")),
    ];
    for spoil in spoilers {
        let mut wrong = right.clone();
        spoil(&mut wrong);
        assert_eq!(document.faults(&schema, &wrong, "answer").len(), 1, "{wrong}");
    }
}
