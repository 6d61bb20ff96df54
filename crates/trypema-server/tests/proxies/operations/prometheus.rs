//! The Prometheus configuration and its alerts, checked with `promtool`.

use std::process::Command;

use crate::{deployed, text_of};

use super::{run, yaml_of};

#[test]
fn its_configuration_is_valid() {
    let printed = promtool(&["check", "config"], "prometheus/prometheus.yml");
    assert!(printed.contains("1 rule files found"), "{printed}");
}

#[test]
fn alerts_fire_when_they_should() {
    promtool(&["check", "rules", "--lint=all", "--lint-fatal"], "prometheus/alerts.yaml");
    promtool(&["test", "rules"], "prometheus/alerts.test.yaml");
}

#[test]
fn every_alert_is_shown_firing() {
    let tests = text_of("prometheus/alerts.test.yaml");
    for alert in alerts() {
        let fires = tests.split(&format!("alertname: {}\n", alert.name)).nth(1);
        assert!(fires.is_some_and(|rest| rest.trim_start().starts_with("exp_alerts:\n")), "{}", alert.name);
    }
}

/// An alert and its expression.
pub(super) struct Alert {
    pub(super) name: String,
    pub(super) expression: String,
}

pub(super) fn alerts() -> Vec<Alert> {
    let file = yaml_of("prometheus/alerts.yaml");
    let rules = file["groups"][0]["rules"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    rules.iter().map(|rule| Alert { name: text(&rule["alert"]), expression: text(&rule["expr"]) }).collect()
}

fn promtool(arguments: &[&str], file: &str) -> String {
    run(Command::new("promtool").args(arguments).arg(deployed(file)))
}
