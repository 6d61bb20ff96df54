//! Abuse: Redis counts every attempt, and instances remember blocks.

use std::time::Duration;

use trypema::clock::Clock;
use trypema::strategy::Abuse;
use trypema::{AbuseDecision, AbuseLimit, AbuseTier, BlockScope, RateLimiter};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::wait_until;

use super::scene::{SYNC, Scene};

/// The fifth attempt within a minute blocks for ten minutes.
fn temp() -> AbuseTier {
    AbuseTier::new(Duration::from_secs(60), 5, Duration::from_secs(600)).unwrap()
}

fn limit(long_threshold: u64) -> AbuseLimit {
    let long = AbuseTier::new(Duration::from_secs(3_600), long_threshold, Duration::from_secs(86_400));
    AbuseLimit::new(temp(), long.unwrap())
}

fn attempt(rl: &RateLimiter, limit: &AbuseLimit) -> AbuseDecision {
    wait_for(rl.hybrid().abuse().take(&key("ann"), limit, 1)).unwrap()
}

fn seen(rl: &RateLimiter, limit: &AbuseLimit) -> AbuseDecision {
    wait_for(rl.redis().abuse().usage(&key("ann"), limit)).unwrap()
}

fn block(rl: &RateLimiter, limit: &AbuseLimit) {
    (0..4).for_each(|_| assert!(attempt(rl, limit).is_allowed()));
    assert!(!attempt(rl, limit).is_allowed());
}

#[test]
fn attempts_of_all_instances_are_counted_as_they_are_made() {
    let scene = Scene::start();
    let (instances, limit) = ([scene.instance(), scene.instance()], limit(1_000));
    for attempts in 1..5 {
        let decision = attempt(&instances[attempts % 2], &limit);
        assert!(decision.is_allowed());
        assert_eq!((decision.short_count(), decision.long_count()), (attempts as u64, attempts as u64));
    }
    let blocked = attempt(&instances[0], &limit);
    assert_eq!((blocked.is_allowed(), blocked.scope()), (false, Some(BlockScope::Temp)));
    assert!(!attempt(&instances[1], &limit).is_allowed(), "it is blocked for the other, too");
}

#[test]
fn a_block_is_remembered_and_its_end_counted_down() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(1_000));
    block(&rl, &limit);
    let calls = scene.calls();
    for passed in 0..4 {
        let blocked = rl.hybrid().abuse().try_take(&key("ann"), &limit, 1).unwrap();
        assert!(!blocked.is_allowed());
        assert_eq!(blocked.block_ends_after(), Duration::from_secs(600) - SYNC / 4 * passed);
        scene.clock.advance(SYNC / 4);
    }
    assert_eq!(scene.calls(), calls);
    assert!(!attempt(&rl, &limit).is_allowed());
    assert!(scene.calls() > calls, "then it is looked up again");
}

/// Makes ten attempts in each of ten intervals during a block. Redis must count all of them.
fn hammer(rl: &RateLimiter, scene: &Scene, limit: &AbuseLimit) {
    block(rl, limit);
    for _ in 0..100 {
        scene.clock.advance(SYNC / 10);
        assert!(!attempt(rl, limit).is_allowed());
    }
}

#[test]
fn attempts_during_a_block_are_counted() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(1_000));
    hammer(&rl, &scene, &limit);
    scene.clock.advance(SYNC);
    assert!(!attempt(&rl, &limit).is_allowed());
    assert_eq!(seen(&rl, &limit).long_count(), 106);
}

#[test]
fn attempts_during_a_block_are_counted_in_the_background() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(1_000));
    runtime().spawn(rl.hybrid().keep_in_sync());
    hammer(&rl, &scene, &limit);
    let is_told = || {
        scene.clock.advance(SYNC);
        seen(&rl, &limit).long_count() == 105
    };
    wait_until("all attempts to be told", is_told).unwrap();
}

/// A blocked client that keeps trying receives the long block once it reaches that threshold, and only once.
#[test]
fn attempts_during_a_block_start_the_block_of_the_other_tier() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(60));
    hammer(&rl, &scene, &limit);
    let blocked = attempt(&rl, &limit);
    assert_eq!(blocked.scope(), Some(BlockScope::Long));
    assert!(blocked.block_ends_after() > Duration::from_secs(86_000), "{blocked:?}");
    let end = scene.clock.now() + blocked.block_ends_after();
    for _ in 0..100 {
        scene.clock.advance(SYNC / 10);
        let blocked = attempt(&rl, &limit);
        assert_eq!(scene.clock.now() + blocked.block_ends_after(), end, "the long block was lengthened");
    }
}

