//! A real Prometheus that scrapes a real server: every series that the alerts and the dashboard use must
//! exist.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use trypema_testkit::program::{FreePort, Program};
use trypema_testkit::redis::{Server, wait_until};

use crate::harness::Service;
use crate::text_of;

use super::dashboard;
use super::prometheus::alerts;

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {absolute: {limit: 1, window: 1h}}}
  - {id: observed, scope: user, action: log_only, strategy: {fixed_window: {limit: 1, window: 1h}}}
";

#[test]
fn everything_that_is_asked_for_is_measured() {
    let redis = Server::start().unwrap();
    let flags = ["--provider", "hybrid", "--redis-url", &redis.url(), "--redis-deadline", "20s"];
    let service = Service::with_rules(RULES, &flags);
    use_it(&service);
    let knows_the_others = || service.get("/metrics").body.contains("trypema_instances 1");
    wait_until("the first count of instances", knows_the_others).unwrap();
    drop(redis);
    let undecided = service.post("/v1/check?deny_status=429", r#"{"attributes":{"user":"bob"}}"#);
    assert_eq!(undecided.status, 503);
    let prometheus = Prometheus::start(&service);
    // The first scrape adds the series, the second makes rates possible.
    for expression in dashboard::expressions() {
        prometheus.wait_for(&expression);
    }
    let expressions = alerts().into_iter().map(|alert| alert.expression).chain(dashboard::expressions());
    let selectors: BTreeSet<String> = expressions.flat_map(|expression| selectors(&expression)).collect();
    assert!(selectors.len() > 30, "{selectors:?}");
    for selector in selectors {
        prometheus.wait_for(&selector);
    }
}

#[test]
fn the_metrics_are_as_prometheus_wants_them() {
    let service = Service::with_rules(RULES, &[]);
    use_it(&service);
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool: `cargo xtask test` installs it");
    promtool.stdin.take().unwrap().write_all(service.get("/metrics").body.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
}

/// Sends two requests to `/v1/check`, two to `/v1/reserve` and two to `/v1/forward-auth`.
fn use_it(service: &Service) {
    for _ in 0..2 {
        service.post("/v1/check", r#"{"attributes":{"user":"ann"}}"#);
        service.post("/v1/reserve", r#"{"attributes":{"user":"eve"},"cost":0}"#);
        let forwarded = [("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.9")];
        service.client().send("GET", "/v1/forward-auth", &forwarded, "");
    }
}

/// Prometheus with the sample configuration and shorter intervals.
struct Prometheus {
    program: Program,
    port: FreePort,
}

impl Prometheus {
    fn start(service: &Service) -> Self {
        let port = FreePort::any().unwrap();
        let program = Program::start(|directory| {
            let sample = text_of("prometheus/prometheus.yml");
            let sample = replaced(&sample, "trypema:8081", &service.admin_address().to_string());
            let sample = replaced(&sample, "scrape_interval: 15s", "scrape_interval: 200ms");
            fs::write(directory.join("prometheus.yml"), sample).unwrap();
            fs::write(directory.join("alerts.yaml"), text_of("prometheus/alerts.yaml")).unwrap();
            let mut command = Command::new("prometheus");
            command.arg("--config.file=prometheus.yml").arg("--storage.tsdb.path=data");
            command.arg(format!("--web.listen-address=127.0.0.1:{}", port.number()));
            command
        });
        Self { program: program.expect("prometheus: `cargo xtask test` installs it"), port }
    }

    /// Waits until the expression has a value.
    fn wait_for(&self, expression: &str) {
        let found = wait_until(expression, || {
            self.ask(expression).is_some_and(|answer| {
                assert_eq!(answer["status"], "success", "{expression}: {answer}");
                !answer["data"]["result"].as_array().unwrap().is_empty()
            })
        });
        found.unwrap_or_else(|error| panic!("{error}\n{}", self.program.log()));
    }

    /// Returns the response to a query, or `None` while Prometheus starts.
    fn ask(&self, expression: &str) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/query", self.port.number());
        let mut answer = ureq::get(url).query("query", expression).call().ok()?;
        serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok()
    }
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to)
}

/// Returns the series in an expression, such as `trypema_checks_total{result="denied"}`.
fn selectors(expression: &str) -> Vec<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let is_metric =
        |word: &str| ["trypema_", "limiter_", "process_"].iter().any(|start| word.starts_with(start));
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_part) {
        rest = &rest[start..];
        let end = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        // Label values are quoted and contain no braces.
        let labels = if after.starts_with('{') { after.split_inclusive('}').next().unwrap() } else { "" };
        if word == "up" || is_metric(word) {
            found.push(format!("{word}{labels}"));
        }
        rest = &after[labels.len()..];
    }
    found
}
