//! Every rule trace and every trace of reservations, through HTTP.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use trypema::clock::Timestamp;
use trypema::rules::RuleSet;
use trypema_testkit::redis::Server;
use trypema_testkit::rule_trace::{
    CheckBody, CounterAnswer, RenewedAnswer, ReserveAnswer, ReservedAnswer, RuleAnswer, RuleOutcome,
    RuleSubject, RuleTrace, Settled, SettledAnswer, StepAnswer, StepRequest, replay,
};

use crate::client::{Client, Reply};
use crate::in_process::InProcess;

fn traces() -> Vec<RuleTrace> {
    let of_folder = |folder: &str, more_than: usize| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder);
        let traces = RuleTrace::read_all(&folder).unwrap_or_else(|error| panic!("{error}"));
        assert!(traces.len() > more_than, "only {}", traces.len());
        traces
    };
    [of_folder("rule-traces", 30), of_folder("reservation-traces", 20)].concat()
}

/// A server with the rules of a trace.
struct OverHttp {
    service: InProcess,
    client: Client,
    /// The texts of reservations, by the names that the trace gives them.
    texts: HashMap<String, String>,
}

impl OverHttp {
    fn start(trace: &RuleTrace, settings: &str) -> Self {
        let service = InProcess::start(settings);
        service.app.replace_rules(RuleSet::compile(&trace.rules).unwrap());
        Self { client: service.check_client(), service, texts: HashMap::new() }
    }

    fn send(&mut self, path: &str, body: &Value) -> Reply {
        self.client.send("POST", path, &[], &body.to_string())
    }

    /// Returns the text of a reservation with this name, or the name if there is none.
    fn text(&self, name: &str) -> String {
        self.texts.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }
}

impl RuleSubject for OverHttp {
    fn ask(&mut self, at: Timestamp, request: &CheckBody) -> Option<RuleAnswer> {
        self.service.clock.set(at);
        let body = serde_json::to_string(request).unwrap();
        Some(answer_of(&self.client.send("POST", "/v1/check", &[], &body)))
    }

    fn answer(&mut self, at: Timestamp, request: &StepRequest) -> Option<StepAnswer> {
        self.service.clock.set(at);
        Some(match request {
            StepRequest::Request(request) => StepAnswer::Verdict(self.ask(at, request)?),
            StepRequest::Reserve(request, name) => {
                let reply = self.send("/v1/reserve", &serde_json::to_value(request).unwrap());
                let (verdict, told) = (answer_of(&reply), reply.json());
                if let (Some(name), Some(text)) = (name, text(&told["reservation"])) {
                    self.texts.insert(name.clone(), text);
                }
                StepAnswer::Reserved(ReserveAnswer { verdict, reserved: reserved(&told) })
            }
            StepRequest::Settle(settle) => {
                let text = self.text(&settle.reservation);
                let body = json!({"reservation": text, "costs": settle.costs});
                StepAnswer::Settled(settled(&self.send("/v1/settle", &body)))
            }
            StepRequest::Release(release) => {
                let body = json!({"reservation": self.text(&release.reservation)});
                StepAnswer::Settled(settled(&self.send("/v1/release", &body)))
            }
            StepRequest::Renew(renew) => {
                let body = json!({"reservation": self.text(&renew.reservation), "ttl": renew.ttl});
                StepAnswer::Renewed(renewed(&self.send("/v1/renew", &body)))
            }
            StepRequest::Replace(rules) => {
                self.service.app.replace_rules(RuleSet::compile(rules).ok()?);
                StepAnswer::Replaced
            }
        })
    }
}

fn reserved(told: &Value) -> Option<ReservedAnswer> {
    let expires_in = Duration::from_millis(told["expires_in_ms"].as_u64()?);
    Some(ReservedAnswer { expires_in, is_repeated: told["repeated"].as_bool().unwrap() })
}

fn settled(reply: &Reply) -> Result<Settled, String> {
    let told = reply.json();
    if reply.status != 200 {
        return Err(text(&told["detail"]).unwrap());
    }
    let rules = told["rules"].as_array().unwrap();
    let units = |rule: &Value, name: &str| rule[name].as_u64().unwrap();
    let answer = |rule: &Value| match rule["status"].as_str().unwrap() {
        "settled" => SettledAnswer::Settled {
            reserved: units(rule, "reserved"),
            counted: units(rule, "counted"),
            refunded: units(rule, "refunded"),
        },
        "settled_before" => SettledAnswer::Before,
        "not_outstanding" => SettledAnswer::Unknown,
        "rule_removed" => SettledAnswer::Removed,
        other => panic!("{other}"),
    };
    let is_settled = rules.is_empty() || rules.iter().any(|rule| rule["status"] == "settled");
    assert_eq!(told["settled"], is_settled, "{told}");
    Ok(rules.iter().map(|rule| (text(&rule["key"]).unwrap(), answer(rule))).collect())
}

