//! A fleet under load on a real Redis, in real time: it never exceeds the limit, nearly reaches it, and needs
//! few Redis calls.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod closed_loop;
mod fleet;

use std::time::Duration;

use fleet::{Fleet, Load, Provider, most_in};
use trypema::AbsoluteLimit;
use trypema_testkit::redis::Server;

/// The limit of the whole fleet.
const LIMIT: u64 = 500;
const WINDOW: Duration = Duration::from_secs(5);

#[test]
fn sixteen_instances_under_forty_times_their_limit_admit_all_of_it_and_never_more() {
    let server = Server::start().unwrap();
    let limit = AbsoluteLimit::per_window(LIMIT, WINDOW).unwrap();
    let load = Load { instances: 16, per_second: 20_000, lasting: Duration::from_secs(8) };
    let hybrid = Fleet::new(&server, Provider::Hybrid).run("hybrid", limit, load);
    let redis = Fleet::new(&server, Provider::Redis).run("redis", limit, load);
    println!("hybrid {hybrid}");
    println!("redis  {redis}");
    assert!(most_in(&hybrid.admitted, WINDOW) <= LIMIT, "{hybrid}");
    assert!(hybrid.admitted.len() as f64 >= 0.95 * redis.admitted.len() as f64, "{hybrid} beside {redis}");
}

#[test]
fn twenty_instances_under_their_limit_are_hardly_denied_and_hardly_call() {
    let server = Server::start().unwrap();
    let limit = AbsoluteLimit::per_window(1_230_000, Duration::from_secs(60)).unwrap();
    let load = Load { instances: 20, per_second: 20_000, lasting: Duration::from_secs(5) };
    let hybrid = Fleet::new(&server, Provider::Hybrid).run("busy", limit, load);
    println!("{hybrid}");
    // `cargo xtask bench hybrid` requires 50 calls per Redis call on a quiet machine. Here other tests may
    // run at the same time.
    assert!(hybrid.calls * 20 <= hybrid.offered, "{hybrid}");
    assert!(hybrid.admitted.len() as u64 * 100 >= hybrid.offered * 98, "{hybrid}");
}
