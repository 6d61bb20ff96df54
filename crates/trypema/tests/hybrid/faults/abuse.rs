//! Attempts while Redis is unreachable: a known block holds for as long as it is certain, then the configured
//! policy applies.

use std::time::Duration;

use trypema::redis::OnFailure;
use trypema::{AbuseLimit, AbuseTier, RateLimiter};
use trypema_testkit::blocking::{key, wait_for};

use super::scene::{A_LEASE, Scene};

/// The third attempt within a minute blocks for ten minutes.
fn limit() -> AbuseLimit {
    let tier =
        |threshold| AbuseTier::new(Duration::from_secs(60), threshold, Duration::from_secs(600)).unwrap();
    AbuseLimit::new(tier(3), tier(1_000))
}

fn attempt(rl: &RateLimiter) -> Option<bool> {
    wait_for(rl.hybrid().abuse().take(&key("ann"), &limit(), 1)).ok().map(|decision| decision.is_allowed())
}

#[test]
fn a_block_is_remembered_and_attempts_are_told_later() {
    let scene = Scene::start();
    let rl = scene.instance(OnFailure::Fail);
    assert_eq!([0; 3].map(|_| attempt(&rl)), [Some(true), Some(true), Some(false)]);
    scene.proxy.refuse();
    assert!(wait_for(rl.redis().fixed_window().reset(&key("nobody"))).is_err());
    assert_eq!([0; 10].map(|_| attempt(&rl)), [Some(false); 10], "it is blocked, whoever is away");
    scene.clock.advance(A_LEASE);
    assert_eq!(attempt(&rl), None, "that has to be looked up");
    scene.heal(&rl);
    assert_eq!(attempt(&rl), Some(false));
    let seen = wait_for(rl.redis().abuse().usage(&key("ann"), &limit())).unwrap();
    assert_eq!(
        seen.long_count(),
        14,
        "those that were denied without Redis are told, the one that failed is not"
    );
}
