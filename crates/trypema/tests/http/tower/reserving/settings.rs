//! Settings that contradict each other, and the responses to denied requests.

use std::time::Duration;

use tower::{Layer, service_fn};
use trypema::TrypemaError;
use trypema::http::HeaderStyle;
use trypema::tower::{InvalidLayer, RateLimitLayer};

use super::{RULES, Scene, open};
use crate::tower::scene::{answer_of, engine, grpc_call, request, statuses, welcome};

#[test]
fn what_contradicts_itself_is_refused() {
    let charging = || RateLimitLayer::rules(engine(RULES)).charge_if(|_| true);
    let refused = charging().reserve(Duration::from_secs(1)).build().unwrap_err();
    assert_eq!(refused, InvalidLayer::ChargeAndReserve);
    let scene = Scene::local(RULES);
    assert_eq!(scene.layer().charge_if(|_| true).build().unwrap_err(), InvalidLayer::ChargeAndReserve);
    assert!(scene.layer().refund_if(|_| true).finish().is_ok());
    for ttl in [Duration::ZERO, Duration::from_secs(3_601)] {
        let refused = RateLimitLayer::rules(engine(RULES)).reserve(ttl).build().unwrap_err();
        assert!(matches!(refused, InvalidLayer::Limit(TrypemaError::InvalidHold { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_denial_is_a_problem_with_headers() {
    let scene = Scene::local(RULES);
    let layer = scene.layer().use_headers(HeaderStyle::Standard);
    let open = open(scene.layer()).await;
    let layer = layer.build().unwrap();
    let denied = answer_of(layer.clone().layer(service_fn(welcome)), request()).await;
    assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, Some("1")));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["slots"]));
    let denied = answer_of(layer.clone().layer(service_fn(welcome)), grpc_call()).await;
    assert_eq!(denied.header("grpc-status"), Some("8"));
    drop(open);
    let admitted = answer_of(layer.layer(service_fn(welcome)), request()).await;
    assert_eq!((admitted.status.as_u16(), admitted.body.as_str()), (200, "welcome"));
    assert!(admitted.header("ratelimit").unwrap().contains("\"tokens\";r=800"), "{admitted:?}");
}

/// A check holds nothing, so it cannot enforce what limits concurrency.
#[tokio::test]
async fn a_layer_that_does_not_reserve_skips_concurrency_rules() {
    let scene = Scene::local(RULES);
    let open = open(scene.layer()).await;
    let plain =
        RateLimitLayer::rules(scene.engine.clone()).attribute("ip", trypema::tower::PeerIpKeyExtractor);
    assert_eq!(statuses(&plain.build().unwrap(), [request(), request()]).await, [200, 200]);
    drop(open);
}
