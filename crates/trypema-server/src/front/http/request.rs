//! Requests in JSON: attributes, a cost and a mode.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use trypema::rules::{Document, InvalidRules};

use super::problem::ApiError;
use crate::attributes::{MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES};
use crate::mode::Mode;

/// The error of an `ip` that is not an address. Such a value would get a counter of its own and match no
/// list.
pub(super) const NO_ADDRESS: &str = "ip: need an address, as in 203.0.113.9 or 2001:db8::1, without a port";

/// The most characters of a parser's message that a response repeats.
const MAX_SHOWN_CHARACTERS: usize = 300;

/// Whether a value of `ip` is an address.
pub(super) fn is_address(value: &str) -> bool {
    value.parse::<IpAddr>().is_ok()
}

/// One request, as clients describe it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckRequest<'a> {
    /// The attributes of the request, for example `{"user": "ann", "endpoint": "/search", "method": "GET",
    /// "plan": "free", "ip": "203.0.113.9"}`.
    #[serde(borrow)]
    pub(super) attributes: Attributes<'a>,
    /// The cost of the request, in units.
    #[serde(default = "one")]
    pub(super) cost: u64,
    /// The effect of the request on counters.
    #[serde(default)]
    pub(super) mode: Mode,
}

/// A request to explain or to refund.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestDescription<'a> {
    /// The attributes of the request.
    #[serde(borrow)]
    pub(super) attributes: Attributes<'a>,
    /// The cost of the request, in units.
    #[serde(default = "one")]
    pub(super) cost: u64,
}

impl<'a> RequestDescription<'a> {
    /// Parses a body.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, ApiError> {
        read(body)
    }
}

fn one() -> u64 {
    1
}

/// Accepts only a JSON object. Without it, serde would accept an array of the fields as well.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Parses a body that is a JSON object.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    read_any(body).map(|Object(object)| object)
}

fn read_any<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("invalid request body: {}", shortened(&error))))
}

/// Returns the message of an error. It may repeat a part of the body, which may be long.
fn shortened(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.char_indices().nth(MAX_SHOWN_CHARACTERS) {
        Some((end, _)) => {
            format!("{}… at line {} column {}", &message[..end], error.line(), error.column())
        }
        None => message,
    }
}

/// Parses a body that is a JSON object. The error lists the problems that `check` returns. If there are none,
/// it lists all problems with the structure of the object.
pub(super) fn read_document<T: DeserializeOwned>(
    body: &[u8],
    check: impl FnOnce(&Document<'_>) -> Option<InvalidRules>,
) -> Result<T, ApiError> {
    let first = match read(body) {
        Ok(value) => return Ok(value),
        Err(first) => first,
    };
    // Reading again costs time, but only for an invalid body.
    let Ok(document) = serde_json::from_slice::<Document<'_>>(body) else { return Err(first) };
    match check(&document).or_else(|| document.read::<T>().invalid) {
        Some(invalid) => Err(ApiError::bad_request(format!("the body is invalid:\n{invalid}"))),
        None => Err(first),
    }
}

/// Attribute names and values, each name once.
#[derive(Debug)]
pub(super) struct Attributes<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

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
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
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

/// Whether a body is a batch. The body may still be malformed.
pub(super) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// Parses a batch of at most `max` requests.
pub(super) fn read_batch(body: &[u8], max: usize) -> Result<Vec<CheckRequest<'_>>, ApiError> {
    let requests: Vec<Object<CheckRequest<'_>>> = read_any(body)?;
    if requests.len() > max {
        let detail = format!("{} requests in one batch; the maximum is {max} (max_batch)", requests.len());
        return Err(ApiError::bad_request(detail));
    }
    Ok(requests.into_iter().map(|Object(request)| request).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(body: &str) -> String {
        let body = body.as_bytes();
        let read = if is_batch(body) {
            read_batch(body, 2).map(drop)
        } else {
            read::<CheckRequest<'_>>(body).map(drop)
        };
        read.expect_err("the body is invalid").to_json()
    }

    #[test]
    fn errors_name_the_problem_and_its_location() {
        let cases = [
            ("", "EOF while parsing"),
            ("{}", "missing field `attributes`"),
            (r#"{"attributes":{},"costs":1}"#, "unknown field `costs`"),
            (r#"{"attributes":{"user":1}}"#, "expected a text at line 1 column 23"),
            (r#"{"attributes":{"user":"a","user":"b"}}"#, r#"attribute \"user\" is given twice"#),
            (r#"{"attributes":{"ip":"203.0.113.9:80"}}"#, "ip: need an address"),
            (r#"{"attributes":["user=a","user=b"]}"#, r#"attribute \"user\" is given twice"#),
            (r#"{"attributes":["user"]}"#, r#"needs the form \"user=ann\""#),
            (r#"{"attributes":["=ann"]}"#, "an attribute's name needs"),
            (r#"{"attributes":"user=ann"}"#, "expected an object of texts, or a list of texts"),
            (r#"{"attributes":{},"cost":-1}"#, "expected u64"),
            (r#"{"attributes":{},"cost":1.5}"#, "expected u64"),
            (r#"{"attributes":{},"cost":18446744073709551616}"#, "expected u64"),
            (r#"{"attributes":{},"mode":"burn"}"#, "unknown variant `burn`"),
            (r#"[[{"user":"bob"},2,"peek"]]"#, "expected an object"),
            (r#"{"attributes":{}} x"#, "trailing characters"),
            (r#"[{"attributes":{}},{"attributes":{}},{"attributes":{}}]"#, "the maximum is 2 (max_batch)"),
            (&format!("{{\"{}\": 1}}", "x".repeat(100_000)), "xxx… at line 1 column 100003"),
            (&"[".repeat(200_000), "expected an object"),
            (&r#"{"attributes":"#.repeat(200_000), "expected a text"),
        ];
        for (body, expected) in cases {
            let detail = refusal_of(body);
            assert!(detail.contains(expected), "{body:.60}: {detail}");
        }
    }

    #[test]
    fn attributes_may_be_a_list() {
        let body = r#"{"attributes": ["user=ann", "endpoint=/a?b=c", "na\u006de="]}"#;
        let request =
            read::<CheckRequest<'_>>(body.as_bytes()).unwrap_or_else(|error| panic!("{}", error.to_json()));
        assert_eq!(request.attributes.pairs(), [("user", "ann"), ("endpoint", "/a?b=c"), ("name", "")]);
    }

    #[test]
    fn escapes_are_understood() {
        let body = r#" {"attributes": {"\u0075ser": "a\nb"}, "cost": 3, "mode": "record"}"#;
        let request =
            read::<CheckRequest<'_>>(body.as_bytes()).unwrap_or_else(|error| panic!("{}", error.to_json()));
        assert_eq!(request.attributes.pairs(), [("user", "a\nb")]);
        assert_eq!((request.cost, request.mode), (3, Mode::Record));
    }
}
