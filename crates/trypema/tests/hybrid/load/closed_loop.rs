//! Many leased keys in turn, each call as soon as the previous one has returned.

use std::sync::Arc;
use std::time::Duration;

use trypema::AbsoluteLimit;
use trypema::clock::ManualClock;
use trypema_testkit::blocking::{connect, key, limiter, runtime, wait_for};
use trypema_testkit::redis::Server;

use super::fleet::script_calls;

const KEYS: usize = 500;
/// The calls of each key per interval.
const PER_INTERVAL: u32 = 100;
const INTERVAL: Duration = Duration::from_millis(100);
const INTERVALS: u32 = 4;
const WINDOW: Duration = Duration::from_secs(60);

/// The clock only advances between calls, so that the speed of the machine has no influence. `cargo xtask
/// bench hybrid` measures callers at the same time, beside the Redis provider.
#[test]
fn warm_keys_need_redis_for_at_most_every_twentieth_call() {
    let (server, clock) = (Server::start().unwrap(), Arc::new(ManualClock::default()));
    let builder = limiter(&connect(&server.url()), "trypema", &clock).sync_interval(INTERVAL);
    let rl = builder.build().unwrap();
    let limit = AbsoluteLimit::per_window(1_000_000_000, WINDOW).unwrap();
    runtime().spawn(rl.hybrid().keep_in_sync());
    let keys: Vec<_> = (0..KEYS).map(|number| key(&format!("key_{number}"))).collect();
    let pass = || {
        for _ in 0..INTERVALS * PER_INTERVAL {
            for key in &keys {
                assert!(wait_for(rl.hybrid().absolute().take(key, &limit, 1)).unwrap().is_allowed());
            }
            clock.advance(INTERVAL / PER_INTERVAL);
        }
        script_calls(&server)
    };
    let warm_up = pass();
    let (script_calls, calls) = (pass() - warm_up, KEYS as u64 * u64::from(INTERVALS * PER_INTERVAL));
    println!("{script_calls} script calls for {calls} calls");
    assert!(script_calls * 20 <= calls, "{script_calls} script calls for {calls} calls");
}