fn renewed(reply: &Reply) -> Result<RenewedAnswer, String> {
    let told = reply.json();
    if reply.status != 200 {
        return Err(text(&told["detail"]).unwrap());
    }
    assert_eq!(told["renewed"], !told["expires_in_ms"].is_null(), "{told}");
    Ok(RenewedAnswer(told["expires_in_ms"].as_u64().map(Duration::from_millis)))
}

fn answer_of(reply: &Reply) -> RuleAnswer {
    let told = reply.json();
    if [400, 409].contains(&reply.status) {
        return RuleAnswer::error(told["detail"].as_str().unwrap());
    }
    assert_eq!(reply.status, 200, "{reply:?}");
    let counters = told["rules"].as_array().unwrap().iter().map(counter).collect();
    RuleAnswer { outcome: outcome(&told), counters, candidates: None }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn outcome(told: &Value) -> RuleOutcome {
    let listed =
        text(&told["listed_by"]).map(|by| format!("{by}={}", told["listed_entry"].as_str().unwrap()));
    let by = || text(&told["decided_by"]).unwrap();
    let wait = told["retry_after_ms"].as_u64().map(Duration::from_millis);
    assert_eq!(told["allowed"], told["outcome"] == "allowed", "{told}");
    match (told["outcome"].as_str().unwrap(), listed) {
        ("allowed", listed) => {
            assert_eq!((wait, &told["decided_by"]), (Some(Duration::ZERO), &Value::Null), "{told}");
            listed.map_or(RuleOutcome::Allowed, RuleOutcome::AllowedByList)
        }
        ("blocked", listed) => {
            assert_eq!(wait, None, "{told}");
            listed.map_or_else(|| RuleOutcome::Blocked(by()), RuleOutcome::BlockedByList)
        }
        ("denied", None) => RuleOutcome::Denied { by: by(), wait },
        ("throttled", None) => RuleOutcome::Throttled { by: by(), wait: wait.unwrap() },
        _ => panic!("{told}"),
    }
}

fn counter(rule: &Value) -> (String, CounterAnswer) {
    let missing = text(&rule["missing_attribute"]).or_else(|| text(&rule["missing_unit"]));
    if let Some(missing) = missing {
        assert_eq!(rule["key"], Value::Null, "{rule}");
        return (text(&rule["rule"]).unwrap(), CounterAnswer::Missing(missing));
    }
    let left = rule["remaining"].as_u64().unwrap();
    let answer = match rule["allowed"].as_bool().unwrap() {
        _ if rule["blocked"] == true => CounterAnswer::Blocked,
        true => CounterAnswer::Allowed(left),
        false => CounterAnswer::Denied(left),
    };
    (text(&rule["key"]).unwrap(), answer)
}

/// Replays all traces. Every step is answered.
fn replay_all(settings_of: impl Fn() -> String) {
    let mut differences = Vec::new();
    for trace in traces() {
        let replayed = replay(&trace, &mut OverHttp::start(&trace, &settings_of()));
        assert_eq!(replayed.answered, trace.steps.len(), "{}", trace.name);
        differences.extend(replayed.mismatches.iter().map(ToString::to_string));
    }
    assert!(differences.is_empty(), "{} answers differ:\n{}", differences.len(), differences.join("\n"));
}

fn replay_on(provider: &str) {
    let redis = Server::shared().unwrap();
    replay_all(|| {
        format!(
            "provider: {provider}\nredis_url: {}\nredis_prefix: {}\nredis_deadline: 20s\n",
            redis.url(),
            redis.unique_prefix()
        )
    });
}

#[test]
fn counters_in_memory() {
    replay_all(String::new);
}

#[test]
fn counters_in_redis() {
    replay_on("redis");
}

#[test]
fn counters_that_may_be_leased() {
    replay_on("hybrid\nsync_interval: 100ms");
}

/// Makes sure that the comparison can fail.
#[test]
fn a_spoiled_answer_is_found() {
    let mut trace = traces().into_iter().find(|trace| trace.name == "units_all_or_nothing.yaml").unwrap();
    let [_, second, third, ..] = &mut trace.steps[..] else { panic!("three steps") };
    let spoiled = second.expected.verdict_mut().unwrap();
    spoiled.counters.insert("calls|user=ann".to_owned(), CounterAnswer::Allowed(4));
    let spoiled = third.expected.verdict_mut().unwrap();
    spoiled.outcome = RuleOutcome::Denied { by: "money".to_owned(), wait: None };
    let found = replay(&trace, &mut OverHttp::start(&trace, "")).mismatches;
    assert_eq!(found.iter().map(|mismatch| mismatch.step).collect::<Vec<_>>(), [2, 3]);
}
