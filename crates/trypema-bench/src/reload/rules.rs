//! The stored rules: a few that apply to every check, and thousands that apply to none.

use serde_json::{Value, json};

/// The number of rules that apply to every check. One of them is the rule that changes.
const ASKED: usize = 5;
/// A limit that no run exhausts.
const PLENTY: u64 = 1_000_000_000;
/// One rule in `PER_OVERRIDE` has an override, and one in `PER_LISTED` adds a value to a list.
const PER_OVERRIDE: usize = 10;
const PER_LISTED: usize = 20;

/// The request body of a check, the same for every rule set.
pub const QUESTION: &str = r#"{"attributes":{"endpoint":"/api/search","method":"GET","plan":"free","user":"ann","ip":"203.0.113.9","api_key":"k-123"}}"#;

/// Returns `count` rules with their overrides and lists, in the form that `PUT /v1/ruleset` accepts.
pub fn set(count: usize) -> Value {
    let asked = [
        changed(0),
        json!({"id": "user", "scope": "user", "strategy": {"token_bucket": {"limit": PLENTY, "window": "1h"}}}),
        json!({"id": "ip", "scope": "ip", "strategy": {"sliding_window": {"limit": PLENTY, "window": "1h"}}}),
        json!({"id": "key", "scope": "tenant", "key_pattern": "{api_key}", "endpoints": ["/api/search"],
               "strategy": {"fixed_window": {"limit": PLENTY, "window": "1h"}}}),
        json!({"id": "plan", "scope": "user", "plan_tiers": ["free"],
               "strategy": {"absolute": {"limit": PLENTY, "window": "1h"}}}),
    ];
    let others = 0..count.saturating_sub(ASKED);
    let overrides = others.clone().step_by(PER_OVERRIDE).map(|number| {
        json!({"rule": format!("r{number}"), "key": {"account": format!("a{number}")}, "verdict": "block"})
    });
    let blocked = others.clone().step_by(PER_LISTED).map(|number| format!("mallory{number}"));
    json!({
        "overrides": overrides.collect::<Value>(),
        "block": {"user": blocked.collect::<Value>()},
        "rules": asked.into_iter().chain(others.map(other)).collect::<Value>(),
    })
}

/// Returns the rule that changes, in its `edition`-th version. It applies to every check and has counted
/// units.
pub fn changed(edition: u64) -> Value {
    json!({"id": "all", "scope": "global",
           "strategy": {"fixed_window": {"limit": PLENTY + edition, "window": "1h"}}})
}

/// Returns a rule that applies to no check. `number` determines its strategy.
fn other(number: usize) -> Value {
    let limit = 100 + number;
    let strategy = match number % 6 {
        0 => json!({"token_bucket": {"limit": limit, "window": "60s", "burst": 2 * limit}}),
        1 => json!({"sliding_window": {"limit": limit, "window": "60s"}}),
        2 => json!({"fixed_window": {"limit": limit, "window": "1h"}}),
        3 => json!({"absolute": {"limit": limit, "window": "60s"}}),
        4 => json!({"suppressed": {"limit": limit, "window": "60s", "hard_limit_factor": 2.0}}),
        _ => json!({"abuse": {"temp": {"window": "60s", "threshold": 3, "block": "10m"},
                              "long": {"window": "1h", "threshold": 10, "block": "1d"}}}),
    };
    let (plans, endpoints) = match number % 4 {
        0 => (json!([]), json!([format!("/tenants/{number}/**")])),
        1 => (json!([format!("plan{number}")]), json!([])),
        2 => (json!(["pro", "enterprise"]), json!([format!("POST /tenants/*/orders{number}")])),
        _ => (json!([]), json!([])),
    };
    json!({
        "id": format!("r{number}"),
        "name": format!("tenant {number}, its {}", number % 4),
        "scope": "tenant",
        "key_pattern": "account:{account}",
        "plan_tiers": plans,
        "endpoints": endpoints,
        "strategy": strategy,
        "priority": number % 100,
    })
}
