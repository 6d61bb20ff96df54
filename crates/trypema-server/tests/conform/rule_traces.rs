//! Every rule trace through HTTP.

use std::collections::BTreeMap;
use std::path::PathBuf;
#[cfg(feature = "unstable-testkit")]
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use trypema::clock::Timestamp;
use trypema::rules::{Period, RuleSet};
use trypema_testkit::redis::Server;
use trypema_testkit::rule_trace::{
    CheckBody, CounterAnswer, RenewedAnswer, ReserveAnswer, ReserveBody, ReservedAnswer, RuleAnswer,
    RuleOutcome, RuleSubject, RuleTrace, Settled, SettledAnswer, StepAnswer, StepRequest, replay,
};

use crate::client::{Client, Reply};
use crate::in_process::InProcess;
#[cfg(feature = "unstable-testkit")]
use crate::in_process::Log;

/// The traces of checks, and those of reservations.
fn traces() -> Vec<RuleTrace> {
    let of_folder = |folder: &str| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder);
        RuleTrace::read_all(&folder).unwrap_or_else(|error| panic!("{error}"))
    };
    let (checks, reservations) = (of_folder("rule-traces"), of_folder("reservation-traces"));
    assert!(checks.len() > 30 && reservations.len() > 20, "{} {}", checks.len(), reservations.len());
    checks.into_iter().chain(reservations).collect()
}

/// A server with the rules of a trace.
struct OverHttp {
    service: InProcess,
    client: Client,
    /// The texts of reservations, by their names in the trace.
    texts: BTreeMap<String, String>,
}

impl OverHttp {
    fn start(trace: &RuleTrace, settings: &str) -> Self {
        Self::of(trace, InProcess::start(settings))
    }

    fn of(trace: &RuleTrace, service: InProcess) -> Self {
        service.app.replace_rules(RuleSet::compile(&trace.rules).unwrap());
        Self { client: service.check_client(), service, texts: BTreeMap::new() }
    }
}

impl OverHttp {
    fn post(&mut self, at: Timestamp, path: &str, body: &impl Serialize) -> Reply {
        self.service.clock.set(at);
        self.client.send("POST", path, &[], &serde_json::to_string(body).unwrap())
    }

    /// Returns the text of a reservation; the name itself if no step has named one so.
    fn text(&self, name: &str) -> String {
        self.texts.get(name).map_or(name, String::as_str).to_owned()
    }
}

impl RuleSubject for OverHttp {
    fn ask(&mut self, at: Timestamp, request: &CheckBody) -> Option<RuleAnswer> {
        Some(answer_of(&self.post(at, "/v1/check", request)))
    }

    fn answer(&mut self, at: Timestamp, request: &StepRequest) -> Option<StepAnswer> {
        Some(match request {
            StepRequest::Request(request) => StepAnswer::Verdict(self.ask(at, request)?),
            StepRequest::Reserve(request, name) => {
                let request = ReserveBody { ttl: Some(Period(request.ttl())), ..request.clone() };
                let reply = self.post(at, "/v1/reserve", &request);
                let body = reply.json();
                if let (Some(name), Some(text)) = (name, text(&body["reservation"])) {
                    self.texts.insert(name.clone(), text);
                }
                let reserved = body["expires_in_ms"].as_u64().map(|milliseconds| ReservedAnswer {
                    expires_in: Duration::from_millis(milliseconds),
                    is_repeated: body["repeated"].as_bool().unwrap(),
                    is_ended: body["ended"].as_bool().unwrap_or_default(),
                });
                StepAnswer::Reserved(ReserveAnswer { verdict: answer_of(&reply), reserved })
            }
            StepRequest::Settle(settle) => {
                let body = json!({"reservation": self.text(&settle.reservation), "costs": settle.costs});
                StepAnswer::Settled(settled(&self.post(at, "/v1/settle", &body)))
            }
            StepRequest::Release(release) => {
                let body = json!({"reservation": self.text(&release.reservation)});
                StepAnswer::Settled(settled(&self.post(at, "/v1/release", &body)))
            }
            StepRequest::Renew(renew) => {
                let body = json!({"reservation": self.text(&renew.reservation), "ttl": renew.ttl});
                let reply = self.post(at, "/v1/renew", &body);
                let expires_in = |body: Value| body["expires_in_ms"].as_u64().map(Duration::from_millis);
                StepAnswer::Renewed(accepted(&reply).map(|body| RenewedAnswer(expires_in(body))))
            }
            StepRequest::Replace(rules) => {
                self.service.app.replace_rules(RuleSet::compile(rules).unwrap());
                StepAnswer::Replaced
            }
        })
    }
}

/// Returns the body of a reply, or the text of its error.
fn accepted(reply: &Reply) -> Result<Value, String> {
    match reply.status {
        200 => Ok(reply.json()),
        _ => Err(reply.json()["detail"].as_str().unwrap().to_owned()),
    }
}

