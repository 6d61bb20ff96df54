//! Buckets that refill continuously.

use super::{Broken, Invariant, forgotten_between};
use crate::simulator::fleet::journal::{Forgotten, KeyJournal};

/// Returns the first interval with more units than the bucket held and refilled, for the limit at `place`
/// of each bucket.
pub(super) fn broken(invariants: &[Invariant], place: usize, journal: &KeyJournal) -> Option<Broken> {
    let forgotten = with_clamped(invariants, place, journal);
    journal
        .cuts()
        .into_iter()
        .find_map(|cut_us| broken_from((invariants, place), journal, &forgotten, cut_us))
}

/// Returns the losses, and those caused by changed limits. Under a smaller limit a bucket owes at most that
/// limit's capacity, and changing back to the larger limit does not restore the rest.
fn with_clamped(invariants: &[Invariant], place: usize, journal: &KeyJournal) -> Vec<Forgotten> {
    let mut forgotten = journal.forgotten.clone();
    let units = |limit: usize| invariants.get(limit).map_or(0, |invariant| invariant.units(place));
    for pair in journal.grants.windows(2) {
        let lost = units(pair[0].limit).saturating_sub(units(pair[1].limit));
        if lost > 0 {
            forgotten.push(Forgotten { at_us: pair[1].at_us, key: pair[1].key, units: lost });
        }
    }
    forgotten.sort_unstable_by_key(|lost| lost.at_us);
    forgotten
}

/// Returns the first violation in intervals that begin at `cut_us` or later.
///
/// From admission i to j, at most capacity + rate × (time between them) + losses are allowed. Each term
/// depends on one end only, so a single pass finds the interval that is closest to a violation.
fn broken_from(
    (invariants, place): (&[Invariant], usize),
    journal: &KeyJournal,
    forgotten: &[Forgotten],
    cut_us: u64,
) -> Option<Broken> {
    let lease_us = journal.longest_lease_us();
    let Invariant::Refilled(refills) = invariants.first()? else { return None };
    let refill_us = refills.get(place)?.refill_us;
    let capacity = journal.loosest(invariants, place, (cut_us.saturating_sub(lease_us), u64::MAX));
    let admissions = &journal.admissions[journal.admissions.partition_point(|one| one.at_us < cut_us)..];
    let (rate, scale) = (i128::from(capacity), i128::from(refill_us));
    let lost_until = |at_us: u64| i128::from(forgotten_between(forgotten, 0, at_us));
    let mut admitted = 0_i128;
    let mut lowest = (i128::MAX, 0, 0);
    for one in admissions {
        let reach_us = one.at_us.saturating_sub(refill_us + lease_us);
        let before = (admitted - lost_until(reach_us)) * scale - rate * i128::from(one.at_us);
        if before < lowest.0 {
            lowest = (before, one.at_us, admitted);
        }
        admitted += i128::from(one.units);
        let now = (admitted - lost_until(one.at_us)) * scale - rate * i128::from(one.at_us);
        if now - lowest.0 > rate * scale {
            let (_, from_us, admitted_before) = lowest;
            let admitted = (admitted - admitted_before) as u64;
            let came_in =
                (u128::from(capacity) * u128::from(one.at_us - from_us) / u128::from(refill_us)) as u64;
            let reach_us = from_us.saturating_sub(refill_us + lease_us);
            let lost = forgotten_between(forgotten, reach_us + 1, one.at_us);
            return Some(Broken { from_us, to_us: one.at_us, admitted, allowed: capacity + came_in + lost });
        }
    }
    None
}
