//! A process that forks: both go on with ids of their own.
#![cfg(all(feature = "redis-tokio", feature = "rules", unix))]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use trypema::redis::RedisConnection;
use trypema::rules::{Engine, Request, ReserveOptions, RuleSet};
use trypema::{AbsoluteLimit, RateLimiter};
use trypema_testkit::blocking::key;
use trypema_testkit::redis::Server;

use crate::batching::long_window;

const RULES: &str = "rules: [{id: all, scope: global, strategy: {fixed_window: {limit: 1000, window: 1d}}}]";
/// The number of ids of each kind.
const IDS: usize = 5;
/// Enough calls in a row that a key is leased.
const SURELY_LEASED: usize = 20;

struct Process {
    engine: Arc<Engine>,
    rl: Arc<RateLimiter>,
}

impl Process {
    fn connected_to(server: &Server) -> Self {
        let connection = RedisConnection::lazy(&server.url()).unwrap();
        let builder = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(20));
        let rl = Arc::new(builder.build().unwrap());
        let rules = RuleSet::from_yaml(RULES, "rules.yaml").unwrap();
        Self { engine: Arc::new(Engine::local(Arc::clone(&rl), rules)), rl }
    }

    /// Returns ids of reservations and receipts, and leases units of `leased`.
    async fn ids(&self, leased: &str) -> Vec<String> {
        let mut ids = Vec::new();
        let options = ReserveOptions::new(Duration::from_secs(60)).unwrap();
        for _ in 0..IDS {
            let reservation = self.engine.reserve(&Request::new(&[]), &options).await.unwrap();
            ids.push(reservation.into_text().unwrap());
            let taken = self
                .rl
                .redis()
                .fixed_window()
                .take_with_receipt(&key("ann"), &long_window(1_000), 1)
                .await
                .unwrap();
            let receipt = format!("{:?}", taken.receipt.unwrap());
            ids.push(receipt.split(',').next().unwrap().to_owned());
        }
        let limit = AbsoluteLimit::per_window(1_000_000, Duration::from_secs(600)).unwrap();
        for _ in 0..SURELY_LEASED {
            assert!(self.rl.hybrid().absolute().take(&key(leased), &limit, 1).await.unwrap().is_allowed());
        }
        ids
    }

    /// Same as [`ids`](Self::ids), in a runtime of its own: a fork has none.
    fn ids_in_new_runtime(&self, leased: &str) -> Vec<String> {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(self.ids(leased))
    }
}

/// Runs in a process of its own, in which no other thread holds a lock while it forks.
#[test]
#[ignore = "started by `a_fork_has_ids_of_its_own`"]
#[allow(unsafe_code, reason = "the standard library forks only for the closure of `pre_exec`")]
fn forks() {
    let server = Server::start().unwrap();
    let process = Arc::new(Process::connected_to(&server));
    // Whatever remembers random numbers does so now.
    let before = process.ids_in_new_runtime("before");
    let file = std::env::temp_dir().join(format!("trypema-fork-{}", std::process::id()));
    let (child, written) = (Arc::clone(&process), file.clone());
    let mut command = Command::new("/proc/self/exe");
    // SAFETY: this process has one thread that does anything, so no lock is held and the allocator works.
    unsafe {
        command.pre_exec(move || {
            std::fs::write(&written, child.ids_in_new_runtime("bob").join("\n"))?;
            Err(std::io::Error::other("the fork is not needed any more"))
        });
    }
    assert!(command.spawn().is_err());
    let of_child = read(&file);
    let of_parent = process.ids_in_new_runtime("bob");
    let all: HashSet<_> = before.iter().chain(&of_child).chain(&of_parent).collect();
    assert_eq!(all.len(), 3 * 2 * IDS, "{of_child:?} {of_parent:?}");
    let mut control = server.control().unwrap();
    let names = control.command(&["KEYS", "trypema:{bob}*:instances"]).unwrap();
    let name = names.items()[0].text();
    assert_eq!(control.command(&["ZCARD", &name]).unwrap().integer(), Some(2), "instances that share a key");
}

fn read(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    std::fs::remove_file(file).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_fork_has_ids_of_its_own() {
    let mut quiet = Command::new(std::env::current_exe().unwrap());
    let output = quiet.args(["--exact", "fork::forks", "--ignored", "--test-threads=1"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
