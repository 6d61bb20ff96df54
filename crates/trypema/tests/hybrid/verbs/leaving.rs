//! Callers that are dropped, and callers that wait together.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::strategy::Absolute;
use trypema::{AbsoluteLimit, RateLimiter};
use trypema_testkit::blocking::{connect, key, runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{SYNC, Scene, WINDOW, call_until_leased, held, release, take, used};

const CAPACITY: u64 = 1_000;

/// The delay of replies: long enough to drop a caller before its reply.
const A_MOMENT: Duration = Duration::from_millis(20);

/// The deadline of each Redis call, and the time by which a busy machine may exceed it.
const DEADLINE: Duration = Duration::from_millis(500);
const ALLOWANCE: Duration = Duration::from_millis(1_500);

/// Starts a take that needs Redis and drops it before the reply.
fn start_and_leave<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit, cost: u64) {
    let ann = key("ann");
    runtime().block_on(async {
        let mut take = pin!(S::hybrid(rl).take(&ann, limit, cost));
        let is_over = take.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_over, "{}: nothing answers so fast", S::NAME);
    });
}

#[test]
fn a_caller_that_leaves_wastes_nothing_while_the_loop_runs() {
    fn wastes_nothing<S: HybridStrategy>() {
        let scene = Scene::start();
        let proxy = FaultProxy::start(scene.server.addr()).unwrap();
        let (rl, limit) = (scene.behind(&proxy), S::limit(CAPACITY, WINDOW));
        runtime().spawn(rl.hybrid().keep_in_sync());
        wait_until("the loop to run", || rl.hybrid().stats().instances.is_some()).unwrap();
        let taken = call_until_leased::<S>(&rl, "ann", &limit);
        // More than the background task leases meanwhile.
        let cost = CAPACITY / 4;
        proxy.delay(A_MOMENT);
        start_and_leave::<S>(&rl, &limit, cost);
        wait_until("its lease to arrive", || used::<S>(&rl, "ann", &limit) > taken + cost).unwrap();
        wait_until("the rest of it to be held", || held::<S>(&rl, "ann") > cost).unwrap();
        release(&rl);
        let used = used::<S>(&rl, "ann", &limit);
        assert!(used == taken || used == taken + cost, "{}: {used} of {taken} and {cost}", S::NAME);
    }

    for_every_leased!(wastes_nothing);
}

#[test]
fn a_caller_that_leaves_harms_nobody_without_a_loop() {
    fn harms_nobody<S: HybridStrategy>() {
        let scene = Scene::start();
        let proxy = FaultProxy::start(scene.server.addr()).unwrap();
        // The limit is large, because lost units stay counted.
        let (rl, limit) = (scene.behind(&proxy), S::limit(100 * CAPACITY, WINDOW));
        call_until_leased::<S>(&rl, "ann", &limit);
        proxy.delay(A_MOMENT);
        for _ in 0..3 {
            let cost = held::<S>(&rl, "ann") + 1;
            start_and_leave::<S>(&rl, &limit, cost);
            let started = SystemClock.now().as_micros();
            assert!(take::<S>(&rl, "ann", &limit, cost).is_allowed(), "{}", S::NAME);
            let waited = Duration::from_micros(SystemClock.now().as_micros() - started);
            assert!(waited < DEADLINE + ALLOWANCE, "{} waited {waited:?} for nobody", S::NAME);
        }
    }

    for_every_leased!(harms_nobody);
}

/// Many concurrent callers are all decided with few lease requests.
#[test]
fn callers_that_wait_together_share_a_lease() {
    fn share<S: HybridStrategy>() {
        const CALLERS: u64 = 64;
        let scene = Scene::start();
        let (rl, limit) = (Arc::new(scene.instance()), S::limit(CAPACITY, WINDOW));
        let taken = call_until_leased::<S>(&rl, "ann", &limit);
        let calls = scene.calls();
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (rl, limit) = (Arc::clone(&rl), limit.clone());
                runtime().spawn(async move {
                    let ann = key("ann");
                    let decision = S::hybrid(&rl).take(&ann, &limit, 1).await.unwrap();
                    S::core(&decision).is_allowed()
                })
            })
            .collect();
        let admitted: u64 = callers.into_iter().map(|caller| u64::from(wait_for(caller).unwrap())).sum();
        assert_eq!(admitted, CALLERS, "{}", S::NAME);
        let calls = scene.calls() - calls;
        assert!(calls * 3 <= CALLERS, "{}: {calls} calls of Redis", S::NAME);
        release(&rl);
        assert_eq!(used::<S>(&rl, "ann", &limit), taken + CALLERS, "{}", S::NAME);
    }

    for_every_leased!(share);
}

/// A caller that sent the request and is then not polled does not block the others.
#[test]
fn a_caller_that_stalls_delays_others_for_a_moment_only() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let limit = AbsoluteLimit::per_window(1_000_000, WINDOW).unwrap();
    let builder = RateLimiter::builder().redis(connect(&proxy.url())).sync_interval(SYNC);
    let rl = builder.redis_deadline(DEADLINE).build().unwrap();
    let ann = key("ann");
    runtime().block_on(async {
        heat_in_real_time(&rl, &limit).await;
        proxy.delay(A_MOMENT);
        let cost = rl.hybrid().absolute().held(&ann) + 1_000;
        let mut stalled = pin!(rl.hybrid().absolute().take(&ann, &limit, cost));
        assert!(stalled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let started = SystemClock.now().as_micros();
        let other = rl.hybrid().absolute().take(&ann, &limit, cost);
        let decision = tokio::time::timeout(Duration::from_secs(10), other).await.unwrap().unwrap();
        assert!(decision.is_allowed());
        let waited = Duration::from_micros(SystemClock.now().as_micros() - started);
        assert!(waited < DEADLINE + ALLOWANCE, "waited {waited:?}");
    });
}

async fn heat_in_real_time(rl: &RateLimiter, limit: &AbsoluteLimit) {
    let ann = key("ann");
    for _ in 0..10_000 {
        rl.hybrid().absolute().take(&ann, limit, 1).await.unwrap();
        if rl.hybrid().absolute().held(&ann) > 0 {
            return;
        }
    }
    panic!("it is not leased");
}

/// A caller that waits for another caller's late reply can be dropped too, without harm.
#[test]
fn a_caller_that_leaves_while_it_waits_for_another_harms_nobody() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let limit = Absolute::limit(1_000_000, WINDOW);
    let builder = RateLimiter::builder().redis(connect(&proxy.url())).sync_interval(SYNC);
    let rl = builder.redis_deadline(Duration::from_secs(5)).build().unwrap();
    let ann = key("ann");
    runtime().block_on(async {
        heat_in_real_time(&rl, &limit).await;
        proxy.delay(Duration::from_millis(60));
        let cost = rl.hybrid().absolute().held(&ann) + 1_000;
        let mut asking = pin!(rl.hybrid().absolute().take(&ann, &limit, cost));
        assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        {
            let mut waiting = pin!(rl.hybrid().absolute().take(&ann, &limit, cost));
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert!(asking.await.unwrap().is_allowed());
        assert!(rl.hybrid().absolute().take(&ann, &limit, cost).await.unwrap().is_allowed());
    });
}
