//! Requests to rules: attributes and a cost.

use super::endpoint::Path;
use crate::error::TrypemaError;

/// The most attributes of a request: more than a request needs, and few enough for a linear search.
const MAX_ATTRIBUTES: usize = 32;

/// A request: attributes such as `user`, `ip` and `api_key`, and a cost.
///
/// Three names have a special meaning: `endpoint` is the path, which is matched with the rules' endpoints;
/// `method` is the HTTP method; and `plan` is the client's plan. Like all other attributes, they can be
/// placeholders.
///
/// ```
/// use trypema::rules::Request;
///
/// let request = Request::new(&[("endpoint", "/api/search"), ("plan", "free"), ("user", "ann")]).costing(2);
/// assert_eq!((request.attribute("user"), request.cost()), (Some("ann"), 2));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    attributes: &'a [(&'a str, &'a str)],
    cost: u64,
}

impl<'a> Request<'a> {
    /// Creates a request of cost 1. If a name occurs twice, the first value counts.
    pub fn new(attributes: &'a [(&'a str, &'a str)]) -> Self {
        Self { attributes, cost: 1 }
    }

    /// Returns the same request at another cost.
    #[must_use]
    pub fn costing(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Returns the cost, in units.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// Returns all attributes, in the order in which they were given.
    pub fn attributes(&self) -> &'a [(&'a str, &'a str)] {
        self.attributes
    }
}

/// A request, prepared for lookups in a rule set.
#[derive(Debug)]
pub(super) struct IndexedRequest<'a> {
    attributes: &'a [(&'a str, &'a str)],
    /// The attributes that the rule set uses: the number of each, and its index in `attributes`.
    numbered: [(u16, u8); MAX_ATTRIBUTES],
    len: usize,
    pub(super) method: Option<&'a str>,
    pub(super) plan: Option<&'a str>,
    pub(super) path: Option<Path<'a>>,
}

impl<'a> IndexedRequest<'a> {
    /// Prepares a request. `number` returns the number of an attribute that the rule set uses.
    pub(super) fn new(
        request: &Request<'a>,
        number: impl Fn(&str) -> Option<u16>,
    ) -> Result<Self, TrypemaError> {
        let attributes = request.attributes;
        if attributes.len() > MAX_ATTRIBUTES {
            let reason = format!("{} attributes: at most {MAX_ATTRIBUTES} are allowed", attributes.len());
            return Err(TrypemaError::InvalidRequest { reason });
        }
        let mut indexed = Self {
            attributes,
            numbered: [(0, 0); MAX_ATTRIBUTES],
            len: 0,
            method: None,
            plan: None,
            path: None,
        };
        for (index, (name, value)) in (0..).zip(attributes) {
            match *name {
                "method" if indexed.method.is_none() => indexed.method = Some(value),
                "plan" if indexed.plan.is_none() => indexed.plan = Some(value),
                "endpoint" if indexed.path.is_none() => indexed.path = Some(Path::new(value)),
                _ => {}
            }
            if let Some(number) = number(name)
                && indexed.value(number).is_none()
            {
                indexed.numbered[indexed.len] = (number, index);
                indexed.len += 1;
            }
        }
        Ok(indexed)
    }

    /// Returns the numbers of the request's attributes, as far as the rule set uses them.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> {
        self.numbered[..self.len].iter().map(|(number, _)| *number)
    }

    pub(super) fn value(&self, number: u16) -> Option<&'a str> {
        let (_, index) = self.numbered[..self.len].iter().find(|(given, _)| *given == number)?;
        self.attributes.get(usize::from(*index)).map(|(_, value)| *value)
    }
}
