//! A key that is split into parts: all parts together admit the whole limit, and never more.

use std::num::NonZeroU32;

use trypema::TrypemaError;
use trypema::redis::RedisKey;
use trypema::strategy::Abuse;
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{Scene, WINDOW};

fn parts(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

#[test]
fn the_parts_are_the_whole() {
    fn are_the_whole<S: HybridStrategy>() {
        let scene = Scene::start();
        let (instances, limit) = ([0; 3].map(|_| scene.instance()), S::limit(100, WINDOW));
        let ann = key("ann");
        let take = |index: usize| {
            let split = S::hybrid(&instances[index % 3]).split(parts(7));
            u64::from(wait_for(split.take(&ann, &limit, 1)).unwrap().is_allowed())
        };
        let admitted: u64 = (0..300).map(take).sum();
        assert_eq!(admitted, 100, "{}", S::NAME);
        let split = S::hybrid(&instances[0]).split(parts(7));
        let denied = wait_for(split.take(&ann, &limit, 1)).unwrap();
        assert!(denied.retry_after().is_some_and(|wait| !wait.is_zero()), "{}", S::NAME);
        assert_eq!(split.held(&ann), 0, "{}", S::NAME);
        assert!(wait_for(split.reset(&ann)).unwrap(), "{}", S::NAME);
        scene.clock.advance(super::scene::SYNC);
        assert!(wait_for(split.take(&ann, &limit, 1)).unwrap().is_allowed(), "{}", S::NAME);
    }

    for_every_exact!(are_the_whole);
}

#[test]
fn a_hot_key_is_decided_by_its_own_part() {
    let scene = Scene::start();
    let (rl, limit, ann) = (scene.instance(), trypema::strategy::Absolute::limit(1_000, WINDOW), key("ann"));
    let split = rl.hybrid().absolute().split(parts(4));
    while split.held(&ann) == 0 {
        assert!(wait_for(split.take(&ann, &limit, 1)).unwrap().is_allowed());
    }
    let calls = scene.calls();
    for _ in 0..split.held(&ann) {
        assert!(split.try_take(&ann, &limit, 1).unwrap().unwrap().is_allowed());
    }
    assert!(split.try_take(&ann, &limit, 1).is_none());
    assert_eq!(scene.calls(), calls);
}

#[test]
fn what_cannot_be_split_is_an_error() {
    let scene = Scene::start();
    let rl = scene.instance();
    let few = trypema::strategy::FixedWindow::limit(3, WINDOW);
    let split = rl.hybrid().fixed_window().split(parts(4));
    let failed = wait_for(split.take(&key("ann"), &few, 1)).unwrap_err();
    assert!(matches!(failed, TrypemaError::InvalidSplit { parts: 4 }), "{failed}");
    let attempts = rl.hybrid().abuse().split(parts(2));
    let failed = wait_for(attempts.take(&key("ann"), &Abuse::limit(10, WINDOW), 1)).unwrap_err();
    assert!(matches!(failed, TrypemaError::InvalidSplit { parts: 2 }), "{failed}");
}

#[test]
fn long_keys_that_differ_in_a_byte_are_split_apart() {
    let scene = Scene::start();
    let rl = scene.instance();
    let limit = trypema::strategy::FixedWindow::limit(4, WINDOW);
    let split = rl.hybrid().fixed_window().split(parts(2));
    let long = [254, 255, 10_240].map(|length| format!("{}:", "a".repeat(length)));
    for name in &long {
        let key = RedisKey::encode(name);
        let allowed = (0..6).filter(|_| wait_for(split.take(&key, &limit, 1)).unwrap().is_allowed()).count();
        assert_eq!(allowed, 4, "{} bytes", name.len());
    }
}
