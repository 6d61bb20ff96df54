//! The limit as clients see it.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::THREE_PER_ADDRESS;
use crate::proxy::{Kind, Site};

with_each_proxy! {
    a_limit_holds
    a_limit_holds_for_clients_at_once
    a_denial_tells_when_to_come_back
    blocked_clients_get_403
    what_never_fits_is_denied_without_a_time
    a_denial_by_many_rules_reaches_the_client
    allowed_answers_tell_what_is_left
    nothing_is_told_where_no_rule_applies
    bodies_reach_the_application
    what_the_application_answers_is_its_own
}

fn a_limit_holds(kind: Kind) {
    let site = Site::start(kind, THREE_PER_ADDRESS);
    let mut client = site.client();
    let statuses = [(); 6].map(|()| client.send("GET", "/", &[], "").status);
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    assert_eq!(site.application.asked(), 3, "denied requests do not reach the application");
}

fn a_limit_holds_for_clients_at_once(kind: Kind) {
    let rules = "rules: [{id: all, scope: global, strategy: {absolute: {limit: 50, window: 1h}}}]";
    let site = Site::start(kind, rules);
    let count = |_| {
        let mut client = site.client();
        (0..20).map(|_| client.send("GET", "/", &[], "").status).collect::<Vec<_>>()
    };
    let statuses: Vec<u16> = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|number| scope.spawn(move || count(number))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let counted = |status| statuses.iter().filter(|given| **given == status).count();
    assert_eq!((counted(200), counted(429)), (50, 110), "{}", site.log());
    assert_eq!(site.application.asked(), 50);
}

fn a_denial_tells_when_to_come_back(kind: Kind) {
    let rules = "rules: [{id: per-address, scope: ip, strategy: {absolute: {limit: 1, window: 2s}}}]";
    let site = Site::start(kind, rules);
    let mut client = site.client();
    assert_eq!(client.send("GET", "/", &[], "").status, 200);
    // By its path, the response would be HTML.
    let denied = client.send("GET", "/page.html", &[], "");
    assert_eq!(denied.status, 429);
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&wait), "{denied:?}");
    assert_eq!(denied.header("ratelimit"), Some(format!("\"per-address\";r=0;t={wait}").as_str()));
    assert_eq!(denied.header("ratelimit-policy"), Some("\"per-address\";q=1;w=2"));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    let problem = denied.json();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    let seconds = if wait == 1 { "second" } else { "seconds" };
    assert_eq!(problem["violated-policies"], json!(["per-address"]));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with(&format!("Try again in {wait} {seconds}")), "{detail}");

    // The proxy uses the real clock.
    thread::sleep(Duration::from_secs(wait));
    assert_eq!(client.send("GET", "/page.html", &[], "").status, 200);
}

fn blocked_clients_get_403(kind: Kind) {
    let rules = "block: {endpoint: [/secret]}\nrules: []";
    let site = Site::start(kind, rules);
    let blocked = site.get("/secret");
    assert_eq!((blocked.status, blocked.header("retry-after")), (403, None), "{blocked:?}");
    assert_eq!(blocked.header("content-type"), Some("application/problem+json"));
    let problem = blocked.json();
    assert_eq!(problem["status"], 403);
    assert_eq!(problem["detail"], "An operator blocked this client.");
    assert_eq!(site.get("/").status, 200);
}

fn what_never_fits_is_denied_without_a_time(kind: Kind) {
    let rules = "rules: [{id: per-user, scope: user, if_missing: deny, strategy: {absolute: {limit: 3, window: 1h}}}]";
    let site = Site::start(kind, rules);
    let denied = site.get("/");
    assert_eq!((denied.status, denied.header("retry-after")), (429, None), "{denied:?}");
    let problem = denied.json();
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&json!(429), &json!(["per-user"])));
    assert_eq!(problem["detail"], "The request has no \"user\", which rule \"per-user\" needs.");
}

/// Each of the three headers that describe them is near 4 KiB.
fn a_denial_by_many_rules_reaches_the_client(kind: Kind) {
    let rule = |number| {
        let id = format!("{}-{number:02}", "x".repeat(60));
        format!("  - {{id: {id}, scope: ip, strategy: {{absolute: {{limit: 1, window: 30d}}}}}}\n")
    };
    let rules = format!("rules:\n{}", (0..30).map(rule).collect::<String>());
    let site = Site::start(kind, &rules);
    assert_eq!(site.get("/").status, 200);
    let denied = site.get("/");
    assert_eq!(denied.status, 429, "{}", site.log());
    assert_eq!(denied.json()["violated-policies"].as_array().map(Vec::len), Some(23), "{denied:?}");
}

fn allowed_answers_tell_what_is_left(kind: Kind) {
    let site = Site::start(kind, THREE_PER_ADDRESS);
    for path in ["/", "/status/404"] {
        let reply = site.get(path);
        assert_eq!(reply.header("ratelimit-policy"), Some("\"per-address\";q=3;w=3600"), "{reply:?}");
        assert!(reply.header("ratelimit").unwrap().starts_with("\"per-address\";r="), "{reply:?}");
        assert_eq!(reply.header("x-application"), Some("yes"));
    }
}

fn nothing_is_told_where_no_rule_applies(kind: Kind) {
    let site = Site::start(kind, "rules: []");
    let reply = site.get("/");
    assert_eq!(
        (reply.status, reply.header("ratelimit"), reply.header("ratelimit-policy")),
        (200, None, None)
    );
}

fn bodies_reach_the_application(kind: Kind) {
    let site =
        Site::start(kind, "rules: [{id: all, scope: global, strategy: {absolute: {limit: 3, window: 1h}}}]");
    let mut client = site.client();
    // More than proxies keep in memory.
    let large = "0123456789".repeat(50_000);
    for body in ["{\"a\": 1}", &large] {
        let reply = client.send("POST", "/?q=1", &[("content-type", "application/json")], body).json();
        assert_eq!((&reply["method"], &reply["target"]), (&"POST".into(), &"/?q=1".into()));
        assert_eq!(reply["headers"]["content-type"], "application/json");
        assert!(reply["body"] == body, "{} bytes arrived as {}", body.len(), reply["body"]);
    }
    client.write(b"PUT /chunks HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    client.write(b"5\r\nabcde\r\n3\r\nfgh\r\n0\r\n\r\n").unwrap();
    assert_eq!(client.read().unwrap().json()["body"], "abcdefgh");
    assert_eq!(client.send("POST", "/", &[], "denied").status, 429);
    assert_eq!(client.send("POST", "/", &[], "denied").status, 429, "the connection is still in order");
}

fn what_the_application_answers_is_its_own(kind: Kind) {
    let site =
        Site::start(kind, "rules: [{id: all, scope: global, strategy: {absolute: {limit: 9, window: 1h}}}]");
    for status in [401, 403, 429, 500, 503] {
        let reply = site.get(&format!("/status/{status}"));
        assert_eq!((reply.status, reply.header("x-application")), (status, Some("yes")), "{reply:?}");
        assert_eq!(reply.json()["target"], format!("/status/{status}"));
    }
}
