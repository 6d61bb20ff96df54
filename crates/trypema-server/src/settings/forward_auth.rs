//! `forward_auth` of the configuration file, before validation.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use super::HeaderSetting;
use crate::attributes::DotSegments;

/// The profiles that proxies may name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ForwardAuthSettings {
    pub(crate) profiles: BTreeMap<String, ProfileSettings>,
}

/// One profile.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProfileSettings {
    pub(crate) attributes: ProfileAttributes,
    pub(crate) cost: Option<u64>,
    pub(crate) deny_status: Option<u16>,
    pub(crate) headers: Option<HeaderSetting>,
    pub(crate) dot_segments: Option<DotSegments>,
}

/// The attributes by name; `null` removes a standard attribute.
///
/// The file has a mapping (`user: {header: X-User}`, `user: X-User`, `plan: free`) or a list (`user=X-User`,
/// `plan=free`, `{name: user, header: X-User}`).
#[derive(Debug, Clone, Default)]
pub(crate) struct ProfileAttributes(pub(crate) BTreeMap<String, Option<AttributeSettings>>);

/// The source of an attribute's value: a mapping with `header` or `value`, or a text.
#[derive(Debug, Clone, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct AttributeSettings {
    pub(crate) header: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) hash: Option<HashFunction>,
}

/// The function whose result stands for an attribute's value in the names of counters.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) enum HashFunction {
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
}

/// An attribute of a list.
#[derive(Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct NamedAttribute {
    name: String,
    header: Option<String>,
    value: Option<String>,
    hash: Option<HashFunction>,
}

impl AttributeSettings {
    /// Returns the source that a text means: the header if it begins with `X-`, else the literal.
    ///
    /// Refuses `x-`, which may be either. A wrong guess would leave requests without the attribute, or make
    /// all of them share one counter.
    fn from_text(text: &str) -> Result<Self, String> {
        if text.starts_with("X-") {
            return Ok(Self { header: Some(text.to_owned()), value: None, hash: None });
        }
        if text.starts_with("x-") {
            return Err(format!("for the header write {{header: {text}}}, for this text {{value: {text}}}"));
        }
        Ok(Self { header: None, value: Some(text.to_owned()), hash: None })
    }
}

impl<'de> Deserialize<'de> for ProfileAttributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MappingOrList)
    }
}

struct MappingOrList;

impl<'de> Visitor<'de> for MappingOrList {
    type Value = ProfileAttributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping such as {user: {header: X-User}}, or a list such as [plan=free]")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProfileAttributes, A::Error> {
        BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(ProfileAttributes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ProfileAttributes, A::Error> {
        let mut attributes = BTreeMap::new();
        while let Some(NamedAttribute { name, header, value, hash }) = list.next_element()? {
            if attributes.contains_key(&name) {
                return Err(A::Error::custom(format_args!("attribute `{name}` is given twice")));
            }
            attributes.insert(name, Some(AttributeSettings { header, value, hash }));
        }
        Ok(ProfileAttributes(attributes))
    }
}

impl<'de> Deserialize<'de> for AttributeSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourceOrLiteral)
    }
}

struct SourceOrLiteral;

impl<'de> Visitor<'de> for SourceOrLiteral {
    type Value = AttributeSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{header: NAME}, {value: TEXT} or a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AttributeSettings, E> {
        AttributeSettings::from_text(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<AttributeSettings, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AttributeSettings, A::Error> {
        AttributeSettings::deserialize(MapAccessDeserializer::new(map))
    }
}

impl<'de> Deserialize<'de> for NamedAttribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PairOrMapping)
    }
}

struct PairOrMapping;

impl<'de> Visitor<'de> for PairOrMapping {
    type Value = NamedAttribute;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NAME=VALUE or {name: NAME, header: NAME}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NamedAttribute, E> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))?;
        let AttributeSettings { header, value, hash } =
            AttributeSettings::from_text(value).map_err(E::custom)?;
        Ok(NamedAttribute { name: name.to_owned(), header, value, hash })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NamedAttribute, A::Error> {
        NamedAttribute::deserialize(MapAccessDeserializer::new(map))
    }
}
