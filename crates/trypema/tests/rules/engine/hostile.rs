//! Attribute values that attackers choose.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trypema::rules::Request;

use super::Local;

const TWO_PARTS: &str = "
rules:
  - {id: pair, scope: user, key_pattern: \"{a}_{b}\", strategy: {fixed_window: {limit: 1, window: 1h}}}
";

proptest! {
    /// A counter belongs to one pair of values, whatever bytes they contain.
    #[test]
    fn no_two_callers_share_a_counter(pairs in proptest::collection::vec((value(), value()), 1..20)) {
        let local = Local::new(TWO_PARTS);
        let mut keys: BTreeMap<String, (String, String)> = BTreeMap::new();
        for (a, b) in &pairs {
            let verdict = local.check(&[("a", a), ("b", b)]);
            let rule = verdict.rules().next().unwrap();
            let key = rule.key.to_owned();
            prop_assert!(key.len() <= 255 && !key.contains(char::is_control), "{}", key);
            let is_first = !keys.contains_key(&key);
            prop_assert_eq!(rule.decision.is_allowed(), is_first);
            let owner = keys.entry(key).or_insert((a.clone(), b.clone()));
            prop_assert_eq!((&owner.0, &owner.1), (a, b));
        }
    }

    /// A rule applies to every spelling of its path.
    #[test]
    fn no_spelling_of_a_path_gets_around_a_rule(spelling in spelling_of(&["api", "search"])) {
        let local = Local::new("
rules:
  - {id: search, scope: endpoint, endpoints: [/api/search], strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: each, scope: endpoint, strategy: {fixed_window: {limit: 1, window: 1h}}}
");
        prop_assert!(local.check(&[("endpoint", "/api/search")]).is_allowed());
        let denied = local.check(&[("endpoint", &spelling)]);
        let denying = denied.rules().filter(|rule| rule.is_denying()).count();
        prop_assert_eq!(denying, 2, "{}", spelling);
    }

    #[test]
    fn no_request_panics(
        attributes in proptest::collection::vec((any::<String>(), any::<String>()), 0..40),
        path in any::<String>(),
        cost in any::<u64>(),
    ) {
        let local = Local::new(TWO_PARTS);
        let mut given: Vec<(&str, &str)> = attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        given.extend([("endpoint", path.as_str()), ("a", "x"), ("b", path.as_str())]);
        let _ = local.engine.try_check(&Request::new(&given).costing(cost));
    }
}

#[test]
fn a_wildcard_is_one_counter() {
    let local = Local::new(
        "
rules:
  - {id: posts, scope: endpoint, endpoints: [/users/*/posts], strategy: {fixed_window: {limit: 2, window: 1h}}}
",
    );
    let admitted =
        (0..100).filter(|user| local.check(&[("endpoint", &format!("/users/{user}/posts"))]).is_allowed());
    assert_eq!(admitted.count(), 2, "nobody gets a new counter by making up a path");
}

/// Some routers resolve dot segments and some do not: the rule applies either way.
#[test]
fn dots_in_a_path_get_around_no_rule() {
    let local = Local::new(
        "
rules:
  - {id: files, scope: global, endpoints: [/files/**, '/search/{query}'], strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    assert!(local.check(&[("endpoint", "/files/a")]).is_allowed());
    for path in ["/files/../b", "/files/%2e%2e/b", "/b/../files/c", "/search/..", "/search/%2E", "/files%2Fa"]
    {
        assert!(!local.check(&[("endpoint", path)]).is_allowed(), "{path}");
    }
}

#[test]
fn what_serves_get_serves_head() {
    let local = Local::new(
        "
rules:
  - {id: get, scope: global, endpoints: [GET /x], strategy: {fixed_window: {limit: 1, window: 1h}}}
",
    );
    assert!(local.check(&[("endpoint", "/x"), ("method", "HEAD")]).is_allowed());
    assert!(!local.check(&[("endpoint", "/x"), ("method", "GET")]).is_allowed());
    assert!(local.check(&[("endpoint", "/x"), ("method", "POST")]).is_allowed());
}

#[test]
fn addresses_are_counted_and_listed_however_they_are_written() {
    let local = Local::new(
        "
rules:
  - {id: ip, scope: ip, strategy: {fixed_window: {limit: 1, window: 1h}}}
overrides:
  - {rule: ip, key: {ip: '2001:db8:9::1'}, verdict: allow}
block: {ip: [203.0.113.0/24, '2001:db8:bad::1'], endpoint: [/admin]}
allow: {ip: ['10.0.0.0/8', '2001:db8:6::/48', '2001:db8:7::1'], endpoint: [/healthz]}
",
    );
    let is_allowed = |ip: &str| local.check(&[("ip", ip)]).is_allowed();
    assert!(is_allowed("1.2.3.4") && !is_allowed("::ffff:1.2.3.4"));
    let in_one_network = (0..10_000).filter(|host| is_allowed(&format!("2001:db8:1:2::{host:x}"))).count();
    assert_eq!(in_one_network, 1);
    assert!(is_allowed("2001:db8:1:3::1"), "the neighbour");
    assert!(!is_allowed("2001:db8:1:2::/64"), "as the middleware writes it");
    assert!((0..9).all(|host| is_allowed(&format!("2001:db8:9::{host}"))), "the override is for the network");

    for blocked in ["203.0.113.9", "::ffff:203.0.113.9", "2001:db8:bad::1", "2001:db8:bad::/64"] {
        assert_eq!(local.check(&[("ip", blocked)]).listed_by(), Some("ip"), "{blocked}");
        assert!(!is_allowed(blocked));
    }
    let is_listed = |ip: &str| local.check(&[("ip", ip)]).listed_by().is_some();
    assert!(is_listed("10.9.9.9") && is_listed("2001:db8:6:1::5") && is_listed("2001:db8:7::1"));
    assert!(!is_listed("2001:db8:7::/64"), "one address of a network says nothing about the others");
    for path in ["/admin/", "//admin", "/%61dmin", "/admin?x", "/healthz/../admin"] {
        assert!(!local.check(&[("endpoint", path)]).is_allowed(), "{path}");
    }
    assert_eq!(local.check(&[("endpoint", "/healthz/")]).listed_by(), Some("endpoint"));
    assert_eq!(local.check(&[("endpoint", "/x/../healthz")]).listed_by(), None, "in doubt it is not allowed");
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab_|=~:{}%/\r\n<>\"]{0,4}",
        Just("a_b".to_owned()),
        Just("b_c".to_owned()),
        Just("~7c".to_owned()),
        "[ab]{300}",
        any::<String>(),
    ]
}

/// A random spelling of a path with these segments.
fn spelling_of(segments: &'static [&'static str]) -> impl Strategy<Value = String> {
    let noise =
        || prop_oneof![Just("/"), Just("//"), Just("/./"), Just("/x/../"), Just("/%2e/"), Just("/y/%2E%2e/")];
    let written = |segment: &'static str| {
        proptest::collection::vec(any::<bool>(), segment.len()).prop_map(move |is_encoded| {
            let bytes = segment.bytes().zip(is_encoded);
            bytes
                .map(
                    |(byte, is_encoded)| {
                        if is_encoded { format!("%{byte:02x}") } else { (byte as char).to_string() }
                    },
                )
                .collect::<String>()
        })
    };
    let all: Vec<_> = segments.iter().map(|segment| (noise(), written(segment))).collect();
    let ends = prop_oneof![Just(""), Just("/"), Just("//"), Just("?q=/other"), Just("#x"), Just("/.")];
    (all, ends).prop_map(|(all, end)| {
        let path: String = all.iter().map(|(noise, segment)| format!("{noise}{segment}")).collect();
        format!("{path}{end}")
    })
}
