//! Requests in JSON: attribute sets, costs and a mode.

mod attributes;
mod costs;
mod reservation;

use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use trypema::rules::{Document, InvalidRules};

use self::costs::Cost;
pub(crate) use self::reservation::{ReleaseRequest, RenewRequest, ReserveRequest, SettleRequest};
use crate::attributes::{Attributes, Costs, OwnedRequest, OwnedSet};
use crate::mode::Mode;
use crate::refusal::Refusal;

/// The most characters of a parser's message that an answer repeats.
const MAX_SHOWN_CHARACTERS: usize = 300;

/// Returns the error of a parser for a refused part of a document.
fn as_error<E: Error>(refusal: Refusal) -> E {
    match refusal {
        Refusal::Invalid(reason) => E::custom(reason),
        other => E::custom(other.code()),
    }
}

/// Declares requests: either `attributes` with `cost` or `costs`, or `sets`; and fields of their own.
macro_rules! requests {
    ($($(#[$about:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(extend("oneOf" = [
            {"required": ["attributes"], "not": {"required": ["cost", "costs"]}},
            {"required": ["sets"], "not": {"anyOf": [{"required": ["cost"]}, {"required": ["costs"]}]}},
        ]))]
        pub(crate) struct $name {
            /// The attributes of the request, for example `{"user": "ann", "endpoint": "/search", "method": "GET",
            /// "plan": "free", "ip": "203.0.113.9"}`.
            #[serde(default, deserialize_with = "crate::service::json::not_null")]
            #[schemars(with = "crate::attributes::Attributes")]
            attributes: Option<crate::attributes::Attributes>,
            /// The cost of the request in the unit `requests`. Excludes `costs`.
            #[serde(default, deserialize_with = "crate::service::json::not_null")]
            #[schemars(with = "crate::service::json::Cost")]
            cost: Option<crate::service::json::Cost>,
            /// The costs of the request by unit, for example `{"tokens": 4200}`. Excludes `cost`.
            #[serde(default, deserialize_with = "crate::service::json::not_null")]
            #[schemars(with = "crate::attributes::Costs")]
            costs: Option<crate::attributes::Costs>,
            /// Several attribute sets, which are decided together, all or nothing. Excludes `attributes`, `cost`
            /// and `costs`.
            #[serde(default, deserialize_with = "crate::service::json::not_null")]
            #[schemars(with = "crate::service::json::DescribedSets")]
            sets: Option<crate::service::json::DescribedSets>,
            $($(#[$of_field])* $field: $kind,)*
        }

        impl $name {
            fn request(&mut self) -> Result<crate::attributes::OwnedRequest, crate::refusal::Refusal> {
                let Self { attributes, cost, costs, sets, .. } = self;
                crate::service::json::request_of_parts(attributes.take(), *cost, costs.take(), sets.take())
            }
        }
    )*};
}
use requests;

requests! {
    /// A request to check.
    CheckRequest {
        /// The effect of the request on counters.
        #[serde(default)]
        mode: Mode,
    }
    /// A request to explain.
    RequestDescription {}
}

/// One of several attribute sets of a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = {"required": ["cost", "costs"]}))]
struct SetDescription {
    /// The attributes of the set.
    attributes: Attributes,
    /// The cost of the set in the unit `requests`. Excludes `costs`.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(with = "Cost")]
    cost: Option<Cost>,
    /// The costs of the set by unit. Excludes `cost`.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(with = "Costs")]
    costs: Option<Costs>,
}

/// Reads an optional field that may be left out, but not be `null`.
fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The most attribute sets of a request. The engine has the same limit; this one bounds the memory of a
/// request that the engine would refuse.
const MAX_SETS: usize = 32;

/// At most [`MAX_SETS`] attribute sets.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
struct DescribedSets(#[schemars(length(min = 1, max = MAX_SETS))] Vec<SetDescription>);

impl<'de> Deserialize<'de> for DescribedSets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(DescribedSetsVisitor)
    }
}

struct DescribedSetsVisitor;

impl<'de> Visitor<'de> for DescribedSetsVisitor {
    type Value = DescribedSets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of attribute sets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DescribedSets, A::Error> {
        let mut sets = Vec::new();
        while let Some(Object(set)) = list.next_element::<Object<SetDescription>>()? {
            if sets.len() == MAX_SETS {
                return Err(A::Error::custom(format_args!("more than {MAX_SETS} attribute sets")));
            }
            sets.push(set);
        }
        Ok(DescribedSets(sets))
    }
}

