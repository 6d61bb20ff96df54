//! The requests that a candidate decides, and those that are compared.

use trypema::rules::{NotApplyingReason, Request, RuleSet, Rules};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::Server;

use super::super::{Local, ids};
use super::{rules, told};

#[test]
fn a_rule_that_does_not_apply_lets_requests_pass() {
    let local = Local::new(
        "
rules:
  - {id: live, scope: user, endpoints: [/a, /b], strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: next, scope: user, endpoints: [/b, /c], candidate_for: live, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: off, scope: user, endpoints: [/b, /c], candidate_for: live, enabled: false, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: part, scope: user, endpoints: [/c], candidate_for: live, share: 0.999999999, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: all, scope: user, endpoints: [/c], candidate_for: live, share: 1, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: else, scope: user, endpoints: [/d], strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    for (user, path, expected) in [
        ("ann", "/a", ["allowed all ++ next ++", "denied all -+ next -+"]),
        ("bob", "/b", ["allowed next ++ all ++", "denied next -- all -+"]),
        ("cas", "/c", ["allowed all ++ next ++ part ++", "allowed all +- next +- part +-"]),
        ("dan", "/d", ["allowed", "denied"]),
    ] {
        let told = expected.map(|_| told(&local.check(&[("user", user), ("endpoint", path)])));
        assert_eq!(told, expected, "{path}");
    }
}

#[test]
fn a_live_rule_that_is_off_lets_requests_pass() {
    let local = Local::new(
        "
rules:
  - {id: live, scope: user, enabled: false, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: next, scope: user, candidate_for: live, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    let told = [(); 2].map(|()| told(&local.check(&[("user", "ann")])));
    assert_eq!(told, ["allowed next ++", "allowed next +-"]);
}

#[test]
fn a_candidate_for_a_rule_that_logs_counts_what_that_counts() {
    let local = Local::new(
        "
rules:
  - {id: live, scope: user, action: log_only, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: next, scope: user, candidate_for: live, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {id: other, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    let ann = [("user", "ann")];
    assert_eq!(told(&local.check(&ann)), "allowed next ++");
    assert_eq!([(); 3].map(|()| told(&local.check(&ann))), ["denied"; 3]);
    let expected = [("live", 0), ("next", 0), ("other", 0)].map(|(id, left)| (id.to_owned(), left));
    assert_eq!(local.left(&ann), expected);
}

#[test]
fn what_a_list_decides_is_not_compared() {
    let local = Local::new(
        "
rules:
  - {id: live, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: next, scope: user, candidate_for: live, strategy: {fixed_window: {limit: 1, window: 1h}}}
allow: {user: [ann]}
block: {user: [mallory]}
",
    );
    assert_eq!(["ann", "mallory"].map(|user| told(&local.check(&[("user", user)]))), ["allowed", "denied"]);
}

#[test]
fn a_share_is_of_whole_keys() {
    let local = Local::new(
        "
rules:
  - {id: live, scope: user, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {id: next, scope: user, candidate_for: live, share: 0.25, strategy: {fixed_window: {limit: 2, window: 1h}}}
",
    );
    const USERS: usize = 1_000;
    let mut asked = 0;
    for number in 0..USERS {
        let user = format!("u{number}");
        let told = [(); 4].map(|()| told(&local.check(&[("user", &user)])));
        if told[0].contains("next") {
            asked += 1;
            assert_eq!(told, ["allowed next ++", "allowed next ++", "allowed next +-", "denied next --"]);
        } else {
            assert_eq!(told, ["allowed", "allowed", "allowed", "denied"]);
            let explained = wait_for(local.engine.explain(&Request::new(&[("user", &user)]))).unwrap();
            let reasons: Vec<&NotApplyingReason> = explained.not_applying().map(|rule| rule.reason).collect();
            assert_eq!(reasons, [&NotApplyingReason::OutsideShare]);
        }
    }
    // The share selects the same users on every server and in every version.
    assert_eq!(asked, 260);
}

#[test]
fn a_share_is_a_number_above_nothing() {
    let written = |share: f64| {
        let mut rules = Rules::from_yaml(
            "
rules:
  - {id: live, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: next, scope: user, candidate_for: live, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
        )
        .unwrap();
        rules.rules[1].share = Some(share);
        RuleSet::compile(&rules)
    };
    for fine in [f64::MIN_POSITIVE, 0.5, 1.0] {
        assert!(written(fine).is_ok(), "{fine}");
    }
    let wrong = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -0.1, 1.0 + f64::EPSILON];
    for wrong in wrong {
        let refused = written(wrong).unwrap_err().to_string();
        assert!(refused.starts_with("rules[1].share (rule \"next\"): invalid share"), "{wrong}: {refused}");
    }
}

#[test]
fn what_the_store_did_not_answer_is_not_compared() {
    let server = Server::start().unwrap();
    let connection = connect(&server.url());
    drop(server);
    let rl = trypema::RateLimiter::builder().redis(connection).build().unwrap();
    let set = rules(
        "
rules:
  - {id: live, scope: user, on_store_failure: allow, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: next, scope: user, candidate_for: live, on_store_failure: deny, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: else, scope: ip, candidate_for: live, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    let engine = trypema::rules::Engine::redis(rl.into(), set);
    let verdict = wait_for(engine.check(&Request::new(&[("user", "ann")]))).unwrap();
    assert_eq!((told(&verdict).as_str(), ids(&verdict)), ("allowed", vec!["live"]));
}

#[cfg(feature = "http")]
#[test]
fn clients_are_not_told_of_candidates() {
    let local = Local::new(
        "
rules:
  - {id: live, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: next, scope: user, candidate_for: live, strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    for _ in 0..3 {
        let verdict = local.check(&[("user", "ann")]);
        let told: Vec<&str> = trypema::http::Policy::of_verdict(&verdict).map(|policy| policy.name).collect();
        assert_eq!(told, ["live"]);
        assert!(!verdict.rules().any(|rule| rule.rule.id == "next" && rule.is_denying()));
    }
}

/// The maximum number of rules in one call, and a candidate that would exceed it.
#[test]
fn a_candidate_never_keeps_a_request_from_being_decided() {
    let mut written = String::from("rules:\n");
    for number in 0..64 {
        written += &format!(
            "  - {{id: r{number}, scope: global, strategy: {{fixed_window: {{limit: 1, window: 1h}}}}}}\n"
        );
    }
    written += "  - {id: next, scope: global, candidate_for: r0, priority: -1, strategy: {fixed_window: {limit: 9, window: 1h}}}\n";
    let local = Local::new(&written);
    let verdicts = [local.check(&[]), local.check(&[])];
    assert_eq!(
        verdicts.map(|verdict| (verdict.is_allowed(), verdict.rules().count())),
        [(true, 64), (false, 64)]
    );
}
