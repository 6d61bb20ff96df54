//! The index finds the same rules as a linear search.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trypema::rules::{
    Action, CounterNumbers, IfMissing, Numbers, Period, Request, Rule, RuleSet, Rules, Scope, SkippedRule,
};

const SEGMENTS: [&str; 4] = ["a", "b", "*", "c"];
const PLANS: [&str; 3] = ["free", "pro", "max"];
const ATTRIBUTES: [&str; 4] = ["user", "ip", "key", "plan"];
const METHODS: [&str; 2] = ["GET", "POST"];

fn rule(index: usize, parts: Parts) -> Rule {
    let endpoints = parts.endpoints.iter().map(Endpoint::text).collect();
    let pattern: String = parts.attributes.iter().map(|name| format!("{{{name}}}")).collect();
    let window = Period(std::time::Duration::from_secs(60));
    Rule {
        id: format!("r{index}"),
        name: None,
        scope: if parts.attributes.is_empty() { Scope::Global } else { Scope::User },
        key_pattern: Some(pattern),
        strategy: Numbers::FixedWindow(CounterNumbers { limit: 1_000, window }.into()),
        plan_tiers: parts.plans.iter().map(|plan| (*plan).to_owned()).collect(),
        endpoints,
        action: Action::Reject,
        max_delay: None,
        if_missing: parts.if_missing,
        on_store_failure: None,
        priority: parts.priority,
        enabled: parts.is_enabled,
        candidate_for: None,
        share: None,
        unit: None,
        postpaid: false,
        when: BTreeMap::new(),
    }
}

#[derive(Debug, Clone)]
struct Parts {
    endpoints: Vec<Endpoint>,
    plans: Vec<&'static str>,
    attributes: Vec<&'static str>,
    priority: i32,
    is_enabled: bool,
    if_missing: IfMissing,
}

#[derive(Debug, Clone)]
struct Endpoint {
    method: Option<&'static str>,
    segments: Vec<&'static str>,
    is_open: bool,
}

impl Endpoint {
    fn text(&self) -> String {
        let method = self.method.map_or(String::new(), |method| format!("{method} "));
        let path: String = self.segments.iter().map(|segment| format!("/{segment}")).collect();
        let rest = if self.is_open { "/**" } else { "" };
        let path = format!("{path}{rest}");
        format!("{method}{}", if path.is_empty() { "/" } else { &path })
    }

    /// Matches an endpoint by a second, simple implementation.
    fn matches(&self, method: Option<&str>, path: &[&str]) -> bool {
        let is_method = self.method.is_none() || self.method == method;
        let is_long_enough =
            if self.is_open { path.len() >= self.segments.len() } else { path.len() == self.segments.len() };
        let is_same = self.segments.iter().zip(path).all(|(wanted, given)| *wanted == "*" || wanted == given);
        is_method && is_long_enough && is_same
    }
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let segments = proptest::collection::vec(proptest::sample::select(&SEGMENTS[..]), 0..4);
    (proptest::option::weighted(0.3, proptest::sample::select(&METHODS[..])), segments, any::<bool>())
        .prop_map(|(method, segments, is_open)| Endpoint { method, segments, is_open })
}

fn parts() -> impl Strategy<Value = Parts> {
    (
        proptest::collection::vec(endpoint(), 0..3),
        proptest::sample::subsequence(&PLANS[..], 0..=2),
        proptest::sample::subsequence(&ATTRIBUTES[..], 0..=2),
        -2..3,
        proptest::bool::weighted(0.9),
        proptest::sample::select(&[IfMissing::Skip, IfMissing::Skip, IfMissing::Deny, IfMissing::Error][..]),
    )
        .prop_map(|(endpoints, plans, attributes, priority, is_enabled, if_missing)| Parts {
            endpoints,
            plans,
            attributes,
            priority,
            is_enabled,
            if_missing,
        })
}

