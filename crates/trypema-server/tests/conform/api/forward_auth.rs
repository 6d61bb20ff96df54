//! `/v1/forward-auth`: requests that a proxy holds.

use serde_json::json;

use super::{problem, user};
use crate::client::{Client, Reply};
use crate::in_process::InProcess;

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: per-address, scope: ip, endpoints: [/by-address], strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: logins, scope: global, endpoints: [POST /login], strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: hosts, scope: tenant, key_pattern: '{host}', strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: free, scope: tenant, key_pattern: '{tenant}', plan_tiers: [free], strategy: {fixed_window: {limit: 2, window: 1h}}}
";

const SETTINGS: &str = "attributes: [user=x-user, tenant=x-tenant]\n";

fn service() -> InProcess {
    InProcess::start(SETTINGS).ruled_by(RULES)
}

/// A client that nobody has met.
const SOMEBODY: (&str, &str) = ("x-forwarded-for", "203.0.113.200");

/// Asks as a proxy does; somebody is the client, unless it is said.
fn ask(client: &mut Client, choices: &str, headers: &[(&str, &str)]) -> Reply {
    let is_said = headers.iter().any(|(name, _)| *name == "x-forwarded-for");
    let more = if is_said { &[][..] } else { &[SOMEBODY] };
    client.send("GET", &format!("/v1/forward-auth{choices}"), &[headers, more].concat(), "")
}

/// What a counter has left.
fn left(client: &mut Client, key: &str) -> u64 {
    let path = format!("/v1/keys/{}", key.replace('|', "%7C"));
    client.send("GET", &path, &[], "").json()["remaining"].as_u64().unwrap()
}

const ANY: (&str, &str) = ("x-forwarded-uri", "/");

