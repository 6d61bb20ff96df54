//! A limiter, or an application, that does not answer.

use trypema_testkit::program::Program;

use crate::THREE_PER_ADDRESS;
use crate::client::Reply;
use crate::harness::{Service, trypema};
use crate::proxy::{Kind, Site, Undecided};

with_each_proxy! {
    without_the_limiter_requests_are_refused
    without_the_limiter_requests_pass_if_so_chosen
    a_limiter_that_comes_back_is_asked_again
    a_limiter_that_cannot_decide_is_no_denial
    what_the_application_does_not_answer_is_not_asked_again
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
    // The proxy's kept connections are closed, and the new server has no counters.
    let reply = client.send("GET", "/", &[], "");
    assert_eq!((reply.status, reply.header("ratelimit-policy")), (200, Some("\"per-address\";q=3;w=3600")));
}

fn a_limiter_that_cannot_decide_is_no_denial(kind: Kind) {
    // No server listens on this port.
    let flags = ["--redis-url", "redis://127.0.0.1:1"];
    let closed = Site::with_service(kind, Undecided::Refused, Service::with_rules(THREE_PER_ADDRESS, &flags));
    let reply = closed.get("/");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    assert_eq!((&reply.json()["status"], closed.application.asked()), (&503.into(), 0));

    let open = Site::with_service(kind, Undecided::Passes, Service::with_rules(THREE_PER_ADDRESS, &flags));
    assert_eq!(open.get("/").status, 200);
}

/// If the application closes the connection, the proxy must neither repeat the request nor treat the limiter as
/// unreachable.
fn what_the_application_does_not_answer_is_not_asked_again(kind: Kind) {
    let service = Service::with_rules(THREE_PER_ADDRESS, &[]);
    let site = Site::with_service(kind, Undecided::Passes, service);
    let reply = site.client().send("POST", "/hang-up", &[], "");
    assert_eq!((reply.status, site.application.asked()), (502, 1));
}

/// For an unreachable limiter, nginx returns the sample's own problem, and Caddy its general upstream error.
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