fn settled(reply: &Reply) -> Result<Settled, String> {
    let answer = |rule: &Value| match rule["status"].as_str().unwrap() {
        "settled" => {
            let [reserved, counted, refunded] =
                ["reserved", "counted", "refunded"].map(|field| rule[field].as_u64().unwrap());
            SettledAnswer::Settled { reserved, counted, refunded }
        }
        "settled_before" => SettledAnswer::Before,
        "not_outstanding" => SettledAnswer::Unknown,
        "rule_removed" => SettledAnswer::Removed,
        other => panic!("{other}"),
    };
    let body = accepted(reply)?;
    let rules = body["rules"].as_array().unwrap().iter();
    Ok(rules.map(|rule| (text(&rule["key"]).unwrap(), answer(rule))).collect())
}

fn answer_of(reply: &Reply) -> RuleAnswer {
    let body = reply.json();
    if reply.status == 400 || reply.status == 409 {
        return RuleAnswer::error(body["detail"].as_str().unwrap());
    }
    assert_eq!(reply.status, 200, "{reply:?}");
    let counters = body["rules"].as_array().unwrap().iter().map(counter).collect();
    RuleAnswer { outcome: outcome(&body), counters, candidates: None }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn outcome(body: &Value) -> RuleOutcome {
    let listed =
        text(&body["listed_by"]).map(|by| format!("{by}={}", body["listed_entry"].as_str().unwrap()));
    let by = || text(&body["decided_by"]).unwrap();
    let wait = body["retry_after_ms"].as_u64().map(Duration::from_millis);
    assert_eq!(body["allowed"], body["outcome"] == "allowed", "{body}");
    match (body["outcome"].as_str().unwrap(), listed) {
        ("allowed", listed) => {
            assert_eq!((wait, &body["decided_by"]), (Some(Duration::ZERO), &Value::Null), "{body}");
            listed.map_or(RuleOutcome::Allowed, RuleOutcome::AllowedByList)
        }
        ("blocked", listed) => {
            assert_eq!(wait, None, "{body}");
            listed.map_or_else(|| RuleOutcome::Blocked(by()), RuleOutcome::BlockedByList)
        }
        ("denied", None) => RuleOutcome::Denied { by: by(), wait },
        ("throttled", None) => RuleOutcome::Throttled { by: by(), wait: wait.unwrap() },
        _ => panic!("{body}"),
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

/// Another front end gives the same answers, and counts and logs the same.
#[cfg(feature = "unstable-testkit")]
#[test]
fn by_the_line_protocol() {
    let counted = |subject: &OverHttp| {
        let text = subject.service.client().send("GET", "/metrics", &[], "").body;
        // All but the time of loading, connections, and what only HTTP has.
        let others = ["_timestamp_", "_http_", "trypema_connections"];
        let is_counted =
            |line: &&str| line.starts_with("trypema_") && !others.iter().any(|other| line.contains(other));
        text.lines().filter(is_counted).map(str::to_owned).collect::<Vec<_>>()
    };
    let logs = [(); 2].map(|()| Arc::<Log>::default());
    let logged = |log: &Log| {
        // What the denial log writes, and requests that were not decided.
        log.take().lines().filter(|line| line.contains("\"requests: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut counts, mut denials) = (0, 0);
    for trace in traces() {
        let [first, second] = logs.each_ref().map(|log| InProcess::logging_to(log, "log_denials: all"));
        let mut over_http = OverHttp::of(&trace, first);
        let mut by_lines = OverHttp::of(&trace, second.by_lines());
        for subject in [&mut over_http, &mut by_lines] {
            let replayed = replay(&trace, subject);
            assert!(replayed.mismatches.is_empty(), "{}: {:?}", trace.name, replayed.mismatches);
        }
        assert_eq!(counted(&by_lines), counted(&over_http), "{}", trace.name);
        counts += counted(&by_lines).len();
        let [of_http, of_lines] = logs.each_ref().map(|log| logged(log));
        assert_eq!(of_lines, of_http, "{}", trace.name);
        denials += of_lines.iter().filter(|line| line.contains("request denied")).count();
    }
    assert!(counts > 100 && denials > 50, "{counts} {denials}");
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
    let second = trace.steps[1].expected.verdict_mut().unwrap();
    second.counters.insert("calls|user=ann".to_owned(), CounterAnswer::Allowed(3));
    let third = trace.steps[2].expected.verdict_mut().unwrap();
    third.outcome = RuleOutcome::Denied { by: "money".to_owned(), wait: None };
    let found = replay(&trace, &mut OverHttp::start(&trace, "")).mismatches;
    assert_eq!(found.iter().map(|mismatch| mismatch.step).collect::<Vec<_>>(), [2, 3]);
}
