//! The hybrid provider behind the middleware: the same responses as on Redis, with few Redis calls.

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::http::HeaderStyle;
use trypema::rules::Engine;
use trypema::tower::{ByLimit, PeerIpKeyExtractor, RateLimitLayer, RateLimitLayerBuilder, ResponseView};
use trypema_testkit::redis::Server;

use super::charging::{GUESSES, HOURLY, failures_of_the_server_are_free, only_failures_count};
use super::scene::{guesses, hourly, request, rule_set, send};

/// No test here depends on the deadline. It is long because a busy machine is slow.
const DEADLINE: Duration = Duration::from_secs(20);

async fn limiter(server: &Server) -> Arc<RateLimiter> {
    let connection = trypema_testkit::blocking::dial(&server.url()).await;
    let limiter = RateLimiter::builder().redis(connection).redis_deadline(DEADLINE).build().unwrap();
    tokio::spawn(limiter.hybrid().keep_in_sync());
    Arc::new(limiter)
}

fn by_limit(limiter: &Arc<RateLimiter>, limit: u64) -> RateLimitLayerBuilder<ByLimit> {
    RateLimitLayer::builder().limit(hourly(limit)).hybrid(limiter.clone()).name("hourly")
}

#[tokio::test]
async fn two_instances_admit_exactly_their_limit() {
    let server = Server::start().unwrap();
    let (here, there) = (limiter(&server).await, limiter(&server).await);
    let layers = [&here, &there]
        .map(|limiter| by_limit(limiter, 1_000).use_headers(HeaderStyle::Standard).build().unwrap());
    let mut admitted = 0;
    for call in 0..3_000 {
        let response = send(&layers[call % 2], request()).await;
        match response.status.as_u16() {
            200 => admitted += 1,
            429 => assert!(response.header("retry-after").is_some_and(|wait| wait != "0")),
            other => panic!("{other}"),
        }
    }
    assert!((950..=1_000).contains(&admitted), "{admitted}");
    here.hybrid().release().await;
    there.hybrid().release().await;
    // The released units are available again.
    let last = by_limit(&limiter(&server).await, 1_000).build().unwrap();
    while send(&last, request()).await.status == 200 {
        admitted += 1;
    }
    assert_eq!(admitted, 1_000);
}

#[tokio::test]
async fn failures_only_and_refunds_on_leases() {
    let server = Server::start().unwrap();
    let rl = limiter(&server).await;
    let is_wrong = |response: &ResponseView<'_>| response.status == 401;
    let is_failure = |response: &ResponseView<'_>| response.status.is_server_error();
    let by_rules = |rules: &str, id: &str| {
        let rules = rule_set(&rules.replace(id, "id: rule"));
        let engine = Arc::new(Engine::hybrid(rl.clone(), rules));
        RateLimitLayer::rules(engine).attribute("ip", PeerIpKeyExtractor)
    };

    let guard = RateLimitLayer::builder().limit(guesses()).hybrid(rl.clone()).name("guesses");
    only_failures_count(&guard.charge_if(is_wrong).build().unwrap()).await;
    failures_of_the_server_are_free(&by_limit(&rl, 2).refund_if(is_failure).build().unwrap()).await;
    only_failures_count(&by_rules(GUESSES, "id: guesses").charge_if(is_wrong).build().unwrap()).await;
    let refunding = by_rules(HOURLY, "id: hourly").refund_if(is_failure).build().unwrap();
    failures_of_the_server_are_free(&refunding).await;
}
