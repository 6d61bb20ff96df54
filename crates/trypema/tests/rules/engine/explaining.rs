//! Explanations of decisions.

use trypema::rules::{NotApplyingReason, Request};
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
            ("attribute", NotApplyingReason::MissingAttribute("tenant".to_owned())),
            ("disabled", NotApplyingReason::Disabled),
            ("endpoint", NotApplyingReason::OtherEndpoint),
            ("override", NotApplyingReason::AllowedKey),
            ("plan", NotApplyingReason::OtherPlan),
        ];
        assert_eq!(reasons, expected);
        let applying: Vec<_> = explained
            .applying()
            .map(|rule| (rule.decision.key, rule.left, rule.decision.decision.remaining()))
            .collect();
        // `explain` spends nothing, however often it is called. A denied cost does not reduce the remaining
        // units.
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
    assert_eq!(reason, &NotApplyingReason::Listed("ip".to_owned()));
    assert_eq!(reason.to_string(), "an allow or block list of \"ip\" decides");
    assert_eq!(explained.verdict.listed_entry(), Some("10.0.0.1"));
}

/// A list names the entry that decided: the value, or the network that contains the address.
#[test]
fn a_list_names_its_entry() {
    let local = Local::new(
        "
rules: [{id: r, scope: user, strategy: {fixed_window: {limit: 9, window: 1h}}}]
allow: {user: [ann]}
block: {ip: [10.0.0.0/8, '2001:db8::/48', 192.0.2.1], endpoint: [/admin]}
",
    );
    let entry_of = |attributes: &[(&str, &str)]| {
        let verdict = local.check_for(attributes, 1);
        let entry = verdict.listed_entry().map(str::to_owned);
        (verdict.listed_by().map(str::to_owned), entry, verdict.is_blocked())
    };
    let listed =
        |by: &str, entry: &str, is_blocked| (Some(by.to_owned()), Some(entry.to_owned()), is_blocked);
    assert_eq!(entry_of(&[("user", "ann")]), listed("user", "ann", false));
    assert_eq!(entry_of(&[("ip", "10.1.2.3")]), listed("ip", "10.0.0.0/8", true));
    assert_eq!(entry_of(&[("ip", "::ffff:192.0.2.1")]), listed("ip", "192.0.2.1", true));
    assert_eq!(entry_of(&[("ip", "2001:db8::7")]), listed("ip", "2001:db8::/48", true));
    assert_eq!(entry_of(&[("endpoint", "/admin/")]), listed("endpoint", "/admin", true));
    assert_eq!(entry_of(&[("user", "bob")]), (None, None, false));
}

/// Without a method it is unknown whether a rule for `GET /a` applies: the rule is not "for other endpoints".
#[test]
fn a_rule_names_the_method_or_the_endpoint_that_the_request_lacks() {
    let local = Local::new(
        "rules: [{id: r, scope: global, endpoints: [GET /a], strategy: {fixed_window: {limit: 9, window: 1h}}}]",
    );
    let reason_for = |attributes: &[(&str, &str)]| {
        let explained = wait_for(local.engine.explain(&Request::new(attributes))).unwrap();
        explained.not_applying().next().map(|rule| rule.reason.clone())
    };
    let missing = |name: &str| Some(NotApplyingReason::MissingAttribute(name.to_owned()));
    assert_eq!(reason_for(&[("endpoint", "/a")]), missing("method"));
    assert_eq!(reason_for(&[("method", "GET")]), missing("endpoint"));
    assert_eq!(reason_for(&[("endpoint", "/b")]), Some(NotApplyingReason::OtherEndpoint));
    assert_eq!(reason_for(&[("endpoint", "/a"), ("method", "POST")]), Some(NotApplyingReason::OtherEndpoint));
    assert_eq!(reason_for(&[("endpoint", "/a"), ("method", "GET")]), None);
}
