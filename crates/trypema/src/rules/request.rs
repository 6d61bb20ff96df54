//! Requests to rules: attribute sets, and the costs of each set.

use std::borrow::Cow;
use std::slice;

use super::endpoint::{MAX_READINGS, Path, upper_case_method};
use crate::error::TrypemaError;

/// The unit that every set of rules has. A rule without a unit counts it.
pub(crate) const REQUESTS: &str = "requests";

/// The most attributes of a request, in all of its sets together: more than a request needs, and few enough
/// for a linear search.
pub(super) const MAX_ATTRIBUTES: usize = 32;

/// The most attribute sets of a request.
pub(super) const MAX_SETS: usize = 32;

/// Attributes of a request, such as `user`, `ip` and `api_key`, and the costs that they are counted with.
///
/// ```
/// use trypema::rules::AttributeSet;
///
/// let set = AttributeSet::new(&[("user", "ann")]).with_costs(&[("tokens", 4_200)]);
/// assert_eq!((set.cost_of("requests"), set.cost_of("tokens")), (Some(1), Some(4_200)));
/// assert_eq!(set.cost_of("usd_micros"), None);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct AttributeSet<'a> {
    attributes: &'a [(&'a str, &'a str)],
    /// The cost in the unit `requests`.
    requests: u64,
    /// The costs in other units.
    costs: &'a [(&'a str, u64)],
}

impl<'a> AttributeSet<'a> {
    /// Creates a set that costs one request. If a name occurs twice, the first value counts.
    pub fn new(attributes: &'a [(&'a str, &'a str)]) -> Self {
        Self { attributes, requests: 1, costs: &[] }
    }

    /// Returns the same set at another cost in the unit `requests`.
    #[must_use]
    pub fn costing(self, requests: u64) -> Self {
        Self { requests, ..self }
    }

    /// Returns the same set with costs in units that the rules declare. If a unit occurs twice, the first
    /// cost counts. Unless `requests` is among them, its cost stays as it is.
    #[must_use]
    pub fn with_costs(self, costs: &'a [(&'a str, u64)]) -> Self {
        let requests = cost_in(costs, REQUESTS).unwrap_or(self.requests);
        Self { requests, costs, ..self }
    }

    /// Returns the value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// Returns all attributes, in the order in which they were given.
    pub fn attributes(&self) -> &'a [(&'a str, &'a str)] {
        self.attributes
    }

    /// Returns the cost in a unit, if the set names that unit. Every set has a cost in `requests`.
    pub fn cost_of(&self, unit: &str) -> Option<u64> {
        if unit == REQUESTS { Some(self.requests) } else { cost_in(self.costs, unit) }
    }

    /// Returns the units that the set names, except `requests`.
    pub(super) fn named_units(&self) -> impl Iterator<Item = &'a str> {
        self.costs.iter().map(|(unit, _)| *unit).filter(|unit| *unit != REQUESTS)
    }
}

fn cost_in(costs: &[(&str, u64)], unit: &str) -> Option<u64> {
    costs.iter().find(|(given, _)| *given == unit).map(|(_, cost)| *cost)
}

/// A request: one attribute set, or several that are checked together, all or nothing.
///
/// Three attributes have a special meaning: `endpoint` is the path, which is matched with the rules'
/// endpoints; `method` is the HTTP method; and `plan` is the client's plan. Like all other attributes, they
/// can be placeholders. A path that servers read in several ways matches by each of them; one with more than
/// six readings is an [error](TrypemaError::AmbiguousPath).
///
/// ```
/// use trypema::rules::Request;
///
/// let request = Request::new(&[("endpoint", "/api/search"), ("plan", "free"), ("user", "ann")]).costing(2);
/// assert_eq!((request.attribute("user"), request.cost_of("requests")), (Some("ann"), 2));
/// ```
///
/// Each set matches rules on its own, and its cost is spent on these rules. If several sets use the same
/// counter, the request spends the sum of their costs on it:
///
/// ```
/// use trypema::rules::{AttributeSet, Request};
///
/// let sets = [
///     AttributeSet::new(&[("user", "ann")]).with_costs(&[("tokens", 300)]),
///     AttributeSet::new(&[("tenant", "acme")]).with_costs(&[("tokens", 20)]),
/// ];
/// let request = Request::of_sets(&sets);
/// assert_eq!((request.attribute("tenant"), request.cost_of("tokens")), (Some("acme"), 320));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Request<'a>(Sets<'a>);

#[derive(Debug, Clone, Copy)]
enum Sets<'a> {
    One(AttributeSet<'a>),
    Many(&'a [AttributeSet<'a>]),
}

impl<'a> Request<'a> {
    /// Creates a request of one attribute set that costs one request. If a name occurs twice, the first
    /// value counts.
    pub fn new(attributes: &'a [(&'a str, &'a str)]) -> Self {
        AttributeSet::new(attributes).into()
    }

