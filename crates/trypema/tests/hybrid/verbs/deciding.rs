//! Routing: Redis decides rarely used keys, and the instance decides hot ones.

use std::time::Duration;

use trypema::strategy::{Abuse, FixedWindow, Strategy, TokenBucket};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{SYNC, Scene, WINDOW, call_until_leased, held, release, take, try_take, used};

const CAPACITY: u64 = 1_000;

#[test]
fn a_cold_key_is_a_plain_take() {
    fn is_plain<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(10, WINDOW));
        let hybrid = |cost| wait_for(S::hybrid(&rl).take(&key("hybrid"), &limit, cost)).unwrap();
        let plain = |cost| wait_for(S::redis(&rl).take(&key("plain"), &limit, cost)).unwrap();
        plain(0);
        // The last cost no longer fits.
        for cost in [1, 0, 3, 1, 3, 3] {
            let before = scene.calls();
            let ours = hybrid(cost);
            assert_eq!(scene.calls(), before + 1, "{} cost {cost}", S::NAME);
            assert_eq!(format!("{ours:?}"), format!("{:?}", plain(cost)), "{} cost {cost}", S::NAME);
            assert_eq!(held::<S>(&rl, "hybrid"), 0);
            scene.clock.advance(SYNC * 3);
        }
    }

    for_every_leased!(is_plain);
    is_plain::<Abuse>();
}

/// A cached denial gives the key an entry, but does not make it hot.
#[test]
fn a_key_that_was_denied_once_is_still_cold() {
    fn is_cold<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(10, WINDOW));
        assert!(take::<S>(&rl, "ann", &limit, 8).is_allowed());
        assert!(!take::<S>(&rl, "ann", &limit, 3).is_allowed(), "{}", S::NAME);
        scene.clock.advance(SYNC * 3);
        assert!(take::<S>(&rl, "ann", &limit, 1).is_allowed(), "{}", S::NAME);
        assert_eq!(held::<S>(&rl, "ann"), 0, "{}", S::NAME);
    }

    for_every_exact!(is_cold);
}

#[test]
fn a_hot_key_is_decided_without_redis() {
    fn is_decided_here<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
        let mut taken = call_until_leased::<S>(&rl, "hot", &limit);
        assert_eq!(rl.hybrid().stats().held_units, held::<S>(&rl, "hot"), "{}", S::NAME);
        let before = scene.calls();
        for left in (0..held::<S>(&rl, "hot")).rev() {
            let decision = try_take::<S>(&rl, "hot", &limit, 1).unwrap();
            taken += 1;
            assert!(decision.is_allowed(), "{}", S::NAME);
            assert_eq!((decision.limit(), decision.remaining()), (CAPACITY, CAPACITY - taken), "{}", S::NAME);
            assert_eq!(held::<S>(&rl, "hot"), left, "{}", S::NAME);
        }
        assert!(try_take::<S>(&rl, "hot", &limit, 1).is_none(), "{} has nothing left", S::NAME);
        assert_eq!(scene.calls(), before, "{}", S::NAME);
        assert_eq!(used::<S>(&rl, "hot", &limit), taken, "{}: what is not answered is not spent", S::NAME);
        assert_eq!(take::<S>(&rl, "hot", &limit, 1).remaining(), CAPACITY - taken - 1, "{}", S::NAME);
    }

    for_every_leased!(is_decided_here);
}

#[test]
fn a_call_that_asks_for_nothing_is_one_call_of_redis_at_most() {
    fn is_one_call<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
        let mut taken = call_until_leased::<S>(&rl, "hot", &limit);
        while try_take::<S>(&rl, "hot", &limit, 1).is_some() {
            taken += 1;
        }
        let before = scene.calls();
        assert_eq!(take::<S>(&rl, "hot", &limit, 0).remaining(), CAPACITY - taken, "{}", S::NAME);
        assert_eq!(scene.calls(), before + 1, "{}", S::NAME);
    }

    for_every_leased!(is_one_call);
}

#[test]
fn a_call_that_needs_more_than_is_held_gets_all_or_nothing() {
    fn gets_all<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
        let taken = call_until_leased::<S>(&rl, "hot", &limit);
        let large = held::<S>(&rl, "hot") + 100;
        assert!(try_take::<S>(&rl, "hot", &limit, large).is_none());
        let decision = take::<S>(&rl, "hot", &limit, large);
        assert!(decision.is_allowed());
        assert_eq!(decision.remaining(), CAPACITY - taken - large, "{}", S::NAME);
        release(&rl);
        assert_eq!(used::<S>(&rl, "hot", &limit), taken + large, "{}", S::NAME);
    }

    for_every_leased!(gets_all);
}

#[test]
fn a_cost_of_nothing_is_told_and_not_counted() {
    fn is_told<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
        for _ in 0..3 {
            assert_eq!(take::<S>(&rl, "cold", &limit, 0).remaining(), CAPACITY, "{}", S::NAME);
        }
        let taken = call_until_leased::<S>(&rl, "hot", &limit);
        for _ in 0..3 {
            let decision = take::<S>(&rl, "hot", &limit, 0);
            assert_eq!(
                (decision.is_allowed(), decision.remaining()),
                (true, CAPACITY - taken),
                "{}",
                S::NAME
            );
        }
        release(&rl);
        assert_eq!(used::<S>(&rl, "hot", &limit), taken, "{}", S::NAME);
        assert_eq!(used::<S>(&rl, "cold", &limit), 0, "{}", S::NAME);
    }

    for_every_leased!(is_told);
}

