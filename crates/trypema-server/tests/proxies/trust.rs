//! The request that a proxy describes, and the peers that may describe it.

use crate::THREE_PER_ADDRESS;
use crate::harness::Service;
use crate::proxy::{Kind, Site, Undecided};

with_each_proxy! {
    rules_are_found_by_path_and_method
    rules_are_found_by_host
    what_clients_say_of_themselves_is_not_believed
    large_headers_are_no_way_past_a_limit
    a_limiter_that_does_not_trust_the_proxy_is_no_denial
}

fn rules_are_found_by_path_and_method(kind: Kind) {
    let rules = "
rules:
  - {id: login, scope: ip, endpoints: [POST /login], strategy: {absolute: {limit: 1, window: 1h}}}
  - {id: search, scope: ip, endpoints: [/search/**], strategy: {absolute: {limit: 2, window: 1h}}}
";
    let site = Site::start(kind, rules);
    let mut client = site.client();
    let mut ask = |method: &str, path: &str| client.send(method, path, &[], "").status;
    assert_eq!([ask("POST", "/login"), ask("POST", "/login"), ask("GET", "/login")], [200, 429, 200]);
    assert_eq!(
        [ask("GET", "/search/a?q=1"), ask("PUT", "/search/b"), ask("GET", "/search")],
        [200, 200, 429]
    );
    assert_eq!(ask("GET", "http://test/search/c"), 429, "with a host before it, it is the same path");
    assert_eq!(ask("GET", "//search//%61"), 429, "however it is written");
    assert_eq!([ask("GET", "/other"), ask("DELETE", "/other")], [200, 200]);
}

fn rules_are_found_by_host(kind: Kind) {
    let rules = "
rules:
  - {id: per-host, scope: tenant, key_pattern: 'host:{host}', strategy: {absolute: {limit: 2, window: 1h}}}
";
    let site = Site::start(kind, rules);
    for host in ["shop.example", "shop.example:8000"] {
        let mut client = site.client();
        client.write(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(client.read().unwrap().status, 200);
    }
    let key = site.service.get("/v1/keys/per-host%7Chost=shop.example").json();
    assert_eq!(key["remaining"], 0, "with a port, it is the same host");
}

fn what_clients_say_of_themselves_is_not_believed(kind: Kind) {
    let rules = "
rules:
  - {id: login, scope: ip, endpoints: [POST /login], strategy: {absolute: {limit: 3, window: 1h}}}
block: {host: [elsewhere.example]}
";
    let site = Site::start(kind, rules);
    let mut client = site.client();
    let mut try_with = |query: &str, header: (&str, &str)| {
        client.send("POST", &format!("/login{query}"), &[header, ("x-forwarded-proto", "gopher")], "x").status
    };
    assert_eq!(try_with("", ("X-Forwarded-For", "203.0.113.1")), 200);
    assert_eq!(try_with("", ("X-Forwarded-Uri", "/free")), 200);
    assert_eq!(try_with("", ("X-Forwarded-Method", "GET")), 200);
    assert_eq!(try_with("", ("X-Forwarded-For", "203.0.113.2, 203.0.113.3")), 429);
    assert_eq!(try_with("", ("X-Forwarded-Uri", "/free")), 429);
    assert_eq!(try_with("", ("X-Forwarded-Method", "GET")), 429);
    assert_eq!(try_with("", ("X-Forwarded-Host", "elsewhere.example")), 429);
    assert_eq!(try_with("", ("Connection", "X-Forwarded-For, X-Forwarded-Uri, X-Forwarded-Method")), 429);
    assert_eq!(try_with("?endpoint=/free&deny_status=200&cost=0", ("X-Any", "any")), 429);
    assert_eq!(try_with("/", ("X-Any", "any")), 429, "the same path for the service");
    let key = site.service.get("/v1/keys/login%7Cip=127.0.0.1").json();
    assert_eq!(key["remaining"], 0, "counted for the address that has called");
    let elsewhere = site.client().send("GET", "/", &[("X-Forwarded-Host", "elsewhere.example")], "");
    assert_eq!(elsewhere.status, 200, "the host is the one that the client asks, not what it says besides");
}

/// Proxies must refuse headers that are larger than the server accepts. A request that the server cannot
/// parse might otherwise pass.
fn large_headers_are_no_way_past_a_limit(kind: Kind) {
    let service = Service::with_rules(THREE_PER_ADDRESS, &[]);
    let site = Site::with_service(kind, Undecided::Passes, service);
    for _ in 0..3 {
        assert_eq!(site.get("/").status, 200);
    }
    let piece = "a".repeat(4000);
    for pieces in [1, 2, 3, 4, 5, 7, 8, 9, 15, 50] {
        let headers: String = (0..pieces).map(|number| format!("x-large-{number}: {piece}\r\n")).collect();
        for head in [
            format!("GET / HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n"),
            format!("GET /?{} HTTP/1.1\r\nhost: localhost\r\n\r\n", piece.repeat(pieces)),
        ] {
            let mut client = site.client();
            // The proxy may close the connection before it has read the whole header.
            let _ = client.write(head.as_bytes());
            let status = client.read().map(|reply| reply.status);
            assert!(matches!(status, None | Some(400 | 414 | 429 | 431)), "{} bytes: {status:?}", head.len());
        }
    }
    assert_eq!(site.application.asked(), 3);
    assert_eq!(site.service.metric("trypema_connections_closed_early_total{reason=\"malformed\"}"), 0.0);
}

fn a_limiter_that_does_not_trust_the_proxy_is_no_denial(kind: Kind) {
    let service = Service::with_rules(THREE_PER_ADDRESS, &["--trusted-proxies", "192.0.2.0/24"]);
    let site = Site::with_service(kind, Undecided::Refused, service);
    assert_eq!((site.get("/").status, site.application.asked()), (403, 0));
}

#[test]
fn clients_of_nginx_cannot_ask_the_limiter() {
    let site = Site::start(Kind::Nginx, THREE_PER_ADDRESS);
    let reply = site.client().send("GET", "/_trypema", &[("X-Forwarded-Uri", "/")], "");
    assert_eq!(
        (reply.status, site.service.get("/v1/keys/per-address%7Cip=127.0.0.1").json()["remaining"].as_u64()),
        (404, Some(3))
    );
}