impl RequestDescription {
    /// Parses a body.
    pub(crate) fn read(body: &[u8]) -> Result<OwnedRequest, Refusal> {
        read::<Self>(body)?.request()
    }
}

impl CheckRequest {
    /// Returns the mode and the request.
    pub(crate) fn into_parts(mut self) -> Result<(Mode, OwnedRequest), Refusal> {
        self.request().map(|request| (self.mode, request))
    }
}

fn request_of_parts(
    attributes: Option<Attributes>,
    cost: Option<Cost>,
    costs: Option<Costs>,
    sets: Option<DescribedSets>,
) -> Result<OwnedRequest, Refusal> {
    match (attributes, sets) {
        (Some(attributes), None) => {
            SetDescription { attributes, cost, costs }.into_set().map(OwnedRequest::from)
        }
        (None, Some(DescribedSets(sets))) if cost.is_none() && costs.is_none() => {
            if sets.is_empty() {
                return Err(Refusal::invalid("`sets` is empty: need at least one set"));
            }
            let sets: Result<Vec<OwnedSet>, _> = sets.into_iter().map(SetDescription::into_set).collect();
            sets.map(OwnedRequest::from)
        }
        (None, None) => Err(Refusal::invalid("missing field `attributes`, or `sets`")),
        (_, Some(_)) => Err(Refusal::invalid(
            "`sets` excludes `attributes`, `cost` and `costs`: write them into each set",
        )),
    }
}

impl SetDescription {
    fn into_set(self) -> Result<OwnedSet, Refusal> {
        let Self { attributes, cost, costs } = self;
        if cost.is_some() && costs.is_some() {
            return Err(Refusal::invalid(
                "`cost` beside `costs`: write `costs: {\"requests\": ...}` instead of `cost`",
            ));
        }
        let requests = cost.map(|Cost(cost)| cost);
        Ok(OwnedSet { attributes, requests, costs: costs.unwrap_or_default() })
    }
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
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    read_any(body).map(|Object(object)| object)
}

