//! The metrics for Prometheus: well formed, exact, and never about a single caller.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use trypema_testkit::program::FreePort;

use crate::client::Client;
use crate::in_process::InProcess;

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: shadow, scope: user, action: log_only, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: paced, scope: user, key_pattern: '{paced}', action: throttle, max_delay: 1m, strategy: {token_bucket: {limit: 1, window: 10s}}}
  - {id: short-guard, scope: user, key_pattern: '{short}', strategy: {abuse: {temp: {window: 60s, threshold: 2, block: 10m}, long: {window: 24h, threshold: 99, block: 24h}}}}
  - {id: long-guard, scope: user, key_pattern: '{long}', strategy: {abuse: {temp: {window: 60s, threshold: 99, block: 10m}, long: {window: 24h, threshold: 2, block: 24h}}}}
block:
  user: [mallory]
";

/// Profiles for which the proxy has to send no attributes.
const PROFILES: &str = "
forward_auth:
  profiles:
    anybody: {attributes: {endpoint: {value: /}, ip: {value: 203.0.113.1}}}
    mallory: {attributes: {endpoint: {value: /}, ip: {value: 203.0.113.1}, user: {value: mallory}}}
";

/// Returns every sample, by its name and labels as written.
fn samples(client: &mut Client) -> BTreeMap<String, f64> {
    let reply = client.send("GET", "/metrics", &[], "");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let lines = reply.body.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.rsplit_once(' ').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// Returns the counts of a rule's decisions: allowed, denied, throttled, shadowed, error.
fn decided(samples: &BTreeMap<String, f64>, rule: &str) -> [f64; 5] {
    ["allowed", "denied", "throttled", "shadowed", "error"]
        .map(|result| samples[&format!("trypema_checks_total{{rule=\"{rule}\",result=\"{result}\"}}")])
}

fn check(client: &mut Client, name: &str, value: &str) -> Value {
    let question = json!({"attributes": {name: value}});
    client.send("POST", "/v1/check", &[], &question.to_string()).json()
}

#[test]
fn every_rule_counts_what_it_decided() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    for name in ["user", "paced", "short", "long"] {
        (0..4).for_each(|_| drop(check(&mut client, name, "ann")));
    }
    check(&mut client, "user", "mallory");
    check(&mut client, "nothing", "of interest");
    for body in [r#"{"attributes": {"user": "ann"}, "mode": "peek"}"#, "{"] {
        client.send("POST", "/v1/check", &[], body);
    }
    client.send("POST", "/v1/explain", &[], r#"{"attributes": {"user": "ann"}}"#);
    let told = samples(&mut client);
    assert_eq!(decided(&told, "per-user"), [2.0, 2.0, 0.0, 0.0, 0.0]);
    assert_eq!(decided(&told, "shadow"), [1.0, 0.0, 0.0, 3.0, 0.0]);
    assert_eq!(decided(&told, "paced"), [1.0, 0.0, 3.0, 0.0, 0.0]);
    assert_eq!(decided(&told, "short-guard"), [1.0, 3.0, 0.0, 0.0, 0.0]);
    assert_eq!(decided(&told, "long-guard"), [1.0, 3.0, 0.0, 0.0, 0.0]);
    assert_eq!(told["limiter_blocked_total{scope=\"temp\"}"], 3.0);
    assert_eq!(told["limiter_blocked_total{scope=\"long\"}"], 3.0);
    assert_eq!(told["trypema_listed_total"], 1.0);
    assert_eq!(told["trypema_rules"], 5.0);
    assert_eq!(told["trypema_live_keys"], 5.0, "one a rule");
}

/// If one rule denies a request, the other rules do not count it as allowed: nothing was spent on them.
#[test]
fn allowed_is_what_all_rules_allow() {
    let both = "
rules:
  - {id: tight, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: loose, scope: user, strategy: {fixed_window: {limit: 9, window: 1h}}}
";
    let service = InProcess::with_rules(both);
    let mut client = service.client();
    (0..3).for_each(|_| drop(check(&mut client, "user", "ann")));
    let told = samples(&mut client);
    assert_eq!(decided(&told, "tight"), [1.0, 2.0, 0.0, 0.0, 0.0]);
    assert_eq!(decided(&told, "loose"), [1.0, 0.0, 0.0, 0.0, 0.0]);
    let recorded = json!({"attributes": {"user": "ann"}, "mode": "record"}).to_string();
    client.send("POST", "/v1/check", &[], &recorded);
    let told = samples(&mut client);
    assert_eq!(decided(&told, "tight"), [1.0, 3.0, 0.0, 0.0, 0.0]);
    assert_eq!(decided(&told, "loose"), [2.0, 0.0, 0.0, 0.0, 0.0], "recording counts on each alone");
}

#[test]
fn requests_are_counted_by_route_and_status() {
    let service = InProcess::start(PROFILES).ruled_by(RULES);
    let mut client = service.client();
    let requests = [
        ("POST", "/v1/check", r#"{"attributes": {"user": "ann"}}"#),
        ("POST", "/v1/check", r#"[{"attributes": {"user": "ann"}}, {"attributes": {"user": "bob"}}]"#),
        ("POST", "/v1/check?deny_status=403", r#"{"attributes": {"user": "mallory"}}"#),
        ("POST", "/v1/check?deny_status=499", r#"{"attributes": {"user": "mallory"}}"#),
        ("POST", "/v1/check", "{"),
        ("PUT", "/v1/check", ""),
        ("GET", "/v1/forward-auth/anybody", ""),
        ("GET", "/v1/forward-auth/mallory", ""),
        ("POST", "/v1/explain", r#"{"attributes": {}}"#),
        ("POST", "/v1/reserve", r#"{"attributes": {}}"#),
        ("POST", "/v1/settle", r#"{"reservation": "r1.bo9omtz0YlZo9Vb1D0EJqg", "costs": {}}"#),
        ("POST", "/v1/release", r#"{"reservation": "r1.bo9omtz0YlZo9Vb1D0EJqg"}"#),
        ("POST", "/v1/renew", r#"{"reservation": "nonsense"}"#),
        ("GET", "/v1/keys/per-user%7Cuser=ann", ""),
        ("DELETE", "/v1/keys/per-user%7Cuser=ann", ""),
        ("GET", "/v1/keys/nobody", ""),
        ("GET", "/v1/rules", ""),
        ("GET", "/healthz", ""),
        ("GET", "/", ""),
        ("GET", "/nothing", ""),
        ("GET", "/nothing/else", ""),
    ];
    for (method, path, body) in requests {
        client.send(method, path, &[], body);
    }
    let told = samples(&mut client);
    let expected = [
        ("check", 200, 2.0),
        ("check", 403, 1.0),
        ("check", 499, 1.0),
        ("check", 400, 1.0),
        ("check", 405, 1.0),
        ("forward_auth", 200, 1.0),
        ("forward_auth", 403, 1.0),
        ("explain", 200, 1.0),
        ("reserve", 200, 1.0),
        ("settle", 200, 1.0),
        ("release", 200, 1.0),
        ("renew", 400, 1.0),
        ("keys", 200, 2.0),
        ("keys", 404, 1.0),
        ("rules", 200, 1.0),
        ("operation", 200, 2.0),
        ("unknown", 404, 2.0),
    ];
    for (route, status, count) in expected {
        let name = format!("trypema_http_requests_total{{route=\"{route}\",status=\"{status}\"}}");
        assert_eq!(told.get(&name), Some(&count), "{name}");
    }
    let of = |prefix: &str| -> f64 {
        told.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, value)| value).sum()
    };
    assert_eq!(of("trypema_http_requests_total"), requests.len() as f64, "and no others");
    assert_eq!(of("trypema_http_request_duration_seconds_count"), requests.len() as f64);
    assert_eq!(told["trypema_connections"], 2.0, "one of each listener");
}

#[test]
fn what_the_store_does_not_answer_is_an_error_of_the_rules_that_apply() {
    let nobody = FreePort::any().unwrap();
    let settings = format!("redis_url: redis://127.0.0.1:{}", nobody.number());
    let service = InProcess::start(&settings).ruled_by(RULES);
    let mut client = service.client();
    for _ in 0..3 {
        assert_eq!(client.send("POST", "/v1/check", &[], r#"{"attributes": {"user": "ann"}}"#).status, 503);
    }
    let told = samples(&mut client);
    assert_eq!(decided(&told, "per-user"), [0.0, 0.0, 0.0, 0.0, 3.0]);
    assert_eq!(decided(&told, "shadow"), [0.0, 0.0, 0.0, 0.0, 3.0]);
    assert_eq!(decided(&told, "paced"), [0.0; 5], "it does not apply");
}

#[test]
fn counters_survive_new_rules() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    (0..4).for_each(|_| drop(check(&mut client, "user", "ann")));
    let before = samples(&mut client);
    let service = service.ruled_by(&RULES.replace("limit: 2, window: 1h", "limit: 9, window: 1h"));
    check(&mut client, "user", "ann");
    let after = samples(&mut client);
    assert_eq!(decided(&before, "per-user"), [2.0, 2.0, 0.0, 0.0, 0.0]);
    assert_eq!(decided(&after, "per-user"), [3.0, 2.0, 0.0, 0.0, 0.0]);
    let reloads = "trypema_rules_reloads_total{result=\"ok\"}";
    assert_eq!(after[reloads], before[reloads] + 1.0);
    drop(service);
}

/// A client address that a proxy forwards.
const SOMEBODY: (&str, &str) = ("x-forwarded-for", "203.0.113.200");

#[test]
fn a_caller_leaves_no_trace() {
    let service =
        InProcess::start("forward_auth: {profiles: {default: {attributes: {user: {header: X-User}}}}}")
            .ruled_by(RULES);
    let mut client = service.client();
    check(&mut client, "user", "first");
    client.send("GET", "/v1/keys/per-user%7Cuser=first", &[], "");
    client.send("GET", "/v1/forward-auth", &[("x-user", "first"), ("x-forwarded-uri", "/"), SOMEBODY], "");
    client.send("GET", "/first", &[], "");
    let names = |told: BTreeMap<String, f64>| -> Vec<String> { told.into_keys().collect() };
    // Read twice: the first request adds the series of its own route.
    samples(&mut client);
    let before = names(samples(&mut client));
    for number in 0..1_000 {
        let name = format!("traceable-{number}");
        check(&mut client, "user", &name);
        client.send("GET", &format!("/v1/keys/per-user%7Cuser={name}"), &[], "");
        client.send(
            "GET",
            "/v1/forward-auth",
            &[("x-user", &name), ("x-forwarded-uri", &format!("/{name}")), SOMEBODY],
            "",
        );
        client.send("GET", &format!("/{name}"), &[], "");
    }
    let after = names(samples(&mut client));
    let added: Vec<&String> = after.iter().filter(|name| !before.contains(name)).collect();
    assert!(added.is_empty(), "{added:?}");
    assert!(!client.send("GET", "/metrics", &[], "").body.contains("traceable"));
}

/// Unusual but valid rule ids, and traffic of every kind.
#[test]
fn promtool_finds_nothing_wrong() {
    let longest = "x".repeat(64);
    let odd = ["-", "...", "0", "A.b-c_9", "__name__", "le", &longest];
    let rule = |id: &&str| {
        format!("  - {{id: '{id}', scope: user, strategy: {{fixed_window: {{limit: 1, window: 1h}}}}}}\n")
    };
    let rules = RULES.replace("\nblock:", &format!("\n{}block:", odd.iter().map(rule).collect::<String>()));
    let service = InProcess::with_rules(&rules);
    let mut client = service.client();
    for name in ["user", "paced", "short", "long"] {
        (0..3).for_each(|_| drop(check(&mut client, name, "ann")));
    }
    for path in ["/v1/check?deny_status=429", "/v1/forward-auth", "/nothing"] {
        client.send("POST", path, &[], r#"{"attributes": {"user": "mallory"}}"#);
    }
    let text = client.send("GET", "/metrics", &[], "").body;
    for id in odd {
        assert!(text.contains(&format!("trypema_checks_total{{rule=\"{id}\",result=\"denied\"}} ")), "{id}");
    }
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("promtool is installed: `cargo xtask test` does that");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success() && told.trim().is_empty(), "{told}");
}

/// An estimate counts what it took; what was used is known later.
#[test]
fn what_was_used_is_counted_beside_the_estimates() {
    let rules = "
units: [tokens]
rules:
  - {id: tokens, scope: user, unit: tokens, strategy: {fixed_window: {limit: 1000, window: 1h}}}
";
    let service = InProcess::with_rules(rules);
    let mut client = service.client();
    let mut post = |path: &str, body: Value| client.send("POST", path, &[], &body.to_string()).json();
    let request = |tokens: u64| json!({"attributes": {"user": "ann"}, "costs": {"tokens": tokens}});
    post("/v1/check", request(5));
    for used in [30, 120] {
        let made = post("/v1/reserve", request(100));
        post("/v1/settle", json!({"reservation": made["reservation"], "costs": {"tokens": used}}));
    }
    let released = post("/v1/reserve", request(100));
    post("/v1/release", json!({"reservation": released["reservation"]}));
    let told = samples(&mut client);
    let of = |name: &str| told[&format!("{name}{{rule=\"tokens\",unit=\"tokens\"}}")];
    assert_eq!(of("trypema_units_total"), 5.0 + 100.0 + 100.0 + 20.0 + 100.0);
    assert_eq!(of("trypema_units_used_total"), 5.0 + 30.0 + 120.0);
}
