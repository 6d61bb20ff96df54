//! A client that checks all the time, and verifies every response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use trypema_testkit::redis::wait_until;

use super::timed;
use crate::client::Client;
use crate::harness::Service;
use crate::scene::per_user;

/// The minimum number of checks during a fault.
const MANY: usize = 500;
/// Bounds on the median and on the slowest response, for a machine that does other work. A query of the database may
/// take ten seconds. Without a database, a response takes less than a millisecond.
const USUAL: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(5);

/// A rule whose limit no test reaches.
pub(super) fn rule() -> Value {
    per_user("per-user", 1_000_000)
}

/// The running client.
pub(super) struct Load {
    asked: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    client: JoinHandle<Vec<Duration>>,
}

impl Load {
    pub(super) fn start(service: &Service) -> Self {
        let (asked, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, ended, client) = (Arc::clone(&asked), Arc::clone(&is_over), service.client());
        let client = thread::spawn(move || ask(client, &counted, &ended));
        Self { asked, is_over, client }
    }

    /// Waits until `MANY` further checks were answered. Fails if the client has failed.
    pub(super) fn wait_for_many(&self) {
        let before = self.asked.load(Ordering::Relaxed);
        wait_until("many answers", || {
            assert!(!self.client.is_finished(), "a check was answered wrongly");
            self.asked.load(Ordering::Relaxed) >= before + MANY
        })
        .unwrap();
    }

    /// Stops the client and asserts that no check has failed or waited.
    pub(super) fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut times = self.client.join().unwrap();
        times.sort_unstable();
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{} checks, half of them within {median:?}, all within {longest:?}", times.len());
        assert!(median <= USUAL && longest <= MOST, "half within {median:?}, all within {longest:?}");
    }
}

fn ask(mut client: Client, asked: &AtomicUsize, is_over: &AtomicBool) -> Vec<Duration> {
    let question = json!({"attributes": {"user": "ann"}}).to_string();
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let (reply, took) = timed(|| client.send("POST", "/v1/check", &[], &question));
        times.push(took);
        assert_eq!((reply.status, &reply.json()["allowed"]), (200, &json!(true)), "{reply:?}");
        let body = reply.json();
        let is_ours = |rule: &&Value| rule["rule"] == "per-user" && rule["limit"] == 1_000_000;
        assert!(body["rules"].as_array().unwrap().iter().any(|rule| is_ours(&rule)), "{reply:?}");
        asked.fetch_add(1, Ordering::Relaxed);
        // One client of many: sleep, so that other clients could use the processor.
        thread::sleep(Duration::from_millis(1));
    }
    times
}
