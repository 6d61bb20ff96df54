//! Finds time zones by name in the data that are compiled in.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::error::TrypemaError;

/// The most characters of an unknown name that an error repeats. The longest zone has 32.
const SHOWN_CHARACTERS: usize = 40;

/// The most letters by which a suggestion differs from the given name.
const SIMILAR: usize = 2;

/// Returns the zone of this name.
pub(super) fn find(name: &str) -> Result<TimeZone, TrypemaError> {
    let zone = TimeZoneDatabase::bundled().get(name).ok();
    // Names have one spelling, though jiff ignores case.
    let zone = zone.filter(|zone| zone.iana_name() == Some(name) && !zone.is_unknown());
    zone.ok_or_else(|| {
        let given: String = name.chars().take(SHOWN_CHARACTERS).collect();
        let similar = similar_to(&given);
        TrypemaError::UnknownZone { given, similar }
    })
}

/// Returns the zone that was probably meant: the same but for case, spaces or two letters, or with this city.
fn similar_to(given: &str) -> Option<String> {
    let spelled = |name: &str| name.to_lowercase().replace(' ', "_");
    let given = spelled(given);
    let zones = TimeZoneDatabase::bundled();
    let difference = |name: &str| {
        let name = spelled(name);
        let is_city = name.rsplit('/').next() == Some(&given);
        if is_city && name != given { 1 } else { distance(&name, &given) }
    };
    let most = SIMILAR.min(given.len() / 4);
    let names = zones.available().map(|name| (difference(name.as_str()), name.as_str().to_owned()));
    let nearest = names.filter(|(difference, _)| *difference <= most).min();
    nearest.map(|(_, name)| name)
}

/// Returns the number of letters to insert, delete or replace to make `one` of `other`.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, second) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != second);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
