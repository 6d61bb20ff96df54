//! Requests without an attribute that a rule's key needs: `if_missing`.

use trypema::TrypemaError;
use trypema::rules::{Engine, Outcome, Request, Verdict};
use trypema_testkit::blocking::wait_for;

use super::candidates::on_every_provider;
use super::{Local, a_minute, decided_by, left, rules};

const RULES: &str = "
rules:
  - {id: all, scope: global, strategy: {fixed_window: {limit: 9, window: 1h}}}
  - id: per-user
    name: Each user
    scope: user
    endpoints: [POST /pay]
    if_missing: IF_MISSING
    strategy: {fixed_window: {limit: 1, window: 1h}}
";

const NOBODY: [(&str, &str); 2] = [("endpoint", "/pay"), ("method", "POST")];
const ANN: [(&str, &str); 3] = [("endpoint", "/pay"), ("method", "POST"), ("user", "ann")];

fn check(engine: &Engine, attributes: &[(&str, &str)]) -> Result<Verdict, TrypemaError> {
    wait_for(engine.check(&Request::new(attributes)))
}

/// The remaining units of the rule for all requests.
fn left_of_all(engine: &Engine) -> u64 {
    left(engine, &[])[0].1
}

#[test]
fn a_rule_skips_such_requests_unless_it_says_otherwise() {
    for yaml in
        [RULES.replace("IF_MISSING", "skip"), RULES.replace("if_missing: IF_MISSING", "enabled: true")]
    {
        on_every_provider(&yaml, |name, engine, _| {
            for _ in 0..3 {
                assert!(check(engine, &NOBODY).unwrap().is_allowed(), "{name}");
            }
            assert_eq!(left_of_all(engine), 6, "{name}");
        });
    }
}

#[test]
fn a_rule_denies_them_by_every_verb_and_nothing_is_spent() {
    on_every_provider(&RULES.replace("IF_MISSING", "deny"), |name, engine, _| {
        let request = Request::new(&NOBODY);
        let denied = [
            check(engine, &NOBODY).unwrap(),
            wait_for(engine.reserve(&request, &a_minute())).unwrap().verdict().clone(),
            wait_for(engine.peek(&request)).unwrap(),
        ];
        for verdict in &denied {
            assert_eq!((verdict.outcome(), verdict.retry_after()), (Outcome::Denied, None), "{name}");
            let by = verdict.decided_by().unwrap();
            assert_eq!((by.rule.id.as_str(), by.missing, by.key), ("per-user", Some("user"), ""), "{name}");
        }
        assert_eq!(left_of_all(engine), 9, "{name}");
        assert!(check(engine, &ANN).unwrap().is_allowed() && !check(engine, &ANN).unwrap().is_allowed());
        assert!(
            check(engine, &[("endpoint", "/other")]).unwrap().is_allowed(),
            "{name}: it is for POST /pay"
        );
        // The request has already happened, so `record` counts it on the other rules.
        let recorded = wait_for(engine.record(&request)).unwrap();
        assert_eq!((decided_by(&recorded), left_of_all(engine)), (Some("per-user"), 6), "{name}");
    });
}

#[test]
fn a_rule_makes_them_an_error_of_every_verb() {
    on_every_provider(&RULES.replace("IF_MISSING", "error"), |name, engine, _| {
        let request = Request::new(&NOBODY);
        let errors = [
            check(engine, &NOBODY).unwrap_err(),
            wait_for(engine.reserve(&request, &a_minute())).unwrap_err(),
            wait_for(engine.peek(&request)).unwrap_err(),
            wait_for(engine.record(&request)).unwrap_err(),
        ];
        for error in errors {
            let expected = "the request has no \"user\", which rule \"per-user\" needs";
            assert_eq!(error.to_string(), expected, "{name}");
        }
        assert_eq!(left_of_all(engine), 9, "{name}");
        assert!(check(engine, &ANN).unwrap().is_allowed(), "{name}");
        let explained = wait_for(engine.explain(&request)).unwrap();
        let missing: Vec<_> = explained.applying().map(|rule| rule.decision.missing).collect();
        assert_eq!(missing, [None, Some("user")], "{name}: it is explained, and no error");
    });
}

#[test]
fn rules_that_only_log_and_candidates_never_keep_a_request_out() {
    for if_missing in ["deny", "error"] {
        let yaml = format!(
            "
rules:
  - {{id: live, scope: global, strategy: {{fixed_window: {{limit: 9, window: 1h}}}}}}
  - {{id: logs, scope: user, action: log_only, if_missing: {if_missing}, strategy: {{fixed_window: {{limit: 9, window: 1h}}}}}}
  - {{id: next, candidate_for: live, scope: user, if_missing: {if_missing}, strategy: {{fixed_window: {{limit: 9, window: 1h}}}}}}
  - {{id: part, candidate_for: live, share: 0.5, scope: user, if_missing: {if_missing}, strategy: {{fixed_window: {{limit: 9, window: 1h}}}}}}
"
        );
        on_every_provider(&yaml, |name, engine, _| {
            let verdict = check(engine, &NOBODY).unwrap();
            assert!(verdict.is_allowed(), "{name} {if_missing}");
            let logged = verdict.rules().find(|rule| rule.rule.id == "logs").unwrap();
            assert!(logged.is_shadowed() && logged.missing == Some("user"), "{name} {if_missing}");
            let compared: Vec<_> = verdict
                .comparisons()
                .map(|said| (said.candidate.id.as_str(), said.is_live_allowed, said.is_candidate_allowed))
                .collect();
            assert_eq!(compared, [("next", true, false)], "{name} {if_missing}: a share needs a key");
            assert_eq!(left(engine, &[])[0].1, 8, "{name} {if_missing}: the live rule is spent");
        });
    }
}

#[test]
fn lists_go_before_missing_attributes() {
    let yaml = RULES.replace("IF_MISSING", "error") + "allow: {ip: [10.0.0.1]}\nblock: {ip: [10.0.0.2]}\n";
    let local = Local::new(&yaml);
    let from = |ip| [("endpoint", "/pay"), ("method", "POST"), ("ip", ip)];
    assert!(local.check(&from("10.0.0.1")).is_allowed());
    assert!(!local.check(&from("10.0.0.2")).is_allowed());
    let error = local.engine.try_check(&Request::new(&from("10.0.0.3"))).unwrap().unwrap_err();
    assert!(matches!(error, TrypemaError::MissingAttribute { .. }));
}

#[test]
fn the_first_rule_by_priority_is_the_one_that_is_named() {
    let local = Local::new(
        "
rules:
  - {id: b, scope: user, if_missing: error, priority: 2, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: a, scope: tenant, key_pattern: '{tenant} {user}', if_missing: error, priority: 1, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    let error = local.engine.try_check(&Request::new(&[("tenant", "t")])).unwrap().unwrap_err();
    let expected = TrypemaError::MissingAttribute { rule: "a".to_owned(), attribute: "user".to_owned() };
    assert_eq!(error, expected);
}

#[test]
fn attributes_that_rules_need_are_listed_with_the_rules() {
    let set = rules(
        "
rules:
  - {id: a, scope: user, key_pattern: '{user} {ip}', strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: b, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: off, scope: tenant, enabled: false, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    let needed: Vec<_> = set
        .needed_attributes()
        .map(|needed| (needed.name, needed.rules.iter().map(|rule| rule.id.as_str()).collect::<Vec<_>>()))
        .collect();
    assert_eq!(needed, [("ip", vec!["a"]), ("user", vec!["a", "b"])]);
}
