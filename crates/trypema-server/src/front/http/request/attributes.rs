//! Attributes in JSON: an object, or a list of `NAME=VALUE`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{NO_ADDRESS, is_address};
use crate::attributes::{MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES};

/// Attribute names and values, each name once.
#[derive(Debug)]
pub(in super::super) struct Attributes<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl Attributes<'_> {
    /// Returns the attributes in the form that the engine accepts.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Attributes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AttributesVisitor)
    }
}

struct AttributesVisitor;

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = Attributes<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts, or a list of texts such as \"user=ann\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes<'de>, A::Error> {
        let mut attributes = Attributes(Vec::with_capacity(4));
        while let Some((Text(name), Text(value))) = map.next_entry::<Text<'de>, Text<'de>>()? {
            attributes.add(name, value)?;
        }
        Ok(attributes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Attributes<'de>, A::Error> {
        let mut attributes = Attributes(Vec::with_capacity(4));
        while let Some(Text(pair)) = list.next_element::<Text<'de>>()? {
            let (name, value) = match pair {
                Cow::Borrowed(pair) => split(pair).map(|(name, value)| (name.into(), value.into())),
                Cow::Owned(pair) => {
                    split(&pair).map(|(name, value)| (name.to_owned().into(), value.to_owned().into()))
                }
            }
            .ok_or_else(|| A::Error::custom("an attribute of a list needs the form \"user=ann\""))?;
            attributes.add(name, value)?;
        }
        Ok(attributes)
    }
}

/// Splits `NAME=VALUE`.
fn split(pair: &str) -> Option<(&str, &str)> {
    pair.split_once('=')
}

impl<'a> Attributes<'a> {
    /// Adds an attribute, if it is within the bounds.
    fn add<E: Error>(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), E> {
        let Self(pairs) = self;
        if pairs.len() == MAX_ATTRIBUTES {
            return Err(E::custom(format_args!("more than {MAX_ATTRIBUTES} attributes")));
        }
        if name.is_empty() || name.len() > MAX_ATTRIBUTE_NAME {
            return Err(E::custom(format_args!("an attribute's name needs 1 to {MAX_ATTRIBUTE_NAME} bytes")));
        }
        if value.len() > MAX_ATTRIBUTE_VALUE {
            return Err(E::custom(format_args!(
                "the value of attribute {name:?} is longer than {MAX_ATTRIBUTE_VALUE} bytes"
            )));
        }
        if name == "ip" && !is_address(&value) {
            return Err(E::custom(NO_ADDRESS));
        }
        if pairs.iter().any(|(known, _)| *known == name) {
            return Err(E::custom(format_args!("attribute {name:?} is given twice")));
        }
        pairs.push((name, value));
        Ok(())
    }
}

/// A text that is borrowed from the body if it contains no escapes.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl JsonSchema for Attributes<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Attributes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
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
