//! Reservations: reserve, settle, release, renew and expiry, on every provider.
#![cfg(all(feature = "rules", feature = "redis-tokio"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod attempts;
mod bounded;
mod edges;
mod fairness;
mod faults;
mod kept;
mod racing;
mod rollback;
mod twins;
mod undoing;
mod verbs;
mod waiting;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::observer::{Event, Observer, ReservationChange, ReservationEvent, ShadowDenial};
use trypema::rules::{Engine, Request, Reservation, ReserveOptions, RuleSet, Settlement};
use trypema_testkit::blocking::{connect, limiter, wait_for};
use trypema_testkit::redis::{Cluster, Server};

/// An engine of some provider, with its clock.
struct Scene {
    provider: &'static str,
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    changes: Arc<Changes>,
}

/// What an observer heard of reservations: rules and changes.
#[derive(Debug, Default)]
struct Changes(Mutex<Vec<(String, ReservationChange)>>, AtomicU64);

impl Changes {
    /// The denials of log-only rules.
    fn shadow_denials(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }
}

impl Observer for Changes {
    fn decided(&self, _: &Event<'_>) {}

    fn shadowed(&self, _: &ShadowDenial<'_>) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    fn reservation_changed(&self, event: &ReservationEvent<'_>) {
        self.0.lock().unwrap().push((event.rule.to_owned(), event.change));
    }
}

/// Calls `play` with an engine of these rules on every provider.
fn on_every_provider(yaml: &str, mut play: impl FnMut(&Scene)) {
    let clock = Arc::new(ManualClock::default());
    let local = RateLimiter::builder().clock(clock.clone()).build().unwrap();
    let changes = Arc::new(Changes::default());
    let engine = Engine::local(Arc::new(local), rules(yaml)).observed_by(changes.clone());
    play(&Scene { provider: "local", engine: Arc::new(engine), clock, changes });
    let (server, cluster) = (Server::start().unwrap(), Cluster::start().unwrap());
    type NewEngine = fn(Arc<RateLimiter>, RuleSet) -> Engine;
    let shared: [(&str, &str, NewEngine); 3] = [
        ("redis", &server.url(), Engine::redis),
        ("hybrid", &server.url(), Engine::hybrid),
        ("cluster", &cluster.url(), Engine::redis),
    ];
    for (provider, url, engine) in shared {
        let clock = Arc::new(ManualClock::default());
        let rl = limiter(&connect(url), provider, &clock).redis_deadline(Duration::from_secs(20));
        let changes = Arc::new(Changes::default());
        let engine = engine(Arc::new(rl.build().unwrap()), rules(yaml)).observed_by(changes.clone());
        play(&Scene { provider, engine: Arc::new(engine), clock, changes });
    }
}

fn rules(yaml: &str) -> RuleSet {
    RuleSet::from_yaml(yaml, "rules.yaml").unwrap_or_else(|error| panic!("{error}"))
}

/// The options of a reservation of one minute.
fn a_minute() -> ReserveOptions {
    ReserveOptions::new(Duration::from_secs(60)).unwrap()
}

impl Scene {
    fn reserve(&self, user: &str, tokens: u64) -> Reservation {
        self.reserve_with(user, tokens, &a_minute())
    }

    fn reserve_with(&self, user: &str, tokens: u64, options: &ReserveOptions) -> Reservation {
        let (attributes, costs) = ([("user", user)], [("tokens", tokens)]);
        let request = Request::new(&attributes).with_costs(&costs);
        wait_for(self.engine.reserve(&request, options)).unwrap()
    }

    fn settle(&self, text: &str, tokens: u64) -> Settlement {
        wait_for(self.engine.settle(text, &[("tokens", tokens)])).unwrap()
    }

    /// The units left of each counter of a user, by rule.
    fn left(&self, user: &str) -> Vec<(String, u64)> {
        let (attributes, costs) = ([("user", user)], [("tokens", 0)]);
        let explained = wait_for(self.engine.explain(&Request::new(&attributes).with_costs(&costs))).unwrap();
        explained.applying().map(|rule| (rule.decision.rule.id.clone(), rule.left)).collect()
    }

    fn left_of(&self, rule: &str, user: &str) -> u64 {
        let left = self.left(user).into_iter().find(|(id, _)| id == rule);
        left.unwrap_or_else(|| panic!("{}: no rule {rule}", self.provider)).1
    }
}
