//! Grafana's dashboard: its structure and its expressions.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::text_of;

use super::{directory, run};

/// Values for the variables that Grafana replaces in expressions.
const VARIABLES: [(&str, &str); 4] =
    [("$__rate_interval", "1m"), ("$job", ".*"), ("$instance", ".*"), ("$rule", ".*")];

#[test]
fn its_panels_have_places_and_sources() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "an id is given twice");
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(!panel["title"].as_str().unwrap().is_empty());
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{} is too wide", panel["title"]);
        for (x, y) in (0..place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
            assert!(taken.insert((place("x") + x, place("y") + y)), "{} covers another", panel["title"]);
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{}", panel["title"]);
        }
    }
}

#[test]
fn its_expressions_are_valid() {
    let rules: Vec<Value> = expressions()
        .into_iter()
        .enumerate()
        .map(|(number, expression)| json!({"record": format!("dashboard:{number}"), "expr": expression}))
        .collect();
    assert!(rules.len() > 30, "{}", rules.len());
    let file = directory("dashboard").join("rules.json");
    // JSON is valid YAML.
    fs::write(&file, json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()).unwrap();
    run(Command::new("promtool").args(["check", "rules"]).arg(&file));
}

/// Returns every expression, with values for Grafana's variables.
pub(super) fn expressions() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| filled_in(target["expr"].as_str().unwrap())).collect()
}

fn filled_in(expression: &str) -> String {
    let filled =
        VARIABLES.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!filled.contains('$'), "{filled}");
    filled
}

fn dashboard() -> Value {
    serde_json::from_str(&text_of("grafana/trypema.json")).unwrap()
}
