//! Decisions while Redis is unreachable: leases are spent until they expire, then the configured policy
//! applies.

use std::num::NonZeroU32;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::{Clock, SystemClock};
use trypema::redis::{OnFailure, RedisFailureKind};
use trypema::strategy::FixedWindow;
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::wait_until;
use trypema_testkit::subject::HybridStrategy;

use super::scene::{
    A_LEASE, CAPACITY, Scene, WINDOW, call_until_leased, held, most, spend_held, take, wait_until_reached,
};

/// An instance that holds a lease while its Redis is unreachable.
struct Orphan<S: HybridStrategy> {
    scene: Scene,
    rl: RateLimiter,
    limit: S::Limit,
    taken: u64,
}

impl<S: HybridStrategy> Orphan<S> {
    fn with(on_failure: OnFailure) -> Self {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(on_failure), S::limit(CAPACITY, WINDOW));
        let taken = call_until_leased::<S>(&rl, &limit);
        scene.proxy.refuse();
        // The first failed call may have been sent on the old connection. After it, the connection is known
        // to be down, and nothing is sent.
        assert!(wait_for(rl.redis().fixed_window().reset(&key("nobody"))).is_err());
        Self { scene, rl, limit, taken }
    }

    /// Spends some of the lease and lets the rest expire.
    fn outlive_the_lease(&mut self) {
        let decision = take::<S>(&self.rl, &self.limit, 1).unwrap();
        assert!(decision.is_allowed() && !decision.is_substitute(), "{}: the lease is good", S::NAME);
        self.taken += 1;
        assert!(held::<S>(&self.rl) > 0, "{}: something is left of it", S::NAME);
        self.scene.clock.advance(A_LEASE);
        assert_eq!(held::<S>(&self.rl), 0, "{}: and it is over", S::NAME);
    }
}

#[test]
fn fail_is_an_error_once_the_lease_is_over() {
    fn fails<S: HybridStrategy>() {
        let mut orphan = Orphan::<S>::with(OnFailure::Fail);
        orphan.outlive_the_lease();
        for _ in 0..20 {
            let failure = take::<S>(&orphan.rl, &orphan.limit, 1).unwrap_err();
            assert_eq!(failure.kind(), RedisFailureKind::Unavailable, "{}: {failure}", S::NAME);
        }
        let tried = S::hybrid(&orphan.rl).try_take(&key("ann"), &orphan.limit, 1);
        assert!(tried.is_none(), "{}: it cannot be answered", S::NAME);
        assert!(wait_for(S::hybrid(&orphan.rl).take_with_receipt(&key("ann"), &orphan.limit, 1)).is_err());
        assert!(wait_for(S::hybrid(&orphan.rl).take_up_to(&key("ann"), &orphan.limit, 1)).is_err());
        assert!(wait_for(S::hybrid(&orphan.rl).reset(&key("ann"))).is_err());
    }

    for_every_leased!(fails);
}

#[test]
fn allow_admits_once_the_lease_is_over() {
    fn admits<S: HybridStrategy>() {
        let mut orphan = Orphan::<S>::with(OnFailure::Allow);
        orphan.outlive_the_lease();
        for _ in 0..3 * CAPACITY {
            let decision = take::<S>(&orphan.rl, &orphan.limit, 1).unwrap();
            assert!(decision.is_allowed() && decision.is_substitute(), "{} {decision:?}", S::NAME);
        }
        let never = take::<S>(&orphan.rl, &orphan.limit, 100 * CAPACITY).unwrap();
        assert!(never.is_never() && never.is_substitute(), "{} {never:?}", S::NAME);
    }

    for_every_leased!(admits);
}

#[test]
fn deny_denies_once_the_lease_is_over_and_forgets_that() {
    fn denies<S: HybridStrategy>() {
        let mut orphan = Orphan::<S>::with(OnFailure::Deny);
        orphan.outlive_the_lease();
        for _ in 0..20 {
            let decision = take::<S>(&orphan.rl, &orphan.limit, 1).unwrap();
            assert!(!decision.is_allowed() && decision.is_substitute(), "{} {decision:?}", S::NAME);
            assert_eq!(decision.retry_after(), Some(Duration::from_secs(1)), "{}", S::NAME);
        }
        orphan.scene.heal(&orphan.rl);
        let decision = take::<S>(&orphan.rl, &orphan.limit, 1).unwrap();
        assert!(decision.is_allowed() && !decision.is_substitute(), "{} {decision:?}", S::NAME);
    }

    for_every_leased!(denies);
}

