//! The rule traces under `testdata/rule-traces`, and random rules, on every provider.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod random;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use trypema::redis::RedisConnection;
use trypema::rules::{RuleSet, Rules};
use trypema_testkit::blocking::connect;
use trypema_testkit::redis::{Binary, Cluster, Server};
use trypema_testkit::rule_model::RuleModel;
use trypema_testkit::rule_trace::{
    EngineSubject, RenewedAnswer, RuleOutcome, RuleStep, RuleSubject, RuleTrace, Settled, SettledAnswer,
    StepAnswer, StepRequest, replay,
};

/// The number of traces that a model of fixed windows can replay: most of them.
const MIN_MODELLED: usize = 30;

/// The traces of checks, and those of reservations.
fn traces() -> Vec<RuleTrace> {
    let of_folder = |folder: &str| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder);
        RuleTrace::read_all(&folder).unwrap_or_else(|error| panic!("{error}"))
    };
    let (checks, reservations) = (of_folder("rule-traces"), of_folder("reservation-traces"));
    assert!(
        checks.len() > MIN_MODELLED && reservations.len() > 20,
        "{} {}",
        checks.len(),
        reservations.len()
    );
    assert!(!checks.iter().any(RuleTrace::has_reservations));
    assert!(reservations.iter().all(RuleTrace::has_reservations));
    checks.into_iter().chain(reservations).collect()
}

fn compiled(rules: &Rules) -> RuleSet {
    RuleSet::compile(rules).unwrap_or_else(|error| panic!("{error}"))
}

/// Replays all traces. Every step is answered that the library has a request for.
fn replay_all<S: RuleSubject>(subject_of: impl Fn(&RuleTrace) -> S) {
    let mut differences = Vec::new();
    for trace in traces() {
        let replayed = replay(&trace, &mut subject_of(&trace));
        differences.extend(replayed.mismatches.iter().map(ToString::to_string));
        let expressible = trace.steps.iter().filter(|step| is_expressible(step)).count();
        assert_eq!(replayed.answered, expressible, "{}", trace.name);
    }
    assert!(differences.is_empty(), "{} answers differ:\n{}", differences.len(), differences.join("\n"));
}

/// Whether the library has the request of a step. If not, the step expects an error of front ends.
fn is_expressible(step: &RuleStep) -> bool {
    let is_expressible = step.request.is_expressible();
    let outcome = step.expected.verdict().map(|verdict| &verdict.outcome);
    assert!(is_expressible || matches!(outcome, Some(RuleOutcome::Error(_))));
    is_expressible
}

fn replay_on(connection: &RedisConnection, prefix: &str) {
    replay_all(|trace| {
        let prefix = format!("{prefix}-{}", trace.name);
        EngineSubject::redis(compiled(&trace.rules), connection, &prefix).unwrap()
    });
}

#[test]
fn in_process() {
    replay_all(|trace| EngineSubject::local(compiled(&trace.rules)).unwrap());
}

#[test]
fn on_redis() {
    let server = Server::shared().unwrap();
    replay_on(&connect(server.url()), &server.unique_prefix());
}

#[test]
fn on_redis_6_2() {
    let server = Server::builder().binary(Binary::redis_6_2().unwrap()).start().unwrap();
    replay_on(&connect(&server.url()), "trypema");
}

#[test]
fn on_valkey() {
    let server = Server::builder().binary(Binary::valkey().unwrap()).start().unwrap();
    replay_on(&connect(&server.url()), "trypema");
}

#[test]
fn on_a_cluster() {
    let cluster = Cluster::start().unwrap();
    let slots_of_steps = |trace: &RuleTrace| -> Vec<BTreeSet<u16>> {
        let slots = |step: &RuleStep| {
            let verdict = step.expected.verdict().into_iter();
            verdict
                .flat_map(|verdict| verdict.counters.keys())
                .map(|key| cluster.slot_of(key).unwrap())
                .collect()
        };
        trace.steps.iter().map(slots).collect()
    };
    let is_on_several = |slots: &BTreeSet<u16>| slots.len() > 1;
    let steps = traces().iter().flat_map(slots_of_steps).filter(is_on_several).count();
    assert!(steps > 20, "only {steps} requests have counters on several slots");
    replay_on(&connect(&cluster.url()), "trypema");
}

#[test]
fn on_hybrid() {
    let server = Server::shared().unwrap();
    let (connection, prefix) = (connect(server.url()), server.unique_prefix());
    replay_all(|trace| {
        let prefix = format!("{prefix}-{}", trace.name);
        EngineSubject::hybrid(compiled(&trace.rules), &connection, &prefix).unwrap()
    });
}

/// The model of the random tests gives the answers that were worked out by hand, too.
#[test]
fn on_the_model() {
    let mut modelled = 0;
    for trace in traces() {
        let is_replacing = |step: &RuleStep| matches!(step.request, StepRequest::Replace(_));
        let model = RuleModel::new(&trace.rules).filter(|_| !trace.steps.iter().any(is_replacing));
        let Some(mut model) = model else { continue };
        let differences = replay(&trace, &mut model).mismatches;
        assert!(differences.is_empty(), "{}", differences[0]);
        modelled += 1;
    }
    assert!(modelled >= MIN_MODELLED, "only {modelled}");
}

/// Changes an answer. Returns whether it is one that can be wrong.
fn spoil(expected: &mut StepAnswer) -> bool {
    match expected {
        StepAnswer::Verdict(verdict) => {
            verdict.outcome = match &verdict.outcome {
                RuleOutcome::Allowed => RuleOutcome::Denied { by: "nobody".to_owned(), wait: None },
                _ => RuleOutcome::Allowed,
            };
        }
        StepAnswer::Reserved(answer) => match &mut answer.reserved {
            Some(reserved) => reserved.expires_in += Duration::from_micros(1),
            None => answer.verdict.outcome = RuleOutcome::Allowed,
        },
        StepAnswer::Settled(settled) => match settled {
            Ok(settled) => drop(settled.insert("other".to_owned(), SettledAnswer::Unknown)),
            Err(_) => *settled = Ok(Settled::new()),
        },
        StepAnswer::Renewed(renewed) => *renewed = Ok(RenewedAnswer(Some(Duration::from_micros(1)))),
        StepAnswer::Replaced => return false,
    }
    true
}

/// Makes sure that the comparison can fail on an engine: spoils each answer of each trace in turn.
#[test]
fn every_answer_is_compared() {
    for trace in traces() {
        for step in 0..trace.steps.len() {
            let mut spoiled = trace.clone();
            if !spoil(&mut spoiled.steps[step].expected) {
                continue;
            }
            let mut engine = EngineSubject::local(compiled(&trace.rules)).unwrap();
            let found: Vec<usize> =
                replay(&spoiled, &mut engine).mismatches.iter().map(|mismatch| mismatch.step).collect();
            let is_asked = is_expressible(&trace.steps[step]);
            assert_eq!(found, if is_asked { vec![step + 1] } else { vec![] }, "{}", trace.name);
        }
    }
}
