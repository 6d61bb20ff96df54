//! Requests in JSON: attribute sets, costs and a mode.

mod attributes;
mod costs;
mod reservation;

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use trypema::rules::{AttributeSet, Document, InvalidRules, Request as RulesRequest};

use self::attributes::Attributes;
use self::costs::{Cost, Costs};
pub(super) use self::reservation::{ReleaseRequest, RenewRequest, ReserveRequest, SettleRequest};
use super::problem::ApiError;
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

/// One request, as clients describe it: either `attributes` with `cost` or `costs`, or `sets`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["attributes"], "not": {"required": ["cost", "costs"]}},
    {"required": ["sets"], "not": {"anyOf": [{"required": ["cost"]}, {"required": ["costs"]}]}},
]))]
pub(super) struct CheckRequest<'a> {
    /// The attributes of the request, for example `{"user": "ann", "endpoint": "/search", "method": "GET",
    /// "plan": "free", "ip": "203.0.113.9"}`.
    #[serde(borrow, default, deserialize_with = "not_null")]
    #[schemars(with = "Attributes<'a>")]
    attributes: Option<Attributes<'a>>,
    /// The cost of the request in the unit `requests`. Excludes `costs`.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(with = "Cost")]
    cost: Option<Cost>,
    /// The costs of the request by unit, for example `{"tokens": 4200}`. Excludes `cost`.
    #[serde(borrow, default, deserialize_with = "not_null")]
    #[schemars(with = "Costs<'a>")]
    costs: Option<Costs<'a>>,
    /// Several attribute sets, which are checked together, all or nothing. Excludes all fields but `mode`.
    #[serde(borrow, default, deserialize_with = "not_null")]
    #[schemars(with = "DescribedSets<'a>")]
    sets: Option<DescribedSets<'a>>,
    /// The effect of the request on counters.
    #[serde(default)]
    pub(super) mode: Mode,
}

/// A request to explain: either `attributes` with `cost` or `costs`, or `sets`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["attributes"], "not": {"required": ["cost", "costs"]}},
    {"required": ["sets"], "not": {"anyOf": [{"required": ["cost"]}, {"required": ["costs"]}]}},
]))]
pub(crate) struct RequestDescription<'a> {
    /// The attributes of the request.
    #[serde(borrow, default, deserialize_with = "not_null")]
    #[schemars(with = "Attributes<'a>")]
    attributes: Option<Attributes<'a>>,
    /// The cost of the request in the unit `requests`. Excludes `costs`.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(with = "Cost")]
    cost: Option<Cost>,
    /// The costs of the request by unit, for example `{"tokens": 4200}`. Excludes `cost`.
    #[serde(borrow, default, deserialize_with = "not_null")]
    #[schemars(with = "Costs<'a>")]
    costs: Option<Costs<'a>>,
    /// Several attribute sets, which are checked together. Excludes all other fields.
    #[serde(borrow, default, deserialize_with = "not_null")]
    #[schemars(with = "DescribedSets<'a>")]
    sets: Option<DescribedSets<'a>>,
}

/// One of several attribute sets of a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = {"required": ["cost", "costs"]}))]
pub(super) struct SetDescription<'a> {
    /// The attributes of the set.
    #[serde(borrow)]
    attributes: Attributes<'a>,
    /// The cost of the set in the unit `requests`. Excludes `costs`.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(with = "Cost")]
    cost: Option<Cost>,
    /// The costs of the set by unit. Excludes `cost`.
    #[serde(borrow, default, deserialize_with = "not_null")]
    #[schemars(with = "Costs<'a>")]
    costs: Option<Costs<'a>>,
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
struct DescribedSets<'a>(#[schemars(length(min = 1, max = MAX_SETS))] Vec<SetDescription<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for DescribedSets<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(DescribedSetsVisitor)
    }
}

struct DescribedSetsVisitor;

impl<'de> Visitor<'de> for DescribedSetsVisitor {
    type Value = DescribedSets<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of attribute sets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DescribedSets<'de>, A::Error> {
        let mut sets = Vec::new();
        while let Some(Object(set)) = list.next_element::<Object<SetDescription<'de>>>()? {
            if sets.len() == MAX_SETS {
                return Err(A::Error::custom(format_args!("more than {MAX_SETS} attribute sets")));
            }
            sets.push(set);
        }
        Ok(DescribedSets(sets))
    }
}

impl<'a> RequestDescription<'a> {
    /// Parses a body.
    pub(crate) fn read(body: &'a [u8]) -> Result<AttributeSets<'a>, ApiError> {
        let Self { attributes, cost, costs, sets } = read(body)?;
        AttributeSets::new(attributes, cost, costs, sets)
    }
}

impl<'a> CheckRequest<'a> {
    /// Returns the mode and the attribute sets.
    pub(super) fn into_parts(self) -> Result<(Mode, AttributeSets<'a>), ApiError> {
        let Self { attributes, cost, costs, sets, mode } = self;
        AttributeSets::new(attributes, cost, costs, sets).map(|sets| (mode, sets))
    }
}

/// The attribute sets of a request, as they were described.
#[derive(Debug)]
pub(crate) struct AttributeSets<'a>(Vec<SetDescription<'a>>);

