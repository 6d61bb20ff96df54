//! Suppressed limits on several instances: the suppression factor reflects the calls of all instances, and
//! the limit holds.

use std::time::Duration;

use trypema::strategy::Suppressed;
use trypema::{RateLimiter, SuppressedLimit};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::redis::wait_until;
use trypema_testkit::subject::HybridStrategy;

use super::scene::{Scene, call_until_leased, held, take};

const SOFT: u64 = 1_000;
const WINDOW: Duration = Duration::from_secs(10);
const WINDOWS: usize = 6;
const INSTANCES: usize = 3;

/// The number of calls per unit of the limit.
const OVERLOAD: u64 = 6;

/// The results of the calls in one window.
#[derive(Debug, Default, Clone, Copy)]
struct Window {
    admitted: u64,
    /// The sum of the suppression factors of the calls that were decided by chance.
    factors: f64,
    drawn: u64,
}

/// Offers six times the limit at an even rate, with the instances in turn.
fn offer(instances: &[RateLimiter], scene: &Scene, limit: &SuppressedLimit, windows: usize) -> Vec<Window> {
    let calls = SOFT * OVERLOAD;
    let mut list = vec![Window::default(); windows];
    for window in &mut list {
        for call in 0..calls {
            scene.clock.advance(WINDOW / calls as u32);
            let rl = &instances[call as usize % instances.len()];
            let decision = wait_for(rl.hybrid().suppressed().take(&key("ann"), limit, 1)).unwrap();
            window.admitted += u64::from(decision.is_allowed());
            if let Some(factor) = decision.suppression_factor() {
                window.factors += factor;
                window.drawn += 1;
            }
        }
    }
    list
}

#[test]
fn the_factor_is_that_of_all_instances_and_the_limit_is_held() {
    let scene = Scene::start();
    let instances: Vec<RateLimiter> = (0..INSTANCES).map(|_| scene.instance()).collect();
    let limit = Suppressed::limit(SOFT, WINDOW);
    let windows = offer(&instances, &scene, &limit, WINDOWS);
    let exact = 1.0 - 1.0 / OVERLOAD as f64;
    for (index, window) in windows.iter().enumerate().skip(3) {
        let factor = window.factors / window.drawn as f64;
        assert!(
            (factor - exact).abs() < 0.05,
            "window {index} suppressed {factor} in place of {exact}: {windows:?}"
        );
        let share = window.admitted as f64 / SOFT as f64;
        assert!((0.9..=1.1).contains(&share), "window {index} admitted {share} of its limit: {windows:?}");
    }
    let calls = scene.calls();
    assert!(calls * 5 < SOFT * OVERLOAD * WINDOWS as u64, "{calls} calls of Redis");
}

/// Refunded units are available again without suppression.
#[test]
fn below_the_limit_nothing_is_suppressed() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), Suppressed::limit(SOFT, WINDOW));
    trypema_testkit::blocking::runtime().spawn(rl.hybrid().keep_in_sync());
    for _ in 0..20 {
        call_until_leased::<Suppressed>(&rl, "ann", &limit);
        // The key stays idle until its lease is refunded.
        let is_idle = || {
            scene.clock.advance(Duration::from_millis(10));
            held::<Suppressed>(&rl, "ann") == 0
        };
        wait_until("the lease to end", is_idle).unwrap();
        for _ in 0..3 {
            assert!(take::<Suppressed>(&rl, "ann", &limit, 1).is_allowed());
        }
        scene.clock.advance(Duration::from_millis(200));
    }
}

/// A burst at one moment, when the suppression factor is still low: only the hard limit stops it.
#[test]
fn a_burst_stops_at_the_hard_limit() {
    let scene = Scene::start();
    let instances: Vec<RateLimiter> = (0..INSTANCES).map(|_| scene.instance()).collect();
    let limit = Suppressed::limit(100, Duration::from_secs(1));
    let admitted = (0..3_000).filter(|call| {
        // At first only one instance is called, so it can lease everything that is free.
        let rl = &instances[if *call < 1_000 { 0 } else { call % INSTANCES }];
        take::<Suppressed>(rl, "ann", &limit, 1).is_allowed()
    });
    let admitted = admitted.count();
    assert!((150..=200).contains(&admitted), "{admitted} of 200");
}