proptest! {
    #[test]
    fn the_index_finds_what_applies(
        parts in proptest::collection::vec(parts(), 0..40),
        path in proptest::option::weighted(0.9, proptest::collection::vec(proptest::sample::select(&["a", "b", "c", "d"][..]), 0..5)),
        method in proptest::option::of(proptest::sample::select(&METHODS[..])),
        plan in proptest::option::of(proptest::sample::select(&["free", "pro", "other"][..])),
        given in proptest::sample::subsequence(&["user", "ip", "key"][..], 0..=3),
    ) {
        let rules: Vec<Rule> = parts.iter().enumerate().map(|(index, parts)| rule(index, parts.clone())).collect();
        let set = RuleSet::compile(&Rules { rules, ..Rules::default() }).unwrap();

        let path_text = path.as_ref().map(|path| format!("/{}", path.join("/")));
        let mut attributes: Vec<(&str, &str)> = given.iter().map(|name| (*name, "x")).collect();
        attributes.extend(path_text.as_deref().map(|path| ("endpoint", path)));
        attributes.extend(method.map(|method| ("method", method)));
        attributes.extend(plan.map(|plan| ("plan", plan)));

        let has_values = |parts: &Parts| parts.attributes.iter().all(|name| attributes.iter().any(|(given, _)| given == name));
        let is_targeted = |parts: &Parts| {
            let has_endpoint = parts.endpoints.is_empty()
                || path.as_ref().is_some_and(|path| parts.endpoints.iter().any(|endpoint| endpoint.matches(method, path)));
            let has_plan = parts.plans.is_empty() || plan.is_some_and(|plan| parts.plans.contains(&plan));
            parts.is_enabled && has_endpoint && has_plan
        };
        let ids = |is_wanted: &dyn Fn(&Parts) -> bool| {
            let wanted = parts.iter().enumerate().filter(|(_, parts)| is_targeted(parts) && is_wanted(parts));
            let mut ids: Vec<_> = wanted.map(|(index, parts)| (parts.priority, format!("r{index}"))).collect();
            ids.sort();
            ids.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
        };
        let request = Request::new(&attributes);
        let found: Vec<String> = set.matching(&request).unwrap().map(|rule| rule.id.clone()).collect();
        prop_assert!(found.len() <= set.applying_upper_bound(), "{} of {}", found.len(), set.applying_upper_bound());
        prop_assert_eq!(found, ids(&|parts| parts.if_missing != IfMissing::Skip || has_values(parts)));
        let skipped: Vec<String> = set.skipped_rules(&request).unwrap().map(|SkippedRule { rule, .. }| rule.id.clone()).collect();
        prop_assert_eq!(skipped, ids(&|parts| parts.if_missing == IfMissing::Skip && !has_values(parts)));
    }
}

#[test]
fn bounds_are_errors_and_nothing_else() {
    let parts = Parts {
        endpoints: vec![],
        plans: vec![],
        attributes: vec![],
        priority: 0,
        is_enabled: true,
        if_missing: IfMissing::Skip,
    };
    let many = |count| {
        let rules = (0..count).map(|index| rule(index, parts.clone())).collect();
        RuleSet::compile(&Rules { rules, ..Rules::default() }).unwrap()
    };
    assert_eq!(many(64).matching(&Request::new(&[])).unwrap().count(), 64);
    assert_eq!((many(64).applying_upper_bound(), many(65).applying_upper_bound()), (64, 65));
    let error = many(65).matching(&Request::new(&[])).err().unwrap();
    assert_eq!(error.to_string(), "invalid request: more than 64 rules apply to this request");
    let attributes = vec![("a", "b"); 33];
    let error = many(1).matching(&Request::new(&attributes)).err().unwrap();
    assert_eq!(error.to_string(), "invalid request: 33 attributes: at most 32 are allowed");
}

/// The bound is that of the request with the most rules. Rules that no single request can match are not added
/// up.
#[test]
fn the_bound_on_rules_of_one_request_is_close() {
    let most = |endpoints: &[(usize, &str)]| {
        let each = endpoints.iter().flat_map(|(count, endpoint)| std::iter::repeat_n(*endpoint, *count));
        let rules: String = each
            .enumerate()
            .map(|(index, endpoint)| {
                let strategy = "strategy: {fixed_window: {limit: 1, window: 1h}}";
                format!("  - {{id: r{index}, scope: global, endpoints: ['{endpoint}'], {strategy}}}\n")
            })
            .collect();
        super::rules(&format!("rules:\n{rules}")).applying_upper_bound()
    };
    assert_eq!(
        most(&[(40, "/api/**"), (30, "/api/search"), (30, "/other")]),
        100,
        "a path with two readings"
    );
    assert_eq!(most(&[(40, "GET /api/**"), (40, "POST /api/search")]), 40, "a request has one method");
    assert_eq!(most(&[(3, "HEAD /a"), (4, "GET /a")]), 7, "what serves GET serves HEAD");
    assert_eq!(most(&[(2, "/*/x"), (3, "/a/x"), (50, "/a/y/z")]), 55, "the second reading ends elsewhere");
    assert_eq!(most(&[(30, "/a"), (30, "/b"), (30, "/c")]), 60, "a request has at most two paths");
    let plans = "
rules:
  - {id: free, scope: global, plan_tiers: [free], strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: paid, scope: global, plan_tiers: [pro, max], strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: all, scope: global, strategy: {fixed_window: {limit: 1, window: 1h}}}
";
    assert_eq!(super::rules(plans).applying_upper_bound(), 2, "a request has one plan");
}
