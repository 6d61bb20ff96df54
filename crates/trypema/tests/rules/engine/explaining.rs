//! Why a request gets what it gets.

use trypema::rules::{Reason, Request};
use trypema_testkit::blocking::wait_for;

use super::Local;

const RULES: &str = "
rules:
  - {id: applies, scope: user, strategy: {fixed_window: {limit: 9, window: 1h}}}
  - {id: disabled, scope: user, enabled: false, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: plan, scope: user, plan_tiers: [pro], strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: endpoint, scope: user, endpoints: [/b/**], strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: attribute, scope: tenant, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: override, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: logs, scope: user, action: log_only, strategy: {token_bucket: {limit: 4, window: 1h}}}
overrides:
  - {rule: override, key: {user: ann}, verdict: allow}
allow: {ip: [10.0.0.1]}
";

const ANN: [(&str, &str); 3] = [("user", "ann"), ("plan", "free"), ("endpoint", "/a")];

#[test]
fn every_rule_says_why() {
    let local = Local::new(RULES);
    assert!(local.check_for(&ANN, 3).is_allowed());
    for _ in 0..3 {
        let explained = wait_for(local.engine.explain(&Request::new(&ANN).costing(2))).unwrap();
        let reasons: Vec<_> =
            explained.not_applying().map(|rule| (rule.rule.id.as_str(), rule.reason.clone())).collect();
        let expected = [
            ("attribute", Reason::MissingAttribute("tenant".to_owned())),
            ("disabled", Reason::Disabled),
            ("endpoint", Reason::OtherEndpoint),
            ("override", Reason::AllowedKey),
            ("plan", Reason::OtherPlan),
        ];
        assert_eq!(reasons, expected);
        let applying: Vec<_> = explained
            .applying()
            .map(|rule| (rule.decision.key, rule.left, rule.decision.decision.remaining()))
            .collect();
        // Nothing is spent, however often it is asked. A denied cost leaves what is there.
        assert_eq!(applying, [("applies|user=ann", 6, 4), ("logs|user=ann", 1, 1)]);
        assert!(explained.verdict.is_allowed());
    }
}

#[test]
fn lists_explain_themselves() {
    let local = Local::new(RULES);
    let listed = [("user", "ann"), ("ip", "10.0.0.1")];
    let explained = wait_for(local.engine.explain(&Request::new(&listed))).unwrap();
    assert_eq!(explained.applying().count(), 0);
    let reason = explained.not_applying().find(|rule| rule.rule.id == "applies").unwrap().reason;
    assert_eq!(reason, &Reason::Listed("ip".to_owned()));
    assert_eq!(reason.to_string(), "a list decides by \"ip\"");
}
