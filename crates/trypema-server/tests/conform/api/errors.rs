//! Invalid requests: the status and the detail of the problem.

use super::{TWO_AN_HOUR, problem, user};
use crate::in_process::InProcess;

#[test]
fn what_is_not_there_is_404() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    for path in ["/v1", "/v1/", "/v2/check", "/v1/keys", "/favicon.ico"] {
        let detail = problem(&client.send("GET", path, &[], ""), 404);
        assert!(detail.contains("GET / lists the routes"), "{path}: {detail}");
    }
    for path in ["/v1/checks", "/v1/check/", "/v1/refund", "/healthz/", "/v1/rules"] {
        let detail = problem(&service.check_client().send("GET", path, &[], ""), 404);
        assert!(detail.contains("the check listener serves /v1/check"), "{path}: {detail}");
    }
}

#[test]
fn other_methods_are_405_and_told_which_are_understood() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let routes = [
        ("/v1/check", &["POST"][..]),
        ("/v1/explain", &["POST"]),
        ("/v1/reserve", &["POST"]),
        ("/v1/settle", &["POST"]),
        ("/v1/release", &["POST"]),
        ("/v1/renew", &["POST"]),
        ("/v1/keys/per-user%7Cuser=ann", &["GET", "DELETE"]),
        ("/v1/keys/per-user%7Cuser=ann/reservations/6e8f68a9b8f462567a56f5f50f41098a", &["DELETE"]),
        ("/v1/rules", &["GET", "POST"]),
        ("/", &["GET", "HEAD"]),
        ("/healthz", &["GET", "HEAD"]),
        ("/readyz", &["GET", "HEAD"]),
        ("/metrics", &["GET", "HEAD"]),
        ("/openapi.json", &["GET", "HEAD"]),
    ];
    for (path, allowed) in routes {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
            let reply = client.send(method, path, &[], "");
            if allowed.contains(&method) {
                assert_ne!(reply.status, 405, "{method} {path}");
                continue;
            }
            assert_eq!(
                (reply.status, reply.header("allow")),
                (405, Some(&*allowed.join(", "))),
                "{method} {path}"
            );
            if method != "HEAD" {
                problem(&reply, 405);
            }
        }
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let long_name = format!(r#"{{"attributes": {{"{}": "x"}}}}"#, "n".repeat(65));
    let long_value = format!(r#"{{"attributes": {{"user": "{}"}}}}"#, "v".repeat(8 * 1024 + 1));
    let pairs: Vec<String> = (0..33).map(|number| format!(r#""a{number}": "x""#)).collect();
    let many = format!(r#"{{"attributes": {{{}}}}}"#, pairs.join(","));
    let told = [
        ("", "line 1 column 0"),
        ("{", "line 1 column 1"),
        ("[{", "line 1 column 2"),
        ("{}", "missing field `attributes`, or `sets`"),
        (r#"{"sets": [{}]}"#, "missing field `attributes` at line 1 column 12"),
        ("{\n  \"attributes\": {},\n  \"price\": 1\n}", "unknown field `price`"),
        ("{\n  \"attributes\": {},\n  \"price\": 1\n}", "at line 3"),
        (r#"{"attributes": {"user": 1}}"#, "expected a text at line 1 column"),
        (r#"{"attributes": {"user": "a", "user": "b"}}"#, "\"user\" is given twice"),
        (r#"{"attributes": "user=ann"}"#, "expected an object of texts"),
        (r#"{"attributes": {}, "mode": "burn"}"#, "expected one of `check`, `peek`, `record`"),
        (r#"[{"attributes": {}}, 7]"#, "line 1 column"),
        (r#""user""#, "line 1 column"),
        (&long_name, "1 to 64 bytes"),
        (&long_value, "longer than 8192 bytes"),
        (&many, "more than 32 attributes"),
    ];
    for (body, expected) in told {
        let detail = problem(&client.send("POST", "/v1/check", &[], body), 400);
        assert!(detail.contains(expected), "{body:.60}: {detail}");
    }
    for route in ["/v1/explain", "/v1/reserve", "/v1/settle", "/v1/release", "/v1/renew"] {
        let detail = problem(&client.send("POST", route, &[], "[]"), 400);
        assert!(detail.contains("line 1 column"), "{route}: {detail}");
    }
}

#[test]
fn a_body_has_a_bound_and_ends_the_connection_beyond_it() {
    let service = InProcess::start("max_body_bytes: 100").ruled_by(TWO_AN_HOUR);
    let fits = format!("{:<100}", user("ann").to_string());
    assert_eq!(service.client().send("POST", "/v1/check", &[], &fits).status, 200);
    for route in ["/v1/check", "/v1/explain", "/v1/reserve", "/v1/settle", "/v1/release", "/v1/renew"] {
        let reply = service.client().send("POST", route, &[], &format!("{fits} "));
        assert!(problem(&reply, 413).contains("larger than 100 bytes"), "{route}");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    let mut chunked = service.client();
    let head = "POST /v1/check HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
    chunked.write(format!("{head}65\r\n{fits} \r\n0\r\n\r\n").as_bytes()).unwrap();
    problem(&chunked.read().unwrap(), 413);
}

#[test]
fn bodies_are_read_whatever_they_are_called_and_however_they_come() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let body = user("ann").to_string();
    for content_type in ["text/plain", "application/json; charset=utf-8", "application/x-www-form-urlencoded"]
    {
        let reply = client.send("POST", "/v1/check", &[("content-type", content_type)], &body);
        assert_eq!(reply.status, 200, "{content_type}");
    }
    let head = "POST /v1/check HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
    let (first, second) = body.split_at(7);
    let chunks = format!("{head}{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    client.write(chunks.as_bytes()).unwrap();
    assert_eq!(client.read().unwrap().json()["rules"][0]["key"], "per-user|user=ann");
}

#[test]
fn the_small_routes_answer() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let health = client.send("GET", "/healthz", &[], "");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    let ready = client.send("GET", "/readyz", &[], "").json();
    assert_eq!(
        ready,
        serde_json::json!({"ready": true, "provider": "memory", "rules": 1, "rules_from": "file", "rules_refused": false})
    );
    let help = client.send("GET", "/", &[], "").body;
    for route in [
        "/v1/check",
        "/v1/forward-auth",
        "/v1/reserve",
        "/v1/settle",
        "/v1/release",
        "/v1/renew",
        "/v1/explain",
        "/v1/keys/",
        "/v1/rules",
        "/openapi.json",
    ] {
        assert!(help.contains(route), "{route} is not in {help}");
    }
    let head = client.send("HEAD", "/healthz", &[], "");
    assert_eq!((head.status, head.header("content-length")), (200, Some("3")));
}
