//! Costs in JSON: whole numbers by unit.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::as_error;
use super::attributes::Text;
use crate::attributes::Costs;

/// A cost: a whole number.
#[derive(Debug, Clone, Copy, JsonSchema)]
#[schemars(transparent)]
pub(super) struct Cost(pub(super) u64);

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(CostVisitor).map(Self)
    }
}

struct CostVisitor;

impl Visitor<'_> for CostVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cost: a whole number, 0 or more")
    }

    fn visit_u64<E: Error>(self, cost: u64) -> Result<u64, E> {
        Ok(cost)
    }
}

impl<'de> Deserialize<'de> for Costs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(CostsVisitor)
    }
}

struct CostsVisitor;

impl<'de> Visitor<'de> for CostsVisitor {
    type Value = Costs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of costs by unit, such as {\"tokens\": 4200}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Costs, A::Error> {
        let mut costs = Costs::default();
        while let Some((Text(unit), Cost(cost))) = map.next_entry::<Text<'de>, Cost>()? {
            costs.add(&unit, cost).map_err(as_error)?;
        }
        Ok(costs)
    }
}

impl Costs {
    /// Returns the schema of the costs at which a reservation is settled.
    pub(super) fn schema_of_settled(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "Costs by unit. A unit without a cost keeps its estimate, also `requests`.",
            "type": "object",
            "maxProperties": Self::MAX,
            "additionalProperties": {"type": "integer", "minimum": 0},
        })
    }
}

impl JsonSchema for Costs {
    fn schema_name() -> Cow<'static, str> {
        "Costs".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "Costs by unit. `requests` is 1 unless it is given.",
            "type": "object",
            "maxProperties": Self::MAX,
            "additionalProperties": {"type": "integer", "minimum": 0},
        })
    }
}
