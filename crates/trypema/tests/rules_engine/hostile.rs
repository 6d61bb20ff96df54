//! Values chosen by attackers.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trypema::rules::Request;

use super::Local;

const TWO_PARTS: &str = "
rules:
  - {id: pair, scope: user, key_pattern: \"{a}_{b}\", strategy: {fixed_window: {limit: 1, window: 1h}}}
";

proptest! {
    /// A counter belongs to one pair of values only, whatever bytes they have.
    #[test]
    fn no_two_callers_share_a_counter(pairs in proptest::collection::vec((value(), value()), 1..20)) {
        let local = Local::new(TWO_PARTS);
        let mut keys: BTreeMap<String, (String, String)> = BTreeMap::new();
        for (a, b) in &pairs {
            let verdict = local.check(&[("a", a), ("b", b)]);
            let rule = verdict.rules().next().unwrap();
            let key = rule.key.to_owned();
            prop_assert!(key.len() <= 255 && !key.contains(':') && !key.contains(char::is_control), "{}", key);
            let is_first = keys.get(&key).is_none();
            prop_assert_eq!(rule.decision.is_allowed(), is_first);
            let owner = keys.entry(key).or_insert((a.clone(), b.clone()));
            prop_assert_eq!((&owner.0, &owner.1), (a, b));
        }
    }

    /// However a path is written, its rule applies.
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

/// A path with these segments, written in some way.
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
