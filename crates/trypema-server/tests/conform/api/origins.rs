//! Web pages: a page may call the server only if its origin is allowed.

use super::{TWO_AN_HOUR, problem, user};
use crate::client::{Client, Reply};
use crate::in_process::{InProcess, TOKEN};

const ANN: &str = r#"{"attributes": {"user": "ann"}}"#;
const CHECK: [(&str, &str, &str); 5] = [
    ("POST", "/v1/check", ANN),
    ("POST", "/v1/check?deny_status=429", ANN),
    ("GET", "/v1/check", ""),
    ("POST", "/v1/reserve", ANN),
    ("GET", "/nowhere", ""),
];
const ADMIN: [(&str, &str, &str); 24] = [
    ("POST", "/v1/explain", ANN),
    ("GET", "/v1/keys/per-user%7Cuser=ann", ""),
    ("DELETE", "/v1/keys/per-user%7Cuser=ann", ""),
    ("GET", "/v1/rules", ""),
    ("POST", "/v1/rules", "{}"),
    ("GET", "/v1/rules/per-user", ""),
    ("PUT", "/v1/rules/per-user", "{}"),
    ("PATCH", "/v1/rules/per-user", "{}"),
    ("DELETE", "/v1/rules/per-user", ""),
    ("POST", "/v1/rules/next/promote", ""),
    ("GET", "/v1/ruleset", ""),
    ("PUT", "/v1/ruleset", "{}"),
    ("GET", "/v1/ruleset/history", ""),
    ("POST", "/v1/ruleset/revert", "{}"),
    ("GET", "/v1/overrides", ""),
    ("PUT", "/v1/overrides/per-user%7Cuser=ann", "{}"),
    ("DELETE", "/v1/overrides/per-user%7Cuser=ann", ""),
    ("GET", "/v1/lists", ""),
    ("PUT", "/v1/lists/block/user/ann", ""),
    ("DELETE", "/v1/lists/block/user/ann", ""),
    ("GET", "/v1/candidates", ""),
    ("GET", "/metrics", ""),
    ("GET", "/openapi.json", ""),
    ("GET", "/", ""),
];
/// Origins that no setting has allowed.
const FOREIGN: [&str; 5] = [
    "https://evil.example",
    "null",
    "http://localhost",
    "http://127.0.0.1:8080",
    "https://app.example.evil.example",
];

/// Returns the remaining units of `ann`, which no page may change.
fn remaining(service: &InProcess) -> u64 {
    let key = service.client().send("GET", "/v1/keys/per-user%7Cuser=ann", &[], "").json();
    key["remaining"].as_u64().unwrap()
}

fn each(client: &mut Client, requests: &[(&str, &str, &str)], headers: &[(&str, &str)]) -> Vec<Reply> {
    let authorization = format!("Bearer {TOKEN}");
    let headers = [headers, &[("authorization", &authorization), ("content-type", "text/plain")]].concat();
    requests.iter().map(|(method, path, body)| client.send(method, path, &headers, body)).collect()
}

