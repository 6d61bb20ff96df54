//! Redis is stopped: it accepts connections and answers nothing.

use trypema_testkit::redis::{Server, wait_until};

use super::kill::{IN_TIME, RECOVERY, SOME};
use super::load::Load;
use super::policy::{FLAGS, LIMIT, LOCAL_SHARE, Policy, RULES};
use crate::harness::Service;
use crate::process::{descriptors, is_sound, memory};
use crate::timing::Stopwatch;

/// The number of responses per policy while Redis is stopped: some seconds of load.
const MANY: u64 = 2_000;
const MEMORY_SLACK: u64 = 8 * 1024 * 1024;

#[test]
fn a_stopped_redis_delays_nothing_beyond_the_deadline() {
    stopped("redis");
}

#[test]
fn a_stopped_redis_delays_nothing_below_leases() {
    stopped("hybrid");
}

fn stopped(provider: &str) {
    let redis = Server::start().unwrap();
    let url = redis.url();
    let service =
        Service::with_rules(RULES, &[&["--provider", provider, "--redis-url", &url], &FLAGS[..]].concat());
    let load = Load::start(&service);
    load.wait("units", |_, now, policy| now.real(policy) >= SOME);
    redis.stop().unwrap();
    let without = |some: u64| {
        load.wait("answers without redis", |before, now, policy| {
            now.substitutes(policy) >= before.substitutes(policy) + some
        });
    };
    // Buffers first grow to their usual size.
    without(SOME);
    let (memory_before, descriptors_before) = (memory(&service), descriptors(&service));
    load.p99();
    without(MANY);
    let (slow, memory_after) = (load.p99(), memory(&service));
    println!("{provider}: p99 {slow:?} while redis stands still; memory {memory_before} -> {memory_after}");
    assert!(slow <= IN_TIME, "p99 is {slow:?}");
    assert!(memory_after <= memory_before + MEMORY_SLACK, "{memory_before} -> {memory_after}");
    redis.cont().unwrap();
    let watch = Stopwatch::start();
    load.wait("answers with redis", |before, now, policy| now.real(policy) >= before.real(policy) + SOME);
    assert!(watch.elapsed() <= RECOVERY, "served again after {:?}", watch.elapsed());
    load.stop();
    wait_until("descriptors to come back", || descriptors(&service) <= descriptors_before).unwrap();
    is_sound(&service);
}

/// A freeze that ends before the log looks again is logged, too: every 503 has its line.
#[test]
fn a_short_freeze_is_logged() {
    let redis = Server::start().unwrap();
    let mut service = Service::with_rules(RULES, &["--redis-url", &redis.url(), "--redis-deadline", "2s"]);
    let mut client = service.client();
    let mut ask = || client.send("POST", "/v1/check", &[], &Policy::Error.question(0)).status;
    assert_eq!(ask(), 200);
    redis.stop().unwrap();
    let status = ask();
    redis.cont().unwrap();
    assert_eq!(status, 503);
    let line = service.program.line("on_store_failure=error").unwrap();
    assert!(line.contains("WARN store: ") && line.contains("no reply from redis"), "{line}");
}

#[test]
fn without_redis_a_server_lets_in_its_part_of_the_limit() {
    let redis = Server::start().unwrap();
    let url = redis.url();
    let service = Service::with_rules(RULES, &[&["--redis-url", &url], &FLAGS[..]].concat());
    redis.kill_9().unwrap();
    let mut client = service.client();
    let allowed = (0..LOCAL_SHARE + 50)
        .filter(|_| {
            let reply = client.send("POST", "/v1/check", &[], &Policy::Local.question(0)).json();
            assert_eq!(reply["rules"][0]["substitute"], true, "{reply}");
            reply["allowed"] == true
        })
        .count();
    assert_eq!(allowed as u64, LOCAL_SHARE);
    // When Redis is back, the server deducts there the units that it admitted without Redis.
    redis.restart().unwrap();
    let witness = Service::with_rules(RULES, &["--redis-url", &url, "--redis-deadline", "20s"]);
    wait_until("what was let in to be counted", || {
        client.send("POST", "/v1/check", &[], &Policy::Local.question(0));
        let remaining = witness.get("/v1/keys/local%7Clocal=0").json()["remaining"].as_u64().unwrap();
        remaining < LIMIT - LOCAL_SHARE
    })
    .unwrap();
}
