//! Who gives way when there is no room.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use trypema_testkit::redis::wait_until;

use super::crowd::{connect, is_closed};
use crate::harness::{Service, trypema};

/// Several ticks of the service, so that it can tell who has been idle for longer.
const A_WHILE: Duration = Duration::from_millis(350);

/// So few that all of them are compared each time, those that are still ending included (the service looks at 64).
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
    // Served, so all before them were accepted.
    ask(&mut busy);
    let newest = connect(service.address, 12);
    wait_until("twelve to be closed", || old.iter().filter(|stream| is_closed(stream)).count() >= 12)
        .unwrap();
    assert_eq!(young.iter().chain(&newest).filter(|stream| is_closed(stream)).count(), 0);
    ask(&mut busy);
    // Reading the metric takes a place as well.
    let gave_way = service.metric(r#"trypema_connections_closed_early_total{reason="gave_way"}"#);
    assert!((12.0..=14.0).contains(&gave_way), "{gave_way}");
    assert_eq!(service.metric(r#"trypema_connections_closed_early_total{reason="refused"}"#), 0.0);
}

/// Where the system gives fewer descriptors than connections were asked for, the service makes do with those.
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

/// Connections over the limit of their peer are held open for a second, but not with the last descriptors.
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
    assert!(log.contains("the limit of open files is lower") && !log.contains("cannot be accepted"), "{log}");
}

/// A request whose body does not come is waited for, but not at the cost of others.
#[test]
fn bodies_that_stop_do_not_lock_others_out() {
    let service = Service::start(&["--max-connections", "200"]);
    let begun = b"POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{";
    let stalled: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(service.address).unwrap();
            // One that was refused already may be gone.
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
