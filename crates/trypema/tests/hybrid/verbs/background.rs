//! The background task: it renews a lease before it runs out, refunds the rest, and ends when the limiter is
//! dropped.

use std::num::NonZeroU32;
use std::time::Duration;

use trypema::redis::RedisFailureKind;
use trypema::strategy::Absolute;
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, wait_until};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{SYNC, Scene, WINDOW, call_until_leased, held, release, take, try_take, used};

/// Much longer than the background task takes to end.
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
    let taken = call_until_leased::<Absolute>(&rl, "ann", &limit);
    let second = runtime().spawn(rl.hybrid().keep_in_sync());
    gives_back::<Absolute>(&scene, &rl, &limit, taken);
    assert!(!second.is_finished());
}

/// Advances the clock until Redis counts only the units that were taken.
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
        let taken = call_until_leased::<S>(&rl, "ann", &limit);
        assert!(used::<S>(&rl, "ann", &limit) > taken, "{}", S::NAME);
        gives_back::<S>(&scene, &rl, &limit, taken);
        assert_eq!(rl.hybrid().stats().held_units, 0, "{}", S::NAME);
    }

    for_every_leased!(is_given_back);
}

/// A key that is called every millisecond never waits for Redis, and the instance holds at most one and a
/// half intervals of its expected demand.
#[test]
fn a_steady_key_is_always_answered_at_once() {
    fn is_answered<S: HybridStrategy>() {
        const CALLS: u64 = 1_500;
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(1_000_000, WINDOW));
        runtime().spawn(rl.hybrid().keep_in_sync());
        call_until_leased::<S>(&rl, "ann", &limit);
        let (calls, mut most_held) = (scene.calls(), 0);
        for call in 0..CALLS {
            scene.clock.advance(Duration::from_millis(1));
            // The background task needs real time. The manual clock stands still meanwhile.
            let is_answered =
                || try_take::<S>(&rl, "ann", &limit, 1).is_some_and(|answer| answer.is_allowed());
            wait_until("an answer", is_answered).unwrap();
            // The instance needs a while to learn the rate.
            if call > 300 {
                most_held = most_held.max(held::<S>(&rl, "ann"));
            }
        }
        // There are 100 calls per interval, and the lease covers one and a half intervals.
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
    // An instance that dies does not sign off. It is dropped after its heartbeat expires.
    drop(instances.pop());
    all_know(&instances, 1);
}

/// A formerly hot key that is still called occasionally refunds its unspent units too.
#[test]
fn what_is_left_of_a_lease_is_given_back_while_the_key_cools_down() {
    fn is_given_back<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(1_000, WINDOW));
        runtime().spawn(rl.hybrid().keep_in_sync());
        let mut taken = call_until_leased::<S>(&rl, "ann", &limit);
        // A call every 150 ms keeps the entry alive but is too rare for a lease.
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

/// A lease that was requested before a release and arrives after it is refunded too.
#[test]
fn a_release_waits_for_leases_that_are_under_way() {
    fn waits<S: HybridStrategy>() {
        let scene = Scene::start();
        let proxy = FaultProxy::start(scene.server.addr()).unwrap();
        let (rl, limit) = (scene.behind(&proxy), S::limit(1_000, WINDOW));
        runtime().spawn(rl.hybrid().keep_in_sync());
        wait_until("the loop to run", || rl.hybrid().stats().instances.is_some()).unwrap();
        let mut taken = call_until_leased::<S>(&rl, "ann", &limit);
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

/// Requests that cannot be sent, because Redis cannot be reached, are not counted as sent.
#[test]
fn leases_are_counted_when_they_are_sent() {
    let scene = Scene::start();
    let proxy = FaultProxy::start(scene.server.addr()).unwrap();
    let (rl, limit) = (scene.behind(&proxy), Absolute::limit(1_000, WINDOW));
    call_until_leased::<Absolute>(&rl, "ann", &limit);
    let asked = || rl.hybrid().stats().leases_asked;
    assert!(asked() > 0);
    proxy.refuse();
    let fails_unsent = || {
        scene.clock.advance(SYNC / 4);
        let taken = wait_for(Absolute::hybrid(&rl).take(&key("ann"), &limit, 1));
        matches!(taken, Err(TrypemaError::RedisError(failure)) if failure.kind() == RedisFailureKind::Unavailable)
    };
    wait_until("calls to fail", fails_unsent).unwrap();
    let before = asked();
    for _ in 0..20 {
        fails_unsent();
    }
    assert_eq!(asked(), before);
    proxy.heal();
    wait_until("calls to be served", || {
        scene.clock.advance(SYNC / 4);
        wait_for(Absolute::hybrid(&rl).take(&key("ann"), &limit, 1)).is_ok()
    })
    .unwrap();
    wait_until("a lease", || {
        scene.clock.advance(SYNC / 4);
        (0..8).for_each(|_| drop(wait_for(Absolute::hybrid(&rl).take(&key("ann"), &limit, 1))));
        asked() > before
    })
    .unwrap();
}
