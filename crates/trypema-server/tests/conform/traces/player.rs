//! Plays a trace on the library and on the server, side by side.

use std::collections::HashMap;

use serde_json::{Value, json};
use trypema_testkit::trace::{Limit, Line, Local, Provider, Step, TimedCall, Trace, Verb, What};

use super::numbers::{RULE, rules_of};
use super::said::Said;
use crate::client::Client;
use crate::in_process::InProcess;

/// Whether HTTP supports every operation of a trace.
pub fn is_playable(trace: &Trace) -> bool {
    trace.lines.iter().all(|line| match &line.what {
        What::Limit(_) => rules_of(line).is_some(),
        What::Step(step) => matches!(step.verb, Verb::Take(_) | Verb::Peek(_) | Verb::Usage | Verb::Reset),
    })
}

/// The minimum time between two requests that keeps a key cold, so that it is not leased: the longest sync
/// interval.
const INTERVAL_US: u64 = 100_000;

/// Whether nothing in a trace is leased, because it counts attempts or every key stays cold. Redis then
/// decides each request.
pub fn is_never_leased(trace: &Trace) -> bool {
    let is_abuse =
        |line: &Line| matches!(&line.what, What::Limit(Limit { limit: trypema::Limit::Abuse(_), .. }));
    trace.lines.iter().any(is_abuse) || is_unhurried(trace)
}

fn is_unhurried(trace: &Trace) -> bool {
    let mut called: HashMap<&str, u64> = HashMap::new();
    trace.lines.iter().all(|line| {
        let What::Step(step) = &line.what else { return true };
        let now_us = step.at.as_micros();
        let earlier = called.insert(&step.key, now_us);
        earlier.is_none_or(|earlier_us| now_us.abs_diff(earlier_us) >= INTERVAL_US)
    })
}

/// A response of the server that differs from the library's.
#[derive(Debug)]
pub struct Difference {
    pub line: usize,
    pub text: String,
}

/// Plays a trace on both and returns the differences. `heard` transforms the library's answers before the
/// comparison. It is the identity, unless a test wants to see a difference.
pub fn differences(
    trace: &Trace,
    service: &InProcess,
    heard: impl Fn(&Line, Said) -> Said,
) -> Vec<Difference> {
    let mut library = Local::for_trace(trace).unwrap();
    let mut client = service.client();
    let mut found = Vec::new();
    let mut current = None;
    for line in &trace.lines {
        match &line.what {
            What::Limit(limit) => {
                service.app.replace_rules(rules_of(line).unwrap());
                current = Some(limit);
            }
            What::Step(step) => {
                let limit = current.unwrap();
                let call = TimedCall { now: step.at, limit, key: &step.key, verb: &step.verb };
                let answer = library.call(call).unwrap();
                assert!(answer.fulfils(&step.expected), "{}:{}: {answer}", trace.name, line.number);
                service.clock.set(step.at);
                let (expected, got) =
                    (heard(line, Said::by_library(&answer)), asked(&mut client, limit, step));
                if expected != got {
                    let text = format!(
                        "{}:{}: {}\n  library {expected:?}\n  service {got:?}",
                        trace.name, line.number, line.text
                    );
                    found.push(Difference { line: line.number, text });
                }
            }
        }
    }
    found
}

/// Sends the request of a step to the server.
fn asked(client: &mut Client, limit: &Limit, step: &Step) -> Said {
    let question = |cost: &u64| json!({"attributes": {"key": step.key}, "cost": cost});
    match &step.verb {
        Verb::Take(cost) => decided(client, "/v1/check", &question(cost)),
        // For abuse rules, mode `peek` reports only existing blocks. `explain` evaluates the attempt itself,
        // as a peek does.
        Verb::Peek(cost) if matches!(limit.limit, trypema::Limit::Abuse(_)) => {
            decided(client, "/v1/explain", &question(cost))
        }
        Verb::Peek(cost) => {
            let mut question = question(cost);
            question["mode"] = json!("peek");
            decided(client, "/v1/check", &question)
        }
        Verb::Usage => {
            let mut body = sent(client, "GET", &path(step), "");
            // The server reports the wait for the next unit of an exhausted key. The library's usage asks for
            // no unit, so it has no wait unless the key is blocked.
            if body["blocked"] == json!(false) {
                assert!(is_exhausted(&body) || body["retry_after_ms"] == json!(0), "{body}");
                body["retry_after_ms"] = json!(0);
            }
            Said::by_service(&body, body["blocked"] == json!(false))
        }
        Verb::Reset => Said::Forgotten(sent(client, "DELETE", &path(step), "")["existed"].as_bool().unwrap()),
        verb => panic!("{verb:?}"),
    }
}

/// Whether a counter of a rule other than an abuse rule has no unit left.
fn is_exhausted(counter: &Value) -> bool {
    counter["remaining"] == json!(0) && counter["short_count"].is_null()
}

fn path(step: &Step) -> String {
    format!("/v1/keys/{RULE}%7Ckey={}", step.key)
}

/// Sends a request and returns the decision of the only rule, which is also the overall decision.
fn decided(client: &mut Client, path: &str, question: &Value) -> Said {
    let body = sent(client, "POST", path, &question.to_string());
    let rule = &body["rules"][0];
    let is_allowed = rule["allowed"].as_bool().unwrap();
    assert_eq!(body["outcome"], json!(if is_allowed { "allowed" } else { "denied" }), "{body}");
    assert_eq!(body["retry_after_ms"], rule["retry_after_ms"], "{body}");
    assert_eq!(body["decided_by"], if is_allowed { Value::Null } else { json!(RULE) }, "{body}");
    Said::by_service(rule, is_allowed)
}

fn sent(client: &mut Client, method: &str, path: &str, body: &str) -> Value {
    let reply = client.send(method, path, &[], body);
    assert_eq!(reply.status, 200, "{method} {path} {body}: {reply:?}");
    reply.json()
}
