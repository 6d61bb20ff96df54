//! An upper bound on the number of checks that one request needs.
//!
//! The bound is the number of rules for all endpoints, plus the largest number of rules on one walk down the
//! tree of endpoints. It considers each method separately, takes the plan and the values of attributes with the
//! most rules at each node, and assumes that a request has every attribute that is part of a key.
//!
//! A path with several readings ([`Path`](crate::rules::endpoint::Path)) walks down the tree once for each, so
//! the bound is over as many walks. Of the rules without endpoints, those that count by endpoint are checked for
//! each reading. A rule with several endpoints on the walks is counted several times. The bound may therefore be
//! too high, but is never too low.

use std::collections::BTreeSet;

use super::{AttributeIndex, ConditionIndex, Index, Methods, PathNode, Plans};
use crate::rules::endpoint::MAX_READINGS;

/// The most methods that are considered separately: more than HTTP defines. With more methods, the one with
/// the most rules at each node counts, which bounds the work.
const MAX_METHODS: usize = 16;

/// The largest number of checks on at most this many walks, by their number.
type WalkBounds = [usize; MAX_READINGS + 1];

/// The methods that a bound is computed for.
#[derive(Debug, Clone, Copy)]
enum Method<'a> {
    /// A single method, or a request without one.
    Only(Option<&'a str>),
    /// The method with the most rules at each node.
    MostRules,
}

/// Returns the number of checks that a rule needs.
pub(super) type ChecksOf<'a> = &'a dyn Fn(u32) -> usize;

/// A rule with endpoints counts all readings that match one of them under that endpoint.
const ONE_CHECK: ChecksOf<'static> = &|_| 1;

impl Index {
    /// Returns the bound. It is never too low.
    pub(in crate::rules) fn applying_upper_bound(&self, counts_by_endpoint: &dyn Fn(u32) -> bool) -> usize {
        let mut methods = BTreeSet::new();
        self.root.add_methods(&mut methods);
        let of_method = |method| self.root.max_checks(method)[MAX_READINGS];
        let tree = if methods.len() > MAX_METHODS {
            of_method(Method::MostRules)
        } else {
            let each = methods.into_iter().map(Some).chain([None, Some("HEAD")]);
            each.map(|method| of_method(Method::Only(method))).max().unwrap_or(0)
        };
        let of_rule = |rule| if counts_by_endpoint(rule) { MAX_READINGS } else { 1 };
        self.any_endpoint.max_checks(&of_rule) + tree
    }
}

impl PathNode {
    fn add_methods<'a>(&'a self, methods: &mut BTreeSet<&'a str>) {
        let of_node = self.prefix.as_deref().into_iter().chain([&self.exact]);
        let names = of_node.flat_map(|methods| methods.each.keys());
        methods.extend(names.map(|method| &**method));
        self.any.iter().for_each(|any| any.add_methods(methods));
        self.children.values().for_each(|child| child.add_methods(methods));
    }

    /// Recursive; the depth is bounded by the length of the longest pattern.
    fn max_checks(&self, method: Method<'_>) -> WalkBounds {
        let any = self.any.as_ref().map(|any| any.max_checks(method)).unwrap_or_default();
        // The walks that go on, shared out to the children so that they find the most.
        let mut on = WalkBounds::default();
        for child in self.children.values().map(|child| child.max_checks(method)) {
            for walks in (1..on.len()).rev() {
                let shared = |through: usize| on[walks - through] + child[through];
                on[walks] = (1..=walks).map(shared).max().unwrap_or(0).max(on[walks]);
            }
        }
        let prefix = self.prefix.as_ref().map_or(0, |prefix| prefix.max_checks(method));
        let exact = self.exact.max_checks(method);
        let below = |walks: usize| any[walks] + on[walks];
        std::array::from_fn(|walks| match walks.checked_sub(1) {
            None => 0,
            // Either all walks go on, or one ends here.
            Some(others) => prefix + below(walks).max(exact + below(others)),
        })
    }
}

impl Methods {
    fn max_checks(&self, method: Method<'_>) -> usize {
        let of = |method: &str| self.each.get(method).map_or(0, |plans| plans.max_checks(ONE_CHECK));
        let own = match method {
            Method::Only(None) => 0,
            Method::Only(Some("HEAD")) => of("HEAD") + of("GET"),
            Method::Only(Some(method)) => of(method),
            Method::MostRules => {
                let most = self.each.values().map(|plans| plans.max_checks(ONE_CHECK)).max();
                most.unwrap_or(0).max(of("HEAD") + of("GET"))
            }
        };
        self.any.max_checks(ONE_CHECK) + own
    }
}

impl Plans {
    fn max_checks(&self, checks_of: ChecksOf<'_>) -> usize {
        let of_plan = |plan: &ConditionIndex| plan.max_checks(checks_of);
        of_plan(&self.any) + self.each.values().map(of_plan).max().unwrap_or(0)
    }
}

impl AttributeIndex {
    pub(super) fn max_checks(&self, checks_of: ChecksOf<'_>) -> usize {
        let groups = self.groups().flat_map(|group| &group.entries);
        self.unconditional.iter().chain(groups).map(|entry| checks_of(entry.rule)).sum()
    }
}
