//! Replies that arrive late or not at all, for requests that also returned unspent units.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use trypema::RateLimiter;
use trypema::redis::OnFailure;
use trypema::strategy::FixedWindow;
use trypema_testkit::blocking::{connect, key, limiter, runtime, wait_for};
use trypema_testkit::redis::wait_until;
use trypema_testkit::subject::HybridStrategy;

use super::scene::{
    A_LEASE, CAPACITY, SYNC, Scene, WINDOW, call_until_leased, held, spend_held, take, wait_until_reached,
};

/// The delay of replies: long enough to move the clock while a request is in flight.
const LATE: Duration = Duration::from_millis(150);

/// An instance that has spent its lease and waits for the next one. Redis has already granted it.
struct Waiting<S: HybridStrategy> {
    scene: Scene,
    rl: Arc<RateLimiter>,
    limit: S::Limit,
    taken: u64,
    caller: JoinHandle<bool>,
}

impl<S: HybridStrategy> Waiting<S> {
    fn start() -> Self {
        let scene = Scene::start();
        let builder = limiter(&connect(&scene.proxy.url()), "trypema", &scene.clock).sync_interval(SYNC);
        let rl = Arc::new(builder.build().unwrap());
        let limit = S::limit(CAPACITY, WINDOW);
        let mut taken = call_until_leased::<S>(&rl, &limit);
        taken += spend_held::<S>(&rl, &limit);
        scene.proxy.delay(LATE);
        let caller = runtime().spawn({
            let (rl, limit) = (rl.clone(), limit.clone());
            async move { S::core(&S::hybrid(&rl).take(&key("ann"), &limit, 1).await.unwrap()).is_allowed() }
        });
        wait_until("the lease to be granted", || scene.used::<S>(&limit) > taken + 1).unwrap();
        Self { scene, rl, limit, taken, caller }
    }
}

/// The waiting caller's unit is spent and counted. The rest of the expired lease is dropped.
#[test]
fn a_lease_that_arrives_after_its_end_is_not_spent() {
    fn is_not_spent<S: HybridStrategy>() {
        let Waiting::<S> { scene, rl, limit, taken, caller } = Waiting::start();
        scene.clock.advance(A_LEASE);
        assert!(wait_for(caller).unwrap(), "{}", S::NAME);
        assert_eq!(held::<S>(&rl), 0, "{}", S::NAME);
        scene.proxy.heal();
        wait_for(rl.hybrid().release());
        let used = scene.used::<S>(&limit);
        assert!(used <= taken + 1 && used + 1 >= taken, "{}: {used} used, {taken} and 1 taken", S::NAME);
    }

    for_every_leased!(is_not_spent);
}

/// The duration of a lease starts at its request, so a late reply does not extend it.
#[test]
fn a_late_lease_ends_no_later() {
    fn ends_no_later<S: HybridStrategy>() {
        let Waiting::<S> { scene, rl, limit, caller, .. } = Waiting::start();
        scene.clock.advance(Duration::from_millis(20));
        assert!(wait_for(caller).unwrap(), "{}", S::NAME);
        assert!(held::<S>(&rl) > 0, "{}", S::NAME);
        scene.clock.advance(Duration::from_millis(100));
        assert!(held::<S>(&rl) > 0, "{}", S::NAME);
        // Redis dates the leased units at the end of the lease. The instance stops spending them earlier by
        // 1/512 of the lease, to allow for clock drift.
        let lease = S::hybrid(&rl).bound(&limit).lease;
        scene.clock.advance(lease - lease / 512 - Duration::from_millis(120));
        assert_eq!(held::<S>(&rl), 0, "{}", S::NAME);
    }

    for_every_leased!(ends_no_later);
}

/// A reset overtakes the reply: the units that were granted before it are dropped.
#[test]
fn a_lease_from_before_a_reset_is_not_spent() {
    fn is_not_spent<S: HybridStrategy>() {
        let Waiting::<S> { scene, rl, limit, caller, .. } = Waiting::start();
        wait_for(S::hybrid(&rl).reset(&key("ann"))).unwrap();
        assert!(wait_for(caller).unwrap(), "{}: it asks again", S::NAME);
        let (held, used) = (held::<S>(&rl), scene.used::<S>(&limit));
        assert!(used > held, "{}: {held} held, {used} counted", S::NAME);
    }

    for_every_leased!(is_not_spent);
}

/// The reply to a refund is lost: the refund may have arrived, so it is not sent again.
#[test]
fn what_may_have_been_given_back_is_not_given_back_again() {
    fn is_not_given_back<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(OnFailure::Fail), S::limit(CAPACITY, WINDOW));
        let mut taken = call_until_leased::<S>(&rl, &limit);
        assert!(held::<S>(&rl) > 1, "{}", S::NAME);
        // Another instance spends the rest, so that only the lease of `rl` can be refunded.
        let other = scene.instance(OnFailure::Fail);
        let rest = CAPACITY - scene.used::<S>(&limit);
        assert!(take::<S>(&other, &limit, rest).unwrap().is_allowed(), "{}", S::NAME);
        taken += rest;
        scene.proxy.drop_replies();
        scene.clock.advance(A_LEASE);
        wait_for(rl.hybrid().release());
        scene.proxy.heal();
        scene.proxy.cut();
        wait_until_reached(&rl);
        wait_for(rl.hybrid().release());
        wait_for(rl.hybrid().release());
        let used = scene.used::<S>(&limit);
        assert!(used + 1 >= taken, "{}: {used} used of {taken} taken", S::NAME);
    }

    for_every_leased!(is_not_given_back);
}

/// The background task keeps retrying during an outage and continues afterwards.
#[test]
fn the_loop_survives_an_outage() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(OnFailure::Deny), FixedWindow::limit(100 * CAPACITY, WINDOW));
    let running = runtime().spawn(rl.hybrid().keep_in_sync());
    let call = || {
        scene.clock.advance(Duration::from_millis(1));
        take::<FixedWindow>(&rl, &limit, 1).unwrap()
    };
    for _ in 0..3 {
        wait_until("a lease", || call().is_allowed() && held::<FixedWindow>(&rl) > 0).unwrap();
        scene.proxy.refuse();
        wait_until("the outage to be felt", || call().is_substitute()).unwrap();
        scene.heal(&rl);
        wait_until("Redis to be asked again", || !call().is_substitute()).unwrap();
    }
    assert!(!running.is_finished());
}
