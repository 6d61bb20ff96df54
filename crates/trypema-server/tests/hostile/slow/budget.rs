//! One memory budget for the bodies and unread responses of all connections.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use serde_json::json;
use trypema_testkit::redis::wait_until;

use super::crowd::connect_from;
use crate::client::{Client, Reply};
use crate::harness::Service;
use crate::process::{is_sound, memory};

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const MEBIBYTE: usize = 1024 * 1024;
/// The smallest permitted budget: two rule sets of the maximum size.
const BUDGET: usize = 32 * MEBIBYTE;
const HELD: &str = "trypema_buffered_bytes";
const EVICTED: &str = r#"trypema_connections_closed_early_total{reason="out_of_memory"}"#;
const REFUSALS: &str = "trypema_memory_refusals_total";
/// Memory outside the budget: connection buffers, arenas, and memory of requests being decided.
const MEMORY_SLACK: u64 = 40 * 1024 * 1024;

fn start(rules: &str) -> Service {
    let budget = BUDGET.to_string();
    Service::with_rules(
        rules,
        &["--max-buffered-bytes", &budget, "--trusted-proxies", "10.0.0.0/8", "--max-batch", "1500"],
    )
}

fn batch(checks: usize) -> String {
    json!(vec![json!({"attributes": {"user": "ann"}}); checks]).to_string()
}

/// Sends a good client's batch, which needs some of the budget itself.
fn good_batch(service: &Service) -> Reply {
    service.post("/v1/check", &batch(300))
}

#[test]
fn bodies_that_never_end_leave_room_for_others() {
    let service = start("");
    assert_eq!(good_batch(&service).status, 200);
    let before = memory(&service);
    let body = " ".repeat(MEBIBYTE - 1);
    let mut attackers: Vec<TcpStream> = Vec::new();
    for _ in 0..60 {
        let mut stream = connect_from(ATTACKER, service.address).unwrap();
        let head = format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {MEBIBYTE}\r\n\r\n");
        // A refused body is not read to its end.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        attackers.push(stream);
    }
    let outdone = || service.metric(REFUSALS) + service.metric(EVICTED) >= 20.0;
    wait_until("those that do not fit to be refused or closed", outdone).unwrap();
    let held = service.metric(HELD);
    assert!((BUDGET as f64 / 2.0..=BUDGET as f64).contains(&held), "{held} bytes are held");
    for _ in 0..5 {
        // A part of the budget is reserved for peers that hold little.
        let reply = service.post("/v1/check", &batch(1_500));
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let after = memory(&service);
    println!("memory {before} -> {after} with a budget of {BUDGET}");
    assert!(after <= before + BUDGET as u64 + MEMORY_SLACK, "{before} -> {after}");
    drop(attackers);
    wait_until("all memory to be released", || service.metric(HELD) == 0.0).unwrap();
    is_sound(&service);
}

/// Returns `count` rules that apply to every request. With ten of them, the response to a check has some
/// kilobytes.
fn many_rules(count: usize) -> String {
    let rule = |number: usize| {
        let id = format!("rule-{number}-{}", "x".repeat(50));
        format!(
            "  - {{id: {id}, scope: user, strategy: {{fixed_window: {{limit: 1000000000, window: 30d}}}}}}\n"
        )
    };
    format!("rules:\n{}", (0..count).map(rule).collect::<String>())
}

#[test]
fn answers_that_nobody_reads_give_way() {
    let service = start(&many_rules(10));
    assert_eq!(good_batch(&service).status, 200);
    let before = memory(&service);
    let body = batch(1_500);
    let ask =
        format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut attackers: Vec<TcpStream> = Vec::new();
    let mut attack = || {
        let mut stream = connect_from(ATTACKER, service.address).unwrap();
        let _ = stream.write_all(ask.as_bytes());
        attackers.push(stream);
    };
    wait_until("a refusal", || {
        attack();
        service.metric(REFUSALS) >= 1.0
    })
    .unwrap();
    assert!(service.metric(HELD) > BUDGET as f64 / 2.0, "unread answers are accounted for");
    for _ in 0..5 {
        let reply = good_batch(&service);
        assert_eq!(reply.status, 200, "{reply:?}");
        attack();
    }
    let after = memory(&service);
    println!("memory {before} -> {after} with a budget of {BUDGET}");
    assert!(after <= before + BUDGET as u64 + MEMORY_SLACK, "{before} -> {after}");
    // The server also closes connections that have stalled for two seconds in favour of their own peer.
    wait_until("room for the same peer", || {
        let stream = connect_from(ATTACKER, service.address).unwrap();
        let mut client = Client::from(stream);
        // Until then the request is refused, or its connection closed while it waits.
        client.write(ask.as_bytes()).is_ok() && client.read().is_some_and(|reply| reply.status == 200)
    })
    .unwrap();
    assert!(service.metric(EVICTED) >= 1.0, "slow readers made room");
    drop(attackers);
    wait_until("all memory to be released", || service.metric(HELD) == 0.0).unwrap();
    is_sound(&service);
}

/// A client repeats a request that got 503, which would spend or reserve units twice. All connections here are
/// one peer, so the server closes none in favour of another.
#[test]
fn checks_and_reservations_that_were_counted_are_answered() {
    // The text of a reservation has to fit into the 4 KiB that are not accounted for, and its answer has not.
    let service = start(&many_rules(30));
    let token =
        format!("authorization: Bearer {}\r\n", service.admin.as_ref().unwrap().token.clone().unwrap());
    let ask = |path: &str, body: &str| {
        let mut client = Client::from(connect_from(ATTACKER, service.address).unwrap());
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: test\r\n{token}content-length: {}\r\n\r\n", body.len());
        client.write((head + body).as_bytes()).unwrap();
        client.read().unwrap()
    };
    let ann = json!({"attributes": {"user": "ann"}}).to_string();
    let mut attackers = Vec::new();
    let mut fill = || {
        wait_until("the budget to be exhausted", || {
            for length in [MEBIBYTE, MEBIBYTE / 16, 8 * 1024] {
                let mut stream = connect_from(ATTACKER, service.address).unwrap();
                let head =
                    format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n");
                let body = " ".repeat(length - 1);
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
                attackers.push(stream);
            }
            // The probe reserves five kilobytes before it spends units.
            let probe = json!(vec![json!({"attributes": {"user": "probe"}}); 5]).to_string();
            ask("/v1/check", &probe).status == 503
        })
        .unwrap();
    };
    fill();
    let checked = ask("/v1/check", &ann);
    assert_eq!(checked.status, 200, "{checked:?}");
    assert!(checked.body.len() > 5 * 1024, "{} bytes are not accounted for", checked.body.len());
    fill();
    let reserved = ask("/v1/reserve", &ann);
    assert_eq!((reserved.status, &reserved.json()["allowed"]), (200, &true.into()), "{reserved:?}");
    assert!(reserved.body.len() > 5 * 1024, "{} bytes are not accounted for", reserved.body.len());
    let settlement = json!({"reservation": reserved.json()["reservation"], "costs": {"requests": 0}});
    fill();
    let settled = ask("/v1/settle", &settlement.to_string());
    assert_eq!((settled.status, &settled.json()["rules"][0]["refunded"]), (200, &1.into()), "{settled:?}");
    assert!(settled.body.len() > 4 * 1024, "{} bytes are not accounted for", settled.body.len());
    drop(attackers);
    wait_until("all memory to be released", || service.metric(HELD) == 0.0).unwrap();
    is_sound(&service);
}