/// Attempts that an instance denies from memory are counted in Redis but do not extend the block.
#[test]
fn attempts_during_a_block_do_not_lengthen_it() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(1_000));
    block(&rl, &limit);
    let end = scene.clock.now() + attempt(&rl, &limit).block_ends_after();
    for _ in 0..100 {
        scene.clock.advance(SYNC / 10);
        let blocked = attempt(&rl, &limit);
        assert_eq!(blocked.scope(), Some(BlockScope::Temp));
        assert_eq!(scene.clock.now() + blocked.block_ends_after(), end);
    }
    scene.clock.advance(SYNC);
    assert!(!attempt(&rl, &limit).is_allowed());
    assert!(seen(&rl, &limit).long_count() > 100, "they count");
    assert_eq!(scene.clock.now() + seen(&rl, &limit).block_ends_after(), end, "in Redis, too");
}

#[test]
fn attempts_during_a_block_lengthen_it_if_they_shall() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(1_000).lengthening_blocks());
    block(&rl, &limit);
    let end = scene.clock.now() + attempt(&rl, &limit).block_ends_after();
    (0..20).for_each(|_| {
        scene.clock.advance(SYNC / 10);
        attempt(&rl, &limit);
    });
    scene.clock.advance(SYNC);
    attempt(&rl, &limit);
    assert!(scene.clock.now() + seen(&rl, &limit).block_ends_after() > end);
}

#[test]
fn attempts_during_a_block_are_ignored_if_they_shall_be() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(60).ignoring_attempts_while_blocked());
    hammer(&rl, &scene, &limit);
    scene.clock.advance(SYNC);
    assert!(!attempt(&rl, &limit).is_allowed());
    assert_eq!(seen(&rl, &limit).long_count(), 5);
}

#[test]
fn a_block_ends() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(1_000));
    block(&rl, &limit);
    scene.clock.advance(Duration::from_secs(600) - Duration::from_micros(1));
    assert!(!attempt(&rl, &limit).is_allowed());
    scene.clock.advance(Duration::from_micros(1));
    assert!(attempt(&rl, &limit).is_allowed());
}

/// `unblock` discards the block together with the attempts during it, even those that this instance recorded
/// meanwhile.
#[test]
fn a_block_that_is_ended_elsewhere_is_noticed_within_an_interval() {
    let scene = Scene::start();
    let (rl, other, limit) = (scene.instance(), scene.instance(), limit(1_000));
    block(&rl, &limit);
    (0..20).for_each(|_| assert!(!attempt(&rl, &limit).is_allowed()));
    assert!(wait_for(other.redis().abuse().unblock(&key("ann"))).unwrap());
    scene.clock.advance(SYNC);
    assert!(attempt(&rl, &limit).is_allowed());
}

#[test]
fn a_block_by_hand_is_seen_by_all_and_ended_by_all() {
    let scene = Scene::start();
    let (rl, other, limit) = (scene.instance(), scene.instance(), limit(1_000));
    assert!(attempt(&rl, &limit).is_allowed());
    wait_for(other.hybrid().abuse().block(&key("ann"), Duration::from_secs(9), BlockScope::Long)).unwrap();
    assert!(!attempt(&rl, &limit).is_allowed());
    assert!(wait_for(rl.hybrid().abuse().unblock(&key("ann"))).unwrap());
    assert!(attempt(&rl, &limit).is_allowed(), "whoever ends a block knows it");
}

#[test]
fn only_a_block_denies_a_cost_of_nothing() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), limit(1_000));
    let nothing = || wait_for(rl.hybrid().abuse().take(&key("ann"), &limit, 0)).unwrap().is_allowed();
    assert!(nothing());
    block(&rl, &limit);
    assert!(!nothing());
    assert_eq!(wait_for(rl.redis().abuse().usage(&key("ann"), &limit)).unwrap().long_count(), 5);
    assert_eq!(super::scene::held::<Abuse>(&rl, "ann"), 0);
}
