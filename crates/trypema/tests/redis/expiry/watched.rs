//! The commands that a server executes: only scripts, and in them only their declared keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use trypema::RateLimiter;
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::{Monitored, Server};

use super::{LONG, on_server_time, verbs};
use crate::strategies::Limits;

/// The commands inside scripts, which the Redis user must be permitted besides `EVALSHA` and `EVAL`.
const IN_SCRIPTS: [&str; 9] =
    ["DEL", "GET", "GETRANGE", "INCR", "PEXPIRE", "PTTL", "SET", "SETRANGE", "TIME"];

#[test]
fn scripts_touch_their_keys_and_run_the_documented_commands() {
    let server = Server::start().unwrap();
    let rl = Arc::new(on_server_time(&server, LONG));
    let monitor = server.monitor().unwrap();
    verbs::run(&rl, LONG, |_| {});
    long_states(&rl);
    let seen = Seen::of(&monitor.finish().unwrap());
    assert_eq!(seen.by_clients, BTreeSet::from(["EVAL", "EVALSHA"].map(str::to_owned)));
    assert_eq!(seen.in_scripts, BTreeSet::from(IN_SCRIPTS.map(str::to_owned)));
    assert!(seen.most_keys > 6, "calls of several keys were seen, the longest of {} keys", seen.most_keys);
}

/// Creates series that are long enough to be changed in place, with batched calls.
fn long_states(rl: &Arc<RateLimiter>) {
    let limits = Arc::new(Limits::of(5_000, LONG));
    for _ in 0..300 {
        assert!(wait_for(rl.redis().abuse().take(&key("long"), &limits.abuse, 1)).unwrap().is_allowed());
    }
    let takes: Vec<_> = (0..64)
        .map(|number| {
            let (rl, limits) = (Arc::clone(rl), Arc::clone(&limits));
            runtime().spawn(async move {
                let abuse = rl.redis().abuse();
                let name = if number % 2 == 0 { key("long") } else { key(&format!("long {number}")) };
                abuse.take(&name, &limits.abuse, 1).await.map(|decision| decision.is_allowed())
            })
        })
        .collect();
    for take in takes {
        assert_eq!(wait_for(take).unwrap(), Ok(true));
    }
}

/// The observed commands. Panics if a script accesses an undeclared key.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) by_clients: BTreeSet<String>,
    in_scripts: BTreeSet<String>,
    most_keys: usize,
}

impl Seen {
    pub(crate) fn of(lines: &[Monitored]) -> Self {
        let (mut seen, mut keys) = (Self::default(), Vec::new());
        for line in lines {
            let name = String::from_utf8_lossy(&line.words[0]).to_ascii_uppercase();
            if line.is_from_script {
                let touched = line.words.get(1);
                assert!(name == "TIME" || keys.contains(touched.unwrap()), "{name} {touched:?} of {keys:?}");
                seen.in_scripts.insert(name);
            } else {
                keys = keys_of(line);
                seen.most_keys = seen.most_keys.max(keys.len());
                seen.by_clients.insert(name);
            }
        }
        seen
    }
}

/// The keys of `EVALSHA <digest> <count> <key>… <argument>…`.
fn keys_of(line: &Monitored) -> Vec<Vec<u8>> {
    let count =
        line.words.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse().ok()).unwrap_or(0);
    line.words.iter().skip(3).take(count).cloned().collect()
}
