//! The index finds the same rules as a linear search.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trypema::rules::{
    AttributeSet, Condition, CounterNumbers, IfMissing, Numbers, Period, Request, Rule, RuleSet, Rules,
    Scope, SkippedRule,
};

const SEGMENTS: [&str; 4] = ["a", "b", "*", "c"];
const PLANS: [&str; 3] = ["free", "pro", "max"];
const ATTRIBUTES: [&str; 4] = ["user", "ip", "key", "plan"];
const METHODS: [&str; 2] = ["GET", "POST"];
/// The attributes that conditions are about.
const CONDITIONED: [&str; 3] = ["user", "key", "model"];
const PATTERNS: [&str; 9] = ["x", "y", "xy", "x*", "*y", "x*y", "*z*", "x*y*", "*x*y"];

fn rule(index: usize, parts: Parts) -> Rule {
    let endpoints = parts.endpoints.iter().map(Endpoint::text).collect();
    let pattern: String = parts.attributes.iter().map(|name| format!("{{{name}}}")).collect();
    let window = Period(std::time::Duration::from_secs(60));
    let scope = if parts.attributes.is_empty() { Scope::Global } else { Scope::User };
    let strategy = Numbers::FixedWindow(CounterNumbers { limit: 1_000, window }.into());
    Rule {
        key_pattern: Some(pattern),
        plan_tiers: parts.plans.iter().map(|plan| (*plan).to_owned()).collect(),
        endpoints,
        if_missing: parts.if_missing,
        priority: parts.priority,
        enabled: parts.is_enabled,
        when: parts.when,
        ..Rule::new(format!("r{index}"), scope, strategy)
    }
}

#[derive(Debug, Clone)]
struct Parts {
    endpoints: Vec<Endpoint>,
    plans: Vec<&'static str>,
    attributes: Vec<&'static str>,
    when: BTreeMap<String, Condition>,
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
        proptest::collection::btree_map(proptest::sample::select(&CONDITIONED[..]), condition(), 0..=2),
        -2..3,
        proptest::bool::weighted(0.9),
        proptest::sample::select(&[IfMissing::Skip, IfMissing::Skip, IfMissing::Deny, IfMissing::Error][..]),
    )
        .prop_map(|(endpoints, plans, attributes, when, priority, is_enabled, if_missing)| Parts {
            endpoints,
            plans,
            when: possible(when, &attributes),
            attributes,
            priority,
            is_enabled,
            if_missing,
        })
}

fn condition() -> impl Strategy<Value = Condition> {
    let pattern = || proptest::sample::select(&PATTERNS[..]).prop_map(str::to_owned);
    prop_oneof![
        4 => proptest::collection::vec(pattern(), 1..=3).prop_map(Condition::OneOf),
        1 => Just(Condition::OneOf(vec!["*".to_owned()])),
        2 => proptest::collection::vec(pattern(), 1..=2).prop_map(Condition::NoneOf),
        1 => Just(Condition::Absent),
    ]
}

/// Returns the conditions that can hold: an attribute of the key cannot be absent.
fn possible(when: BTreeMap<&str, Condition>, attributes: &[&str]) -> BTreeMap<String, Condition> {
    let is_possible =
        |(name, condition): &(&str, Condition)| *condition != Condition::Absent || !attributes.contains(name);
    when.into_iter().filter(is_possible).map(|(name, condition)| (name.to_owned(), condition)).collect()
}

/// The attributes of one set of a request.
#[derive(Debug, Clone)]
struct SetParts {
    path: Option<Vec<&'static str>>,
    method: Option<&'static str>,
    plan: Option<&'static str>,
    values: Vec<(&'static str, &'static str)>,
}

impl SetParts {
    fn attributes<'a>(&'a self, path: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
        let others = [("endpoint", path), ("method", self.method), ("plan", self.plan)];
        let others = others.into_iter().filter_map(|(name, value)| Some((name, value?)));
        self.values.iter().copied().chain(others).collect()
    }

    fn path_text(&self) -> Option<String> {
        self.path.as_ref().map(|path| format!("/{}", path.join("/")))
    }

    fn value(&self, name: &str) -> Option<&str> {
        let value = self.values.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
        if name == "plan" { self.plan } else { value }
    }

    fn has_values(&self, parts: &Parts) -> bool {
        parts.attributes.iter().all(|name| self.value(name).is_some())
    }

    /// Whether endpoints, plans and conditions of a rule match, by a second, simple implementation.
    fn is_targeted(&self, parts: &Parts) -> bool {
        let is_at =
            |path: &Vec<&str>| parts.endpoints.iter().any(|endpoint| endpoint.matches(self.method, path));
        let has_endpoint = parts.endpoints.is_empty() || self.path.as_ref().is_some_and(is_at);
        let has_plan = parts.plans.is_empty() || self.plan.is_some_and(|plan| parts.plans.contains(&plan));
        let holds = |(name, condition): (&String, &Condition)| {
            let value = self.value(name);
            let is_among = |patterns: &[String]| {
                value.is_some_and(|value| patterns.iter().any(|pattern| is_like(pattern, value)))
            };
            match condition {
                Condition::OneOf(patterns) => is_among(patterns),
                Condition::NoneOf(patterns) => !is_among(patterns),
                Condition::Absent => value.is_none(),
            }
        };
        parts.is_enabled && has_endpoint && has_plan && parts.when.iter().all(holds)
    }
}