#[test]
fn a_cost_that_never_fits_is_never_and_costs_others_nothing() {
    fn is_never<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
        let other = scene.instance();
        call_until_leased::<S>(&rl, "hot", &limit);
        for cost in [3 * CAPACITY, 1 << 53, u64::MAX] {
            for _ in 0..3 {
                let decision = take::<S>(&rl, "hot", &limit, cost);
                assert!(!decision.is_allowed() && decision.is_never(), "{} {decision:?}", S::NAME);
                assert_eq!(decision.retry_after(), None);
            }
        }
        assert!(take::<S>(&rl, "hot", &limit, 1).is_allowed(), "{}", S::NAME);
        // Most of the limit is still available to the other instance.
        assert!(take::<S>(&other, "hot", &limit, CAPACITY / 2).is_allowed(), "{}", S::NAME);
    }

    for_every_leased!(is_never);
}

#[test]
fn peeks_see_what_is_held_and_spend_nothing() {
    fn sees<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
        let peek = |cost| S::core(&wait_for(S::hybrid(&rl).peek(&key("hot"), &limit, cost)).unwrap());
        assert_eq!(peek(1).remaining(), CAPACITY - 1, "{}", S::NAME);
        let taken = call_until_leased::<S>(&rl, "hot", &limit);
        let (held_before, before) = (held::<S>(&rl, "hot"), scene.calls());
        for _ in 0..5 {
            assert_eq!(peek(1).remaining(), CAPACITY - taken - 1, "{}", S::NAME);
        }
        assert_eq!((held::<S>(&rl, "hot"), scene.calls()), (held_before, before), "{}", S::NAME);
        let usage = S::core(&wait_for(S::hybrid(&rl).usage(&key("hot"), &limit)).unwrap());
        assert_eq!(usage.remaining(), CAPACITY - taken, "{}", S::NAME);
        assert!(peek(held_before + 1).is_allowed(), "{}: more than is held is looked up", S::NAME);
    }

    for_every_leased!(sees);
}

#[test]
fn another_limit_is_decided_by_itself_and_keeps_what_was_spent() {
    fn keeps<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
        let taken = call_until_leased::<S>(&rl, "hot", &limit);
        let leased = held::<S>(&rl, "hot");
        let smaller = S::limit(CAPACITY / 2, WINDOW);
        let decision = take::<S>(&rl, "hot", &smaller, 1);
        assert_eq!(decision.limit(), CAPACITY / 2, "{}", S::NAME);
        assert_eq!(held::<S>(&rl, "hot"), 0, "{}: nothing was granted under this limit", S::NAME);
        release(&rl);
        // The smaller bucket refills more slowly: how much of the leased units is left is unknown, so they stay counted.
        let kept = if S::NAME == TokenBucket::NAME { leased } else { 0 };
        let used = used::<S>(&rl, "hot", &smaller);
        assert_eq!(used, taken + 1 + kept, "{}", S::NAME);
        let again = call_until_leased::<S>(&rl, "hot", &smaller);
        assert_eq!(take::<S>(&rl, "hot", &smaller, 0).remaining(), CAPACITY / 2 - used - again);
    }

    for_every_leased!(keeps);
}

#[test]
fn a_handle_is_the_same_key() {
    fn is_same<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit, ann) = (scene.instance(), S::limit(CAPACITY, WINDOW), key("ann"));
        let handle = S::hybrid(&rl).key(&ann);
        assert_eq!(handle.name(), &ann);
        let taken = call_until_leased::<S>(&rl, "ann", &limit);
        assert_eq!(handle.held(), held::<S>(&rl, "ann"));
        assert_eq!(S::core(&handle.try_take(&limit, 1).unwrap()).remaining(), CAPACITY - taken - 1);
        assert_eq!(S::core(&wait_for(handle.take(&limit, 1)).unwrap()).remaining(), CAPACITY - taken - 2);
        assert_eq!(S::core(&wait_for(handle.peek(&limit, 0)).unwrap()).remaining(), CAPACITY - taken - 2);
        assert!(wait_for(handle.reset()).unwrap());
        assert_eq!(handle.held(), 0);
    }

    for_every_leased!(is_same);
}

/// The interval would be below a millisecond, too short for a reply to arrive in time.
#[test]
fn a_window_too_short_for_leases_is_decided_by_redis() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), FixedWindow::limit(CAPACITY, Duration::from_millis(100)));
    take::<FixedWindow>(&rl, "ann", &limit, 1);
    let before = scene.calls();
    for _ in 0..20 {
        assert!(take::<FixedWindow>(&rl, "ann", &limit, 1).is_allowed());
        assert_eq!(held::<FixedWindow>(&rl, "ann"), 0);
    }
    assert_eq!(scene.calls(), before + 20);
}

#[test]
fn an_interval_that_makes_no_sense_is_refused() {
    for millis in [0, 1_001] {
        let built = RateLimiter::builder().sync_interval(Duration::from_millis(millis)).build();
        assert!(matches!(built, Err(TrypemaError::InvalidSyncInterval { .. })), "{millis} ms");
    }
    for millis in [1, 1_000] {
        assert!(
            RateLimiter::builder().sync_interval(Duration::from_millis(millis)).build().is_ok(),
            "{millis} ms"
        );
    }
}
