//! Requests in JSON.

mod values;

use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use trypema::rules::{Document, InvalidRules, ReserveOptions};

use self::values::{Cost, Text, Ttl, settled_costs, visited};
use super::ReservationName;
use crate::attributes::{Attributes, Costs, OwnedRequest, OwnedSet};
use crate::mode::Mode;
use crate::refusal::Refusal;

/// The most characters of a parser's message that an answer repeats.
const MAX_SHOWN_CHARACTERS: usize = 300;
/// The most attribute sets of a request. The engine has the same limit; this one bounds the memory of a
/// request that the engine would refuse.
const MAX_SETS: usize = 32;
/// The longest id that a caller can choose, in bytes, as in the library.
const MAX_ID: usize = 128;

/// Declares requests: either `attributes` with `cost` or `costs`, or `sets`; and fields of their own.
macro_rules! requests {
    ($($(#[$about:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(extend("oneOf" = [
            {"required": ["attributes"], "not": {"required": ["cost", "costs"]}},
            {"required": ["sets"], "not": {"anyOf": [{"required": ["cost"]}, {"required": ["costs"]}]}},
        ]))]
        pub(crate) struct $name {
            /// The attributes of the request, for example `{"user": "ann", "endpoint": "/search", "method": "GET",
            /// "plan": "free", "ip": "203.0.113.9"}`.
            #[serde(default, deserialize_with = "not_null")]
            #[schemars(with = "Attributes")]
            attributes: Option<Attributes>,
            /// The cost of the request in the unit `requests`. Excludes `costs`.
            #[serde(default, deserialize_with = "not_null")]
            #[schemars(with = "Cost")]
            cost: Option<Cost>,
            /// The costs of the request by unit, for example `{"tokens": 4200}`. Excludes `cost`.
            #[serde(default, deserialize_with = "not_null")]
            #[schemars(with = "Costs")]
            costs: Option<Costs>,
            /// Several attribute sets, which are decided together, all or nothing. Excludes `attributes`, `cost`
            /// and `costs`.
            #[serde(default, deserialize_with = "not_null")]
            #[schemars(with = "DescribedSets")]
            sets: Option<DescribedSets>,
            $($(#[$of_field])* $field: $kind,)*
        }

        impl $name {
            fn request(&mut self) -> Result<OwnedRequest, Refusal> {
                let Self { attributes, cost, costs, sets, .. } = self;
                request_of_parts(attributes.take(), *cost, costs.take(), sets.take())
            }
        }
    )*};
}

requests! {
    /// A request to check.
    CheckRequest {
        /// The effect of the request on counters.
        #[serde(default)]
        mode: Mode,
    }
    /// A request to explain.
    RequestDescription {}
    /// A request to reserve its estimated cost.
    ReserveRequest {
        /// The time for which the reservation lasts, unless it is renewed.
        #[serde(default)]
        ttl: Ttl,
        /// An id that the caller chooses, so that it can repeat the request: the same id, attributes and costs
        /// return the same reservation until it expires. Any caller that knows the id can settle the reservation,
        /// so it should be hard to guess, as a UUID is.
        #[serde(default, deserialize_with = "text")]
        #[schemars(with = "String", length(min = 1, max = MAX_ID))]
        id: Option<String>,
    }
}

/// Declares requests that name a reservation: by its text, or by its id and the attributes of its request.
macro_rules! requests_on_reservations {
    ($($(#[$about:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(extend("oneOf" = [
            {"required": ["reservation"], "not": {"anyOf": [{"required": ["id"]}, {"required": ["attributes"]}, {"required": ["sets"]}]}},
            {"required": ["id", "attributes"], "not": {"required": ["sets"]}},
            {"required": ["id", "sets"], "not": {"required": ["attributes"]}},
        ]))]
        pub(crate) struct $name {
            /// The text of the reservation. Excludes `id`.
            #[serde(default, deserialize_with = "text")]
            #[schemars(with = "String")]
            reservation: Option<String>,
            /// The id that the caller chose, together with the `attributes` or `sets` of the request.
            #[serde(default, deserialize_with = "text")]
            #[schemars(with = "String", length(min = 1, max = MAX_ID))]
            id: Option<String>,
            /// The attributes of the request that reserved.
            #[serde(default, deserialize_with = "not_null")]
            #[schemars(with = "Attributes")]
            attributes: Option<Attributes>,
            /// The attribute sets of the request that reserved. Their costs do not matter.
            #[serde(default, deserialize_with = "not_null")]
            #[schemars(with = "DescribedSets")]
            sets: Option<DescribedSets>,
            $($(#[$of_field])* pub(crate) $field: $kind,)*
        }

        impl $name {
            /// Returns the name of the reservation.
            pub(crate) fn named(&mut self) -> Result<ReservationName, Refusal> {
                let Self { reservation, id, attributes, sets, .. } = self;
                reservation_name(reservation.take(), id.take(), attributes.take(), sets.take())
            }
        }
    )*};
}

requests_on_reservations! {
    /// A request to settle a reservation.
    SettleRequest {
        /// The costs that the request really had, by unit. A unit without a cost keeps its estimate, also
        /// `requests`.
        #[schemars(schema_with = "settled_costs")]
        costs: Costs,
    }
    /// A request to release a reservation.
    ReleaseRequest {}
    /// A request to renew a reservation.
    RenewRequest {
        /// The time for which the reservation lasts from now on.
        #[serde(default)]
        ttl: Ttl,
    }
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

/// At most [`MAX_SETS`] attribute sets.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
struct DescribedSets(#[schemars(length(min = 1, max = MAX_SETS))] Vec<SetDescription>);

visited! { DescribedSets, deserialize_seq, expects "a list of attribute sets",
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

/// Reads an optional field that may be left out, but not be `null`.
fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a text, which may be left out, but not be `null`.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Text::deserialize(deserializer).map(|Text(text)| Some(text.into_owned()))
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

impl ReserveRequest {
    /// Returns the request, and the options of the reservation.
    pub(crate) fn into_parts(mut self) -> Result<(OwnedRequest, ReserveOptions), Refusal> {
        let request = self.request()?;
        let Self { ttl: Ttl(ttl), id, .. } = self;
        let options = ReserveOptions::new(ttl)?;
        let options = match id {
            Some(id) if id.is_empty() || id.len() > MAX_ID => {
                return Err(Refusal::invalid(format!("id: need 1 to {MAX_ID} bytes")));
            }
            Some(id) => options.with_id(id)?,
            None => options,
        };
        Ok((request, options))
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

fn reservation_name(
    text: Option<String>,
    id: Option<String>,
    attributes: Option<Attributes>,
    sets: Option<DescribedSets>,
) -> Result<ReservationName, Refusal> {
    match (text, id, attributes.is_some() || sets.is_some()) {
        (Some(text), None, false) => Ok(ReservationName::Text(text)),
        (None, Some(id), true) => {
            Ok(ReservationName::Id(id, request_of_parts(attributes, None, None, sets)?))
        }
        (None, Some(_), false) => {
            Err(Refusal::invalid("`id` needs the `attributes` or `sets` of the request that reserved"))
        }
        (None, None, _) => {
            Err(Refusal::invalid("missing field `reservation`, or `id` with `attributes` or `sets`"))
        }
        (Some(_), ..) => Err(Refusal::invalid("`reservation` excludes `id`, `attributes` and `sets`")),
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
mod tests;
