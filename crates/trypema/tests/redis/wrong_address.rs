//! Addresses that can never work: they are refused when the connection is made, with the address that would work.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::sync::Arc;
use std::time::Duration;

use trypema::redis::{RedisConnection, RedisFailureKind};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::{Cluster, Sentinel, Server};

use crate::batching::long_window;

/// Asserts that connecting to `url` is refused for good, in words that contain `hint`.
fn assert_refused(url: &str, hint: &str) {
    let error = wait_for(RedisConnection::connect(url)).unwrap_err();
    let TrypemaError::RedisError(failure) = &error else { panic!("{url}: {error}") };
    assert_eq!(failure.kind(), RedisFailureKind::Refused, "{url}: {error}");
    assert!(error.to_string().contains(hint), "{url}: {error}");
}

#[test]
fn a_single_server_is_no_cluster_and_no_sentinel() {
    let server = Server::start().unwrap();
    let address = server.addr();
    assert_refused(&format!("redis+cluster://{address}"), "connect with `redis://`");
    assert_refused(&format!("redis+sentinel://{address}/main"), "connect with `redis://`");
    assert_refused(&format!("redis://{address}/99"), "DB index is out of range");
}

#[test]
fn a_node_of_a_cluster_is_no_single_server() {
    let cluster = Cluster::start().unwrap();
    let node = cluster.nodes()[0].url();
    assert_refused(&node, "redis+cluster://");
    assert_refused(&format!("{node}/1"), "");
    let lazy = RedisConnection::lazy(&node).unwrap();
    let builder = RateLimiter::builder().redis(lazy).redis_deadline(Duration::from_secs(20));
    let rl = Arc::new(builder.build().unwrap());
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let rl = Arc::clone(&rl);
            let name = key(&format!("key {number}"));
            runtime().spawn(async move { rl.redis().fixed_window().take(&name, &long_window(10), 1).await })
        })
        .collect();
    for call in calls {
        if let Err(error) = wait_for(call).unwrap() {
            assert!(error.to_string().contains("redis+cluster://"), "{error}");
        }
    }
}

#[test]
fn a_sentinel_is_no_server_and_knows_its_services() {
    let sentinel = Sentinel::start().unwrap();
    let (sentinels, _) =
        sentinel.url().trim_start_matches("redis+sentinel://").split_once('/').map(own).unwrap();
    let first = sentinels.split(',').next().unwrap();
    assert_refused(&format!("redis://{first}"), "redis+sentinel://");
    assert_refused(&format!("redis+sentinel://{sentinels}/unknown"), "do not know the service");
    // Another sentinel may know it.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [format!("{first},{nobody}"), format!("{nobody},{first}")] {
        let error =
            wait_for(RedisConnection::connect(&format!("redis+sentinel://{url}/unknown"))).unwrap_err();
        let TrypemaError::RedisError(failure) = &error else { panic!("{error}") };
        assert_eq!(failure.kind(), RedisFailureKind::Unavailable, "{error}");
    }
}

fn own((sentinels, service): (&str, &str)) -> (String, String) {
    (sentinels.to_owned(), service.to_owned())
}