fn read_any<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("invalid request body: {}", shortened(&error))))
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
pub(crate) fn read_document<T: DeserializeOwned>(
    body: &[u8],
    check: impl FnOnce(&Document<'_>) -> Option<InvalidRules>,
) -> Result<T, Refusal> {
    let first = match read(body) {
        Ok(value) => return Ok(value),
        Err(first) => first,
    };
    // Reading again costs time, but only for an invalid body.
    let Ok(document) = serde_json::from_slice::<Document<'_>>(body) else { return Err(first) };
    match check(&document).or_else(|| document.read::<T>().invalid) {
        Some(invalid) => Err(Refusal::invalid(format!("the body is invalid:\n{invalid}"))),
        None => Err(first),
    }
}

/// Whether a body is a batch. The body may still be malformed.
pub(crate) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// Parses a batch of at most `max` requests.
pub(crate) fn read_batch(body: &[u8], max: usize) -> Result<Vec<(Mode, OwnedRequest)>, Refusal> {
    let requests: Vec<Object<CheckRequest>> = read_any(body)?;
    if requests.len() > max {
        let detail = format!("{} requests in one batch; the maximum is {max} (max_batch)", requests.len());
        return Err(Refusal::invalid(detail));
    }
    requests.into_iter().map(|Object(request)| request.into_parts()).collect()
}

#[cfg(test)]
mod tests {
    use trypema::rules::AttributeSet;

    use super::*;

    fn refusal_of(body: &str) -> String {
        let body = body.as_bytes();
        let read = if is_batch(body) { read_batch(body, 2).map(drop) } else { read_one(body).map(drop) };
        match read.expect_err("the body is invalid") {
            Refusal::Invalid(reason) => reason.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn read_one(body: &[u8]) -> Result<(Mode, OwnedRequest), Refusal> {
        read::<CheckRequest>(body)?.into_parts()
    }

    #[test]
    fn errors_name_the_problem_and_its_location() {
        let cases = [
            ("", "EOF while parsing"),
            ("{}", "missing field `attributes`"),
            (r#"{"attributes":{},"price":1}"#, "unknown field `price`"),
            (r#"{"attributes":{},"costs":1}"#, "expected an object of costs by unit"),
            (r#"{"attributes":{},"costs":{"tokens":-1}}"#, "integer `-1`, expected a cost: a whole number"),
            (r#"{"attributes":{},"costs":{"tokens":0.5}}"#, "floating point `0.5`, expected a cost"),
            (r#"{"attributes":{},"costs":{"tokens":"9"}}"#, "expected a cost"),
            (r#"{"attributes":{},"costs":{"tokens":1,"tokens":2}}"#, "is given twice"),
            (r#"{"attributes":{},"cost":1,"costs":{"tokens":1}}"#, "`cost` beside `costs`"),
            (r#"{"sets":[{"attributes":{},"cost":1,"costs":{}}]}"#, "`cost` beside `costs`"),
            (r#"{"attributes":{},"sets":[{"attributes":{}}]}"#, "`sets` excludes `attributes`"),
            (r#"{"cost":1,"sets":[{"attributes":{}}]}"#, "`sets` excludes `attributes`"),
            (r#"{"sets":[]}"#, "need at least one set"),
            (r#"{"sets":[{}]}"#, "missing field `attributes`"),
            (r#"{"sets":[{"attributes":{},"mode":"peek"}]}"#, "unknown field `mode`"),
            (r#"{"costs":{"tokens":1}}"#, "missing field `attributes`, or `sets`"),
            (r#"{"attributes":{"user":1}}"#, "expected a text at line 1 column 23"),
            (r#"{"attributes":{"user":"a","user":"b"}}"#, r#"attribute "user" is given twice"#),
            (r#"{"attributes":{"ip":"203.0.113.9:80"}}"#, "ip: need an address"),
            (r#"{"attributes":["user=a","user=b"]}"#, r#"attribute "user" is given twice"#),
            (r#"{"attributes":["user"]}"#, r#"needs the form "user=ann""#),
            (r#"{"attributes":["=ann"]}"#, "an attribute's name needs"),
            (r#"{"attributes":"user=ann"}"#, "expected an object of texts, or a list of texts"),
            (r#"{"attributes":{},"cost":-1}"#, "expected a cost: a whole number, 0 or more"),
            (r#"{"attributes":{},"cost":1.5}"#, "expected a cost: a whole number, 0 or more"),
            (
                r#"{"attributes":{},"cost":18446744073709551616}"#,
                "expected a cost: a whole number, 0 or more",
            ),
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

    /// Returns the mode of a request, and its sets: attributes, and costs in `requests` and in `tokens`.
    #[allow(clippy::type_complexity, reason = "only for comparisons")]
    fn parsed(body: &str) -> (Mode, Vec<(Vec<(String, String)>, Option<u64>, Option<u64>)>) {
        let (mode, request) = read_one(body.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let (pairs, owned) = (request.pairs(), |text: &&str| (*text).to_owned());
        let of_set = |set: &AttributeSet<'_>| {
            let attributes = set.attributes().iter().map(|(name, value)| (owned(name), owned(value)));
            (attributes.collect(), set.cost_of("requests"), set.cost_of("tokens"))
        };
        (mode, pairs.sets().iter().map(of_set).collect())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn attributes_may_be_a_list() {
        let (mode, sets) = parsed(r#"{"attributes": ["user=ann", "endpoint=/a?b=c", "na\u006de="]}"#);
        let attributes = vec![pair("user", "ann"), pair("endpoint", "/a?b=c"), pair("name", "")];
        assert_eq!((mode, sets), (Mode::Check, vec![(attributes, Some(1), None)]));
    }

    #[test]
    fn escapes_are_understood() {
        let (mode, sets) = parsed(r#" {"attributes": {"\u0075ser": "a\nb"}, "cost": 3, "mode": "record"}"#);
        assert_eq!((mode, sets), (Mode::Record, vec![(vec![pair("user", "a\nb")], Some(3), None)]));
    }

    #[test]
    fn costs_and_sets_are_read() {
        let (_, sets) = parsed(r#"{"attributes": {}, "costs": {"tokens": 4200}}"#);
        assert_eq!(sets, [(vec![], Some(1), Some(4_200))]);
        let (mode, sets) = parsed(
            r#"{"sets": [{"attributes": {"user": "ann"}, "costs": {"requests": 0, "tokens": 7}},
                {"attributes": ["tenant=acme"], "cost": 2}], "mode": "peek"}"#,
        );
        assert_eq!(mode, Mode::Peek);
        let of_tenant = (vec![pair("tenant", "acme")], Some(2), None);
        assert_eq!(sets, [(vec![pair("user", "ann")], Some(0), Some(7)), of_tenant]);
    }
}
