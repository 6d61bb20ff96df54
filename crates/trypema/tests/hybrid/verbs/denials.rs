//! Cached denials: they are kept only while they are certain and useful, and only for the same kind of call.

use std::time::Duration;

use trypema::strategy::{FixedWindow, TokenBucket};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{SYNC, Scene, WINDOW, call_until_leased, held, take, try_take};

#[test]
fn a_denial_is_remembered_for_an_interval() {
    fn is_remembered<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(5, WINDOW));
        for _ in 0..5 {
            assert!(take::<S>(&rl, "ann", &limit, 1).is_allowed(), "{}", S::NAME);
        }
        let first = take::<S>(&rl, "ann", &limit, 1);
        assert!(!first.is_allowed(), "{}", S::NAME);
        let wait = first.retry_after().unwrap();
        let before = scene.calls();
        for passed in 0..4 {
            let denied = try_take::<S>(&rl, "ann", &limit, 1).unwrap();
            assert!(!denied.is_allowed(), "{}", S::NAME);
            assert_eq!(denied.retry_after(), Some(wait - SYNC / 4 * passed), "{} counts on", S::NAME);
            assert_eq!((denied.limit(), denied.remaining()), (5, 0), "{}", S::NAME);
            assert!(!take::<S>(&rl, "ann", &limit, 2).is_allowed(), "{}: nor does more", S::NAME);
            scene.clock.advance(SYNC / 4);
        }
        assert_eq!(scene.calls(), before, "{}", S::NAME);
        assert!(!take::<S>(&rl, "ann", &limit, 1).is_allowed(), "{}", S::NAME);
        assert_eq!(scene.calls(), before + 1, "{}: then it is asked again", S::NAME);
    }

    for_every_exact!(is_remembered);
}

#[test]
fn a_denial_says_nothing_of_smaller_costs() {
    fn says_nothing<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(10, WINDOW));
        assert!(take::<S>(&rl, "ann", &limit, 8).is_allowed(), "{}", S::NAME);
        for _ in 0..2 {
            assert!(!take::<S>(&rl, "ann", &limit, 5).is_allowed(), "{}", S::NAME);
        }
        assert!(take::<S>(&rl, "ann", &limit, 2).is_allowed(), "{}", S::NAME);
        assert!(!take::<S>(&rl, "ann", &limit, 1).is_allowed(), "{}", S::NAME);
    }

    for_every_exact!(says_nothing);
}

/// Without other traffic, a denied call is admitted after its reported wait. For a hot key, it may take a
/// quarter of an interval if that is longer.
#[test]
fn a_denied_call_is_admitted_after_its_wait() {
    let scene = Scene::start();
    // The bucket refills a token every 10 ms.
    let limit = TokenBucket::limit(600, Duration::from_secs(6));
    for (name, is_hot) in [("cold", false), ("hot", true)] {
        let rl = scene.instance();
        let mut left = 600;
        if is_hot {
            left -= call_until_leased::<TokenBucket>(&rl, name, &limit);
            while held::<TokenBucket>(&rl, name) > 0 {
                assert!(try_take::<TokenBucket>(&rl, name, &limit, 1).unwrap().is_allowed());
                left -= 1;
            }
        }
        assert!(take::<TokenBucket>(&rl, name, &limit, left).is_allowed());
        let denied = take::<TokenBucket>(&rl, name, &limit, 1);
        let wait = denied.retry_after().unwrap();
        assert_eq!(wait, Duration::from_millis(10), "{name}");
        scene.clock.advance(wait - Duration::from_micros(1));
        assert!(!take::<TokenBucket>(&rl, name, &limit, 1).is_allowed(), "{name}: a microsecond early");
        let interval = Duration::from_secs(6) / 128;
        scene.clock.advance(Duration::from_micros(1).max(if is_hot {
            interval / 4 - wait
        } else {
            Duration::ZERO
        }));
        scene.clock.advance(Duration::from_micros(1));
        assert!(take::<TokenBucket>(&rl, name, &limit, 1).is_allowed(), "{name}");
    }
}

#[test]
fn a_denial_never_says_to_come_back_at_once() {
    let scene = Scene::start();
    let limit = TokenBucket::limit(6_000, Duration::from_secs(6));
    let rl = scene.instance();
    call_until_leased::<TokenBucket>(&rl, "hot", &limit);
    let mut denials = 0;
    for _ in 0..200 {
        let decision = take::<TokenBucket>(&rl, "hot", &limit, 900);
        if !decision.is_allowed() {
            denials += 1;
            assert!(decision.retry_after().is_some_and(|wait| !wait.is_zero()), "{decision:?}");
        }
        scene.clock.advance(Duration::from_micros(700));
    }
    assert!(denials > 20, "only {denials} denials");
}

#[test]
fn what_others_give_back_is_seen_within_an_interval() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), FixedWindow::limit(10, WINDOW));
    assert!(take::<FixedWindow>(&rl, "ann", &limit, 10).is_allowed());
    assert!(!take::<FixedWindow>(&rl, "ann", &limit, 1).is_allowed());
    let other = scene.instance();
    let refunded = other.redis().fixed_window();
    let ann = trypema_testkit::blocking::key("ann");
    assert_eq!(trypema_testkit::blocking::wait_for(refunded.refund_units(&ann, &limit, 4)).unwrap(), 4);
    scene.clock.advance(SYNC);
    assert!(take::<FixedWindow>(&rl, "ann", &limit, 4).is_allowed());
}

/// A client that retries after the reported wait is not denied by a cached denial.
#[test]
fn a_denial_is_remembered_no_longer_than_it_tells() {
    let scene = Scene::start();
    // The bucket refills a token every 600 ms.
    let (rl, limit) = (scene.instance(), TokenBucket::limit(100, WINDOW));
    let one = || take::<TokenBucket>(&rl, "ann", &limit, 1);
    assert!(take::<TokenBucket>(&rl, "ann", &limit, 100).is_allowed());
    // Calls every 10 ms, until the next token is 10 ms away and no denial is cached.
    for _ in 0..49 {
        assert!(!one().is_allowed());
        scene.clock.advance(Duration::from_millis(10));
    }
    scene.clock.advance(SYNC);
    for _ in 0..5 {
        assert!(!one().is_allowed());
    }
    let told = one().retry_after().unwrap();
    assert!(told >= Duration::from_millis(1), "{told:?} is no wait");
    scene.clock.advance(told);
    assert!(try_take::<TokenBucket>(&rl, "ann", &limit, 1).is_none_or(|decision| decision.is_allowed()));
}