#[test]
fn what_is_allowed_is_an_empty_200_with_what_is_left() {
    let service = service();
    let mut client = service.client();
    let reply = ask(&mut client, "", &[ANY, ("x-user", "ann")]);
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    assert_eq!(reply.header("ratelimit"), Some(r#""per-user";r=1;t=2000"#));
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""per-user";q=2;w=3600"#));
    assert_eq!(reply.header("retry-after"), None);
}

#[test]
fn what_is_denied_is_429_or_what_the_proxy_understands() {
    let service = service();
    let mut client = service.client();
    let ann = [ANY, ("x-user", "ann")];
    ask(&mut client, "/cost=2", &ann);
    for (choices, status) in
        [("", 429), ("/deny_status=401", 401), ("/deny_status=403", 403), ("/deny_status=599", 599)]
    {
        let reply = ask(&mut client, choices, &ann);
        problem(&reply, status);
        assert_eq!(reply.header("retry-after"), Some("2000"));
        assert_eq!(reply.header("ratelimit"), Some(r#""per-user";r=0;t=2000"#));
        assert_eq!(reply.json()["violated-policies"], json!(["per-user"]));
    }
    let other = ask(&mut client, "/headers=x-ratelimit", &ann);
    assert_eq!((other.header("x-ratelimit-remaining"), other.header("ratelimit")), (Some("0"), None));
    let none = ask(&mut client, "/headers=none", &ann);
    assert_eq!((none.header("retry-after"), none.header("ratelimit")), (Some("2000"), None));
}

/// A proxy takes any 2xx for leave to go ahead: a denial that is 200 would be none.
#[test]
fn a_denial_cannot_be_made_to_look_like_an_approval() {
    let service = service();
    let reply = ask(&mut service.client(), "/deny_status=200", &[ANY, ("x-user", "ann")]);
    assert!(problem(&reply, 400).contains("deny_status"));
}

#[test]
fn choices_that_are_none_are_refused() {
    let service = service();
    let mut client = service.client();
    for choices in
        ["deny_status=302", "deny_status=x", "headers=some", "cost=-1", "cost=x", "cost=", "user=%zz"]
    {
        problem(&ask(&mut client, &format!("/{choices}"), &[ANY]), 400);
    }
    let many: Vec<String> = (0..40).map(|number| format!("a{number}=x")).collect();
    assert!(problem(&ask(&mut client, &format!("/{}", many.join("&")), &[ANY]), 400).contains("at most 32"));
}

#[test]
fn the_style_of_headers_can_be_set() {
    for (style, header) in [("standard", "ratelimit"), ("x-ratelimit", "x-ratelimit-limit")] {
        let service = InProcess::start(&format!("headers: {style}\n{SETTINGS}")).ruled_by(RULES);
        let reply = ask(&mut service.client(), "", &[ANY, ("x-user", "ann")]);
        assert!(reply.header(header).is_some(), "{style}: {reply:?}");
    }
    let service = InProcess::start(&format!("headers: none\n{SETTINGS}")).ruled_by(RULES);
    let reply = ask(&mut service.client(), "", &[ANY, ("x-user", "ann")]);
    assert!(reply.headers.iter().all(|(name, _)| !name.contains("ratelimit")), "{reply:?}");
}

#[test]
fn the_proxy_says_which_request_it_is() {
    let service = service();
    let mut client = service.client();
    ask(&mut client, "", &[("x-forwarded-uri", "/login?user=x#y"), ("x-forwarded-method", "POST")]);
    assert_eq!(left(&mut client, "logins"), 1, "the path without what follows it");
    ask(&mut client, "", &[("x-forwarded-uri", "/login"), ("x-forwarded-method", "GET")]);
    assert_eq!(left(&mut client, "logins"), 1, "another method");
    client.send("POST", "/v1/forward-auth", &[("x-forwarded-uri", "/login"), SOMEBODY], "");
    assert_eq!(left(&mut client, "logins"), 0, "without the header, the method of the question itself");
    ask(&mut client, "", &[ANY, ("x-forwarded-host", "shop.example")]);
    assert_eq!(left(&mut client, "hosts|host=shop.example"), 1);
    ask(&mut client, "", &[ANY, ("x-forwarded-host", "SHOP.example.:8443")]);
    assert_eq!(left(&mut client, "hosts|host=shop.example"), 0, "the same host, however it is written");
}

#[test]
fn a_request_may_be_told_with_its_host() {
    let service = service();
    let mut client = service.client();
    let post = ("x-forwarded-method", "POST");
    ask(&mut client, "", &[("x-forwarded-uri", "https://shop.example/login?next=/"), post]);
    assert_eq!(left(&mut client, "logins"), 1);
    for nonsense in ["login", "", "?x"] {
        problem(&ask(&mut client, "", &[("x-forwarded-uri", nonsense), post]), 400);
    }
}

/// Some proxies pass a client's query on: it is not the proxy's word.
#[test]
fn a_query_counts_for_nothing() {
    let service = service();
    let mut client = service.client();
    let reply = ask(&mut client, "?user=boss&deny_status=200&cost=x&headers=%zz", &[ANY, ("x-user", "ann")]);
    assert_eq!(reply.status, 200);
    assert_eq!((left(&mut client, "per-user|user=boss"), left(&mut client, "per-user|user=ann")), (2, 1));
}

#[test]
fn the_configuration_wins_over_headers() {
    let service = service();
    let mut client = service.client();
    ask(
        &mut client,
        "/user=bob&plan=free&tenant=acme%7C%20x",
        &[ANY, ("x-user", "ann"), ("x-tenant", "other")],
    );
    assert_eq!((left(&mut client, "per-user|user=bob"), left(&mut client, "per-user|user=ann")), (1, 2));
    assert_eq!(left(&mut client, "free|tenant=acme~7c%20x"), 1);
    ask(
        &mut client,
        "/endpoint=/login&method=POST",
        &[("x-forwarded-uri", "/x"), ("x-forwarded-method", "GET")],
    );
    assert_eq!(left(&mut client, "logins"), 1);
    ask(&mut client, "/endpoint=/by-address&ip=198.51.100.1", &[("x-forwarded-for", "203.0.113.9")]);
    assert_eq!(left(&mut client, "per-address|ip=198.51.100.1"), 1);
}

#[test]
fn a_request_that_is_not_described_is_refused() {
    let service = service();
    let mut client = service.client();
    assert!(problem(&ask(&mut client, "", &[]), 400).contains("X-Forwarded-Uri is missing"));
    let reply = client.send("GET", "/v1/forward-auth", &[ANY], "");
    assert!(problem(&reply, 400).contains("X-Forwarded-For is missing"));
    let reply = client.send("GET", "/v1/forward-auth/endpoint=/fixed&ip=203.0.113.7", &[], "");
    assert_eq!(reply.status, 200, "unless the configuration says it");
}

/// Where a header that the proxy sets comes twice, one of them is the client's.
#[test]
fn headers_that_come_twice_are_refused() {
    let service = service();
    let mut client = service.client();
    for name in ["x-forwarded-uri", "x-forwarded-method", "x-forwarded-host", "x-user"] {
        let mut headers = vec![(name, "/a"), (name, "/b")];
        if name != "x-forwarded-uri" {
            headers.push(ANY);
        }
        let detail = problem(&ask(&mut client, "", &headers), 400);
        assert!(detail.contains(name) && detail.contains("twice"), "{detail}");
    }
}

#[test]
fn who_is_no_proxy_is_not_answered() {
    let service = InProcess::start(&format!("trusted_proxies: [10.0.0.0/8]\n{SETTINGS}")).ruled_by(RULES);
    let mut client = service.client();
    let reply = ask(&mut client, "", &[ANY, ("x-user", "ann"), ("x-forwarded-for", "10.0.0.1")]);
    assert_eq!(problem(&reply, 403), "127.0.0.1 is not one of the trusted proxies");
    assert_eq!(left(&mut client, "per-user|user=ann"), 2, "nothing was spent");
    assert_eq!(client.send("POST", "/v1/check", &[], &user("ann").to_string()).status, 200);
}

#[test]
fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
    let trusted = "trusted_proxies: [127.0.0.0/8, 192.0.2.0/24]";
    let service = InProcess::start(trusted).ruled_by(RULES);
    let mut client = service.client();
    let chains = [
        ("203.0.113.1", "203.0.113.1"),
        ("198.51.100.66, 203.0.113.2", "203.0.113.2"),
        ("198.51.100.66, 203.0.113.3, 192.0.2.7", "203.0.113.3"),
        ("203.0.113.4,192.0.2.7 , 192.0.2.8", "203.0.113.4"),
        ("203.0.113.5:4711", "203.0.113.5"),
    ];
    for (chain, address) in chains {
        ask(&mut client, "", &[("x-forwarded-uri", "/by-address"), ("x-forwarded-for", chain)]);
        assert_eq!(left(&mut client, &format!("per-address|ip={address}")), 1, "{chain}");
    }
    let two_lines = [
        ("x-forwarded-uri", "/by-address"),
        ("x-forwarded-for", "198.51.100.66"),
        ("x-forwarded-for", "203.0.113.6"),
    ];
    ask(&mut client, "", &two_lines);
    assert_eq!(left(&mut client, "per-address|ip=203.0.113.6"), 1, "lines of a list are one list");
    ask(&mut client, "", &[("x-forwarded-uri", "/by-address"), ("x-forwarded-for", "192.0.2.7")]);
    assert_eq!(left(&mut client, "per-address|ip=192.0.2.7"), 1, "where all are trusted, the first of them");
    assert_eq!(left(&mut client, "per-address|ip=198.51.100.66"), 2, "what clients claim counts for nothing");
}

#[test]
fn an_ipv6_client_is_its_network() {
    let service = service();
    let mut client = service.client();
    let mut status = |address: &str| {
        ask(&mut client, "", &[("x-forwarded-uri", "/by-address"), ("x-forwarded-for", address)]).status
    };
    assert_eq!([status("2001:db8:0:1::1"), status("2001:db8:0:1:ffff::2")], [200, 200]);
    assert_eq!(status("2001:db8:0:1::3"), 429, "all of a /64 is one client");
    assert_eq!(status("2001:db8:0:2::1"), 200);
    assert_eq!([status("::ffff:203.0.113.9"), status("203.0.113.9"), status("203.0.113.9")], [200, 200, 429]);
}

#[test]
fn every_method_is_understood_and_bodies_are_ignored() {
    let service = service();
    let mut client = service.client();
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let reply = client.send(method, "/v1/forward-auth", &[ANY, SOMEBODY], "not json");
        assert_eq!(reply.status, 200, "{method}");
    }
}
