//! Requests that take long if there are thousands of rules do not run on the threads that decide.

use serde_json::{Value, json};

use crate::harness::Service;
use crate::threads::is_done_by;

const MANY: usize = 10_000;
/// So few that every request for metrics writes them: a text beyond 256 KiB is shared for a second.
const FEW: usize = 100;
/// Enough for a measurable time, and few enough that the test is short.
const TIMES: usize = 10;

/// Starts a server with rules, half of which are candidates.
fn service(rules: usize) -> Service {
    let rule = |number: usize| {
        let mut rule = json!({
            "id": format!("rule-{number}"),
            "scope": "user",
            "endpoints": [format!("/{}", number / 2)],
            "strategy": {"fixed_window": {"limit": 7, "window": "300d"}},
        });
        if number % 2 == 1 {
            rule["candidate_for"] = json!(format!("rule-{}", number - 1));
        }
        rule
    };
    let rules: Vec<Value> = (0..rules).map(rule).collect();
    // JSON is valid YAML.
    Service::with_rules(&json!({"rules": rules}).to_string(), &[])
}

#[test]
fn explanations_are_made_by_the_thread_for_readers() {
    let service = service(MANY);
    let question = json!({"attributes": {"user": "ann", "endpoint": "/7"}}).to_string();
    is_done_by("rule-reads", &service, || {
        for _ in 0..TIMES {
            let explained = service.post("/v1/explain", &question).json();
            assert_eq!(explained["rules"].as_array().unwrap().len(), 2);
            assert_eq!(explained["not_applying"].as_array().unwrap().len(), MANY - 2);
        }
    });
}

#[test]
fn candidates_are_listed_by_the_thread_for_readers() {
    let service = service(MANY);
    is_done_by("rule-reads", &service, || {
        for _ in 0..TIMES {
            let listed = service.get("/v1/candidates").json();
            assert_eq!(listed["candidates"].as_array().unwrap().len(), MANY / 2);
        }
    });
}

#[test]
fn metrics_are_written_by_a_thread_of_their_own() {
    let service = service(FEW);
    is_done_by("operators", &service, || {
        for _ in 0..10 * TIMES {
            assert!(service.get("/metrics").body.contains("rule-99"));
        }
    });
}
