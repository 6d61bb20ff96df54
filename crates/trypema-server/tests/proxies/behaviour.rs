//! What clients see, with every proxy.

use std::thread;
use std::time::Duration;

use trypema_testkit::program::Program;

use crate::client::Reply;
use crate::harness::{Service, trypema};
use crate::proxy::{Kind, Site, Undecided};

/// Every case with every proxy.
macro_rules! with_each_proxy {
    ($($case:ident)*) => {
        mod nginx {
            $(#[test] fn $case() { super::$case(super::Kind::Nginx) })*
        }
        mod caddy {
            $(#[test] fn $case() { super::$case(super::Kind::Caddy) })*
        }
    };
}

with_each_proxy! {
    a_limit_holds
    a_limit_holds_for_clients_at_once
    a_denial_tells_when_to_come_back
    what_never_fits_is_denied_without_a_time
    allowed_answers_tell_what_is_left
    nothing_is_told_where_no_rule_applies
    what_clients_say_of_themselves_is_not_believed
    large_headers_are_no_way_past_a_limit
    rules_are_found_by_path_and_method
    rules_are_found_by_host
    bodies_reach_the_application
    what_the_application_answers_is_its_own
    what_the_application_does_not_answer_is_not_asked_again
    without_the_limiter_requests_are_refused
    without_the_limiter_requests_pass_if_so_chosen
    a_limiter_that_comes_back_is_asked_again
    a_limiter_that_cannot_decide_is_no_denial
    a_limiter_that_does_not_trust_the_proxy_is_no_denial
}

/// Windows are long, so that no test is longer.
const THREE_PER_ADDRESS: &str = "
rules:
  - {id: per-address, scope: ip, strategy: {absolute: {limit: 3, window: 1h}}}
";

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
    // The path would make it HTML.
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
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with(&format!("Try again in {wait} {seconds}")), "{detail}");

    // The proxy's clock is the real one.
    thread::sleep(Duration::from_secs(wait));
    assert_eq!(client.send("GET", "/page.html", &[], "").status, 200);
}

fn what_never_fits_is_denied_without_a_time(kind: Kind) {
    let rules = "block: {endpoint: [/secret]}\nrules: []";
    let site = Site::start(kind, rules);
    let denied = site.get("/secret");
    assert_eq!((denied.status, denied.header("retry-after")), (429, None), "{denied:?}");
    assert_eq!(denied.json()["status"], 429);
    assert_eq!(site.get("/").status, 200);
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
    assert_eq!(try_with("?endpoint=/free&deny_status=200&cost=0", ("X-Any", "any")), 429);
    assert_eq!(try_with("/", ("X-Any", "any")), 429, "the same path for the service");
    let key = site.service.get("/v1/keys/login%7Cip=127.0.0.1").json();
    assert_eq!(key["remaining"], 0, "counted for the address that has called");
    let elsewhere = site.client().send("GET", "/", &[("X-Forwarded-Host", "elsewhere.example")], "");
    assert_eq!(elsewhere.status, 200, "the host is the one that the client asks, not what it says besides");
}

/// Proxies refuse more than the service reads: what it does not answer might pass.
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
            // A proxy that has enough of it closes the connection.
            let _ = client.write(head.as_bytes());
            let status = client.read().map(|reply| reply.status);
            assert!(matches!(status, None | Some(400 | 414 | 429 | 431)), "{} bytes: {status:?}", head.len());
        }
    }
    assert_eq!(site.application.asked(), 3);
    assert_eq!(site.service.metric("trypema_connections_closed_early_total{reason=\"malformed\"}"), 0.0);
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

/// Neither is it taken for a limiter that is down.
fn what_the_application_does_not_answer_is_not_asked_again(kind: Kind) {
    let service = Service::with_rules(THREE_PER_ADDRESS, &[]);
    let site = Site::with_service(kind, Undecided::Passes, service);
    let reply = site.client().send("POST", "/hang-up", &[], "");
    assert_eq!((reply.status, site.application.asked()), (502, 1));
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

fn without_the_limiter_requests_are_refused(kind: Kind) {
    let mut site = Site::start(kind, THREE_PER_ADDRESS);
    let mut client = site.client();
    assert_eq!(client.send("GET", "/", &[], "").status, 200);
    kill(&mut site.service);
    assert_unavailable(kind, &site.get("/"));
    assert_eq!(site.application.asked(), 1);
}

fn without_the_limiter_requests_pass_if_so_chosen(kind: Kind) {
    let service = Service::with_rules(THREE_PER_ADDRESS, &[]);
    let mut site = Site::with_service(kind, Undecided::Passes, service);
    let mut client = site.client();
    let statuses = [(); 4].map(|()| client.send("GET", "/", &[], "").status);
    assert_eq!(statuses, [200, 200, 200, 429], "limits hold while it is there");
    let forbidden = client.send("GET", "/status/503", &[], "");
    assert_eq!(forbidden.status, 429);
    kill(&mut site.service);
    let reply = client.send("POST", "/", &[], "body").json();
    assert_eq!((&reply["method"], &reply["body"]), (&"POST".into(), &"body".into()));
    assert_eq!(client.send("GET", "/status/503", &[], "").status, 503, "what the application says stays");
    assert_eq!(site.application.asked(), 5);
}

fn a_limiter_that_comes_back_is_asked_again(kind: Kind) {
    let mut site = Site::start(kind, THREE_PER_ADDRESS);
    let mut client = site.client();
    for _ in 0..3 {
        client.send("GET", "/", &[], "");
    }
    assert_eq!(client.send("GET", "/", &[], "").status, 429);
    kill(&mut site.service);
    let mut again = Program::start(|_| {
        let mut command = trypema();
        command.args(["serve", "--listen", &site.service.address.to_string(), "--rules"]);
        command.arg(site.service.rules_file());
        command
    })
    .unwrap();
    again.line("listens on").unwrap();
    // The connections that the proxy has kept are gone, and so is what was counted.
    let reply = client.send("GET", "/", &[], "");
    assert_eq!((reply.status, reply.header("ratelimit-policy")), (200, Some("\"per-address\";q=3;w=3600")));
}

fn a_limiter_that_cannot_decide_is_no_denial(kind: Kind) {
    // Nobody listens on this port.
    let flags = ["--redis-url", "redis://127.0.0.1:1"];
    let closed = Site::with_service(kind, Undecided::Refused, Service::with_rules(THREE_PER_ADDRESS, &flags));
    let reply = closed.get("/");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    assert_eq!((&reply.json()["status"], closed.application.asked()), (&503.into(), 0));

    let open = Site::with_service(kind, Undecided::Passes, Service::with_rules(THREE_PER_ADDRESS, &flags));
    assert_eq!(open.get("/").status, 200);
}

fn a_limiter_that_does_not_trust_the_proxy_is_no_denial(kind: Kind) {
    let service = Service::with_rules(THREE_PER_ADDRESS, &["--trusted-proxies", "192.0.2.0/24"]);
    let site = Site::with_service(kind, Undecided::Refused, service);
    assert_eq!((site.get("/").status, site.application.asked()), (403, 0));
}

/// nginx tells a limiter that is down by itself, Caddy with what it says of any upstream.
fn assert_unavailable(kind: Kind, reply: &Reply) {
    match kind {
        Kind::Nginx => {
            assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
            assert_eq!(reply.header("content-type"), Some("application/problem+json"));
            assert_eq!(reply.json()["status"], 503);
        }
        Kind::Caddy => assert_eq!(reply.status, 502),
    }
}

fn kill(service: &mut Service) {
    service.program.signal("KILL").unwrap();
    service.program.end().unwrap();
}
