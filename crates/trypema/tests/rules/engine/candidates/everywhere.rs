//! Traces that every provider must play identically.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::rules::{Engine, Request};
use trypema_testkit::blocking::{connect, limiter, wait_for};
use trypema_testkit::redis::Cluster;

use super::super::{a_minute, left, rules};
use super::{on_every_provider, told};

fn check(engine: &Engine, attributes: &[(&str, &str)]) -> String {
    told(&wait_for(engine.check(&Request::new(attributes))).unwrap())
}

fn left_of(engine: &Engine, attributes: &[(&str, &str)], id: &str) -> u64 {
    left(engine, attributes).into_iter().find(|(rule, _)| rule == id).unwrap().1
}

const STRICTER_AND_LOOSER: &str = "
rules:
  - {id: live, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: less, scope: user, candidate_for: live, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: more, scope: user, candidate_for: live, action: throttle, max_delay: 1s, strategy: {token_bucket: {limit: 3, window: 1h}}}
";

#[test]
fn a_candidate_is_asked_on_counters_of_its_own_and_never_denies() {
    on_every_provider(STRICTER_AND_LOOSER, |name, engine, clock| {
        let ann = [("user", "ann")];
        for expected in [
            "allowed less ++ more ++",
            "allowed less +- more ++",
            "denied less -- more -+",
            "denied less -- more --",
        ] {
            assert_eq!(check(engine, &ann), expected, "{name}");
        }
        assert_eq!(check(engine, &[("user", "bob")]), "allowed less ++ more ++", "{name}");
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(check(engine, &ann), "allowed less ++ more ++", "{name}");
    });
}

const BESIDE_ANOTHER: &str = "
rules:
  - {id: live, scope: user, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {id: next, scope: user, candidate_for: live, strategy: {fixed_window: {limit: 4, window: 1h}}}
  - {id: drawn, scope: user, candidate_for: live, strategy: {suppressed: {limit: 4, window: 1h}}}
  - {id: other, scope: ip, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: logs, scope: user, action: log_only, strategy: {fixed_window: {limit: 9, window: 1h}}}
";

#[test]
fn what_another_rule_denies_is_neither_spent_nor_compared() {
    on_every_provider(BESIDE_ANOTHER, |name, engine, _| beside_another(name, engine));
}

#[test]
fn what_another_rule_denies_is_given_back_on_other_servers() {
    let cluster = Cluster::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let rl = limiter(&connect(&cluster.url()), "candidates", &clock).build().unwrap();
    beside_another("cluster", &Engine::redis(Arc::new(rl), rules(BESIDE_ANOTHER)));
}

fn beside_another(name: &str, engine: &Engine) {
    let at = |ip: &'static str| [("user", "ann"), ("ip", ip)];
    assert_eq!(check(engine, &at("10.0.0.1")), "allowed drawn ++ next ++", "{name}");
    for _ in 0..3 {
        assert_eq!(check(engine, &at("10.0.0.1")), "denied", "{name}");
    }
    for (id, expected) in [("live", 2), ("next", 3), ("drawn", 3), ("logs", 5)] {
        assert_eq!(left_of(engine, &at("10.0.0.1"), id), expected, "{name}: {id}");
    }
    assert_eq!(check(engine, &at("10.0.0.2")), "allowed drawn ++ next ++", "{name}");
    assert_eq!(check(engine, &at("10.0.0.3")), "allowed drawn ++ next ++", "{name}");
    // Only the live rule denies. The candidates would have allowed the request, so they spend it.
    assert_eq!(check(engine, &at("10.0.0.4")), "denied drawn -+ next -+", "{name}");
    assert_eq!(left_of(engine, &at("10.0.0.4"), "next"), 0, "{name}");
    // Another rule denies too, so the request does not depend on the live rule and is not compared.
    assert_eq!(check(engine, &at("10.0.0.1")), "denied", "{name}");
}

#[test]
fn what_a_reservation_gives_back_is_given_back_to_candidates() {
    on_every_provider(STRICTER_AND_LOOSER, |name, engine, _| {
        let ann = [("user", "ann")];
        let mut reserved = wait_for(engine.reserve(&Request::new(&ann), &a_minute())).unwrap();
        assert_eq!(told(reserved.verdict()), "allowed less ++ more ++", "{name}");
        assert!(wait_for(reserved.release()).is_complete(), "{name}");
        assert_eq!(["less", "live", "more"].map(|id| left_of(engine, &ann, id)), [1, 2, 3], "{name}");

        let mut spent = wait_for(engine.reserve(&Request::new(&ann).costing(2), &a_minute())).unwrap();
        assert_eq!(told(spent.verdict()), "allowed less +- more ++", "{name}");
        wait_for(spent.release());
        let reserve =
            |cost| wait_for(engine.reserve(&Request::new(&ann).costing(cost), &a_minute())).unwrap();
        let (first, mut denied) = (reserve(2), reserve(1));
        assert_eq!(
            [told(first.verdict()), told(denied.verdict())],
            ["allowed less +- more ++", "denied less -+ more -+"],
            "{name}"
        );
        assert_eq!(wait_for(denied.release()).rules, [], "{name}");
        assert_eq!(left_of(engine, &ann, "more"), 0, "{name}: a denied request has nothing to give back");
    });
}

const GUARD: &str = "
rules:
  - {id: live, scope: user, strategy: {abuse: {temp: {window: 1m, threshold: 3, block: 1h}, long: {window: 1h, threshold: 9, block: 1d}}}}
  - {id: next, scope: user, candidate_for: live, strategy: {abuse: {temp: {window: 1m, threshold: 2, block: 1h}, long: {window: 1h, threshold: 9, block: 1d}}}}
";

#[test]
fn looking_and_recording_ask_candidates_as_they_ask_live_rules() {
    on_every_provider(GUARD, |name, engine, _| {
        let ann = [("user", "ann")];
        let peek = || told(&wait_for(engine.peek(&Request::new(&ann))).unwrap());
        let record = || told(&wait_for(engine.record(&Request::new(&ann))).unwrap());
        assert_eq!([peek(), record(), peek(), peek()], ["allowed next ++"; 4], "{name}");
        assert_eq!([record(), peek()], ["allowed next +-"; 2], "{name}");
        assert_eq!([record(), peek()], ["denied next --"; 2], "{name}");
    });
}
