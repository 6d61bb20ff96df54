//! Rules among many others, and the middleware around a handler: `cargo xtask bench rules`.

use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use trypema::RateLimiter;
use trypema::rules::{Engine, Request, RuleSet};

use crate::allocator::allocations;
use crate::layers;
use crate::measure::{Effort, median};
use crate::report::print_and_keep;

/// Enough calls that the cost of reading the clock is negligible.
const CALLS: u32 = 20_000;
const ROUNDS: usize = 15;

/// The first six attributes are those of [`rules`]; conditions are about the last one, too.
const REQUEST: [(&str, &str); 7] = [
    ("endpoint", "/api/search"),
    ("method", "GET"),
    ("plan", "free"),
    ("user", "ann"),
    ("ip", "10.1.2.3"),
    ("api_key", "k-123"),
    ("model", "gpt-5-mini"),
];

pub fn run(effort: Effort<'_>) -> ExitCode {
    let mut text = String::new();
    matching(&mut text);
    layers::compare(&mut text);
    print_and_keep(&text, ("rules", effort))
}

/// A named call to time.
pub struct Runner {
    pub name: &'static str,
    pub call: Box<dyn FnMut()>,
}

/// Returns the median nanoseconds per call of each runner, measured in interleaved rounds.
pub fn time(runners: &mut [Runner]) -> Vec<f64> {
    let mut rounds = vec![Vec::new(); runners.len()];
    for _ in 0..ROUNDS {
        for (runner, times) in runners.iter_mut().zip(&mut rounds) {
            let started = Instant::now();
            (0..CALLS).for_each(|_| (runner.call)());
            times.push(started.elapsed().as_nanos() as f64 / f64::from(CALLS));
        }
    }
    rounds.into_iter().map(|times| median(times).unwrap_or(f64::NAN)).collect()
}

fn matching(text: &mut String) {
    let mut runners = Vec::new();
    for (name, others) in [("10 rules", 5), ("10,000 rules", 9_995)] {
        let set = rules(others);
        runners.push(Runner {
            name,
            call: Box::new(move || {
                let request = Request::new(black_box(&REQUEST[..6]));
                assert_eq!(set.matching(&request).map(Iterator::count).ok(), Some(5));
            }),
        });
    }
    for (name, others) in [("10 rules with conditions", 5), ("10,000 rules with conditions", 9_995)] {
        let set = rules_with_conditions(others);
        runners.push(Runner {
            name,
            call: Box::new(move || {
                let request = Request::new(black_box(&REQUEST));
                assert_eq!(set.matching(&request).map(Iterator::count).ok(), Some(5));
            }),
        });
    }
    for (name, others) in [("10 rules, checked", 5), ("10,000 rules, checked", 9_995)] {
        let limiter = RateLimiter::builder().build().expect("a limiter");
        let engine = Engine::local(Arc::new(limiter), rules(others));
        runners.push(Runner {
            name,
            call: Box::new(move || {
                let verdict = engine.try_check(&Request::new(black_box(&REQUEST[..6])));
                assert!(verdict.is_some_and(|verdict| verdict.is_ok_and(|verdict| verdict.is_allowed())));
            }),
        });
    }
    let times = time(&mut runners);
    let _ = writeln!(text, "Five rules apply to the request; the others cannot.\n");
    let _ = writeln!(text, "| | ns | allocations |\n| --- | ---: | ---: |");
    for (runner, time) in runners.iter_mut().zip(&times) {
        let allocated = allocations(|| (runner.call)());
        let _ = writeln!(text, "| {} | {time:.0} | {allocated} |", runner.name);
    }
    let _ = writeln!(text);
    for (what, ratio) in [("rules", times[1] / times[0]), ("rules with conditions", times[3] / times[2])] {
        let _ = writeln!(
            text,
            "- matching among 10,000 {what}: {ratio:.2} × among 10 (bar: at most 2){}",
            verdict(ratio <= 2.0)
        );
    }
}

/// Returns five rules whose conditions hold for the request, and `others` with conditions that do not hold.
fn rules_with_conditions(others: usize) -> RuleSet {
    let mut yaml = "rules:\n".to_owned();
    let of_request = [
        "model: [gpt-5-mini]",
        "model: ['gpt-*']",
        "model: ['*-mini']",
        "region: absent",
        "api_key: {not: [x]}",
    ];
    for (number, condition) in of_request.into_iter().enumerate() {
        let _ = writeln!(yaml, "  - {{id: a{number}, scope: user, when: {{{condition}}}, {STRATEGY}}}");
    }
    for number in 0..others {
        let condition = match number % 5 {
            0 => format!("model: [model{number}, other], region: [eu]"),
            1 => format!("model: ['model{number}-*']"),
            2 => format!("model: ['*-{number}']"),
            3 => "api_key: absent".to_owned(),
            _ => {
                format!("model: ['gpt-*-{number}', 'gpt{number}'], region: {{not: [us]}}, zone: [z{number}]")
            }
        };
        let _ = writeln!(yaml, "  - {{id: r{number}, scope: user, when: {{{condition}}}, {STRATEGY}}}");
    }
    RuleSet::from_yaml(&yaml, "rules.yaml").unwrap_or_else(|error| panic!("{error}"))
}

const STRATEGY: &str = "strategy: {fixed_window: {limit: 1, window: 1h}}";

pub fn verdict(holds: bool) -> &'static str {
    if holds { "" } else { " **does not hold**" }
}

/// Returns five rules that apply to the request and `others` rules that do not, for various reasons.
pub fn rules(others: usize) -> RuleSet {
    let mut yaml = "
rules:
  - {id: all, scope: global, strategy: {fixed_window: {limit: 1000000000, window: 1h}}}
  - {id: user, scope: user, strategy: {token_bucket: {limit: 1000000000, window: 1h}}}
  - {id: ip, scope: ip, strategy: {sliding_window: {limit: 1000000000, window: 1h}}}
  - {id: key, scope: tenant, key_pattern: '{api_key}', endpoints: [/api/search], strategy: {fixed_window: {limit: 1000000000, window: 1h}}}
  - {id: plan, scope: user, plan_tiers: [free], strategy: {absolute: {limit: 1000000000, window: 1h}}}
"
    .to_owned();
    for number in 0..others {
        let targeting = match number % 5 {
            4 => "key_pattern: '{user} {account}'".to_owned(),
            0 => format!("endpoints: [/api/other{number}]"),
            1 => format!("plan_tiers: [plan{number}]"),
            2 => format!("key_pattern: '{{user}} {{attribute{number}}}'"),
            _ => format!("endpoints: ['POST /api/search', '/api/search/*/{number}/**']"),
        };
        let _ = writeln!(yaml, "  - {{id: r{number}, scope: user, {targeting}, {STRATEGY}}}");
    }
    RuleSet::from_yaml(&yaml, "rules.yaml").unwrap_or_else(|error| panic!("{error}"))
}
