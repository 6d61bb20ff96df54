//! A fleet under load in real time, through a series of faults: no interval exceeds the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::OnFailure;
use trypema::{AbsoluteLimit, RateLimiter};
use trypema_testkit::blocking::{connect, key, runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

const LIMIT: u64 = 200;
const WINDOW: Duration = Duration::from_secs(2);
const INSTANCES: usize = 4;

/// The number of calls for which a fault lasts, and for which the network works before the next one.
const EACH_FAULT: u64 = 600;

/// The start and end of an admitted call. It was admitted at some time in between.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    asked_us: u64,
    answered_us: u64,
}

/// The largest number of calls that were certainly admitted within one interval of this length.
fn surely_in(window: Duration, admitted: &[Admitted]) -> usize {
    let window_us = window.as_micros() as u64;
    let within = |from_us: u64| {
        let is_within = |call: &&Admitted| call.asked_us >= from_us && call.answered_us < from_us + window_us;
        admitted.iter().filter(is_within).count()
    };
    admitted.iter().map(|call| within(call.asked_us)).max().unwrap_or(0)
}

/// The state that all callers share.
#[derive(Default)]
struct Storm {
    calls: AtomicU64,
    is_over: AtomicBool,
}

impl Storm {
    /// Waits until callers have made `calls` more calls.
    fn goes_on_for(&self, calls: u64) {
        let end = self.calls.load(Ordering::Relaxed) + calls;
        wait_until("callers to go on", || self.calls.load(Ordering::Relaxed) >= end).unwrap();
    }
}

/// Calls at a high rate until the storm is over.
async fn hammer(rl: Arc<RateLimiter>, limit: AbsoluteLimit, storm: Arc<Storm>) -> Vec<Admitted> {
    let (ann, mut admitted) = (key("ann"), Vec::new());
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    while !storm.is_over.load(Ordering::Relaxed) {
        ticks.tick().await;
        for _ in 0..4 {
            let asked_us = SystemClock.now().as_micros();
            let decision = match rl.hybrid().absolute().try_take(&ann, &limit, 1) {
                Some(decision) => decision,
                None => rl.hybrid().absolute().take(&ann, &limit, 1).await.unwrap(),
            };
            storm.calls.fetch_add(1, Ordering::Relaxed);
            if decision.is_allowed() {
                assert!(!decision.is_substitute());
                admitted.push(Admitted { asked_us, answered_us: SystemClock.now().as_micros() });
            }
        }
    }
    admitted
}

#[test]
fn one_fault_after_another() {
    let server = Server::start().unwrap();
    let limit = AbsoluteLimit::per_window(LIMIT, WINDOW).unwrap();
    let storm = Arc::new(Storm::default());
    let (mut callers, mut proxies) = (Vec::new(), Vec::new());
    for _ in 0..INSTANCES {
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let builder = RateLimiter::builder().redis(connect(&proxy.url())).on_redis_failure(OnFailure::Deny);
        let rl = Arc::new(builder.build().unwrap());
        runtime().spawn(rl.hybrid().keep_in_sync());
        callers.push(runtime().spawn(hammer(rl, limit, storm.clone())));
        proxies.push(proxy);
    }
    let faults: [fn(&FaultProxy); 5] = [
        FaultProxy::drop_replies,
        FaultProxy::cut_on_reply,
        FaultProxy::freeze,
        FaultProxy::refuse,
        |proxy| proxy.delay(Duration::from_millis(30)),
    ];
    for (round, fault) in faults.iter().cycle().take(2 * faults.len()).enumerate() {
        // In every other round, only half of the instances have the fault.
        proxies.iter().skip(round % 2 * 2).for_each(fault);
        storm.goes_on_for(EACH_FAULT);
        proxies.iter().for_each(|proxy| {
            proxy.heal();
            proxy.cut();
        });
        storm.goes_on_for(EACH_FAULT);
    }
    server.stop().unwrap();
    storm.goes_on_for(EACH_FAULT);
    server.cont().unwrap();
    let calm_us = SystemClock.now().as_micros();
    let calm = || SystemClock.now().as_micros() - calm_us;
    wait_until("two windows to pass", || calm() > 2 * WINDOW.as_micros() as u64).unwrap();
    storm.is_over.store(true, Ordering::Relaxed);
    let mut admitted: Vec<Admitted> = Vec::new();
    for caller in callers {
        admitted.extend(wait_for(caller).unwrap());
    }
    admitted.sort_unstable_by_key(|call| call.asked_us);
    let worst = surely_in(WINDOW, &admitted);
    assert!(worst <= LIMIT as usize, "{worst} of {LIMIT}");
    let afterwards = admitted.iter().filter(|call| call.asked_us > calm_us).count();
    assert!(afterwards > LIMIT as usize, "only {afterwards} admitted in two windows after the last fault");
}
