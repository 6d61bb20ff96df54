//! The time after a signal: which work is finished, and how long it may take.

use std::io::Write;
use std::net::TcpStream;
use std::ops::Range;
use std::process::ExitStatus;
use std::time::Duration;

use trypema_testkit::redis::{Server, wait_until};

use crate::harness::Service;
use crate::timing::Stopwatch;

const QUESTION: &str = r#"{"attributes":{"other":"x"}}"#;
/// The shutdown deadline of one second, with a tolerance for a busy machine.
const AT_THE_DEADLINE: Range<Duration> = Duration::from_millis(900)..Duration::from_secs(8);
/// Much less than the shutdown deadline of a minute.
const AT_ONCE: Range<Duration> = Duration::ZERO..Duration::from_secs(20);

#[test]
fn during_the_delay_it_is_unready_and_answers() {
    let mut service = Service::start(&["--shutdown-delay", "2s"]);
    let mut kept = service.client();
    assert_eq!(kept.send("GET", "/readyz", &[], "").status, 200);
    let watch = Stopwatch::start();
    service.program.signal("TERM").unwrap();
    wait_until("it to be unready", || service.get("/readyz").status == 503).unwrap();
    assert_eq!(service.get("/readyz").json()["ready"], false);
    // Every response from now on tells its client to send no other request on that connection.
    let others = [("POST", "/v1/check", QUESTION), ("GET", "/healthz", ""), ("GET", "/readyz", "")];
    for (method, path, body) in others {
        let mut new = service.client();
        let reply = new.send(method, path, &[], body);
        assert_eq!(reply.header("connection"), Some("close"), "{path}: {reply:?}");
        assert!(new.read().is_none(), "{path}: the connection ends");
    }
    let reply = kept.send("POST", "/v1/check", &[], QUESTION);
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{reply:?}");
    assert!(kept.read().is_none());
    assert_eq!(service.program.end().unwrap().code(), Some(0));
    assert!(watch.elapsed() >= Duration::from_secs(2), "{:?}", watch.elapsed());
}

/// A request that has begun when the signal arrives is answered once the rest of it arrives.
#[test]
fn requests_under_way_are_finished() {
    let mut service = Service::start(&["--shutdown-deadline", "20s"]);
    let mut clients = [service.client(), service.client(), service.client()];
    let request = format!(
        "POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{QUESTION}",
        QUESTION.len()
    );
    // One client is within its head, one within its body, one within its second request.
    let [first, second, third] = &mut clients;
    first.write(&request.as_bytes()[..20]).unwrap();
    second.write(&request.as_bytes()[..request.len() - 5]).unwrap();
    assert_eq!(third.send("GET", "/healthz", &[], "").status, 200);
    third.write(&request.as_bytes()[..request.len() - 5]).unwrap();
    wait_until("all to be connected", || service.metric("trypema_connections") >= 4.0).unwrap();
    // These requests are sent later and answered, so the server has read the earlier bytes, or is about to.
    (0..20).for_each(|_| assert_eq!(service.get("/healthz").status, 200));
    service.program.signal("TERM").unwrap();
    service.program.line("stopping").unwrap();
    first.write(&request.as_bytes()[20..]).unwrap();
    second.write(&request.as_bytes()[request.len() - 5..]).unwrap();
    third.write(&request.as_bytes()[request.len() - 5..]).unwrap();
    for client in &mut clients {
        let reply = client.read().expect("an answer");
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    assert_eq!(service.program.end().unwrap().code(), Some(0));
}

#[test]
fn administration_is_finished_too() {
    let mut service = Service::start(&["--shutdown-deadline", "20s"]);
    let mut admin = service.admin_client();
    admin.write(b"GET /healthz HTTP/1.1\r\nho").unwrap();
    // The connection that reads the metric counts as well.
    wait_until("it to be connected", || service.metric("trypema_connections") >= 2.0).unwrap();
    (0..20).for_each(|_| drop(service.get("/metrics")));
    service.program.signal("TERM").unwrap();
    service.program.line("stopping").unwrap();
    admin.write(b"st: test\r\n\r\n").unwrap();
    assert_eq!(admin.read().expect("an answer").status, 200);
    assert_eq!(service.program.end().unwrap().code(), Some(0));
}

#[test]
fn idle_clients_do_not_delay_it() {
    let mut service = Service::start(&["--shutdown-deadline", "60s"]);
    let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(service.address).unwrap()).collect();
    let mut kept = service.client();
    kept.send("GET", "/healthz", &[], "");
    assert_eq!(ended(&mut service, AT_ONCE).code(), Some(0));
    drop(silent);
}

#[test]
fn clients_that_never_finish_do_not_keep_it_alive() {
    let mut service = Service::start(&["--shutdown-deadline", "1s"]);
    let _stuck = stuck(&service);
    assert_eq!(ended(&mut service, AT_THE_DEADLINE).code(), Some(0));
}

/// Neither waiting for clients nor returning leases may use up the whole shutdown deadline.
#[test]
fn a_stopped_redis_does_not_keep_it_alive() {
    let redis = Server::start().unwrap();
    let url = redis.url();
    let mut service = Service::start(
        &[
            ["--provider", "hybrid"],
            ["--redis-url", &url],
            ["--redis-deadline", "20s"],
            ["--shutdown-deadline", "1s"],
        ]
        .concat(),
    );
    let mut client = service.client();
    for _ in 0..500 {
        assert_eq!(
            client.send("POST", "/v1/check", &[], r#"{"attributes":{"ip":"203.0.113.9"}}"#).status,
            200
        );
    }
    redis.stop().unwrap();
    assert_eq!(ended(&mut service, Duration::ZERO..AT_THE_DEADLINE.end).code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (first, second) in [("TERM", "TERM"), ("INT", "INT"), ("INT", "TERM")] {
        let mut service = Service::start(&["--shutdown-deadline", "60s"]);
        let _stuck = stuck(&service);
        service.program.signal(first).unwrap();
        service.program.line("stopping").unwrap();
        let watch = Stopwatch::start();
        service.program.signal(second).unwrap();
        let code = service.program.end().unwrap().code();
        assert_eq!(code, Some(1), "{first}, then {second}");
        assert!(AT_ONCE.contains(&watch.elapsed()), "{:?}", watch.elapsed());
    }
}

/// Returns a client in the middle of a head, and one in the middle of a body.
fn stuck(service: &Service) -> [TcpStream; 2] {
    let begun = ["GET /heal", "POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{"];
    let clients = begun.map(|bytes| {
        let mut stream = TcpStream::connect(service.address).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        stream
    });
    // A later request on another connection is answered, so these bytes have arrived.
    wait_until("both to be connected", || service.metric("trypema_connections") >= 3.0).unwrap();
    assert_eq!(service.get("/healthz").status, 200);
    clients
}

/// Stops the server, asserts that this takes a time within `time`, and returns the exit status.
fn ended(service: &mut Service, time: Range<Duration>) -> ExitStatus {
    let watch = Stopwatch::start();
    service.program.signal("TERM").unwrap();
    let status = service.program.end().unwrap();
    assert!(time.contains(&watch.elapsed()), "{:?}: {}", watch.elapsed(), service.program.log());
    status
}
