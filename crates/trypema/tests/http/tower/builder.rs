//! Invalid settings of a layer.

use std::time::Duration;

use trypema::TrypemaError;
use trypema::tower::{GlobalKeyExtractor, InvalidLayer, RateLimitLayer};

use super::scene::{engine, hourly, limiter, request, send, statuses};

#[test]
fn numbers_that_make_no_limit_are_refused() {
    let build = |seconds, tokens| RateLimitLayer::builder().per_second(seconds).burst_size(tokens).build();
    let refused = |seconds, tokens| match build(seconds, tokens) {
        Err(InvalidLayer::Limit(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(0, 5), TrypemaError::InvalidWindow { .. }));
    assert!(matches!(refused(1, 0), TrypemaError::InvalidLimit { given: 0, .. }));
    assert!(matches!(refused(u64::MAX, u32::MAX), TrypemaError::InvalidWindow { .. }));
    assert!(build(1, 5).is_ok());
}

#[test]
fn a_layer_has_one_limit() {
    let error = |built: Result<RateLimitLayer, InvalidLayer>| built.unwrap_err();
    assert_eq!(error(RateLimitLayer::builder().build()), InvalidLayer::NoLimit);
    let both = RateLimitLayer::builder().limit(hourly(1));
    assert_eq!(error(both.burst_size(2).finish()), InvalidLayer::TwoLimits);
    let both = RateLimitLayer::builder().limit(hourly(1));
    assert_eq!(error(both.period(Duration::from_secs(1)).build()), InvalidLayer::TwoLimits);
}

#[test]
fn names_are_short_and_plain() {
    let build = |name: &str| RateLimitLayer::builder().limit(hourly(1)).name(name).build();
    for name in ["a", "api-v1.search_2", &"n".repeat(64)] {
        assert!(build(name).is_ok(), "{name:?}");
    }
    for name in ["", "a b", "a|b", "a:b", "a\r\n", "é", &"n".repeat(65)] {
        let Err(InvalidLayer::Name { given, max_bytes: 64 }) = build(name) else { panic!("{name:?}") };
        assert!(name.starts_with(&given));
    }
    // Without a name, two layers on one limiter would share counters.
    let shared = RateLimitLayer::builder().limit(hourly(1)).limiter(limiter().0).build();
    assert_eq!(shared.unwrap_err(), InvalidLayer::NoName);
}

#[test]
fn a_request_is_charged_before_or_after() {
    let builder = RateLimitLayer::builder().limit(hourly(1));
    let both =
        builder.charge_if(|response| response.status == 401).refund_if(|response| response.status == 500);
    assert_eq!(both.build().unwrap_err(), InvalidLayer::ChargeAndRefund);
    let both = RateLimitLayer::rules(engine("rules: []")).charge_if(|_| true).refund_if(|_| true);
    assert_eq!(both.finish().unwrap_err(), InvalidLayer::ChargeAndRefund);
}

#[tokio::test]
async fn as_many_attributes_as_rules_take() {
    let rules = "rules: [{id: last, scope: user, key_pattern: '{a29}', strategy: {fixed_window: {limit: 1, window: 1h}}}]";
    let with = |count: usize| {
        let builder = RateLimitLayer::rules(engine(rules));
        (0..count).fold(builder, |builder, n| builder.attribute(format!("a{n}"), GlobalKeyExtractor)).build()
    };
    assert_eq!(with(31).unwrap_err(), InvalidLayer::Attributes { given: 31, max: 30 });
    let layer = with(30).unwrap();
    assert_eq!(statuses(&layer, [request(), request()]).await, [200, 429]);
}

/// If only one number of tower_governor's pair is set, the other is its default: 8 tokens, or one every 500
/// ms.
#[tokio::test]
async fn numbers_left_out_are_those_of_tower_governor() {
    let (rl, clock) = limiter();
    let builder = || RateLimitLayer::builder().limiter(rl.clone());
    let burst = builder().name("burst").burst_size(1).finish().unwrap();
    assert_eq!(statuses(&burst, [request(), request()]).await, [200, 429]);
    clock.advance(Duration::from_millis(499));
    assert_eq!(send(&burst, request()).await.status, 429);
    clock.advance(Duration::from_millis(1));
    assert_eq!(send(&burst, request()).await.status, 200);

    let period = builder().name("period").per_millisecond(10).finish().unwrap();
    let sent = statuses(&period, (0..9).map(|_| request())).await;
    assert_eq!(sent, [200, 200, 200, 200, 200, 200, 200, 200, 429]);
    clock.advance(Duration::from_millis(10));
    assert_eq!(statuses(&period, [request(), request()]).await, [200, 429]);
}
