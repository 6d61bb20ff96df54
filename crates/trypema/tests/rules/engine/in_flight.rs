//! Rules that limit requests in flight.

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, Outcome, Request, Reservation, ReserveOptions};
use trypema_testkit::blocking::wait_for;

use super::rules;

/// An engine on the local provider, and its clock.
fn engine(yaml: &str) -> (Arc<Engine>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock.clone()).build().unwrap();
    (Arc::new(Engine::local(Arc::new(rl), rules(yaml))), clock)
}

fn reserve(engine: &Arc<Engine>, request: &Request<'_>) -> Reservation {
    let options = ReserveOptions::new(Duration::from_secs(60)).unwrap();
    wait_for(engine.reserve(request, &options)).unwrap()
}

/// Reserves until a request is denied, and returns the reservations and the denied one.
fn fill(engine: &Arc<Engine>, attributes: &[(&str, &str)]) -> (Vec<Reservation>, Reservation) {
    let mut held = Vec::new();
    loop {
        let reservation = reserve(engine, &Request::new(attributes));
        if !reservation.is_allowed() {
            return (held, reservation);
        }
        held.push(reservation);
    }
}

const PLANS: &str = "
rules:
  - {id: free, scope: user, plan_tiers: [free], strategy: {concurrency: {limit: 2, hold: 60s}}}
  - {id: paid, scope: user, plan_tiers: [pro, team], strategy: {concurrency: {limit: 3, hold: 60s}}}
overrides:
  - {rule: free, key: {user: ann}, strategy: {concurrency: {limit: 5, hold: 10s}}}
  - {rule: free, key: {user: eve}, verdict: block}
";

#[test]
fn plans_and_overrides_have_limits_of_their_own() {
    let (engine, clock) = engine(PLANS);
    for (user, plan, limit) in
        [("bob", "free", 2), ("bob", "team", 3), ("ann", "free", 5), ("eve", "free", 0)]
    {
        let (held, denied) = fill(&engine, &[("user", user), ("plan", plan)]);
        assert_eq!(held.len(), limit, "{user} {plan}");
        assert_eq!(denied.verdict().is_blocked(), user == "eve", "{user} {plan}");
        held.into_iter().for_each(|held| drop(held.into_text()));
    }
    // Nobody renews: what the override lets a key hold expires sooner.
    let limits = [("ann", 5), ("bob", 0)];
    clock.advance(Duration::from_secs(10));
    for (user, limit) in limits {
        assert_eq!(fill(&engine, &[("user", user), ("plan", "free")]).0.len(), limit, "{user}");
    }
}

fn of_limit(limit: u64) -> String {
    format!(
        "rules: [{{id: in-flight, scope: user, strategy: {{concurrency: {{limit: {limit}, hold: 60s}}}}}}]"
    )
}

#[test]
fn a_changed_limit_takes_nothing_from_its_holders() {
    let (engine, _) = engine(&of_limit(3));
    let attributes = [("user", "ann")];
    let (mut held, _) = fill(&engine, &attributes);
    engine.replace(rules(&of_limit(2)));
    for (left, is_allowed) in [(3, false), (2, false), (1, true)] {
        held.truncate(left);
        let next = reserve(&engine, &Request::new(&attributes));
        assert_eq!(next.is_allowed(), is_allowed, "{left} of 2 are held");
    }
    engine.replace(rules(&of_limit(10)));
    assert_eq!(fill(&engine, &attributes).0.len(), 9);
}

const THROTTLED: &str = "
rules:
  - {id: patient, scope: user, action: throttle, strategy: {concurrency: {limit: 1, hold: 60s}}}
  - {id: hasty, scope: tenant, action: throttle, max_delay: 999ms, strategy: {concurrency: {limit: 1, hold: 60s}}}
";

/// The wait of a denial is a second, the default delay of a throttle.
#[test]
fn a_throttle_reports_the_wait() {
    let (engine, _) = engine(THROTTLED);
    for (attribute, outcome) in [("user", Outcome::Throttled), ("tenant", Outcome::Denied)] {
        let (_held, denied) = fill(&engine, &[(attribute, "ann")]);
        let verdict = denied.verdict();
        assert_eq!(verdict.outcome(), outcome, "{attribute}");
        assert_eq!(verdict.retry_after(), Some(Duration::from_secs(1)), "{attribute}");
        let never = reserve(&engine, &Request::new(&[(attribute, "bob")]).costing(2));
        assert_eq!((never.verdict().outcome(), never.verdict().retry_after()), (Outcome::Denied, None));
    }
}

const TOKENS: &str = "
units: [tokens]
rules:
  - {id: tokens, scope: user, unit: tokens, if_missing: deny, strategy: {concurrency: {limit: 100, hold: 60s}}}
";

#[test]
fn other_units_can_be_held() {
    let (engine, _) = engine(TOKENS);
    let with =
        |tokens: u64| reserve(&engine, &Request::new(&[("user", "ann")]).with_costs(&[("tokens", tokens)]));
    let first = with(60);
    assert!(first.is_allowed() && !with(41).is_allowed());
    let second = with(40);
    assert!(second.is_allowed());
    drop(first);
    assert!(!with(61).is_allowed() && with(60).is_allowed());
    let unnamed = reserve(&engine, &Request::new(&[("user", "ann")]));
    assert_eq!(unnamed.verdict().decided_by().unwrap().missing_unit, Some("tokens"));
}

/// A check cannot hold anything.
#[test]
fn a_check_skips_the_rule_and_names_it() {
    let (engine, _) = engine(&of_limit(1));
    let attributes = [("user", "ann")];
    let (_held, denied) = fill(&engine, &attributes);
    assert_eq!(denied.verdict().decided_by().unwrap().rule.id, "in-flight");
    let verdict = engine.try_check(&Request::new(&attributes)).unwrap().unwrap();
    assert!(verdict.is_allowed() && verdict.rules().next().is_none());
    assert_eq!(verdict.skipped_rules().map(|rule| &*rule.id).collect::<Vec<_>>(), ["in-flight"]);
}
