//! Who may look at counters and rules, explain, and reset.

use super::{TWO_AN_HOUR, problem, user};
use crate::client::{Client, Reply};
use crate::in_process::InProcess;

/// The routes that are not for everybody.
const ADMIN: [(&str, &str, &str); 5] = [
    ("POST", "/v1/refund", r#"{"attributes": {"user": "ann"}}"#),
    ("POST", "/v1/explain", r#"{"attributes": {"user": "ann"}}"#),
    ("GET", "/v1/keys/per-user%7Cuser=ann", ""),
    ("DELETE", "/v1/keys/per-user%7Cuser=ann", ""),
    ("GET", "/v1/rules", ""),
];

fn each(client: &mut Client, headers: &[(&str, &str)]) -> Vec<Reply> {
    ADMIN.iter().map(|(method, path, body)| client.send(method, path, headers, body)).collect()
}

fn assert_open_routes_answer(client: &mut Client) {
    assert_eq!(client.send("POST", "/v1/check", &[], &user("ann").to_string()).status, 200);
    let headers = [("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.1")];
    let forwarded = client.send("GET", "/v1/forward-auth", &headers, "");
    assert_eq!(forwarded.status, 200);
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/"] {
        assert_eq!(client.send("GET", path, &[], "").status, 200, "{path}");
    }
}

#[test]
fn with_a_token_only_who_has_it() {
    let service = InProcess::start("admin_token: correct-horse").ruled_by(TWO_AN_HOUR);
    let mut client = service.client();
    assert_open_routes_answer(&mut client);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let authorization = format!("{scheme} correct-horse");
        for reply in each(&mut client, &[("authorization", &authorization)]) {
            assert_eq!(reply.status, 200, "{scheme}: {reply:?}");
        }
    }
    let wrong = [
        "Bearer wrong",
        "Bearer correct-hors",
        "Bearer correct-horses",
        "Bearer Correct-horse",
        "Bearer ",
        "Bearer",
        "Basic correct-horse",
        "correct-horse",
    ];
    for authorization in wrong {
        for reply in each(&mut client, &[("authorization", authorization)]) {
            assert_eq!(problem(&reply, 401), "this needs a token", "{authorization}");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            assert!(!reply.body.contains("horse"), "{reply:?}");
        }
    }
    each(&mut client, &[]).iter().for_each(|reply| drop(problem(reply, 401)));
}

#[test]
fn without_a_token_only_this_machine() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    each(&mut service.client(), &[]).iter().for_each(|reply| assert_eq!(reply.status, 200, "{reply:?}"));
    for address in ["0.0.0.0:0", "\"[::]:0\""] {
        let service = InProcess::listening(address, "").ruled_by(TWO_AN_HOUR);
        let mut client = service.client();
        assert_open_routes_answer(&mut client);
        for headers in [&[][..], &[("authorization", "Bearer anything")]] {
            for reply in each(&mut client, headers) {
                assert!(problem(&reply, 403).contains("set admin_token"), "{address}: {reply:?}");
            }
        }
    }
    let guarded = InProcess::listening("0.0.0.0:0", "admin_token: correct-horse").ruled_by(TWO_AN_HOUR);
    let mut client = guarded.client();
    for reply in each(&mut client, &[("authorization", "Bearer correct-horse")]) {
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}

/// A page of somebody else's can make a browser on this machine ask: it then has an `Origin`, or a name that was made to point here.
#[test]
fn no_browser_is_an_administrator() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    for (method, path, body) in ADMIN {
        let from_a_page = [("origin", "http://localhost")];
        let reply = service.client().send(method, path, &from_a_page, body);
        assert!(problem(&reply, 403).contains("pages of other sites"), "{path}: {reply:?}");
        let mut client = service.client();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: evil.example\r\n");
        client.write(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        problem(&client.read().unwrap(), 403);
    }
    let token = InProcess::start("admin_token: secret").ruled_by(TWO_AN_HOUR);
    let headers = [("authorization", "Bearer secret"), ("origin", "http://localhost")];
    for reply in each(&mut token.client(), &headers) {
        assert_eq!(reply.status, 200, "who has the token may come from anywhere: {reply:?}");
    }
}
