//! Whether a counter has a state, on every provider.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::time::Duration;

use trypema::{Check, FixedWindowLimit, Limit, RateLimiter};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::Server;

#[test]
fn a_counter_exists_from_its_first_take_to_its_reset() {
    let server = Server::start().unwrap();
    let rl = RateLimiter::builder().redis(connect(&server.url())).build().unwrap();
    let limit = Limit::from(FixedWindowLimit::new(5, Duration::from_secs(3600)).unwrap());
    let check = Check::new("ann", &limit, 1);
    let exists = || {
        [
            rl.local().exists(check),
            wait_for(rl.redis().exists(check)).unwrap(),
            wait_for(rl.hybrid().exists(check)).unwrap(),
        ]
    };
    assert_eq!(exists(), [false; 3]);
    assert!(rl.local().take_all(&[check]).unwrap().is_allowed);
    assert!(wait_for(rl.redis().take_all(&[check])).unwrap().is_allowed);
    assert_eq!(exists(), [true; 3]);
    assert!(rl.local().fixed_window().reset("ann"));
    assert!(wait_for(rl.redis().fixed_window().reset(&"ann".try_into().unwrap())).unwrap());
    assert_eq!(exists(), [false; 3]);
}
