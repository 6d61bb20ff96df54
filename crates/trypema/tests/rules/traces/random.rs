//! Random requests to random rules get the same answers from an engine and from the model.

use trypema::clock::Timestamp;
use trypema::rules::Rules;
use trypema_testkit::blocking::connect;
use trypema_testkit::redis::Server;
use trypema_testkit::rule_model::{Walked, walk};
use trypema_testkit::rule_trace::{
    CheckBody, EngineSubject, RuleAnswer, RuleSubject, StepAnswer, StepRequest,
};

use super::compiled;

/// The number of rule sets in process. Each gets 30 requests.
const SEEDS: u64 = 6_000;
/// The number of rule sets on Redis, where each request is a round trip.
const SEEDS_ON_REDIS: u64 = 1_000;

/// Walks all seeds. Enough requests of each kind have to occur, or else the walks prove little.
fn walk_all<S: RuleSubject>(seeds: u64, subject_of: impl Fn(u64, &Rules) -> S) {
    let mut all = Walked::default();
    for seed in 0..seeds {
        let walked =
            walk(seed, |rules| subject_of(seed, rules)).unwrap_or_else(|difference| panic!("{difference}"));
        all.join(&walked);
    }
    let Walked { allowed, denied, failed, reserved, repeated, settled, renewed } = all;
    let tenth = (allowed + denied + failed) / 10;
    assert!(allowed > tenth && denied > tenth && failed > tenth / 5, "{all:?}");
    assert!(
        reserved > tenth && settled > tenth / 4 && repeated > tenth / 50 && renewed > tenth / 50,
        "{all:?}"
    );
}

#[test]
fn in_process() {
    walk_all(SEEDS, |_, rules| EngineSubject::local(compiled(rules)).unwrap());
}

#[test]
fn on_redis() {
    let server = Server::shared().unwrap();
    let (connection, prefix) = (connect(server.url()), server.unique_prefix());
    walk_all(SEEDS_ON_REDIS, |seed, rules| {
        EngineSubject::redis(compiled(rules), &connection, &format!("{prefix}-{seed}")).unwrap()
    });
}

#[test]
fn on_hybrid() {
    let server = Server::shared().unwrap();
    let (connection, prefix) = (connect(server.url()), server.unique_prefix());
    walk_all(SEEDS_ON_REDIS, |seed, rules| {
        EngineSubject::hybrid(compiled(rules), &connection, &format!("{prefix}-{seed}")).unwrap()
    });
}

/// An engine that answers one check, not before the tenth step, as it would a cheaper request.
struct Miscounting(EngineSubject, usize, bool);

impl RuleSubject for Miscounting {
    fn ask(&mut self, at: Timestamp, request: &CheckBody) -> Option<RuleAnswer> {
        let mut cheaper = request.clone();
        cheaper.costs = None;
        cheaper.cost = Some(0).filter(|_| request.attributes.is_some());
        cheaper.sets = request.sets.as_ref().map(|sets| sets.iter().skip(1).cloned().collect());
        self.0.ask(at, &cheaper)
    }

    fn answer(&mut self, at: Timestamp, request: &StepRequest) -> Option<StepAnswer> {
        self.1 += 1;
        match request {
            StepRequest::Request(request) if self.1 >= 10 && !self.2 => {
                self.2 = true;
                self.ask(at, request).map(StepAnswer::Verdict)
            }
            request => self.0.answer(at, request),
        }
    }
}

#[test]
fn an_engine_that_miscounts_once_is_found() {
    let is_found = |seed: &u64| {
        walk(*seed, |rules| Miscounting(EngineSubject::local(compiled(rules)).unwrap(), 0, false)).is_err()
    };
    let found = (0..100).filter(is_found).count();
    assert!(found > 15, "{found} of 100");
}
