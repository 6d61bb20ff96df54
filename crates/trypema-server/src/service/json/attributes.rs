//! Attributes in JSON: an object, or a list of `NAME=VALUE`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::as_error;
use crate::attributes::{Attributes, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES};

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AttributesVisitor)
    }
}

struct AttributesVisitor;

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts, or a list of texts such as \"user=ann\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
        let mut attributes = Attributes::default();
        while let Some((Text(name), Text(value))) = map.next_entry::<Text<'de>, Text<'de>>()? {
            attributes.add(&name, &value).map_err(as_error)?;
        }
        Ok(attributes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Attributes, A::Error> {
        let mut attributes = Attributes::default();
        while let Some(Text(pair)) = list.next_element::<Text<'de>>()? {
            let no_pair = || A::Error::custom("an attribute of a list needs the form \"user=ann\"");
            let (name, value) = pair.split_once('=').ok_or_else(no_pair)?;
            attributes.add(name, value).map_err(as_error)?;
        }
        Ok(attributes)
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

impl JsonSchema for Attributes {
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
