//! Clients that send requests all the time, and verify every response.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trypema_testkit::redis::wait_until;

use super::policy::{Kind, Policy};
use crate::client::Client;
use crate::harness::Service;
use crate::timing::{Stopwatch, p99};

/// The number of clients per policy: ten in all.
const CLIENTS: usize = 2;

/// The number of responses of each kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts(BTreeMap<(Policy, Kind), u64>);

impl Counts {
    /// Returns the number of decisions that are based on Redis.
    pub(super) fn real(&self, policy: Policy) -> u64 {
        self.of(policy, Kind::Allowed) + self.of(policy, Kind::Denied)
    }

    /// Returns the number of decisions without Redis.
    pub(super) fn substitutes(&self, policy: Policy) -> u64 {
        self.of(policy, Kind::SubstituteAllowed) + self.of(policy, Kind::SubstituteDenied)
    }

    pub(super) fn of(&self, policy: Policy, kind: Kind) -> u64 {
        self.0.get(&(policy, kind)).copied().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Answered {
    /// The counts by the round of the key.
    rounds: Mutex<Vec<Counts>>,
    /// The current round, which is part of every key.
    round: AtomicU64,
    is_over: AtomicBool,
    times: Mutex<Vec<Duration>>,
}

/// Running clients of every policy.
pub(super) struct Load {
    answered: Arc<Answered>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(super) fn start(service: &Service) -> Self {
        let answered = Arc::new(Answered::default());
        let start = |policy| {
            let (answered, client) = (Arc::clone(&answered), service.client());
            thread::spawn(move || answered.ask(policy, client))
        };
        let clients = Policy::ALL.iter().flat_map(|policy| [*policy; CLIENTS]).map(start).collect();
        Self { answered, clients }
    }

    /// Makes the clients use new keys from now on.
    pub(super) fn next_round(&self) {
        self.answered.round.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts for the keys of this round.
    pub(super) fn counts(&self) -> Counts {
        let round = self.answered.round.load(Ordering::Relaxed) as usize;
        self.answered.rounds.lock().unwrap().get(round).cloned().unwrap_or_default()
    }

    /// Waits until `is_so` holds for every policy. Its arguments are the counts before the wait and the
    /// current ones. Fails if a client has failed.
    pub(super) fn wait(&self, what: &str, is_so: impl Fn(&Counts, &Counts, Policy) -> bool) {
        let before = self.counts();
        wait_until(what, || {
            assert!(self.clients.iter().all(|client| !client.is_finished()), "a client was answered wrongly");
            let now = self.counts();
            Policy::ALL.iter().all(|policy| is_so(&before, &now, *policy))
        })
        .unwrap_or_else(|error| panic!("{error}: {before:?}, then {:?}", self.counts()));
    }

    /// Returns the p99 of the response times since the last call.
    pub(super) fn p99(&self) -> Duration {
        p99(&mut std::mem::take(&mut *self.answered.times.lock().unwrap()))
    }

    /// Stops the clients and returns the counts of each round.
    pub(super) fn stop(self) -> Vec<Counts> {
        self.answered.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        std::mem::take(&mut *self.answered.rounds.lock().unwrap())
    }
}

impl Answered {
    fn ask(&self, policy: Policy, mut client: Client) {
        while !self.is_over.load(Ordering::Relaxed) {
            let round = self.round.load(Ordering::Relaxed) as usize;
            let watch = Stopwatch::start();
            let reply = client.send("POST", policy.path(), &[], &policy.question(round));
            self.times.lock().unwrap().push(watch.elapsed());
            let kind = policy.judge(&reply);
            let mut rounds = self.rounds.lock().unwrap();
            if rounds.len() <= round {
                rounds.resize(round + 1, Counts::default());
            }
            *rounds[round].0.entry((policy, kind)).or_default() += 1;
        }
    }
}
