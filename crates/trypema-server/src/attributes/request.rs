//! A request that owns its attributes and costs.

use std::ops::Deref;

use trypema::rules::{AttributeSet, Request};

use super::Attributes;
use crate::refusal::Refusal;

/// Costs by unit, each unit once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Costs(Vec<(Box<str>, u64)>);

impl Costs {
    /// The most units that a request may name: all that rules can declare, and `requests`.
    pub(crate) const MAX: usize = 16;

    /// Adds the cost in a unit.
    ///
    /// # Errors
    ///
    /// The unit is given twice, or there are too many units.
    pub(crate) fn add(&mut self, unit: &str, cost: u64) -> Result<(), Refusal> {
        if self.0.len() == Self::MAX {
            return Err(Refusal::invalid(format!("costs in more than {} units", Self::MAX)));
        }
        if self.0.iter().any(|(known, _)| **known == *unit) {
            return Err(Refusal::invalid(format!("the cost in {unit:?} is given twice")));
        }
        self.0.push((unit.into(), cost));
        Ok(())
    }

    /// Returns the costs in the form that the engine accepts.
    pub(crate) fn pairs(&self) -> Vec<(&str, u64)> {
        self.0.iter().map(|(unit, cost)| (&**unit, *cost)).collect()
    }
}

/// One attribute set of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnedSet {
    pub(crate) attributes: Attributes,
    /// The cost in the unit `requests`; 1 if it is not given. The one of `costs` takes precedence.
    pub(crate) requests: Option<u64>,
    pub(crate) costs: Costs,
}

/// A request to the rules: one or several attribute sets.
#[derive(Debug, Clone)]
pub(crate) struct OwnedRequest(OneOrMany<OwnedSet>);

/// The pairs of a request, from which the engine's form of it is borrowed.
#[derive(Debug)]
pub(crate) struct RequestPairs<'r>(OneOrMany<SetPairs<'r>>);

/// The sets of a request. Most have one, which needs no allocation.
#[derive(Debug, Clone)]
pub(crate) enum OneOrMany<T> {
    One([T; 1]),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn map<'s, U>(&'s self, map: impl Fn(&'s T) -> U) -> OneOrMany<U> {
        match self {
            Self::One([one]) => OneOrMany::One([map(one)]),
            Self::Many(many) => OneOrMany::Many(many.iter().map(map).collect()),
        }
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

#[derive(Debug)]
struct SetPairs<'r> {
    attributes: Vec<(&'r str, &'r str)>,
    requests: u64,
    costs: Vec<(&'r str, u64)>,
}

impl From<Vec<OwnedSet>> for OwnedRequest {
    fn from(sets: Vec<OwnedSet>) -> Self {
        Self(OneOrMany::Many(sets))
    }
}

impl From<OwnedSet> for OwnedRequest {
    fn from(set: OwnedSet) -> Self {
        Self(OneOrMany::One([set]))
    }
}

impl OwnedRequest {
    /// Returns the pairs of the request. Together with [`RequestPairs::sets`] and [`request_of`], this is the way
    /// to the engine's form, which borrows from each.
    pub(crate) fn pairs(&self) -> RequestPairs<'_> {
        RequestPairs(self.0.map(|set| SetPairs {
            attributes: set.attributes.iter().collect(),
            requests: set.requests.unwrap_or(1),
            costs: set.costs.pairs(),
        }))
    }
}

impl RequestPairs<'_> {
    pub(crate) fn sets(&self) -> OneOrMany<AttributeSet<'_>> {
        self.0.map(|set| AttributeSet::new(&set.attributes).costing(set.requests).with_costs(&set.costs))
    }
}

/// Returns a request of these sets.
pub(crate) fn request_of<'a>(sets: &'a [AttributeSet<'a>]) -> Request<'a> {
    match sets {
        [only] => Request::from(*only),
        _ => Request::of_sets(sets),
    }
}
