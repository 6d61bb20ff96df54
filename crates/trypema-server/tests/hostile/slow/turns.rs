//! A peer with many batches delays only itself.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use serde_json::json;
use trypema_testkit::redis::wait_until;

use super::crowd::connect_from;
use crate::harness::Service;
use crate::process::is_sound;

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const BATCHES: usize = 100;
/// The maximum number of batches answered while the good client waits. Two of the other peer's are in
/// progress, and the machine may be slow.
const MEANWHILE: f64 = 20.0;
const ANSWERED: &str = r#"trypema_http_requests_total{route="check",status="200"}"#;

fn batch(checks: usize) -> String {
    let body = json!(vec![json!({"attributes": {"user": "ann"}}); checks]).to_string();
    format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_batch_does_not_wait_behind_those_of_another_peer() {
    let service = Service::start(&[]);
    let mut client = service.client();
    client.write(batch(1).as_bytes()).unwrap();
    assert_eq!(client.read().unwrap().status, 200);
    let attackers: Vec<TcpStream> = (0..BATCHES)
        .map(|_| {
            let mut stream = connect_from(ATTACKER, service.address).unwrap();
            stream.write_all(batch(1_000).as_bytes()).unwrap();
            stream
        })
        .collect();
    let arrived = || service.metric("trypema_connections") > BATCHES as f64;
    wait_until("all batches to arrive", arrived).unwrap();
    let before = service.metric(ANSWERED);
    client.write(batch(20).as_bytes()).unwrap();
    assert_eq!(client.read().unwrap().status, 200);
    let meanwhile = service.metric(ANSWERED) - before;
    println!("{meanwhile} batches of the other peer were answered meanwhile, {before} before");
    assert!(meanwhile <= MEANWHILE, "{meanwhile} batches were answered meanwhile, {before} before");
    drop(attackers);
    is_sound(&service);
}
