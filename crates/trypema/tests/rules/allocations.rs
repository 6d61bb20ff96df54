//! Finding the applicable rules does not allocate, and rules that cannot apply cost nothing.
#![cfg(feature = "rules")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::fmt::Write;
use std::sync::Arc;

use crate::counting_allocator::{allocations, live_bytes};
use trypema::RateLimiter;
use trypema::rules::{Engine, Request, RuleSet};

const REQUEST: [(&str, &str); 7] = [
    ("endpoint", "/api/search"),
    ("method", "GET"),
    ("plan", "free"),
    ("user", "ann"),
    ("ip", "10.1.2.3"),
    ("api_key", "k-123"),
    ("model", "gpt-5-mini"),
];

const CALLS: u64 = 1_000;

/// Six applicable rules, and `others` that do not apply, for several reasons.
fn rules(others: usize) -> RuleSet {
    let mut yaml = "
rules:
  - {id: all, scope: global, strategy: {fixed_window: {limit: 1000000000, window: 1h}}}
  - {id: user, scope: user, strategy: {token_bucket: {limit: 1000000000, window: 1h}}}
  - {id: ip, scope: ip, strategy: {sliding_window: {limit: 1000000000, window: 1h}}}
  - {id: key, scope: tenant, key_pattern: '{api_key}', endpoints: [/api/search], strategy: {fixed_window: {limit: 1000000000, window: 1h}}}
  - {id: plan, scope: user, plan_tiers: [free], strategy: {absolute: {limit: 1000000000, window: 1h}}}
  - {id: model, scope: user, when: {model: ['gpt-*'], region: absent}, strategy: {fixed_window: {limit: 1000000000, window: 1h}}}
"
    .to_owned();
    for number in 0..others {
        let targeting = match number % 9 {
            5 => format!("when: {{model: [model{number}, other], region: [eu]}}"),
            6 => format!("when: {{model: ['model{number}-*']}}"),
            7 => format!("when: {{model: ['*-{number}'], api_key: {{not: ['k-*']}}}}"),
            8 => "when: {api_key: absent}".to_owned(),
            4 => "key_pattern: '{user} {account}'".to_owned(),
            0 => format!("endpoints: [/api/other{number}]"),
            1 => format!("plan_tiers: [plan{number}]"),
            2 => format!("key_pattern: '{{user}} {{attribute{number}}}'"),
            _ => format!("endpoints: ['POST /api/search', '/api/search/*/{number}/**']"),
        };
        let strategy = "strategy: {fixed_window: {limit: 1, window: 1h}}";
        writeln!(yaml, "  - {{id: r{number}, scope: user, {targeting}, {strategy}}}").unwrap();
    }
    RuleSet::from_yaml(&yaml, "rules.yaml").unwrap()
}

#[test]
fn matching_allocates_nothing() {
    for others in [5, 9_995] {
        let set = rules(others);
        let request = Request::new(&REQUEST);
        let before = (allocations(), live_bytes());
        for _ in 0..CALLS {
            assert_eq!(set.matching(&request).unwrap().count(), 6);
        }
        assert_eq!((allocations(), live_bytes()), before, "beside {others} other rules");
    }
}

#[test]
fn checking_allocates_the_same_however_many_rules_there_are() {
    let per_check = [5, 9_995].map(|others| {
        let rl = Arc::new(RateLimiter::builder().build().unwrap());
        let engine = Engine::local(rl, rules(others));
        let check = || assert!(engine.try_check(&Request::new(&REQUEST)).unwrap().unwrap().is_allowed());
        (0..CALLS).for_each(|_| check());
        let before = allocations();
        (0..CALLS).for_each(|_| check());
        (allocations() - before) as f64 / CALLS as f64
    });
    // Only the verdict (its decisions and keys), the checks and their events allocate.
    assert!(per_check[0] <= 8.0 && (per_check[0] - per_check[1]).abs() < 0.1, "{per_check:?}");
}
