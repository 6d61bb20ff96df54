//! Instances that end: a killed instance wastes its lease and nothing else, and one that stops returns its
//! lease.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::{FixedWindowLimit, RateLimiter};
use trypema_testkit::blocking::{connect, key, runtime, wait_for};
use trypema_testkit::redis::Server;

/// The environment variable that gives the child process the URL of the Redis server.
const SERVER: &str = "TRYPEMA_HYBRID_FAULTS_SERVER";
/// The name of the test, which the child process runs too.
const TEST: &str = "faults::instances::an_instance_that_is_killed_wastes_its_lease_and_no_more";

const CAPACITY: u64 = 100_000;
const DEADLINE: Duration = Duration::from_secs(20);

/// The maximum number of calls per second of the child process.
const PER_SECOND: u64 = 5_000;

/// A limit whose window does not end during a test.
fn limit() -> FixedWindowLimit {
    FixedWindowLimit::new(CAPACITY, Duration::from_secs(366 * 86_400)).unwrap()
}

fn instance(url: &str) -> RateLimiter {
    RateLimiter::builder().redis(connect(url)).redis_deadline(DEADLINE).build().unwrap()
}

/// Kills the child process when dropped, even if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_instance_that_is_killed_wastes_its_lease_and_no_more() {
    if let Ok(url) = std::env::var(SERVER) {
        return take_until_killed(&url);
    }
    let server = Server::start().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", TEST, "--nocapture"]).env(SERVER, server.url());
    let mut child = Killed(child.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut admitted = 0;
    let is_admission = |line: &String| line.ends_with("admitted");
    while admitted < 3_000 {
        admitted += u64::from(is_admission(&lines.next().unwrap().unwrap()));
    }
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // Counts the lines that the child wrote before it died. At most one admitted call is missing.
    admitted += lines.map_while(Result::ok).filter(is_admission).count() as u64;

    let (rl, limit, ann) = (instance(&server.url()), limit(), key("ann"));
    let left = wait_for(rl.redis().fixed_window().usage(&ann, &limit)).unwrap().remaining();
    let used = CAPACITY - left;
    assert!(used >= admitted, "{used} counted of {admitted} admitted");
    // The bound is one second of calls: the units of about two leases, with an allowance for a machine that
    // stalls.
    let wasted = used - admitted;
    assert!(wasted <= PER_SECOND, "{wasted} units wasted after {admitted}");
    assert!(wait_for(rl.hybrid().fixed_window().take(&ann, &limit, left)).unwrap().is_allowed());
    assert!(!wait_for(rl.hybrid().fixed_window().take(&ann, &limit, 1)).unwrap().is_allowed());
}

/// Writes a line after every admitted call.
fn take_until_killed(url: &str) {
    let (rl, limit, ann) = (instance(url), limit(), key("ann"));
    runtime().spawn(rl.hybrid().keep_in_sync());
    let started = SystemClock.now().as_micros();
    let mut output = std::io::stdout().lock();
    for call in 0..CAPACITY {
        while (SystemClock.now().as_micros() - started) * PER_SECOND / 1_000_000 < call {
            std::thread::yield_now();
        }
        let taken = match rl.hybrid().fixed_window().try_take(&ann, &limit, 1) {
            Some(decision) => decision,
            None => wait_for(rl.hybrid().fixed_window().take(&ann, &limit, 1)).unwrap(),
        };
        assert!(taken.is_allowed());
        // Each line is flushed, so that none is lost in a buffer.
        output.write_all(b"admitted\n").and_then(|()| output.flush()).unwrap();
    }
}

#[test]
fn an_instance_that_stops_gives_everything_back() {
    let server = Server::start().unwrap();
    let (stopping, other) = (instance(&server.url()), instance(&server.url()));
    let (limit, ann) = (limit(), key("ann"));
    runtime().spawn(stopping.hybrid().keep_in_sync());
    let mut taken = 0;
    while stopping.hybrid().fixed_window().held(&ann) < 10 {
        assert!(wait_for(stopping.hybrid().fixed_window().take(&ann, &limit, 1)).unwrap().is_allowed());
        taken += 1;
    }
    wait_for(stopping.hybrid().release());
    drop(stopping);
    let rest = CAPACITY - taken;
    assert!(wait_for(other.hybrid().fixed_window().take(&ann, &limit, rest)).unwrap().is_allowed());
    assert!(!wait_for(other.hybrid().fixed_window().take(&ann, &limit, 1)).unwrap().is_allowed());
}
