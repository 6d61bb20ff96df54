//! Keys and prefixes of arbitrary bytes: each has its own counters, and all Redis keys of one subject are in
//! one slot.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trypema::redis::{RedisConnection, RedisKey};
use trypema::{AddressKey, FixedWindowLimit, RateLimiter};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::{Binary, Cluster, Server};

use crate::expiry::watched::Seen;

/// The prefix of the documented example.
const PREFIX: &str = "myapp:ratelimit";

/// More units than any key takes.
const CAPACITY: u64 = 1_000;

/// Every byte alone and after another, and texts that a naive encoding would confuse.
fn keys() -> Vec<Vec<u8>> {
    let address = |text: &str| AddressKey::of(text.parse().unwrap()).as_str().as_bytes().to_vec();
    let texts =
        ["", "%empty", "user:123", "user%3A123", "a}b", "a%7Db", "{}", "}{", "::1", "a:{b}:fixed_window"];
    let long =
        [vec![b'x'; 10_240], vec![b'x'; 10_241], vec![b'}'; 10_240], vec![0xff; 10_240], vec![b'x'; 255]];
    (0..=u8::MAX)
        .flat_map(|byte| [vec![byte], vec![b'k', byte]])
        .chain(texts.map(|text| text.as_bytes().to_vec()))
        .chain([address("2001:db8:1:2::7"), address("2001:db8:1:3::7"), address("203.0.113.9")])
        .chain(long)
        .collect()
}

async fn limiter(connection: RedisConnection) -> RateLimiter {
    let builder = RateLimiter::builder().redis(connection).redis_prefix(RedisKey::encode(PREFIX));
    builder.redis_deadline(Duration::from_secs(20)).build().unwrap()
}

/// Takes, reserves and refunds under every key, and resets the first one. Each key counts only its own units.
async fn each_key_has_its_own_counter(connection: RedisConnection) {
    let (rl, keys) = (limiter(connection).await, keys());
    let windows = rl.redis().fixed_window();
    let limit = FixedWindowLimit::new(CAPACITY, Duration::from_secs(366 * 86_400)).unwrap();
    for (bytes, cost) in keys.iter().zip(1..) {
        let key = RedisKey::encode(bytes);
        assert!(windows.take(&key, &limit, cost).await.unwrap().is_allowed());
        let reserved = windows.take_with_receipt(&key, &limit, 7).await.unwrap();
        assert_eq!(windows.refund(&key, &limit, &reserved.receipt.unwrap()).await.unwrap(), 7);
    }
    for (bytes, cost) in keys.iter().zip(1..) {
        let left = windows.usage(&RedisKey::encode(bytes), &limit).await.unwrap().remaining();
        assert_eq!(left, CAPACITY - cost, "{:?}", String::from_utf8_lossy(bytes));
    }
    assert!(windows.reset(&RedisKey::encode(&keys[0])).await.unwrap());
}

#[test]
fn any_bytes_are_a_key_on_every_server_and_scripts_touch_only_their_keys() {
    for binary in Binary::every().unwrap() {
        let server = Server::builder().binary(binary).start().unwrap();
        let monitor = server.monitor().unwrap();
        wait_for(each_key_has_its_own_counter(connect(&server.url())));
        let seen = Seen::of(&monitor.finish().unwrap());
        assert!(seen.by_clients.contains("EVALSHA"), "the monitor saw {:?}", seen.by_clients);
        let names = names_of(&server);
        assert!(names.iter().all(|name| name.starts_with("myapp:ratelimit:{")), "{names:?}");
        let readable = ["user:123", "2001:db8:1:2::/64", "203.0.113.9", "%empty", "%FF"];
        for key in readable {
            assert!(names.contains(&format!("{PREFIX}:{{{key}}}:fixed_window")), "{key} of {names:?}");
        }
    }
}

#[test]
fn all_names_of_a_key_are_in_one_slot() {
    let cluster = Cluster::start().unwrap();
    wait_for(each_key_has_its_own_counter(connect(&cluster.url())));
    let names: BTreeSet<String> = cluster.nodes().iter().flat_map(names_of).collect();
    let mut slots: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
    for name in &names {
        let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).unwrap().0;
        slots.entry(tag).or_default().insert(cluster.slot_of(name).unwrap());
    }
    assert_eq!(slots.len(), keys().iter().collect::<BTreeSet<_>>().len(), "a tag for each key");
    assert!(names.len() >= 2 * slots.len(), "states, receipts and resets: {}", names.len());
    for (tag, slots) in slots {
        assert_eq!(slots.len(), 1, "{tag}");
    }
}

/// The names of all keys on a server.
fn names_of(server: &Server) -> Vec<String> {
    let mut control = server.control().unwrap();
    control.command(&["KEYS", "*"]).unwrap().items().iter().map(|name| name.text()).collect()
}
