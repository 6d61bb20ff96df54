//! Sentinel replaces a killed primary, on a manual clock: instances spend their leases meanwhile, and the
//! limit holds.

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::redis::OnFailure;
use trypema::strategy::FixedWindow;
use trypema_testkit::blocking::{connect, key, limiter, wait_for};
use trypema_testkit::redis::{Sentinel, Server};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{
    CAPACITY, DEADLINE, SYNC, WINDOW, call_until_leased, spend_held, take, take_all, wait_until_reached,
};

/// The units that `server` itself has counted.
fn used_at(server: &Server, clock: &Arc<ManualClock>) -> u64 {
    let rl = limiter(&connect(&server.url()), "trypema", clock).build().unwrap();
    let limit = FixedWindow::limit(CAPACITY, WINDOW);
    let usage = wait_for(rl.redis().fixed_window().usage(&key("ann"), &limit)).unwrap();
    usage.limit() - usage.remaining()
}

fn instance(sentinel: &Sentinel, clock: &Arc<ManualClock>) -> RateLimiter {
    let builder =
        limiter(&connect(&sentinel.url()), "trypema", clock).redis_deadline(DEADLINE).sync_interval(SYNC);
    builder.on_redis_failure(OnFailure::Fail).build().unwrap()
}

#[test]
fn a_killed_primary() {
    let sentinel = Sentinel::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let instances = [0, 1].map(|_| instance(&sentinel, &clock));
    let limit = FixedWindow::limit(CAPACITY, WINDOW);
    let mut admitted: u64 = instances.iter().map(|rl| call_until_leased::<FixedWindow>(rl, &limit)).sum();
    let known = used_at(sentinel.primary().unwrap(), &clock);
    sentinel.kill_primary().unwrap();
    for rl in &instances {
        admitted += spend_held::<FixedWindow>(rl, &limit);
        assert!(take::<FixedWindow>(rl, &limit, 1).is_err());
    }
    sentinel.wait_until_settled().unwrap();
    instances.iter().for_each(wait_until_reached);
    // The replica may have missed the last writes.
    let forgotten = known.saturating_sub(used_at(sentinel.primary().unwrap(), &clock));
    admitted += instances.iter().map(|rl| take_all::<FixedWindow>(rl, &limit)).sum::<u64>();
    assert!(admitted <= CAPACITY + forgotten, "{admitted} of {CAPACITY}, {forgotten} forgotten");
    clock.advance(WINDOW * 2);
    assert!(take::<FixedWindow>(&instances[0], &limit, CAPACITY).unwrap().is_allowed());
}