impl<'a> AttributeSets<'a> {
    fn new(
        attributes: Option<Attributes<'a>>,
        cost: Option<Cost>,
        costs: Option<Costs<'a>>,
        sets: Option<DescribedSets<'a>>,
    ) -> Result<Self, ApiError> {
        let sets = match (attributes, sets) {
            (Some(attributes), None) => vec![SetDescription { attributes, cost, costs }],
            (None, Some(DescribedSets(sets))) if cost.is_none() && costs.is_none() => sets,
            (None, None) => return Err(ApiError::bad_request("missing field `attributes`, or `sets`")),
            (_, Some(_)) => {
                return Err(ApiError::bad_request(
                    "`sets` excludes `attributes`, `cost` and `costs`: write them into each set",
                ));
            }
        };
        if sets.is_empty() {
            return Err(ApiError::bad_request("`sets` is empty: need at least one set"));
        }
        if sets.iter().any(|set| set.cost.is_some() && set.costs.is_some()) {
            return Err(ApiError::bad_request(
                "`cost` beside `costs`: write `costs: {\"requests\": ...}` instead of `cost`",
            ));
        }
        Ok(Self(sets))
    }

    /// Returns the sets in the form that the engine accepts.
    pub(crate) fn borrowed(&self) -> BorrowedSets<'_> {
        BorrowedSets(self.0.iter().map(BorrowedSet::from).collect())
    }
}

/// Attribute sets as slices of pairs, to make a request of.
#[derive(Debug, Default)]
pub(crate) struct BorrowedSets<'a>(Vec<BorrowedSet<'a>>);

#[derive(Debug)]
struct BorrowedSet<'a> {
    attributes: Vec<(&'a str, &'a str)>,
    cost: Option<u64>,
    costs: Vec<(&'a str, u64)>,
}

impl<'a> From<&'a SetDescription<'_>> for BorrowedSet<'a> {
    fn from(set: &'a SetDescription<'_>) -> Self {
        let costs = set.costs.iter().flat_map(|Costs(costs)| costs);
        Self {
            attributes: set.attributes.pairs(),
            cost: set.cost.map(|Cost(cost)| cost),
            costs: costs.map(|(unit, cost)| (&**unit, *cost)).collect(),
        }
    }
}

impl BorrowedSets<'_> {
    pub(crate) fn sets(&self) -> Vec<AttributeSet<'_>> {
        self.0.iter().map(BorrowedSet::set).collect()
    }
}

impl BorrowedSet<'_> {
    fn set(&self) -> AttributeSet<'_> {
        AttributeSet::new(&self.attributes).costing(self.cost.unwrap_or(1)).with_costs(&self.costs)
    }
}

/// Returns a request of these sets.
pub(crate) fn request_of<'a>(sets: &'a [AttributeSet<'a>]) -> RulesRequest<'a> {
    match sets {
        [only] => RulesRequest::from(*only),
        _ => RulesRequest::of_sets(sets),
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

/// Whether a body is a batch. The body may still be malformed.
pub(super) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// Parses a batch of at most `max` requests.
pub(super) fn read_batch(body: &[u8], max: usize) -> Result<Vec<(Mode, AttributeSets<'_>)>, ApiError> {
    let requests: Vec<Object<CheckRequest<'_>>> = read_any(body)?;
    if requests.len() > max {
        let detail = format!("{} requests in one batch; the maximum is {max} (max_batch)", requests.len());
        return Err(ApiError::bad_request(detail));
    }
    requests.into_iter().map(|Object(request)| request.into_parts()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(body: &str) -> String {
        let body = body.as_bytes();
        let read = if is_batch(body) { read_batch(body, 2).map(drop) } else { read_one(body).map(drop) };
        read.expect_err("the body is invalid").to_json()
    }

    fn read_one(body: &[u8]) -> Result<(Mode, AttributeSets<'_>), ApiError> {
        read::<CheckRequest<'_>>(body)?.into_parts()
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
            (r#"{"attributes":{"user":"a","user":"b"}}"#, r#"attribute \"user\" is given twice"#),
            (r#"{"attributes":{"ip":"203.0.113.9:80"}}"#, "ip: need an address"),
            (r#"{"attributes":["user=a","user=b"]}"#, r#"attribute \"user\" is given twice"#),
            (r#"{"attributes":["user"]}"#, r#"needs the form \"user=ann\""#),
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
        let (mode, sets) = read_one(body.as_bytes()).unwrap_or_else(|error| panic!("{}", error.to_json()));
        let (borrowed, owned) = (sets.borrowed(), |text: &&str| (*text).to_owned());
        let of_set = |set: &AttributeSet<'_>| {
            let attributes = set.attributes().iter().map(|(name, value)| (owned(name), owned(value)));
            (attributes.collect(), set.cost_of("requests"), set.cost_of("tokens"))
        };
        (mode, borrowed.sets().iter().map(of_set).collect())
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
