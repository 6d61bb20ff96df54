//! Failed calls do not leak memory.

use std::fs;

use trypema_testkit::own_process::in_own_process;
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use super::load::{Counts, Target, calls};
use super::on_both_links;
use super::scene::{DEADLINE, Link, target};

on_both_links!(memory_when_dead, memory_when_stopped, memory_when_replies_are_dropped, memory_when_refused);

/// The number of measured failing calls.
const CALLS: usize = 10_000;

/// The number of failing calls before the measurement, after which all buffers have reached their size.
const WARM_UP: usize = 5_000;

/// A leak of a kilobyte per call would exceed this.
const MAX_GROWTH_KB: u64 = 8 * 1_024;

fn memory_when_dead(link: Link) {
    alone("memory_when_dead", link, || {
        let server = Server::start().unwrap();
        stays_flat(link, &server.url(), || server.kill_9().unwrap());
    });
}

fn memory_when_stopped(link: Link) {
    alone("memory_when_stopped", link, || {
        let server = Server::start().unwrap();
        stays_flat(link, &server.url(), || server.stop().unwrap());
    });
}

fn memory_when_replies_are_dropped(link: Link) {
    alone("memory_when_replies_are_dropped", link, || {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        stays_flat(link, &proxy.url(), || proxy.drop_replies());
    });
}

/// Calls that reach the server and are refused do not leak memory either.
fn memory_when_refused(link: Link) {
    alone("memory_when_refused", link, || {
        let server = Server::start().unwrap();
        let fill = || {
            server.control().unwrap().command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        };
        let counts = stays_flat(link, &server.url(), fill);
        assert!(counts.refused > CALLS as u64 / 2, "{counts:?}");
    });
}

/// Runs a row in a process in which only it allocates.
fn alone(row: &str, link: Link, body: impl FnOnce()) {
    let side = match link {
        Link::Ours => "ours",
        Link::Manager => "manager",
    };
    in_own_process(&format!("faults::memory::{side}::{row}"), body);
}

fn stays_flat(link: Link, url: &str, strike: impl FnOnce()) -> Counts {
    let target = target(link.open(url), DEADLINE);
    wait_until("calls to be served", || calls(&target, 100).admitted > 0).unwrap();
    strike();
    fails(&target, WARM_UP);
    let before = resident_kb();
    let counts = fails(&target, CALLS);
    let grown = resident_kb().saturating_sub(before);
    assert!(grown < MAX_GROWTH_KB, "{grown} kB more after {counts:?}");
    counts
}

fn fails(target: &Target, number: usize) -> Counts {
    let counts = calls(target, number);
    assert_eq!(counts.admitted, 0, "{counts:?}");
    counts
}

/// The resident memory of this process.
fn resident_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}
