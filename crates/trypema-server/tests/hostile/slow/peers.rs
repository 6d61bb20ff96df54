//! A peer that opens more connections than the limit per peer.

use std::net::{Ipv4Addr, TcpStream};

use trypema_testkit::redis::wait_until;

use super::crowd::{connect_from, is_closed};
use crate::harness::Service;

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const REFUSED: &str = r#"trypema_connections_closed_early_total{reason="peer_limit"}"#;

fn closed(streams: &[TcpStream]) -> usize {
    streams.iter().filter(|stream| is_closed(stream)).count()
}

#[test]
fn a_peer_has_no_more_connections_than_it_may() {
    // The loopback network is trusted unless other proxies are configured.
    let service =
        Service::start(&["--max-connections-per-peer", "5", "--trusted-proxies", "10.0.0.0/8,127.0.0.1"]);
    let mut attacker: Vec<TcpStream> =
        (0..8).map(|_| connect_from(ATTACKER, service.address).unwrap()).collect();
    wait_until("three to be refused", || closed(&attacker) == 3).unwrap();
    assert_eq!(service.metric(REFUSED), 3.0);
    assert_eq!(closed(&attacker[..5]), 0, "the ones that were there first stay");
    // Other peers are served, and the peer can use a freed slot.
    assert_eq!(service.get("/healthz").status, 200);
    drop(attacker.drain(..1));
    wait_until("the place to be free", || service.metric("trypema_connections") <= 5.0).unwrap();
    let again = connect_from(ATTACKER, service.address).unwrap();
    assert_eq!(service.metric(REFUSED), 3.0);
    assert!(!is_closed(&again));
    let log = service.program.log();
    assert_eq!(log.matches("max_connections_per_peer").count(), 1, "once a minute: {log}");
    assert!(log.contains("127.0.0.2"), "{log}");
}

#[test]
fn trusted_proxies_have_as_many_as_they_need() {
    let service =
        Service::start(&["--max-connections-per-peer", "5", "--trusted-proxies", "127.0.0.1,127.0.0.2/32"]);
    let proxy: Vec<TcpStream> = (0..50).map(|_| connect_from(ATTACKER, service.address).unwrap()).collect();
    wait_until("all to be open", || service.metric("trypema_connections") >= 50.0).unwrap();
    assert_eq!((service.metric(REFUSED), closed(&proxy)), (0.0, 0));
}
