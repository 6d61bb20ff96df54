//! The id of a reservation, and its text: the id and the names of its counters.
//!
//! The text needs no signature: a forged one would have to guess the 128 bits of the id, or no counter knows it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::check::MAX_CHECKS;
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::reservation::ReservationName;
use crate::rules::counter::MAX_BYTES as MAX_NAME_BYTES;
use crate::rules::request::{AttributeSet, REQUESTS, Request};
use crate::strategy::reservations::ReservationId;
use crate::units::MAX_EXACT;

/// The start of every text, with the number of its format.
const PREFIX: &str = "r1.";

/// The longest text that is read: as many counters as a request can have, with the longest names, in base64.
const MAX_TEXT_BYTES: usize = PREFIX.len() + (16 + MAX_CHECKS * (2 + MAX_NAME_BYTES + 8)).div_ceil(3) * 4;

/// The bit of a name's length that marks the counter of a shadow rule. No name is so long.
const SHADOW: u16 = 1 << 15;

/// The bit of a name's length that marks a counter at which a process keeps the reservation. The time until then, in
/// microseconds, follows the name.
const KEPT: u16 = 1 << 14;

/// A reservation that has not been settled: its id and the names of its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rules) struct Outstanding {
    pub(in crate::rules) id: ReservationId,
    pub(in crate::rules) counters: Vec<CounterName>,
}

/// The name of a counter at which units are reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rules) struct CounterName {
    pub(in crate::rules) key: String,
    /// Whether the rule could not deny the request when it was made. This only matters if the rule is gone:
    /// callers write the text, so the rules in force decide everything else.
    pub(in crate::rules) is_shadow: bool,
    /// The time until which the process that reserved without the store may keep the reservation to itself.
    pub(in crate::rules) kept_until: Option<Timestamp>,
}

impl Outstanding {
    /// Returns the text, from which any server reads the reservation again.
    pub(in crate::rules) fn text(&self) -> String {
        let mut bytes = self.id.0.to_vec();
        for CounterName { key, is_shadow, kept_until } in &self.counters {
            let shadow = if *is_shadow { SHADOW } else { 0 };
            let kept = if kept_until.is_some() { KEPT } else { 0 };
            bytes.extend_from_slice(&(key.len() as u16 | shadow | kept).to_le_bytes());
            bytes.extend_from_slice(key.as_bytes());
            if let Some(until) = kept_until {
                bytes.extend_from_slice(&until.as_micros().to_le_bytes());
            }
        }
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(in crate::rules) fn read(text: &str) -> Result<Self, TrypemaError> {
        let invalid = |reason| TrypemaError::InvalidReservation { reason };
        if text.len() > MAX_TEXT_BYTES {
            return Err(invalid("the text is longer than any reservation"));
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(invalid("the text does not begin with `r1.`"))?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| invalid("the text is damaged"))?;
        let (id, mut rest) = bytes.split_first_chunk::<16>().ok_or(invalid("the text is too short"))?;
        let id = ReservationId(*id);
        if id == ReservationId::ANONYMOUS {
            return Err(invalid("the text is damaged"));
        }
        let mut counters: Vec<CounterName> = Vec::new();
        while !rest.is_empty() {
            let (name, after) = CounterName::read(rest).ok_or(invalid("the text is damaged"))?;
            if counters.len() == MAX_CHECKS {
                return Err(invalid("the text names more counters than a request can have"));
            }
            if counters.iter().any(|counter| counter.key == name.key) {
                return Err(invalid("the text names a counter twice"));
            }
            counters.push(name);
            rest = after;
        }
        Ok(Self { id, counters })
    }
}

impl CounterName {
    /// Reads the name at the start of `bytes`. Returns it with the bytes after it; `None` if no counter has such
    /// a name.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (length, after) = bytes.split_first_chunk::<2>()?;
        let length = u16::from_le_bytes(*length);
        let (is_shadow, is_kept) = (length & SHADOW != 0, length & KEPT != 0);
        let length = usize::from(length & !(SHADOW | KEPT));
        if length == 0 || length > MAX_NAME_BYTES {
            return None;
        }
        let (key, mut after) = after.split_at_checked(length)?;
        let mut kept_until = None;
        if is_kept {
            let (until, rest) = after.split_first_chunk::<8>()?;
            // A later time than any clock can show is no time.
            let until = u64::from_le_bytes(*until);
            (kept_until, after) = ((until <= MAX_EXACT).then(|| Timestamp::derived(until)), rest);
            kept_until?;
        }
        Some((Self { key: String::from_utf8(key.to_vec()).ok()?, is_shadow, kept_until }, after))
    }
}

/// Returns the name of a reservation: by the id that the caller chose, or a random one.
pub(super) fn name_of(chosen: Option<&str>, request: &Request<'_>) -> ReservationName {
    match chosen {
        Some(chosen) => {
            let digest = Sha256::new_with_prefix("trypema reservation\0").chain_update(chosen).finalize();
            let id = ReservationId::chosen(first_bytes(&digest));
            ReservationName { id, request: digest_of(request) }
        }
        None => ReservationName { id: ReservationId::random(crate::random::bytes()), request: 0 },
    }
}

