//! Many processes with many tasks each, on the server's clock: no key admits more than its capacity.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use trypema::RateLimiter;
use trypema::redis::RedisLimiter;
use trypema::strategy::Leasable;
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::{Control, Server, wait_until};

use crate::strategies::{Limits, Visit, each};

/// The environment variable that gives the child processes the URL of the server.
const SERVER: &str = "TRYPEMA_EXACT_SERVER";
/// The name of the test, which the children run too.
const TEST: &str = "exact::eight_processes_of_eight_tasks_never_admit_one_too_many";

const PROCESSES: usize = 8;
const TASKS: usize = 8;
/// The number of takes per task: together three times the capacity.
const TAKES: usize = 48;
const CAPACITY: u64 = 1_000;
/// A window that does not end during the test.
const WINDOW: Duration = Duration::from_secs(366 * 86_400);
const DEADLINE: Duration = Duration::from_secs(60);

/// Kills the children when dropped, even if the test fails.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn eight_processes_of_eight_tasks_never_admit_one_too_many() {
    if let Ok(url) = std::env::var(SERVER) {
        return take_as_a_child(&url);
    }
    let server = Server::start().unwrap();
    let start = |_| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", TEST, "--nocapture"]).env(SERVER, server.url());
        child.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut children = Children((0..PROCESSES).map(start).collect());
    let mut control = server.control().unwrap();
    let are_ready = || control.command(&["GET", "ready"]).unwrap().text() == PROCESSES.to_string();
    wait_until("all processes to be ready", are_ready).unwrap();
    server.control().unwrap().command(&["SET", "go", "1"]).unwrap();

    let mut admitted = BTreeMap::new();
    for child in children.0.drain(..) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            if let Some((_, report)) = line.split_once("admitted ") {
                let (strategy, count) = report.split_once(' ').unwrap();
                *admitted.entry(strategy.to_owned()).or_insert(0) += count.parse::<u64>().unwrap();
            }
        }
    }
    // Suppressed admits some units above its limit, up to the hard limit.
    let suppressed = admitted.remove("suppressed").unwrap();
    assert!((CAPACITY..=2 * CAPACITY).contains(&suppressed), "suppressed admitted {suppressed}");
    let exact = ["absolute", "abuse", "concurrency", "fixed_window", "sliding_window", "token_bucket"];
    assert_eq!(admitted, exact.map(|strategy| (strategy.to_owned(), CAPACITY)).into());
}

fn take_as_a_child(url: &str) {
    let builder = RateLimiter::builder().redis(connect(url)).redis_deadline(DEADLINE);
    let rl = builder.build().unwrap();
    let mut control = Control::open(url).unwrap();
    control.command(&["INCR", "ready"]).unwrap();
    wait_until("the start", || control.command(&["EXISTS", "go"]).unwrap().integer() == Some(1)).unwrap();
    each(&rl, &Limits::of(CAPACITY, WINDOW), &mut Take);
}

struct Take;

impl Visit for Take {
    fn visit<S: Leasable + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
        let ann = key("ann");
        let take = || u64::from(S::core(&wait_for(limiter.take(&ann, limit, 1)).unwrap()).is_allowed());
        let admitted: u64 = std::thread::scope(|scope| {
            let tasks: Vec<_> =
                (0..TASKS).map(|_| scope.spawn(|| (0..TAKES).map(|_| take()).sum::<u64>())).collect();
            tasks.into_iter().map(|task| task.join().unwrap()).sum()
        });
        println!("admitted {} {admitted}", S::NAME);
    }
}
