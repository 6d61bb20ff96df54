//! Tests of the reader and of the comparison.

use super::{CheckBody, RuleOutcome, RuleTrace, StepRequest, replay};
use crate::rule_model::RuleModel;

const GOOD: &str = r#"# Every part of the format.
units: [tokens]
rules:
  - {id: calls, scope: user, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {id: tokens, scope: user, unit: tokens, if_missing: deny, strategy: {fixed_window: {limit: 10, window: 1h}}}
overrides: [{rule: calls, key: {user: mallory}, verdict: block}]
allow: {user: [root]}
block: {user: [eve]}
steps:
  - request: {attributes: {user: ann}, costs: {tokens: 4}}
    answer: allowed
    counters: {calls|user=ann: allowed 2, tokens|user=ann: allowed 6}
  - after: 1m
    request: {sets: [{attributes: {user: ann}, costs: {tokens: 5}}, {attributes: {user: ann}, costs: {tokens: 5}}]}
    answer: denied by tokens 59m
    counters: {calls|user=ann: allowed 2, tokens|user=ann: denied 6}
  - request: {attributes: {user: ann}, cost: 9}
    answer: denied by tokens never
    counters: {tokens: missing tokens}
  - request: {attributes: {user: mallory}, costs: {tokens: 1}}
    answer: blocked by calls
    counters: {calls|user=mallory: blocked}
  - {request: {attributes: {user: eve}}, answer: blocked by list user=eve}
  - {request: {attributes: {user: root}}, answer: allowed by list user=root}
  - {request: {attributes: {user: ann}, costs: {bytes: 1}}, answer: 'error unit "bytes" is not declared'}
  - {request: {attributes: {user: ann}, cost: 1, costs: {tokens: 1}}, answer: 'error `cost` beside `costs`'}
"#;

fn parse(text: &str) -> RuleTrace {
    RuleTrace::parse("t.yaml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn request(trace: &RuleTrace, step: usize) -> CheckBody {
    match &trace.steps[step].request {
        StepRequest::Request(request) => request.clone(),
        other => panic!("{other:?}"),
    }
}

fn mismatches(trace: &RuleTrace) -> Vec<usize> {
    let mut model = RuleModel::new(&trace.rules).expect("only fixed windows");
    replay(trace, &mut model).mismatches.iter().map(|mismatch| mismatch.step).collect()
}

#[test]
fn every_part_of_the_format_is_read_and_compared() {
    let trace = parse(GOOD);
    let mut model = RuleModel::new(&trace.rules).expect("only fixed windows");
    let replayed = replay(&trace, &mut model);
    assert_eq!(replayed.mismatches, []);
    assert_eq!((replayed.answered, trace.steps.len()), (7, 8), "the library has no request with both costs");
}

#[test]
fn every_spoiled_answer_is_a_difference() {
    for (good, spoiled, step) in [
        ("tokens|user=ann: allowed 6", "tokens|user=ann: allowed 5", 1),
        ("tokens|user=ann: allowed 6", "tokens|user=ann: denied 6", 1),
        ("tokens|user=ann: allowed 6", "tokens|user=bob: allowed 6", 1),
        (", tokens|user=ann: allowed 6", "", 1),
        ("denied by tokens 59m\n", "denied by tokens 59m1ms\n", 2),
        ("denied by tokens 59m\n", "denied by tokens never\n", 2),
        ("denied by tokens 59m\n", "denied by calls 59m\n", 2),
        ("denied by tokens 59m\n", "throttled by tokens 59m\n", 2),
        ("{tokens: missing tokens}", "{tokens: missing user}", 3),
        ("mallory: blocked", "mallory: denied 0", 4),
        ("list user=eve", "list user=bob", 5),
        ("allowed by list user=root", "allowed", 6),
        ("error unit \"bytes\"", "error unit \"tokens\"", 7),
    ] {
        assert!(GOOD.contains(good), "{good}");
        assert_eq!(mismatches(&parse(&GOOD.replacen(good, spoiled, 1))), [step], "{spoiled}");
    }
}

#[test]
fn anything_else_is_refused() {
    for (good, wrong, problem) in [
        ("# Every", "Every", "opens with a comment"),
        ("units: [tokens]\n", "", "unit \"tokens\" is not declared"),
        ("units:", "unit:", "unknown field"),
        ("after: 1m", "later: 1m", "unknown field"),
        ("after: 1m", "after: 60", "needs a unit"),
        ("cost: 9}", "cost: 9, price: 1}", "unknown field"),
        ("cost: 9}", "cost: -9}", "steps[2].request.cost"),
        ("cost: 9}", "cost: 9, mode: burn}", "steps[2].request.mode"),
        ("answer: denied by tokens 59m\n", "answer: denied\n", "unknown answer \"denied\""),
        ("answer: denied by tokens 59m\n", "answer: denied by tokens 5us\n", "need whole milliseconds"),
        ("answer: denied by tokens 59m\n", "answer: denied by tokens 0s\n", "has to wait"),
        ("allowed 6}", "allowed}", "unknown decision \"allowed\""),
        ("allowed 6}", "allowed -6}", "unknown decision"),
        ("not declared'}", "not declared', counters: {a: allowed 1}}", "an error has no counters"),
    ] {
        assert!(GOOD.contains(good), "{good}");
        let error = RuleTrace::parse("t.yaml", &GOOD.replacen(good, wrong, 1)).map(|_| ());
        let message = error.expect_err(wrong).to_string();
        assert!(message.starts_with("t.yaml: ") && message.contains(problem), "{wrong}: {message}");
    }
    assert!(RuleTrace::parse("t.yaml", "# Nothing\nrules: []\nsteps: []\n").is_err());
}

#[test]
fn a_trace_is_written_as_it_is_read() {
    let trace = parse(GOOD);
    let again = RuleTrace { name: trace.name.clone(), ..parse(&trace.to_text()) };
    assert_eq!(again, trace);
}

#[test]
fn a_request_has_the_form_of_http() {
    let trace = parse(GOOD);
    let json = serde_json::to_string(&request(&trace, 0)).expect("text and numbers");
    assert_eq!(json, r#"{"attributes":{"user":"ann"},"costs":{"tokens":4}}"#);
    assert_eq!(serde_json::from_str::<CheckBody>(&json).expect("the same"), request(&trace, 0));
    assert!(matches!(trace.steps[6].expected.verdict().expect("a check").outcome, RuleOutcome::Error(_)));
}
