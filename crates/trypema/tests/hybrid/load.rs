//! A fleet under load on a real Redis: it never exceeds the limit, nearly reaches it, and needs few Redis calls.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod closed_loop;
mod fleet;

use std::time::Duration;

use fleet::{Fleet, Load, most_in};
use trypema::AbsoluteLimit;
use trypema_testkit::redis::Server;

/// The limit of the whole fleet.
const LIMIT: u64 = 500;
const WINDOW: Duration = Duration::from_secs(5);

/// A window that does not end during a test.
const LONG: Duration = Duration::from_secs(86_400);

/// Sixteen instances under forty times their limit.
const OVERLOAD: Load = Load { instances: 16, per_second: 20_000, lasting: Duration::from_secs(8) };

#[test]
fn an_overloaded_fleet_admits_no_more_than_its_limit_in_any_window() {
    let server = Server::start().unwrap();
    let run = Fleet::new(&server).run("short", AbsoluteLimit::per_window(LIMIT, WINDOW).unwrap(), OVERLOAD);
    println!("{run}");
    assert!(most_in(&run.admitted, WINDOW) <= LIMIT, "{run}");
}

/// The share of a limit whose windows end is measured by `cargo xtask bench hybrid`: it depends on the
/// machine.
#[test]
fn an_overloaded_fleet_spends_nearly_all_of_a_long_window() {
    let server = Server::start().unwrap();
    let run = Fleet::new(&server).run("long", AbsoluteLimit::per_window(LIMIT, LONG).unwrap(), OVERLOAD);
    println!("{run}");
    let admitted = run.admitted.len() as u64;
    assert!(admitted <= LIMIT && admitted * 100 >= LIMIT * 95, "{run}");
}

#[test]
fn twenty_instances_under_their_limit_are_hardly_denied_and_hardly_call() {
    let server = Server::start().unwrap();
    let limit = AbsoluteLimit::per_window(1_230_000, Duration::from_secs(60)).unwrap();
    let load = Load { instances: 20, per_second: 20_000, lasting: Duration::from_secs(5) };
    let hybrid = Fleet::new(&server).run("busy", limit, load);
    println!("{hybrid}");
    // `cargo xtask bench hybrid` requires 50 calls per Redis call on a quiet machine. Here other tests may
    // run at the same time.
    assert!(hybrid.calls * 20 <= hybrid.offered, "{hybrid}");
    assert!(hybrid.admitted.len() as u64 * 100 >= hybrid.offered * 98, "{hybrid}");
}