    /// Creates a request of several attribute sets. A request without any set matches no rule.
    pub fn of_sets(sets: &'a [AttributeSet<'a>]) -> Self {
        Self(Sets::Many(sets))
    }

    /// Returns the same request at another cost in the unit `requests`. Does nothing to a request
    /// [of several sets](Self::of_sets), which have their own costs.
    #[must_use]
    pub fn costing(self, requests: u64) -> Self {
        self.map(|set| set.costing(requests))
    }

    /// Returns the same request with costs in units that the rules declare, as
    /// [`AttributeSet::with_costs`] does. Does nothing to a request [of several sets](Self::of_sets).
    #[must_use]
    pub fn with_costs(self, costs: &'a [(&'a str, u64)]) -> Self {
        self.map(|set| set.with_costs(costs))
    }

    fn map(self, change: impl FnOnce(AttributeSet<'a>) -> AttributeSet<'a>) -> Self {
        match self.0 {
            Sets::One(set) => change(set).into(),
            Sets::Many(_) => self,
        }
    }

    /// Returns the attribute sets.
    pub fn sets(&self) -> &[AttributeSet<'a>] {
        match &self.0 {
            Sets::One(set) => slice::from_ref(set),
            Sets::Many(sets) => sets,
        }
    }

    /// Returns the cost in a unit: the sum of the costs of all sets. 0 if no set names the unit.
    pub fn cost_of(&self, unit: &str) -> u64 {
        let costs = self.sets().iter().filter_map(|set| set.cost_of(unit));
        costs.fold(0, u64::saturating_add)
    }

    /// Returns the value of an attribute in the first set that has it.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.sets().iter().find_map(|set| set.attribute(name))
    }

    /// Returns the attributes of all sets, in the order in which they were given.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.sets().iter().flat_map(|set| set.attributes()).copied()
    }

    /// Fails if the request has too many sets or attributes.
    pub(super) fn check_bounds(&self) -> Result<(), TrypemaError> {
        if self.sets().len() > MAX_SETS {
            let reason = format!("more than {MAX_SETS} attribute sets");
            return Err(TrypemaError::InvalidRequest { reason });
        }
        let count: usize = self.sets().iter().map(|set| set.attributes.len()).sum();
        if count > MAX_ATTRIBUTES {
            let reason = format!("{count} attributes: at most {MAX_ATTRIBUTES} are allowed");
            return Err(TrypemaError::InvalidRequest { reason });
        }
        Ok(())
    }
}

impl<'a> From<AttributeSet<'a>> for Request<'a> {
    fn from(set: AttributeSet<'a>) -> Self {
        Self(Sets::One(set))
    }
}

/// An attribute set, prepared for lookups in a rule set.
#[derive(Debug)]
pub(super) struct IndexedSet<'a> {
    set: AttributeSet<'a>,
    /// The attributes that the rule set uses: the number of each, and its index in the set.
    numbered: [(u16, u8); MAX_ATTRIBUTES],
    len: usize,
    /// The method in upper case.
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) plan: Option<&'a str>,
    pub(super) path: Option<Path<'a>>,
}

impl<'a> IndexedSet<'a> {
    /// Prepares a set, which is within the bounds of a request. `number` returns the number of an attribute
    /// that the rule set uses.
    pub(super) fn new(set: AttributeSet<'a>, number: impl Fn(&str) -> Option<u16>) -> Self {
        let mut indexed =
            Self { set, numbered: [(0, 0); MAX_ATTRIBUTES], len: 0, method: None, plan: None, path: None };
        for (index, (name, value)) in (0..).zip(set.attributes) {
            match *name {
                "method" if indexed.method.is_none() => indexed.method = Some(upper_case_method(value)),
                "plan" if indexed.plan.is_none() => indexed.plan = Some(value),
                "endpoint" if indexed.path.is_none() => indexed.path = Some(Path::new(value)),
                _ => {}
            }
            if let Some(number) = number(name)
                && indexed.value(number).is_none()
                && let Some(free) = indexed.numbered.get_mut(indexed.len)
            {
                *free = (number, index);
                indexed.len += 1;
            }
        }
        indexed
    }

    /// Fails if the path has too many readings.
    pub(super) fn refuse_ambiguous_path(&self) -> Result<(), TrypemaError> {
        match self.path.as_ref().is_some_and(Path::is_ambiguous) {
            true => Err(TrypemaError::AmbiguousPath { max_readings: MAX_READINGS }),
            false => Ok(()),
        }
    }

    /// Whether the set matches rules by one path or by none.
    pub(super) fn has_one_path(&self) -> bool {
        self.path.as_ref().is_none_or(Path::has_one_reading)
    }

    /// Returns the paths by which the set matches rules: the readings of its path, or `None` if it has no path.
    pub(super) fn paths(&self) -> impl Iterator<Item = Option<&str>> + Clone {
        let none = self.path.is_none().then_some(None);
        none.into_iter().chain(self.path.iter().flat_map(Path::readings).map(Some))
    }

    /// Returns the numbers of the set's attributes, as far as the rule set uses them.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> {
        self.numbered[..self.len].iter().map(|(number, _)| *number)
    }

    pub(super) fn value(&self, number: u16) -> Option<&'a str> {
        let (_, index) = self.numbered[..self.len].iter().find(|(given, _)| *given == number)?;
        self.set.attributes.get(usize::from(*index)).map(|(_, value)| *value)
    }

    /// Returns the cost in the unit of a rule, if the set names that unit.
    #[inline]
    pub(super) fn cost(&self, unit: Option<&str>) -> Option<u64> {
        unit.map_or(Some(self.set.requests), |unit| self.set.cost_of(unit))
    }
}
