//! An override for a key of the live rule also applies to its candidates.

use super::super::Local;
use super::told;

const RULES: &str = "
rules:
  - {id: live, scope: tenant, key_pattern: '{api_key} {ip}', strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: next, scope: tenant, key_pattern: '{ip}: {api_key}', candidate_for: live, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: bucket, scope: tenant, key_pattern: '{ip}: {api_key}', candidate_for: live, strategy: {token_bucket: {limit: 2, window: 1h}}}
  - {id: wide, scope: tenant, key_pattern: '{api_key}', candidate_for: live, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: apart, scope: tenant, key_pattern: '{api_key} {ip}', action: log_only, strategy: {fixed_window: {limit: 2, window: 1h}}}
overrides:
  - {rule: next, key: {api_key: own, ip: 10.0.0.1}, verdict: block}
  - {rule: live, key: {api_key: own, ip: 10.0.0.1}, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {rule: live, key: {api_key: more, ip: '2001:db8::7'}, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {rule: live, key: {api_key: leaked, ip: 10.0.0.1}, verdict: block}
  - {rule: live, key: {api_key: partner, ip: 10.0.0.1}, verdict: allow}
";

/// The comparisons of one candidate over four requests.
fn signs(local: &Local, candidate: &str, key: [&str; 2]) -> Vec<String> {
    let mut signs = Vec::new();
    for _ in 0..4 {
        let told = told(&local.check(&[("api_key", key[0]), ("ip", key[1])]));
        let mut words = told.split(' ').skip_while(|word| *word != candidate);
        signs.push(words.nth(1).unwrap_or("none").to_owned());
    }
    signs
}

#[test]
fn limits_and_verdicts_of_single_keys_are_no_difference() {
    let of_key = |candidate: &str, key: [&str; 2]| signs(&Local::new(RULES), candidate, key).join(" ");
    let plain = ["other", "10.0.0.1"];
    assert_eq!(["next", "bucket", "wide"].map(|id| of_key(id, plain)), ["++ -+ -- --"; 3]);

    let more = ["more", "2001:db8::9"];
    assert_eq!(of_key("next", more), "++ ++ ++ --", "the same network");
    assert_eq!(of_key("bucket", more), "++ ++ +- --", "another strategy has other numbers");
    assert_eq!(of_key("wide", more), "++ ++ +- --", "other placeholders are other keys");

    let leaked = ["leaked", "10.0.0.1"];
    assert_eq!(["next", "bucket"].map(|id| of_key(id, leaked)), ["-- -- -- --"; 2]);
    assert_eq!(of_key("wide", leaked), "-+ -+ -- --");

    let partner = ["partner", "10.0.0.1"];
    assert_eq!(["next", "bucket"].map(|id| of_key(id, partner)), ["none none none none"; 2]);
    assert_eq!(of_key("wide", partner), "++ ++ +- +-");
    let local = Local::new(RULES);
    let of_log = local.check(&[("api_key", "leaked"), ("ip", "10.0.0.1")]);
    assert!(
        of_log.rules().any(|rule| rule.rule.id == "apart" && rule.decision.is_allowed()),
        "it is no candidate"
    );
}

#[test]
fn what_a_candidate_has_itself_goes_before() {
    assert_eq!(signs(&Local::new(RULES), "next", ["own", "10.0.0.1"]).join(" "), "+- +- +- --");
    assert_eq!(signs(&Local::new(RULES), "bucket", ["own", "10.0.0.1"]).join(" "), "++ ++ +- --");
}
