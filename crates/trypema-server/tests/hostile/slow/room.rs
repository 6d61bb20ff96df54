//! The choice of connections to close when the server is full.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use trypema_testkit::redis::wait_until;

use super::crowd::{connect, is_closed};
use crate::harness::{Service, trypema};

/// Several ticks of the server, so that it can distinguish idle times.
const A_WHILE: Duration = Duration::from_millis(350);

/// The server compares up to 64 connections. There are fewer here, including those that are still closing, so
/// it finds the longest idle ones.
#[test]
fn the_longest_idle_ones_give_way_and_busy_ones_do_not() {
    let service = Service::start(&["--max-connections", "40"]);
    let mut busy: Vec<_> = (0..10).map(|_| service.client()).collect();
    let old = connect(service.address, 15);
    let ask = |busy: &mut Vec<crate::client::Client>| {
        for client in busy {
            assert_eq!(client.send("GET", "/healthz", &[], "").status, 200);
        }
    };
    ask(&mut busy);
    thread::sleep(A_WHILE);
    let young = connect(service.address, 15);
    // These requests are answered, so the server has accepted all earlier connections.
    ask(&mut busy);
    let newest = connect(service.address, 12);
    wait_until("twelve to be closed", || old.iter().filter(|stream| is_closed(stream)).count() >= 12)
        .unwrap();
    assert_eq!(young.iter().chain(&newest).filter(|stream| is_closed(stream)).count(), 0);
    ask(&mut busy);
    // The connection that reads the metric needs a slot as well.
    let evicted = service.metric(r#"trypema_connections_closed_early_total{reason="evicted"}"#);
    assert!((12.0..=14.0).contains(&evicted), "{evicted}");
    assert_eq!(service.metric(r#"trypema_connections_closed_early_total{reason="refused"}"#), 0.0);
}

/// If the system permits fewer descriptors than `--max-connections`, the server uses the lower number.
#[test]
fn a_lack_of_descriptors_locks_nobody_out() {
    let service = with_few_descriptors("");
    let crowd = connect(service.address, 1_000);
    for _ in 0..20 {
        assert_eq!(service.get("/healthz").status, 200);
    }
    drop(crowd);
    assert_made_do_with_few_descriptors(&service);
}

/// The server holds connections over the limit of their peer open for a second, but not with the last
/// descriptors.
#[test]
fn connections_over_the_limit_of_their_peer_leave_descriptors_for_others() {
    let service = with_few_descriptors("--max-connections-per-peer 20 --trusted-proxies 192.0.2.1");
    let mut early = service.client();
    let crowd = connect(service.address, 1_000);
    for _ in 0..20 {
        assert_eq!(early.send("GET", "/healthz", &[], "").status, 200);
    }
    drop(crowd);
    assert_made_do_with_few_descriptors(&service);
}

fn with_few_descriptors(options: &str) -> Service {
    Service::of(|_| {
        let serve =
            format!(r#"ulimit -n 400; exec "$0" serve --listen 127.0.0.1:0 --admin-listen off {options}"#);
        let mut limited = Command::new("sh");
        limited.args(["-c", &serve]).arg(trypema().get_program());
        limited
    })
}

fn assert_made_do_with_few_descriptors(service: &Service) {
    let log = service.program.log();
    assert!(log.contains("the open-file limit is lower") && !log.contains("cannot accept"), "{log}");
}

/// The server waits for a body that does not arrive, but not at the cost of other clients.
#[test]
fn bodies_that_stop_do_not_lock_others_out() {
    let service = Service::start(&["--max-connections", "200"]);
    let begun = b"POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{";
    let stalled: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(service.address).unwrap();
            // A connection that was already refused may be closed.
            let _ = stream.write_all(begun);
            stream
        })
        .collect();
    for _ in 0..20 {
        let reply = service.get("/healthz");
        assert_eq!(reply.status, 200);
    }
    drop(stalled);
}
