//! Requests to reserve, settle, release and renew.

use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use trypema::rules::{Period, ReserveOptions};

use super::attributes::Text;
use super::{DescribedSets, not_null, request_of_parts, requests};
use crate::attributes::{Attributes, Costs, OwnedRequest};
use crate::refusal::Refusal;
use crate::service::ReservationName;

/// The time for which a reservation lasts if the request names none.
const DEFAULT_TTL: Duration = Duration::from_secs(60);
/// The longest time for which a reservation lasts without being renewed, as in the library.
const MAX_TTL: Duration = Duration::from_secs(60 * 60);
/// The longest id that a caller can choose, in bytes, as in the library.
const MAX_ID: usize = 128;

requests! {
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

/// Reads a text, which may be left out, but not be `null`.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Text::deserialize(deserializer).map(|Text(text)| Some(text.into_owned()))
}

/// Declares a request that names a reservation: by its text, or by its id and the attributes of its request.
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
            $($(#[$of_field])* $field: $kind,)*
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
        #[schemars(schema_with = "Costs::schema_of_settled")]
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

impl SettleRequest {
    /// Returns the costs by unit.
    pub(crate) fn costs(&self) -> &Costs {
        &self.costs
    }
}

impl RenewRequest {
    /// Returns the time for which the reservation is to last.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.0
    }
}

/// The time for which a reservation lasts, within its bounds.
#[derive(Debug, Clone, Copy)]
struct Ttl(Duration);

impl Default for Ttl {
    fn default() -> Self {
        Self(DEFAULT_TTL)
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TtlVisitor)
    }
}

struct TtlVisitor;

impl Visitor<'_> for TtlVisitor {
    type Value = Ttl;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a ttl: a length of time such as \"120s\"")
    }

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

impl JsonSchema for Ttl {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ttl".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "A length of time of at most an hour, such as 120s, 1m30s or 500ms. Concurrency rules shorten it to their `hold`.",
            "type": "string",
            "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?([0-9]+us)?$",
            "minLength": 2,
            "default": Period(DEFAULT_TTL).to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::json::read;

    fn reason(refusal: Refusal) -> String {
        match refusal {
            Refusal::Invalid(reason) => reason.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn ttl_of(ttl: &str) -> Result<Duration, String> {
        let body = format!(r#"{{"reservation": "r1.x"{ttl}}}"#);
        let renewal = read::<RenewRequest>(body.as_bytes()).map_err(reason)?;
        Ok(renewal.ttl())
    }

    #[test]
    fn a_ttl_is_at_most_an_hour() {
        assert_eq!(ttl_of(""), Ok(Duration::from_secs(60)));
        assert_eq!(ttl_of(r#", "ttl": "1m30s""#), Ok(Duration::from_secs(90)));
        assert_eq!(ttl_of(r#", "ttl": "1h""#), Ok(MAX_TTL));
        assert_eq!(ttl_of(r#", "ttl": "1us""#), Ok(Duration::from_micros(1)));
        for (ttl, expected) in [
            ("\"0s\"", "ttl: need more than 0s and at most 1h"),
            ("\"1h1us\"", "ttl: need more than 0s and at most 1h"),
            ("\"365d\"", "ttl: need more than 0s and at most 1h"),
            ("\"60\"", "ttl: `60` needs a unit"),
            ("60", "ttl: `60` needs a unit"),
            ("\"\"", "ttl: invalid length of time"),
            ("\"-5s\"", "ttl: invalid length of time"),
            ("-5", "expected a ttl"),
            ("1.5", "expected a ttl"),
            ("null", "expected a ttl"),
            ("[]", "expected a ttl"),
        ] {
            let error = ttl_of(&format!(", \"ttl\": {ttl}")).expect_err(ttl);
            assert!(error.contains(expected), "{ttl}: {error}");
        }
    }

    #[test]
    fn fields_are_required_and_known() {
        let settle = |body: &str| {
            read::<SettleRequest>(body.as_bytes()).and_then(|mut request| request.named().map(drop))
        };
        for (body, expected) in [
            (r#"{"costs": {}}"#, "missing field `reservation`, or `id` with `attributes` or `sets`"),
            (r#"{"costs": {}, "attributes": {}}"#, "missing field `reservation`, or `id` with"),
            (r#"{"costs": {}, "id": "a"}"#, "`id` needs the `attributes` or `sets`"),
            (r#"{"costs": {}, "id": "a", "attributes": {}, "sets": []}"#, "`sets` excludes `attributes`"),
            (r#"{"costs": {}, "id": "a", "sets": []}"#, "`sets` is empty"),
            (r#"{"costs": {}, "id": "a", "reservation": "r1.x"}"#, "`reservation` excludes `id`"),
            (r#"{"costs": {}, "attributes": {}, "reservation": "r1.x"}"#, "`reservation` excludes `id`"),
            (r#"{"reservation": "r1.x"}"#, "missing field `costs`"),
            (r#"{"reservation": null, "costs": {}}"#, "expected a text"),
            (r#"{"reservation": ["r1.x"], "costs": {}}"#, "expected a text"),
            (r#"{"reservation": "r1.x", "costs": null}"#, "expected an object of costs"),
            (r#"{"reservation": "r1.x", "costs": {"tokens": null}}"#, "expected a cost"),
            (r#"{"reservation": "r1.x", "costs": {"tokens": -1}}"#, "expected a cost"),
            (r#"{"reservation": "r1.x", "costs": {"tokens": 0.5}}"#, "expected a cost"),
            (r#"{"reservation": "r1.x", "costs": {"tokens": 1, "tokens": 1}}"#, "is given twice"),
            (r#"{"reservation": "r1.x", "costs": {}, "cost": 1}"#, "unknown field `cost`"),
            (r#"{"reservation": "r1.x", "reservation": "r1.y", "costs": {}}"#, "duplicate field"),
        ] {
            let error = reason(settle(body).expect_err(body));
            assert!(error.contains(expected), "{body}: {error}");
        }
        assert!(settle(r#"{"reservation": "r1.x", "costs": {}}"#).is_ok());
        assert!(settle(r#"{"id": "a", "attributes": {"user": "ann"}, "costs": {}}"#).is_ok());
        assert!(settle(r#"{"id": "a", "sets": [{"attributes": {"user": "ann"}}], "costs": {}}"#).is_ok());
    }

    #[test]
    fn an_id_has_bounds() {
        let reserve = |id: &str| {
            let body = format!(r#"{{"attributes": {{}}, "id": {id}}}"#);
            let parts = read::<ReserveRequest>(body.as_bytes()).and_then(ReserveRequest::into_parts);
            parts.map(drop).map_err(reason)
        };
        let longest = format!("\"{}\"", "x".repeat(MAX_ID));
        assert_eq!((reserve("\"a\""), reserve(&longest)), (Ok(()), Ok(())));
        for id in ["\"\"".to_owned(), format!("\"{}\"", "x".repeat(MAX_ID + 1))] {
            assert!(reserve(&id).unwrap_err().contains("id: need 1 to 128 bytes"));
        }
        assert!(reserve("null").unwrap_err().contains("expected a text"));
        assert!(reserve("7").unwrap_err().contains("expected a text"));
    }
}