/// Returns a digest of the attributes and costs of a request. Their order does not matter.
fn digest_of(request: &Request<'_>) -> u64 {
    let mut digest = Sha256::new();
    let mut add = |text: &str| {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    };
    for set in request.sets() {
        let mut attributes = set.attributes().to_vec();
        attributes.sort_unstable();
        let mut costs = costs_of(set);
        costs.sort_unstable();
        add(&format!("{} {}", attributes.len(), costs.len()));
        attributes.iter().for_each(|(name, value)| [*name, *value].into_iter().for_each(&mut add));
        costs.iter().for_each(|(unit, cost)| [*unit, cost.as_str()].into_iter().for_each(&mut add));
    }
    u64::from_le_bytes(first_bytes(&digest.finalize()))
}

fn costs_of<'a>(set: &AttributeSet<'a>) -> Vec<(&'a str, String)> {
    let units = set.named_units().chain([REQUESTS]);
    units.filter_map(|unit| Some((unit, set.cost_of(unit)?.to_string()))).collect()
}

fn first_bytes<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.iter_mut().zip(digest).for_each(|(byte, of_digest)| *byte = *of_digest);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_its_id_and_counters() {
        let name =
            |(key, is_shadow): (&str, _)| CounterName { key: key.to_owned(), is_shadow, kept_until: None };
        let counters = [("all", false), ("per-user|user=ann", true), ("é|x=\u{0}", false)];
        let mut made = named(counters.map(name).to_vec());
        made.counters[1].kept_until = Some(Timestamp::from_micros(1_706_612_400_000_000));
        assert_eq!(Outstanding::read(&made.text()).unwrap(), made);
    }

    #[test]
    fn the_longest_text_is_read_and_no_longer_one() {
        let counter = |number| CounterName {
            key: format!("{number:0>MAX_NAME_BYTES$}"),
            is_shadow: true,
            kept_until: Some(Timestamp::derived(MAX_EXACT)),
        };
        let longest = named((0..MAX_CHECKS).map(counter).collect());
        assert!(longest.text().len() <= MAX_TEXT_BYTES);
        assert_eq!(Outstanding::read(&longest.text()).unwrap(), longest);
        let too_many = named((0..=MAX_CHECKS).map(counter).collect());
        assert!(Outstanding::read(&too_many.text()).is_err());
        let short =
            |number: usize| CounterName { key: number.to_string(), is_shadow: false, kept_until: None };
        let too_many = named((0..=MAX_CHECKS).map(short).collect());
        assert!(Outstanding::read(&too_many.text()).is_err());
        let too_long =
            CounterName { key: "k".repeat(MAX_NAME_BYTES + 1), is_shadow: false, kept_until: None };
        assert!(Outstanding::read(&named(vec![too_long]).text()).is_err());
        let twice = [short(1), CounterName { is_shadow: true, ..short(1) }];
        assert!(Outstanding::read(&named(twice.to_vec()).text()).is_err());
    }

    fn named(counters: Vec<CounterName>) -> Outstanding {
        Outstanding { id: ReservationId::random([7; 16]), counters }
    }

    #[test]
    fn other_texts_are_refused() {
        let zeros = format!("r1.{}", URL_SAFE_NO_PAD.encode([0; 16]));
        let cut = format!("r1.{}", URL_SAFE_NO_PAD.encode([[1; 16].as_slice(), &[9, 0, 65]].concat()));
        let unnamed = format!("r1.{}", URL_SAFE_NO_PAD.encode([[1; 16].as_slice(), &[0, 0]].concat()));
        let long = format!("r1.{}", "A".repeat(MAX_TEXT_BYTES));
        for text in ["", "r1.", "r2.AAAA", "r1.AAAA", "r1.%%%", "x", &zeros, &cut, &unnamed, &long] {
            assert!(Outstanding::read(text).is_err(), "{text:.40}");
        }
    }

    #[test]
    fn a_chosen_id_depends_on_nothing_else() {
        let (one, other) = ([("user", "ann"), ("plan", "free")], [("plan", "free"), ("user", "ann")]);
        let costs = [("tokens", 5)];
        let name = |attributes, costs| name_of(Some("id"), &Request::new(attributes).with_costs(costs));
        assert_eq!(name(&one, &costs), name(&other, &costs));
        assert_eq!(name(&one, &costs).id, name(&one, &[]).id);
        assert_ne!(name(&one, &costs).request, name(&one, &[]).request);
        assert_ne!(name(&one, &costs).request, name(&[("user", "bob")], &costs).request);
        assert!(name(&one, &costs).id.is_chosen());
    }

    #[test]
    fn random_ids_differ_and_are_not_chosen() {
        let request = Request::new(&[]);
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| name_of(None, &request).id).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| !id.is_chosen()));
    }
}
