//! Counters in Redis: what only they have.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tower::{Layer, ServiceExt, service_fn};
use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::Engine;
use trypema_testkit::redis::Server;

use super::{ESTIMATE, RULES, Scene, open, status};
use crate::tower::scene::{request, rule_set, welcome};

/// An engine on its own connection, by its own clock: a process of its own.
pub(crate) async fn scene(server: &Server, rules: &str) -> Scene {
    let clock = Arc::new(ManualClock::default());
    let connection = trypema_testkit::blocking::dial(&server.url()).await;
    let limiter = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(20));
    let limiter = Arc::new(limiter.clock(clock.clone()).build().unwrap());
    Scene { engine: Arc::new(Engine::redis(limiter, rule_set(rules))), clock }
}

/// The clock of the killed process stands still, so it renews nothing.
#[tokio::test]
async fn the_slot_of_a_killed_process_returns_after_its_hold() {
    let server = Server::start().unwrap();
    let (killed, other) = (scene(&server, RULES).await, scene(&server, RULES).await);
    std::mem::forget(open(killed.layer()).await);
    assert_eq!(status(other.layer()).await, 429);
    other.clock.advance(Duration::from_millis(29_999));
    assert_eq!(status(other.layer()).await, 429);
    other.clock.advance(Duration::from_millis(1));
    assert_eq!(status(other.layer()).await, 200);
}

/// Renewals of one process keep the slot from all others.
#[tokio::test]
async fn a_process_renews_what_others_would_take() {
    let server = Server::start().unwrap();
    let (holder, other) = (scene(&server, RULES).await, scene(&server, RULES).await);
    let open = open(holder.layer()).await;
    for _ in 0..6 {
        for one in [&holder, &other] {
            one.clock.advance(Duration::from_secs(10));
        }
        holder.assert_renewed().await;
        assert_eq!(status(other.layer()).await, 429);
    }
    drop(open);
    other.assert_left([1, 1_000 - ESTIMATE]).await;
}

/// The client goes away while Redis decides: before the call is sent, meanwhile, or after the reply.
#[tokio::test]
async fn a_request_that_is_cancelled_meanwhile_holds_nothing() {
    let server = Server::start().unwrap();
    let scene = scene(&server, RULES).await;
    let layer = scene.layer().build().unwrap();
    for yields in 0..100 {
        let mut response = pin!(layer.layer(service_fn(welcome)).oneshot(request()));
        let polled = async {
            for _ in 0..yields % 20 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = &mut response => {}
            () = polled => {}
        }
    }
    // Requests that were cancelled cost nothing, the others their estimate.
    let wait = async {
        while scene.left().await[0] != 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::FAR_TOO_LONG, wait).await.unwrap();
    let holders = scene.engine.holders("slots|ip=192.0.2.1").await.unwrap().unwrap();
    assert!(holders.is_empty(), "{holders:?}");
}

/// Bodies outlive the runtime that reserved for them.
#[test]
fn a_body_that_is_dropped_after_its_runtime_does_not_panic() {
    let server = Server::start().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let open = runtime.block_on(async { open(scene(&server, RULES).await.layer()).await });
    drop(runtime);
    drop(open);
}
