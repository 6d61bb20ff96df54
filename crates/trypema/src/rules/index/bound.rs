//! An upper bound on the rules that apply to one request.
//!
//! The bound counts the rules filed for all endpoints and adds the fullest way down the tree of endpoints. It considers
//! each method on its own, takes the fullest plan at each place, and assumes that a request has every attribute. A path
//! that servers read in two ways ([`Path`](crate::rules::endpoint::Path)) goes down the tree twice, so the bound is over
//! two ways at once. A rule with several endpoints on the way counts several times: the bound may be too high, never too
//! low.

use std::collections::BTreeSet;

use super::{Filed, Index, Methods, Node, Plans};

/// Methods that are considered one by one: more than HTTP has. Beyond that the fullest method at each place counts,
/// which bounds the work.
const MAX_METHODS: usize = 16;

/// Rules on the way of one path, and of two paths together.
#[derive(Debug, Clone, Copy, Default)]
struct Most {
    one: usize,
    two: usize,
}

/// Which methods a request has.
#[derive(Debug, Clone, Copy)]
enum Method<'a> {
    /// This one, or none.
    Only(Option<&'a str>),
    /// The fullest one at each place.
    Fullest,
}

impl Index {
    /// The most rules that can apply to one request; never too low.
    pub(in crate::rules) fn most_applying(&self) -> usize {
        let mut methods = BTreeSet::new();
        self.root.add_methods(&mut methods);
        let tree = if methods.len() > MAX_METHODS {
            self.root.most(Method::Fullest).two
        } else {
            let each = methods.into_iter().map(Some).chain([None, Some("HEAD")]);
            each.map(|method| self.root.most(Method::Only(method)).two).max().unwrap_or(0)
        };
        self.everywhere.most() + tree
    }
}

impl Node {
    fn add_methods<'a>(&'a self, methods: &mut BTreeSet<&'a str>) {
        let here = self.here.each.keys().chain(self.below.each.keys());
        methods.extend(here.map(|method| &**method));
        self.any.iter().for_each(|any| any.add_methods(methods));
        self.children.values().for_each(|child| child.add_methods(methods));
    }

    /// The tree is at most as deep as a pattern is long, which is bounded.
    fn most(&self, method: Method<'_>) -> Most {
        let any = self.any.as_ref().map(|any| any.most(method)).unwrap_or_default();
        // Two paths go on through the same child, or through the two fullest ones.
        let (mut first, mut second, mut same) = (0, 0, 0);
        for child in self.children.values().map(|child| child.most(method)) {
            same = same.max(child.two);
            second = second.max(child.one.min(first));
            first = first.max(child.one);
        }
        let (below, here) = (self.below.most(method), self.here.most(method));
        let on = any.one + first;
        let both_on = any.two + same.max(first + second);
        Most { one: below + here.max(on), two: below + (here + on).max(both_on) }
    }
}

impl Methods {
    fn most(&self, method: Method<'_>) -> usize {
        let of = |method: &str| self.each.get(method).map_or(0, Plans::most);
        let own = match method {
            Method::Only(None) => 0,
            Method::Only(Some("HEAD")) => of("HEAD") + of("GET"),
            Method::Only(Some(method)) => of(method),
            Method::Fullest => {
                self.each.values().map(Plans::most).max().unwrap_or(0).max(of("HEAD") + of("GET"))
            }
        };
        self.any.most() + own
    }
}

impl Plans {
    fn most(&self) -> usize {
        self.any.len() + self.each.values().map(Filed::len).max().unwrap_or(0)
    }
}

impl Filed {
    fn len(&self) -> usize {
        let groups = self.by_attribute.iter().flat_map(|(_, groups)| groups);
        self.plain.len() + groups.map(|group| group.entries.len()).sum::<usize>()
    }
}
