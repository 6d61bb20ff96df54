//! Every trace under `testdata/traces`, on the local provider and on the pure strategies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use trypema_testkit::trace::{Local, Pure, Trace, Value, Verb, Wait, What, replay};

use crate::traces;

/// The minimum number of traces, from issue 2.
const MIN_TRACES: usize = 60;

#[test]
fn the_local_provider_answers_every_trace() {
    let run = |trace: &Trace| traces::failures(trace, &mut Local::for_trace(trace).unwrap());
    traces::assert_none(&traces::all().iter().flat_map(run).collect::<Vec<_>>());
}

#[test]
fn the_pure_strategies_answer_every_trace_of_their_verbs() {
    let traces = traces::all();
    let run = |trace: &&Trace| traces::failures(trace, &mut Pure::default());
    let (ours, beyond): (Vec<&Trace>, Vec<&Trace>) =
        traces.iter().partition(|trace| has_core_verbs_only(trace));
    traces::assert_none(&ours.iter().flat_map(run).collect::<Vec<_>>());
    assert!(ours.len() > 4 * beyond.len(), "most traces need no facade: {} and {}", ours.len(), beyond.len());
}

/// Whether the pure strategies support every operation of `trace`.
fn has_core_verbs_only(trace: &Trace) -> bool {
    trace.lines.iter().all(|line| match &line.what {
        What::Limit(_) => true,
        What::Step(step) => !matches!(
            step.verb,
            Verb::Inc(_) | Verb::IsAllowed | Verb::SetRate(_) | Verb::Check | Verb::Block(..) | Verb::Unblock
        ),
    })
}

#[test]
fn there_are_enough_traces() {
    assert!(traces::all().len() >= MIN_TRACES);
}

/// The suite reports a wrong expectation, so it can fail.
#[test]
fn a_wrong_expectation_is_reported_with_its_line() {
    let wrong = "# one a second\nfixed_window 1/1s\n+0 ann -> allowed left=0\n+1us ann -> denied 1s\n";
    let trace = Trace::parse("wrong.trace", wrong).unwrap();
    let mismatches = replay(&trace, &mut Local::for_trace(&trace).unwrap()).unwrap();
    let [mismatch] = &mismatches[..] else { panic!("{mismatches:?}") };
    assert_eq!((mismatch.name.as_str(), mismatch.number), ("wrong.trace", 4));
    assert_eq!(mismatch.expected, "denied 1s");
    assert!(mismatch.got.starts_with("denied 999999us"), "{}", mismatch.got);
}

/// Every expected number in any trace is compared: adding one to it is a mismatch.
#[test]
fn every_expected_number_counts() {
    for trace in traces::all() {
        for (at, line) in trace.lines.iter().enumerate() {
            let What::Step(step) = &line.what else { continue };
            for (field, (name, value)) in step.expected.fields.iter().enumerate() {
                let mut wrong = trace.clone();
                if let What::Step(step) = &mut wrong.lines[at].what {
                    step.expected.fields[field].1 = off_by_one(value);
                }
                let mismatches = replay(&wrong, &mut Local::for_trace(&wrong).unwrap()).unwrap();
                let is_found = mismatches.iter().any(|mismatch| mismatch.number == line.number);
                assert!(is_found, "{}:{}: {name} is not compared", trace.name, line.number);
            }
        }
    }
}

fn off_by_one(value: &Value) -> Value {
    match value {
        Value::Count(count) => Value::Count(count + 1),
        Value::Time(Wait::Micros(us)) => Value::Time(Wait::Micros(us + 1)),
        Value::Time(Wait::Never) => Value::Time(Wait::Micros(1)),
        Value::Fractions(fractions) => {
            Value::Fractions(fractions.iter().map(|fraction| fraction + 0.001).collect())
        }
    }
}
