//! Rules that limit requests in flight, as clients see them.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::json;
use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::http::{HeaderStyle, Policy, Problem};
use trypema::rules::{Engine, Request, Reservation, ReserveOptions, RuleSet};
use trypema_testkit::blocking::wait_for;

const RULES: &str = "
units: [tokens]
rules:
  - {id: uploads, scope: user, priority: 1, strategy: {concurrency: {limit: 2, hold: 60s}}}
  - {id: tokens, scope: user, priority: 2, unit: tokens, strategy: {concurrency: {limit: 100, hold: 60s}}}
  - {id: requests, scope: user, priority: 3, strategy: {fixed_window: {limit: 10, window: 60s}}}
  - {id: shadow, scope: user, action: log_only, strategy: {concurrency: {limit: 1, hold: 60s}}}
";

fn reserved(engine: &Arc<Engine>) -> Reservation {
    let (attributes, costs) = ([("user", "ann")], [("tokens", 30)]);
    let options = ReserveOptions::new(Duration::from_secs(60)).unwrap();
    wait_for(engine.reserve(&Request::new(&attributes).with_costs(&costs), &options)).unwrap()
}

fn headers(style: HeaderStyle, reservation: &Reservation) -> HeaderMap {
    let mut headers = HeaderMap::new();
    style.write(Policy::of_verdict(reservation.verdict()), &mut headers);
    headers
}

#[test]
fn a_rule_has_the_unit_and_no_window() {
    let rl = RateLimiter::builder().clock(Arc::new(ManualClock::default())).build().unwrap();
    let set = RuleSet::from_yaml(RULES, "rules.yaml").unwrap();
    let engine = Arc::new(Engine::local(Arc::new(rl), set));
    let [first, second, denied] = [(); 3].map(|()| reserved(&engine));
    assert!(first.is_allowed() && second.is_allowed() && !denied.is_allowed());

    let shown = headers(HeaderStyle::Standard, &first);
    let policy = r#""uploads";q=2;qu="concurrent-requests", "tokens";q=100, "requests";q=10;w=60"#;
    assert_eq!(shown["ratelimit-policy"], policy);
    assert_eq!(shown["ratelimit"], r#""uploads";r=1, "tokens";r=70, "requests";r=9;t=20"#);
    let shown = headers(HeaderStyle::Standard, &denied);
    assert_eq!(shown["ratelimit-policy"], policy);
    assert!(
        shown["ratelimit"].to_str().unwrap().starts_with(r#""uploads";r=0;t=1, "tokens";r="#),
        "{shown:?}"
    );

    // Of two limits with nothing left, the longer wait is shown: this one has none.
    let shown = headers(HeaderStyle::XRateLimit, &second);
    let fields = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    assert_eq!(fields.map(|name| shown[name].to_str().unwrap()), ["2", "0", "0"]);
    let shown = headers(HeaderStyle::XRateLimit, &denied);
    assert_eq!(fields.map(|name| shown[name].to_str().unwrap()), ["2", "0", "1"]);
}

#[test]
fn a_problem_names_the_rule_and_the_wait() {
    let rl = RateLimiter::builder().clock(Arc::new(ManualClock::default())).build().unwrap();
    let set = RuleSet::from_yaml(RULES, "rules.yaml").unwrap();
    let engine = Arc::new(Engine::local(Arc::new(rl), set));
    let held = [(); 2].map(|()| reserved(&engine));
    let problem = Problem::of_verdict(reserved(&engine).verdict()).unwrap();
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": 429,
        "detail": "Try again in 1 second.",
        "violated-policies": ["uploads"],
        "retry_after": 1,
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&problem.to_json()).unwrap(), expected);
    drop(held);
    assert_eq!(Problem::of_verdict(reserved(&engine).verdict()), None);
}
