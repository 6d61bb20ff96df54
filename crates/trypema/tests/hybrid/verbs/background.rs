//! The loop: it asks before a lease has run out, gives back what is left of it, and ends with the limiter.

use std::num::NonZeroU32;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::strategy::Absolute;
use trypema_testkit::blocking::{runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, wait_until};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{SYNC, Scene, WINDOW, heat, held, release, take, try_take, used};

/// Far more than the end of a loop takes.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn it_ends_with_the_last_limiter_and_is_the_only_one() {
    let scene = Scene::start();
    let rl = std::sync::Arc::new(scene.instance());
    let first = runtime().spawn(rl.hybrid().keep_in_sync());
    wait_until("the loop to run", || rl.hybrid().stats().instances.is_some()).unwrap();
    wait_for(async { tokio::time::timeout(PATIENCE, rl.hybrid().keep_in_sync()).await }).unwrap();
    let other = rl.clone();
    drop(rl);
    assert!(!first.is_finished(), "somebody still uses it");
    drop(other);
    wait_for(async { tokio::time::timeout(PATIENCE, first).await }).unwrap().unwrap();
}

#[test]
fn another_one_goes_on_where_one_was_stopped() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), Absolute::limit(1_000, WINDOW));
    let first = runtime().spawn(rl.hybrid().keep_in_sync());
    wait_until("the loop to run", || rl.hybrid().stats().instances.is_some()).unwrap();
    first.abort();
    assert!(wait_for(first).unwrap_err().is_cancelled());
    let taken = heat::<Absolute>(&rl, "ann", &limit);
    let second = runtime().spawn(rl.hybrid().keep_in_sync());
    gives_back::<Absolute>(&scene, &rl, &limit, taken);
    assert!(!second.is_finished());
}

/// Time passes until only what was taken is counted.
fn gives_back<S: HybridStrategy>(scene: &Scene, rl: &RateLimiter, limit: &S::Limit, taken: u64) {
    let is_given_back = || {
        scene.clock.advance(SYNC / 4);
        used::<S>(rl, "ann", limit) <= taken
    };
    wait_until("the rest to be given back", is_given_back).unwrap();
}

#[test]
fn what_is_left_of_a_lease_is_given_back_when_nobody_calls() {
    fn is_given_back<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(1_000, WINDOW));
        runtime().spawn(rl.hybrid().keep_in_sync());
        let taken = heat::<S>(&rl, "ann", &limit);
        assert!(used::<S>(&rl, "ann", &limit) > taken, "{}", S::NAME);
        gives_back::<S>(&scene, &rl, &limit, taken);
        assert_eq!(rl.hybrid().stats().held_units, 0, "{}", S::NAME);
    }

    for_every_leased!(is_given_back);
}

/// A call every millisecond, each answered without waiting; an instance holds what it expects in one and a half
/// intervals at most.
#[test]
fn a_steady_key_is_always_answered_at_once() {
    fn is_answered<S: HybridStrategy>() {
        const CALLS: u64 = 1_500;
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(1_000_000, WINDOW));
        runtime().spawn(rl.hybrid().keep_in_sync());
        heat::<S>(&rl, "ann", &limit);
        let (calls, mut most_held) = (scene.calls(), 0);
        for call in 0..CALLS {
            scene.clock.advance(Duration::from_millis(1));
            // Real time passes for the loop, not for the key.
            let is_answered =
                || try_take::<S>(&rl, "ann", &limit, 1).is_some_and(|answer| answer.is_allowed());
            wait_until("an answer", is_answered).unwrap();
            // It takes a while to know the rate.
            if call > 300 {
                most_held = most_held.max(held::<S>(&rl, "ann"));
            }
        }
        // 100 calls come in an interval, and what is expected in one and a half is held.
        assert!(most_held <= 151, "{} held {most_held}", S::NAME);
        let calls = scene.calls() - calls;
        assert!(calls * 20 <= CALLS, "{}: {calls} calls of Redis for {CALLS}", S::NAME);
    }

    for_every_leased!(is_answered);
}

#[test]
fn instances_learn_how_many_they_are() {
    let scene = Scene::start();
    let mut instances: Vec<RateLimiter> = (0..3).map(|_| scene.instance()).collect();
    for rl in &instances {
        assert_eq!(rl.hybrid().stats().instances, None);
        runtime().spawn(rl.hybrid().keep_in_sync());
    }
    let all_know = |instances: &[RateLimiter], count| {
        let is_known = || {
            scene.clock.advance(SYNC);
            instances.iter().all(|rl| rl.hybrid().stats().instances == NonZeroU32::new(count))
        };
        wait_until("all to know each other", is_known).unwrap();
    };
    all_know(&instances, 3);
    let leaving = instances.pop().unwrap();
    wait_for(leaving.hybrid().release());
    drop(leaving);
    all_know(&instances, 2);
    // One that dies says nothing, and is forgotten after a while.
    drop(instances.pop());
    all_know(&instances, 1);
}

/// A key that was hot and is called now and then gives back what it holds, too.
#[test]
fn what_is_left_of_a_lease_is_given_back_while_the_key_cools_down() {
    fn is_given_back<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(1_000, WINDOW));
        runtime().spawn(rl.hybrid().keep_in_sync());
        let mut taken = heat::<S>(&rl, "ann", &limit);
        // A call every 150 ms keeps it known, and is no reason for a lease.
        let is_given_back = || {
            scene.clock.advance(SYNC * 3 / 2);
            taken += u64::from(take::<S>(&rl, "ann", &limit, 1).is_allowed());
            used::<S>(&rl, "ann", &limit) <= taken
        };
        wait_until("the rest to be given back", is_given_back).unwrap();
        assert!(taken < 100, "{}: only after {taken} calls", S::NAME);
    }

    for_every_leased!(is_given_back);
}

/// What was asked for before a release and arrives after it is given back, too.
#[test]
fn a_release_waits_for_leases_that_are_under_way() {
    fn waits<S: HybridStrategy>() {
        let scene = Scene::start();
        let proxy = FaultProxy::start(scene.server.addr()).unwrap();
        let (rl, limit) = (scene.behind(&proxy), S::limit(1_000, WINDOW));
        runtime().spawn(rl.hybrid().keep_in_sync());
        wait_until("the loop to run", || rl.hybrid().stats().instances.is_some()).unwrap();
        let mut taken = heat::<S>(&rl, "ann", &limit);
        proxy.delay(Duration::from_millis(100));
        let asked = rl.hybrid().stats().leases_asked;
        while rl.hybrid().stats().leases_asked == asked {
            taken +=
                u64::from(try_take::<S>(&rl, "ann", &limit, 1).is_some_and(|answer| answer.is_allowed()));
        }
        release(&rl);
        drop(rl);
        let used = used::<S>(&scene.instance(), "ann", &limit);
        assert_eq!(used, taken, "{}", S::NAME);
    }

    for_every_leased!(waits);
}
