//! What is asked of rules: attributes and a cost.

use super::endpoint::Path;
use crate::error::TrypemaError;

/// More attributes than a request has use for, few enough to look through.
const MAX_ATTRIBUTES: usize = 32;

/// Who asks for what: attributes such as `user`, `ip` and `api_key`, and a cost.
///
/// Three names have a meaning of their own: `endpoint` is the path that rules' endpoints are compared with, `method`
/// its method, and `plan` the caller's plan. All can be placeholders.
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
    /// A request of cost 1. Where a name is given twice the first value counts.
    pub fn new(attributes: &'a [(&'a str, &'a str)]) -> Self {
        Self { attributes, cost: 1 }
    }

    /// The same request at another cost.
    #[must_use]
    pub fn costing(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// What it spends.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// All attributes as they were given.
    pub fn attributes(&self) -> &'a [(&'a str, &'a str)] {
        self.attributes
    }
}

/// A request as a set of rules sees it: only the attributes that some rule asks about, by their numbers.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    values: [(u16, &'a str); MAX_ATTRIBUTES],
    len: usize,
    pub(super) method: Option<&'a str>,
    pub(super) plan: Option<&'a str>,
    pub(super) path: Option<Path<'a>>,
}

impl<'a> Facts<'a> {
    /// `number` gives the numbers of attributes that matter.
    pub(super) fn of(
        request: &Request<'a>,
        number: impl Fn(&str) -> Option<u16>,
    ) -> Result<Self, TrypemaError> {
        let given = request.attributes.len();
        if given > MAX_ATTRIBUTES {
            let reason = format!("{given} attributes: at most {MAX_ATTRIBUTES} are allowed");
            return Err(TrypemaError::InvalidRequest { reason });
        }
        let mut facts =
            Self { values: [(0, ""); MAX_ATTRIBUTES], len: 0, method: None, plan: None, path: None };
        for (name, value) in request.attributes {
            match *name {
                "method" if facts.method.is_none() => facts.method = Some(value),
                "plan" if facts.plan.is_none() => facts.plan = Some(value),
                "endpoint" if facts.path.is_none() => facts.path = Some(Path::new(value)),
                _ => {}
            }
            if let Some(number) = number(name)
                && facts.value(number).is_none()
            {
                facts.values[facts.len] = (number, value);
                facts.len += 1;
            }
        }
        Ok(facts)
    }

    /// The attributes that matter, with their numbers.
    pub(super) fn values(&self) -> &[(u16, &'a str)] {
        &self.values[..self.len]
    }

    pub(super) fn value(&self, number: u16) -> Option<&'a str> {
        self.values().iter().find(|(given, _)| *given == number).map(|(_, value)| *value)
    }
}
