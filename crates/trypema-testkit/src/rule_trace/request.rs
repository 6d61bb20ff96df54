//! Requests in the form of `POST /v1/check`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trypema::rules::{AttributeSet, Request};

/// A body of `POST /v1/check`: `attributes` with `cost` or `costs`, or `sets`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckBody {
    /// The attributes of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<BTreeMap<String, String>>,
    /// The cost in the unit `requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The costs by unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<BTreeMap<String, u64>>,
    /// Several attribute sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<Vec<SetBody>>,
    /// The effect on counters.
    #[serde(default, skip_serializing_if = "Mode::is_check")]
    pub mode: Mode,
}

/// One of several attribute sets of a [`CheckBody`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBody {
    /// The attributes of the set.
    pub attributes: BTreeMap<String, String>,
    /// The cost in the unit `requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The costs by unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<BTreeMap<String, u64>>,
}

/// The effect of a request on counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Spends the cost if all rules allow it.
    #[default]
    Check,
    /// Spends nothing.
    Peek,
    /// Counts the request on each rule by itself.
    Record,
}

impl Mode {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_check(&self) -> bool {
        *self == Self::Check
    }
}

impl CheckBody {
    /// Returns the attribute sets. `None` if only a front end can be asked this, because the library has no
    /// such request: one with `cost` beside `costs`, with `attributes` beside `sets`, or with neither.
    pub fn attribute_sets(&self) -> Option<Vec<SetBody>> {
        let sets = match (&self.attributes, &self.sets) {
            (Some(attributes), None) => {
                vec![SetBody { attributes: attributes.clone(), cost: self.cost, costs: self.costs.clone() }]
            }
            (None, Some(sets)) if self.cost.is_none() && self.costs.is_none() => sets.clone(),
            _ => return None,
        };
        let is_expressible = |set: &SetBody| set.cost.is_none() || set.costs.is_none();
        sets.iter().all(is_expressible).then_some(sets)
    }

    /// Calls `ask` with the request in the form of the library. `None` if the library has no such request.
    pub fn with_request<T>(&self, ask: impl FnOnce(&Request<'_>) -> T) -> Option<T> {
        let sets = self.attribute_sets()?;
        let pairs: Vec<SetPairs<'_>> = sets.iter().map(SetPairs::of).collect();
        let borrowed: Vec<AttributeSet<'_>> = pairs.iter().map(SetPairs::attribute_set).collect();
        Some(match (&self.sets, &borrowed[..]) {
            (None, [only]) => ask(&Request::from(*only)),
            (_, sets) => ask(&Request::of_sets(sets)),
        })
    }
}

/// A set as slices of pairs, to make a request of.
struct SetPairs<'a> {
    attributes: Vec<(&'a str, &'a str)>,
    cost: Option<u64>,
    costs: Vec<(&'a str, u64)>,
}

impl<'a> SetPairs<'a> {
    fn of(set: &'a SetBody) -> Self {
        let attributes = set.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let costs = set.costs.iter().flatten().map(|(unit, cost)| (unit.as_str(), *cost));
        Self { attributes: attributes.collect(), cost: set.cost, costs: costs.collect() }
    }

    fn attribute_set(&self) -> AttributeSet<'_> {
        let set = AttributeSet::new(&self.attributes).with_costs(&self.costs);
        self.cost.map_or(set, |cost| set.costing(cost))
    }
}
