//! Attributes, costs and lengths of time in JSON.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use trypema::rules::Period;

use crate::attributes::{Attributes, Costs, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES};

/// Implements `Deserialize` by a visitor with these methods, whose errors say what is expected.
macro_rules! visited {
    ($type:ty, $method:ident, expects $expected:literal, $($visit:tt)*) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ThisVisitor;

                impl<'de> Visitor<'de> for ThisVisitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    $($visit)*
                }

                deserializer.$method(ThisVisitor)
            }
        }
    };
}
pub(super) use visited;

// An object, or a list of `NAME=VALUE`.
visited! { Attributes, deserialize_any, expects "an object of texts, or a list of texts such as \"user=ann\"",
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
        let mut attributes = Attributes::default();
        while let Some((Text(name), Text(value))) = map.next_entry::<Text<'de>, Text<'de>>()? {
            attributes.add(&name, &value).map_err(A::Error::custom)?;
        }
        Ok(attributes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Attributes, A::Error> {
        let mut attributes = Attributes::default();
        while let Some(Text(pair)) = list.next_element::<Text<'de>>()? {
            let no_pair = || A::Error::custom("an attribute of a list needs the form \"user=ann\"");
            let (name, value) = pair.split_once('=').ok_or_else(no_pair)?;
            attributes.add(name, value).map_err(A::Error::custom)?;
        }
        Ok(attributes)
    }
}

/// A text that is borrowed from the body if it contains no escapes.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

visited! { Text<'de>, deserialize_str, expects "a text",
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// A cost: a whole number.
#[derive(Debug, Clone, Copy, JsonSchema)]
#[schemars(transparent)]
pub(super) struct Cost(pub(super) u64);

visited! { Cost, deserialize_u64, expects "a cost: a whole number, 0 or more",
    fn visit_u64<E: Error>(self, cost: u64) -> Result<Cost, E> {
        Ok(Cost(cost))
    }
}

visited! { Costs, deserialize_map, expects "an object of costs by unit, such as {\"tokens\": 4200}",
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Costs, A::Error> {
        let mut costs = Costs::default();
        while let Some((Text(unit), Cost(cost))) = map.next_entry::<Text<'de>, Cost>()? {
            costs.add(&unit, cost).map_err(A::Error::custom)?;
        }
        Ok(costs)
    }
}

/// The time for which a reservation lasts if the request names none.
const DEFAULT_TTL: Duration = Duration::from_secs(60);
/// The longest time for which a reservation lasts without being renewed, as in the library.
pub(super) const MAX_TTL: Duration = Duration::from_secs(60 * 60);

/// The time for which a reservation lasts, within its bounds.
#[derive(Debug, Clone, Copy, JsonSchema)]
#[schemars(
    description = "A length of time of at most an hour, such as 120s, 1m30s or 500ms. Concurrency rules shorten it to their `hold`.",
    extend(
        "pattern" = "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?([0-9]+us)?$",
        "minLength" = 2,
        "default" = Period(DEFAULT_TTL).to_string(),
    )
)]
pub(crate) struct Ttl(#[schemars(with = "String")] pub(crate) Duration);

impl Default for Ttl {
    fn default() -> Self {
        Self(DEFAULT_TTL)
    }
}

visited! { Ttl, deserialize_any, expects "a ttl: a length of time such as \"120s\"",
    fn visit_str<E: Error>(self, text: &str) -> Result<Ttl, E> {
        let Period(ttl) = text.parse().map_err(|error| E::custom(format_args!("ttl: {error}")))?;
        if ttl.is_zero() || ttl > MAX_TTL {
            return Err(E::custom(format_args!(
                "ttl: need more than 0s and at most {}; renew a reservation that has to last longer",
                Period(MAX_TTL)
            )));
        }
        Ok(Ttl(ttl))
    }

    /// Refuses a number: whether it means seconds or milliseconds is a guess.
    fn visit_u64<E: Error>(self, number: u64) -> Result<Ttl, E> {
        self.visit_str(&number.to_string())
    }
}

impl JsonSchema for Attributes {
    fn schema_name() -> Cow<'static, str> {
        "Attributes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An object such as {\"user\": \"ann\"}, or a list such as [\"user=ann\"].",
            "anyOf": [
                {
                    "type": "object",
                    "maxProperties": MAX_ATTRIBUTES,
                    "propertyNames": {"minLength": 1, "maxLength": MAX_ATTRIBUTE_NAME},
                    "additionalProperties": {"type": "string", "maxLength": MAX_ATTRIBUTE_VALUE},
                },
                {
                    "type": "array",
                    "maxItems": MAX_ATTRIBUTES,
                    "items": {"type": "string", "pattern": "^[^=]+="},
                },
            ],
        })
    }
}

impl JsonSchema for Costs {
    fn schema_name() -> Cow<'static, str> {
        "Costs".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        costs_schema("Costs by unit. `requests` is 1 unless it is given.")
    }
}

/// Returns the schema of the costs at which a reservation is settled.
pub(super) fn settled_costs(_: &mut SchemaGenerator) -> Schema {
    costs_schema("Costs by unit. A unit without a cost keeps its estimate, also `requests`.")
}

fn costs_schema(description: &str) -> Schema {
    json_schema!({
        "description": description,
        "type": "object",
        "maxProperties": Costs::MAX,
        "additionalProperties": {"type": "integer", "minimum": 0},
    })
}