#[test]
fn foreign_pages_are_refused_everywhere() {
    let service = InProcess::start("allowed_origins: [https://app.example]").ruled_by(TWO_AN_HOUR);
    let (mut check, mut admin) = (service.check_client(), service.admin_client());
    for origin in FOREIGN {
        let headers = [("origin", origin)];
        let replies = [each(&mut check, &CHECK, &headers), each(&mut admin, &ADMIN, &headers)].concat();
        for reply in replies {
            assert!(problem(&reply, 403).contains("allowed_origins"), "{origin}: {reply:?}");
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
        for (client, path) in [(&mut check, "/v1/check"), (&mut admin, "/v1/rules")] {
            let preflight = [("origin", origin), ("access-control-request-method", "POST")];
            let reply = client.send("OPTIONS", path, &preflight, "");
            problem(&reply, 403);
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
    }
    let twice = [("origin", "https://app.example"), ("origin", "https://evil.example")];
    problem(&check.send("POST", "/v1/check", &twice, ANN), 403);
    assert_eq!(remaining(&service), 2);
}

/// A browser reveals itself by other headers even without `Origin`. Links and bookmarks are `GET` requests,
/// which change nothing.
#[test]
fn requests_of_browsers_are_known_without_an_origin() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let (mut check, mut admin) = (service.check_client(), service.admin_client());
    for site in ["cross-site", "same-site", "same-origin"] {
        problem(&check.send("POST", "/v1/check", &[("sec-fetch-site", site)], ANN), 403);
        assert_eq!(admin.send("GET", "/", &[("sec-fetch-site", site)], "").status, 200, "{site}");
    }
    assert_eq!(remaining(&service), 2);
    assert_eq!(check.send("POST", "/v1/check", &[], &user("ann").to_string()).status, 200, "a program");
}

/// A page can load images, scripts and links without a preflight request. All are `GET` requests, and none
/// spends units.
#[test]
fn a_get_never_spends() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut check = service.check_client();
    for path in ["/v1/check", "/v1/check?user=ann", "/v1/reserve"] {
        assert!([401, 405].contains(&check.send("GET", path, &[], "").status), "{path}");
    }
    // Forward-auth needs headers that a page cannot set without a preflight request.
    assert_eq!(check.send("GET", "/v1/forward-auth", &[], "").status, 400);
    let preflight =
        [("origin", "https://evil.example"), ("access-control-request-headers", "x-forwarded-uri")];
    let reply = check.send("OPTIONS", "/v1/forward-auth", &preflight, "");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (400, None));
    assert_eq!(remaining(&service), 2);
}

/// For forward-auth, `Origin` belongs to the request that the proxy forwards. For health, it does not matter.
#[test]
fn forward_auth_and_health_ignore_origins() {
    let service = InProcess::start("trusted_proxies: [127.0.0.1]").ruled_by(TWO_AN_HOUR);
    for origin in FOREIGN {
        let headers = [("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.1"), ("origin", origin)];
        for method in ["GET", "POST", "OPTIONS"] {
            assert_eq!(
                service.check_client().send(method, "/v1/forward-auth", &headers, "").status,
                200,
                "{origin}"
            );
        }
        for mut client in [service.check_client(), service.admin_client()] {
            for path in ["/healthz", "/readyz"] {
                assert_eq!(client.send("GET", path, &[("origin", origin)], "").status, 200, "{origin}");
            }
        }
    }
}

#[test]
fn pages_of_allowed_origins_can_work() {
    let settings = "allowed_origins: [https://app.example, 'http://localhost:3000']";
    let service = InProcess::start(settings).ruled_by(TWO_AN_HOUR);
    let (mut check, mut admin) = (service.check_client(), service.admin_client());
    for origin in ["https://app.example", "http://localhost:3000"] {
        let preflight = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type, authorization"),
        ];
        for (client, path) in [(&mut check, "/v1/check"), (&mut admin, "/v1/rules/per-user")] {
            let permission = client.send("OPTIONS", path, &preflight, "");
            assert_eq!(permission.status, 204, "{permission:?}");
            assert_eq!(permission.header("access-control-allow-origin"), Some(origin));
            let allowed =
                |name: &str, value: &str| permission.header(name).is_some_and(|given| given.contains(value));
            assert!(
                allowed("access-control-allow-methods", "POST")
                    && allowed("access-control-allow-methods", "DELETE")
            );
            assert!(allowed("access-control-allow-headers", "content-type"));
            assert!(allowed("access-control-allow-headers", "authorization"));
        }
        let checked = check.send("POST", "/v1/check", &[("origin", origin)], ANN);
        assert_eq!((checked.status, checked.header("access-control-allow-origin")), (200, Some(origin)));
        assert_eq!(checked.header("vary"), Some("origin"));
        let refused = admin.send("GET", "/v1/rules", &[("origin", origin)], "");
        problem(&refused, 401);
        assert_eq!(refused.header("access-control-allow-origin"), Some(origin), "the page can read why");
    }
    assert_eq!(remaining(&service), 0);
    let without_an_origin = check.send("POST", "/v1/check", &[], ANN);
    assert_eq!(without_an_origin.header("access-control-allow-origin"), None);
}
