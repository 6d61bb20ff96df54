//! Waiting on a shared store, with a real Redis and a manual clock: the same cases for the Redis and the
//! hybrid provider.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

pub(crate) mod failing;
pub(crate) mod scene;
pub(crate) mod waiters;

use std::time::Duration;

use trypema::WaitError;
use trypema::strategy::{Absolute, Abuse, FixedWindow, SlidingWindow, Strategy, TokenBucket};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::subject::HybridStrategy;

use scene::{HOUR, MICROSECOND, Provider, Scene, WINDOW};

/// A waiter retries at the reported time or slightly later, and is then admitted.
pub(crate) fn a_waiter_is_admitted_when_it_was_told<P: Provider>() {
    admitted_when_told::<P, Absolute>();
    admitted_when_told::<P, TokenBucket>();
    admitted_when_told::<P, SlidingWindow>();
    admitted_when_told::<P, FixedWindow>();
    admitted_when_told::<P, Abuse>();
}

fn admitted_when_told<P: Provider, S: HybridStrategy>() {
    let scene = Scene::start();
    let (rl, limit, start) = (scene.instance(), S::limit(4, WINDOW), scene.now());
    let told = scene.use_up::<P, S>(&rl, &limit);
    let waiter = P::spawn::<S>(&rl, &limit, 1, HOUR);
    wait_for(async {
        let asks_at = scene.asleep(start + HOUR).await;
        assert!(asks_at >= start + told, "{} asks early", S::NAME);
        let jitter = (told / 16).min(Duration::from_millis(250));
        assert!(asks_at < start + (told + jitter + MICROSECOND), "{} asks late", S::NAME);
        scene.clock.set(start + (told - MICROSECOND));
        assert_eq!(scene.asleep(start + HOUR).await, asks_at);
        scene.clock.set(asks_at);
        let decision = waiter.await.unwrap().unwrap();
        assert!(decision.is_allowed(), "{}", S::NAME);
    });
    assert_eq!(scene.clock.next_wake(), None, "somebody still sleeps");
}

/// A wait that can only fail returns at once, never sleeps, and records nothing.
pub(crate) fn a_pointless_wait_ends_at_once<P: Provider>() {
    pointless::<P, Absolute>();
    pointless::<P, TokenBucket>();
    pointless::<P, SlidingWindow>();
    pointless::<P, FixedWindow>();
    pointless::<P, Abuse>();
}

fn pointless<P: Provider, S: HybridStrategy>() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), S::limit(4, WINDOW));
    let told = scene.use_up::<P, S>(&rl, &limit);
    let before = scene.dump();
    for patience in [Duration::ZERO, told - MICROSECOND] {
        let waited = wait_for(P::wait::<S>(&rl, &key("ann"), &limit, 1, patience));
        assert_eq!(waited.map(|_| ()), Err(WaitError::TooLong { patience }), "{}", S::NAME);
    }
    assert_eq!(scene.dump(), before, "{} recorded a wait that could only fail", S::NAME);
    // An abuse limit has no cost that never fits.
    if S::NAME != Abuse::NAME {
        let never = wait_for(P::wait::<S>(&rl, &key("ann"), &limit, 5, Duration::MAX));
        assert_eq!(never.map(|_| ()), Err(WaitError::Never), "{}", S::NAME);
    }
    assert_eq!(scene.clock.next_wake(), None, "{} sleeps", S::NAME);
}

/// A cost that fits needs one Redis call and no sleep.
pub(crate) fn a_wait_that_fits_is_one_call<P: Provider>() {
    fn fits<P: Provider, S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(4, WINDOW));
        let decision = wait_for(P::wait::<S>(&rl, &key("ann"), &limit, 4, Duration::ZERO)).unwrap();
        assert_eq!((decision.remaining(), scene.calls()), (0, 1), "{}", S::NAME);
        assert_eq!(scene.clock.next_wake(), None);
    }
    fits::<P, Absolute>();
    fits::<P, TokenBucket>();
    fits::<P, SlidingWindow>();
    fits::<P, FixedWindow>();
}
