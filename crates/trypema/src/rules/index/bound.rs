//! An upper bound on the number of rules that apply to one request.
//!
//! The bound is the number of rules for all endpoints, plus the largest number of rules on one walk down the
//! tree of endpoints. It considers each method separately, takes the plan and the values of attributes with the
//! most rules at each node, and assumes that a request has every attribute that is part of a key.
//!
//! A path with two readings ([`Path`](crate::rules::endpoint::Path)) walks down the tree twice, so the bound
//! is over two walks. A rule with several endpoints on a walk is counted several times. The bound may
//! therefore be too high, but is never too low.

use std::collections::BTreeSet;

use super::{AttributeIndex, ConditionIndex, Index, Methods, PathNode, Plans};

/// The most methods that are considered separately: more than HTTP defines. With more methods, the one with
/// the most rules at each node counts, which bounds the work.
const MAX_METHODS: usize = 16;

/// The largest number of rules on one walk, and on two walks together.
#[derive(Debug, Clone, Copy, Default)]
struct WalkBound {
    one_walk: usize,
    two_walks: usize,
}

/// The methods that a bound is computed for.
#[derive(Debug, Clone, Copy)]
enum Method<'a> {
    /// A single method, or a request without one.
    Only(Option<&'a str>),
    /// The method with the most rules at each node.
    MostRules,
}

impl Index {
    /// Returns the bound. It is never too low.
    pub(in crate::rules) fn applying_upper_bound(&self) -> usize {
        let mut methods = BTreeSet::new();
        self.root.add_methods(&mut methods);
        let tree = if methods.len() > MAX_METHODS {
            self.root.max_rules(Method::MostRules).two_walks
        } else {
            let each = methods.into_iter().map(Some).chain([None, Some("HEAD")]);
            each.map(|method| self.root.max_rules(Method::Only(method)).two_walks).max().unwrap_or(0)
        };
        self.any_endpoint.max_rules() + tree
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
    fn max_rules(&self, method: Method<'_>) -> WalkBound {
        let any = self.any.as_ref().map(|any| any.max_rules(method)).unwrap_or_default();
        // Two walks continue through the same child, or through the two children with the most rules.
        let (mut first, mut second, mut same) = (0, 0, 0);
        for child in self.children.values().map(|child| child.max_rules(method)) {
            same = same.max(child.two_walks);
            second = second.max(child.one_walk.min(first));
            first = first.max(child.one_walk);
        }
        let prefix = self.prefix.as_ref().map_or(0, |prefix| prefix.max_rules(method));
        let exact = self.exact.max_rules(method);
        let on = any.one_walk + first;
        let both_on = any.two_walks + same.max(first + second);
        WalkBound { one_walk: prefix + exact.max(on), two_walks: prefix + (exact + on).max(both_on) }
    }
}

impl Methods {
    fn max_rules(&self, method: Method<'_>) -> usize {
        let of = |method: &str| self.each.get(method).map_or(0, Plans::max_rules);
        let own = match method {
            Method::Only(None) => 0,
            Method::Only(Some("HEAD")) => of("HEAD") + of("GET"),
            Method::Only(Some(method)) => of(method),
            Method::MostRules => {
                self.each.values().map(Plans::max_rules).max().unwrap_or(0).max(of("HEAD") + of("GET"))
            }
        };
        self.any.max_rules() + own
    }
}

impl Plans {
    fn max_rules(&self) -> usize {
        self.any.max_rules() + self.each.values().map(ConditionIndex::max_rules).max().unwrap_or(0)
    }
}

impl AttributeIndex {
    pub(super) fn len(&self) -> usize {
        self.unconditional.len() + self.groups().map(|group| group.entries.len()).sum::<usize>()
    }
}
