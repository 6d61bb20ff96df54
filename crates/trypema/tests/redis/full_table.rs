//! A key has at most 4,096 holders at a time, so that its state and the work of a script are bounded.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::cell::RefCell;
use std::sync::Arc;

use trypema::clock::ManualClock;
use trypema_testkit::blocking::{Blocking, connect, limiter};
use trypema_testkit::redis::Server;

use crate::shared_full_table::is_bounded;

/// The bytes of a state before its entries, and of each entry.
const HEAD_BYTES: u64 = 25;
const ENTRY_BYTES: u64 = 69;

#[test]
fn the_holders_of_a_key_are_bounded() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let rl = limiter(&connect(&server.url()), "trypema", &clock).build().unwrap();
    let control = RefCell::new(server.control().unwrap());
    is_bounded(&Blocking(rl.redis().concurrency()), &clock, || {
        let bytes = control.borrow_mut().command(&["STRLEN", "trypema:{ann}:concurrency"]).unwrap().integer();
        bytes.map(|bytes| (bytes as u64 - HEAD_BYTES) / ENTRY_BYTES)
    });
}