/// Three instances that know of each other admit a third of the limit each, although the policy assumes a
/// single instance. Once Redis is reachable again, those admissions are counted and the limit holds.
#[test]
fn local_shares_are_those_of_all_instances() {
    fn shares<S: HybridStrategy>() {
        let scene = Scene::start();
        let limit = S::limit(CAPACITY, WINDOW);
        let chosen = OnFailure::Local { instances: NonZeroU32::MIN };
        let instances: Vec<RateLimiter> = (0..3).map(|_| scene.instance(chosen)).collect();
        instances.iter().for_each(|rl| drop(runtime().spawn(rl.hybrid().keep_in_sync())));
        let all_know = || {
            scene.clock.advance(A_LEASE);
            instances.iter().all(|rl| rl.hybrid().stats().instances == NonZeroU32::new(3))
        };
        wait_until("all to know each other", all_know).unwrap();
        scene.proxy.refuse();
        let mut admitted = 0;
        for rl in &instances {
            let here = (0..CAPACITY).filter(|_| {
                let decision = take::<S>(rl, &limit, 1).unwrap();
                assert!(decision.is_substitute(), "{} {decision:?}", S::NAME);
                decision.is_allowed()
            });
            let here = here.count() as u64;
            assert!((CAPACITY / 3..=most::<S>() / 3).contains(&here), "{}: {here} of a third", S::NAME);
            admitted += here;
        }
        scene.proxy.heal();
        instances.iter().for_each(wait_until_reached);
        // The next call of each instance reports its local admissions to Redis.
        let after: Vec<bool> =
            instances.iter().map(|rl| take::<S>(rl, &limit, 1).unwrap().is_allowed()).collect();
        let used = scene.used::<S>(&limit);
        assert!(used >= admitted.min(CAPACITY), "{}: {used} known of {admitted}", S::NAME);
        if S::NAME != "suppressed" {
            assert_eq!(after.last(), Some(&false), "{}: all of it is gone", S::NAME);
        }
    }

    for_every_leased!(shares);
}

/// A configured number of instances that is larger than the observed one is used: some instances may not send
/// heartbeats, and after a restart none has sent one yet.
#[test]
fn local_shares_are_never_larger_than_was_chosen() {
    let scene = Scene::start();
    let rl = scene.instance(OnFailure::Local { instances: NonZeroU32::new(12).unwrap() });
    let limit = FixedWindow::limit(CAPACITY, WINDOW);
    runtime().spawn(rl.hybrid().keep_in_sync());
    wait_until("it to know itself", || rl.hybrid().stats().instances == NonZeroU32::new(1)).unwrap();
    scene.proxy.refuse();
    let here = (0..CAPACITY).filter(|_| take::<FixedWindow>(&rl, &limit, 1).unwrap().is_allowed()).count();
    assert_eq!(here as u64, CAPACITY / 12);
}

/// The local share does not admit units again that the instance held as a lease when Redis became
/// unreachable.
#[test]
fn local_begins_after_the_lease() {
    let mut orphan = Orphan::<FixedWindow>::with(OnFailure::Local { instances: NonZeroU32::new(2).unwrap() });
    orphan.outlive_the_lease();
    let here = (0..CAPACITY).filter(|_| {
        let decision = take::<FixedWindow>(&orphan.rl, &orphan.limit, 1).unwrap();
        assert!(decision.is_substitute());
        decision.is_allowed()
    });
    let here = here.count() as u64;
    assert_eq!(here, CAPACITY / 2);
    orphan.scene.heal(&orphan.rl);
    assert!(take::<FixedWindow>(&orphan.rl, &orphan.limit, 1).unwrap().is_allowed());
    wait_for(orphan.rl.hybrid().release());
    assert_eq!(orphan.scene.used::<FixedWindow>(&orphan.limit), orphan.taken + here + 1);
}

/// While the circuit breaker is open, calls fail immediately. Afterwards Redis is called again.
#[test]
fn the_breaker_answers_at_once() {
    let orphan = Orphan::<FixedWindow>::with(OnFailure::Fail);
    spend_held::<FixedWindow>(&orphan.rl, &orphan.limit);
    orphan.scene.proxy.freeze();
    let start = SystemClock.now();
    for _ in 0..500 {
        assert!(take::<FixedWindow>(&orphan.rl, &orphan.limit, 1).is_err());
    }
    let took = Duration::from_micros(SystemClock.now().as_micros() - start.as_micros());
    assert!(took < Duration::from_secs(8), "500 calls took {took:?}");
    orphan.scene.heal(&orphan.rl);
    assert!(take::<FixedWindow>(&orphan.rl, &orphan.limit, 1).unwrap().is_allowed());
}
