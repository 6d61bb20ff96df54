//! A request has one deadline, however many rules apply to it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::OnFailure;
use trypema::rules::{Engine, Request, Reservation, SettledStatus, Settlement};
use trypema_testkit::blocking::{connect, runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, Server};

use super::super::a_minute;
use super::{Setup, Shared};

const RULES: usize = 12;
/// With a deadline per rule, an operation would take twelve of these; with one per step, two.
const DEADLINE: Duration = Duration::from_secs(4);
/// Less than two deadlines, with an allowance for a machine that does other work.
const LATEST: Duration = Duration::from_millis(7_500);

/// An engine whose store has stopped answering, and a reservation from before.
struct Silent {
    engine: Arc<Engine>,
    reserved: Reservation,
    text: String,
    _proxy: FaultProxy,
}

impl Silent {
    fn new(provider: Shared, server: &Server) -> Self {
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let yaml = yaml();
        let setup = Setup { on_failure: OnFailure::Fail, deadline: DEADLINE, yaml: &yaml };
        let engine = provider.engine(&connect(&proxy.url()), &setup);
        let reserved = wait_for(engine.reserve(&ann(), &a_minute())).unwrap();
        let text = reserved.text().unwrap();
        proxy.freeze();
        Self { engine, reserved, text, _proxy: proxy }
    }
}

/// Calls an operation. Returns whether it says that it failed.
type Verb = fn(&mut Silent) -> bool;

const VERBS: [(&str, Verb); 11] = [
    ("check", |silent| wait_for(silent.engine.check(&ann())).is_err()),
    ("peek", |silent| wait_for(silent.engine.peek(&ann())).is_err()),
    ("record", |silent| wait_for(silent.engine.record(&ann())).is_err()),
    ("reserve", |silent| wait_for(silent.engine.reserve(&ann(), &a_minute())).is_err()),
    ("explain", |silent| wait_for(silent.engine.explain(&ann())).is_err()),
    ("renew by text", |silent| wait_for(silent.engine.renew(&silent.text, Duration::from_secs(1))).is_err()),
    ("renew", |silent| wait_for(silent.reserved.renew(Duration::from_secs(1))).is_err()),
    ("settle", |silent| {
        is_failed(&wait_for(silent.engine.settle(&silent.text, &[("requests", 0)])).unwrap())
    }),
    ("release by text", |silent| is_failed(&wait_for(silent.engine.release(&silent.text)).unwrap())),
    ("release", |silent| is_failed(&wait_for(silent.reserved.release()))),
    ("holders", |silent| wait_for(silent.engine.holders("r0|user=ann")).is_err()),
];

fn ann() -> Request<'static> {
    Request::new(&[("user", "ann")])
}

fn yaml() -> String {
    let rule = |number: usize| {
        let window = "{fixed_window: {limit: 1000, window: 1h}}";
        format!("  - {{id: r{number}, scope: user, priority: {number}, strategy: {window}}}\n")
    };
    let rules: String = (0..RULES).map(rule).collect();
    format!("rules:\n{rules}")
}

/// Whether every counter says that its store failed: nothing is reported as done.
fn is_failed(settlement: &Settlement) -> bool {
    let is_failed = |status: &SettledStatus| matches!(status, SettledStatus::Failed(_));
    settlement.rules.len() == RULES && settlement.rules.iter().all(|rule| is_failed(&rule.status))
}

/// All verbs wait at the same time, each for a store of its own.
#[test]
fn every_verb_gives_up_at_the_deadline_of_the_request() {
    let server = Server::start().unwrap();
    thread::scope(|scope| {
        for provider in Shared::ALL {
            for (name, verb) in VERBS {
                let server = &server;
                scope.spawn(move || {
                    let _guard = runtime().enter();
                    let mut silent = Silent::new(provider, server);
                    let started = SystemClock.now();
                    assert!(verb(&mut silent), "{provider:?}: {name} says that it was done");
                    let took = Duration::from_micros(SystemClock.now().as_micros() - started.as_micros());
                    assert!(took < LATEST, "{provider:?}: {name} took {took:?} of {DEADLINE:?}");
                });
            }
        }
    });
}
