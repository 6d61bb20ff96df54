//! The separation of counters between layers, rules and keys.

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::rules::Engine;
use trypema::tower::{PeerIpKeyExtractor, RateLimitLayer, RequestView};

use super::scene::{hourly, hourly_layer, limiter, request, rule_set, send, statuses, to};

fn layer(limiter: &Arc<RateLimiter>, name: &str) -> RateLimitLayer {
    RateLimitLayer::builder().limit(hourly(1)).limiter(limiter.clone()).name(name).build().unwrap()
}

#[tokio::test]
async fn clones_count_together() {
    let layer = hourly_layer(2).build().unwrap();
    let clone = layer.clone();
    assert_eq!(send(&layer, request()).await.status, 200);
    assert_eq!(send(&clone, request()).await.status, 200);
    assert_eq!(send(&layer, request()).await.status, 429);
    assert_eq!(send(&clone, request()).await.status, 429);
}

#[tokio::test]
async fn layers_of_one_name_share_and_others_do_not() {
    let (rl, _) = limiter();
    assert_eq!(send(&layer(&rl, "a"), request()).await.status, 200);
    assert_eq!(send(&layer(&rl, "b"), request()).await.status, 200);
    assert_eq!(send(&layer(&rl, "a"), request()).await.status, 429);
    assert_eq!(send(&layer(&limiter().0, "a"), request()).await.status, 200, "another limiter");
}

#[tokio::test]
async fn a_layer_without_a_limiter_has_its_own() {
    let alone = || RateLimitLayer::builder().limit(hourly(1)).build().unwrap();
    let (one, other) = (alone(), alone());
    assert_eq!(statuses(&one, [request(), request()]).await, [200, 429]);
    assert_eq!(statuses(&other, [request(), request()]).await, [200, 429]);
}

/// A layer and a rule have separate counters even if they share a name and a key.
#[tokio::test]
async fn layers_and_rules_do_not_meet() {
    let (rl, _) = limiter();
    assert_eq!(send(&layer(&rl, "api"), request()).await.status, 200);
    let rules = "rules: [{id: api, scope: ip, key_pattern: '{key}', strategy: {fixed_window: {limit: 1, window: 1h}}}]";
    let engine = Arc::new(Engine::local(rl.clone(), rule_set(rules)));
    let ruled = RateLimitLayer::rules(engine).attribute("key", PeerIpKeyExtractor).build().unwrap();
    assert_eq!(statuses(&ruled, [request(), request()]).await, [200, 429]);
    assert_eq!(rl.local().fixed_window().len(), 2);
}

/// Each key has its own counter, whatever characters it contains and however long it is.
#[tokio::test]
async fn odd_keys_have_counters_of_their_own() {
    let query = |request: &RequestView<'_>| request.uri.query().map(str::to_owned);
    let (rl, _) = limiter();
    let layer = |name: &str| {
        let builder = RateLimitLayer::builder().limit(hourly(1)).limiter(rl.clone()).name(name);
        builder.key_extractor(query).build().unwrap()
    };
    let (a, ab) = (layer("a"), layer("a.b"));
    let long = format!("/?{}", "k".repeat(10_000));
    let longer = format!("/?{}", "k".repeat(10_001));
    let keys = ["/?", "/?|=", "/?.b", "/?x:y", "/?x~3ay", "/?%3a", long.as_str(), longer.as_str()];
    for layer in [&a, &ab] {
        assert_eq!(statuses(layer, keys.map(|key| to(request(), key))).await, [200; 8]);
        assert_eq!(statuses(layer, keys.map(|key| to(request(), key))).await, [429; 8]);
    }
    let mut names: Vec<String> = rl.local().fixed_window().live_keys().map(|live| live.key).collect();
    names.sort();
    assert_eq!(names.len(), 16);
    assert!(names.contains(&"a|=x:y".to_owned()) && names.contains(&"a|=x~7e3ay".to_owned()), "{names:?}");
    assert!(names.iter().all(|name| name.len() <= 255), "{names:?}");
}