/// Whether a value is like a pattern of one-byte characters, in which `*` stands for any text.
fn is_like(pattern: &str, value: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => value.is_empty(),
        Some(("*", rest)) => (0..=value.len()).any(|at| is_like(rest, &value[at..])),
        Some((first, rest)) => value.strip_prefix(first).is_some_and(|value| is_like(rest, value)),
    }
}

fn set_parts() -> impl Strategy<Value = SetParts> {
    let segment = proptest::sample::select(&["a", "b", "c", "d"][..]);
    let names = proptest::sample::subsequence(&["user", "ip", "key", "model"][..], 0..=4);
    let value = proptest::sample::select(&["x", "y", "xy", "xzy", "zz", ""][..]);
    (
        proptest::option::weighted(0.9, proptest::collection::vec(segment, 0..5)),
        proptest::option::of(proptest::sample::select(&METHODS[..])),
        proptest::option::of(proptest::sample::select(&["free", "pro", "other"][..])),
        names,
        proptest::collection::vec(value, 4),
    )
        .prop_map(|(path, method, plan, names, values)| SetParts {
            path,
            method,
            plan,
            values: names.into_iter().zip(values).collect(),
        })
}

proptest! {
    #[test]
    fn the_index_finds_what_applies(
        parts in proptest::collection::vec(parts(), 0..40),
        sets in proptest::collection::vec(set_parts(), 1..=2),
    ) {
        let rules: Vec<Rule> = parts.iter().enumerate().map(|(index, parts)| rule(index, parts.clone())).collect();
        let set = RuleSet::compile(&Rules { rules, ..Rules::default() }).unwrap();
        let ids = |is_wanted: &dyn Fn(&Parts) -> bool| {
            let wanted = parts.iter().enumerate().filter(|(_, parts)| is_wanted(parts));
            let mut ids: Vec<_> = wanted.map(|(index, parts)| (parts.priority, format!("r{index}"))).collect();
            ids.sort();
            ids.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
        };
        let is_applying = |parts: &Parts, set: &SetParts| {
            set.is_targeted(parts) && (parts.if_missing != IfMissing::Skip || set.has_values(parts))
        };
        let is_missing = |name: &&'static str| sets.iter().all(|set| set.value(name).is_none());
        let is_skipping = |parts: &Parts| {
            let is_targeted = sets.iter().any(|set| set.is_targeted(parts));
            parts.if_missing == IfMissing::Skip && is_targeted && parts.attributes.iter().any(&is_missing)
        };

        let paths: Vec<Option<String>> = sets.iter().map(SetParts::path_text).collect();
        let attributes: Vec<_> = sets.iter().zip(&paths).map(|(set, path)| set.attributes(path.as_deref())).collect();
        let requested: Vec<AttributeSet<'_>> = attributes.iter().map(|one| AttributeSet::new(one)).collect();
        for (requested, one) in requested.iter().zip(&sets) {
            let request = Request::from(*requested);
            let found: Vec<String> = set.matching(&request).unwrap().map(|rule| rule.id.clone()).collect();
            let bound = set.applying_upper_bound();
            prop_assert!(found.len() <= bound, "{} of {}", found.len(), bound);
            prop_assert_eq!(found, ids(&|parts| is_applying(parts, one)));
        }
        let request = Request::of_sets(&requested);
        let found: Vec<String> = set.matching(&request).unwrap().map(|rule| rule.id.clone()).collect();
        prop_assert_eq!(found, ids(&|parts| sets.iter().any(|one| is_applying(parts, one))));
        let skipped: Vec<String> = set.skipped_rules(&request).unwrap().map(|SkippedRule { rule, .. }| rule.id.clone()).collect();
        prop_assert_eq!(skipped, ids(&is_skipping));
    }
}

#[test]
fn bounds_are_errors_and_nothing_else() {
    let parts = Parts {
        endpoints: vec![],
        plans: vec![],
        attributes: vec![],
        when: BTreeMap::new(),
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
        "a path with several readings"
    );
    assert_eq!(most(&[(40, "GET /api/**"), (40, "POST /api/search")]), 40, "a request has one method");
    assert_eq!(most(&[(3, "HEAD /a"), (4, "GET /a")]), 7, "what serves GET serves HEAD");
    assert_eq!(most(&[(2, "/*/x"), (3, "/a/x"), (50, "/a/y/z")]), 55, "the second reading ends elsewhere");
    let each =
        [(9, "/a"), (9, "/b"), (9, "/c"), (9, "/d"), (9, "/e/*/x"), (9, "/e/y/x"), (8, "/g"), (8, "/h")];
    assert_eq!(most(&each), 62, "a path has at most six readings");
    assert_eq!(most(&[(20, "/**"), (20, "/*"), (20, "/*/*"), (5, "/a/b"), (5, "/a/c"), (1, "/d")]), 71);
    let plans = "
rules:
  - {id: free, scope: global, plan_tiers: [free], strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: paid, scope: global, plan_tiers: [pro, max], strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: all, scope: global, strategy: {fixed_window: {limit: 1, window: 1h}}}
";
    assert_eq!(super::rules(plans).applying_upper_bound(), 2, "a request has one plan");
}
