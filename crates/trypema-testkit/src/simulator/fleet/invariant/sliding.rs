//! Intervals of a fixed length, wherever they begin.

use super::{Broken, Invariant, forgotten_between};
use crate::simulator::fleet::journal::KeyJournal;

/// Returns the first interval of `window_us` with too many units.
pub(super) fn broken(invariants: &[Invariant], window_us: u64, journal: &KeyJournal) -> Option<Broken> {
    journal.cuts().into_iter().find_map(|cut_us| broken_from(invariants, window_us, journal, cut_us))
}

/// Returns the first violation in intervals that begin at `cut_us` or later. Checks the longest interval
/// for each last admission.
fn broken_from(
    invariants: &[Invariant],
    window_us: u64,
    journal: &KeyJournal,
    cut_us: u64,
) -> Option<Broken> {
    let (lease_us, aftermath_us) = (journal.longest_lease_us(), journal.aftermath_us());
    let admissions = &journal.admissions[journal.admissions.partition_point(|one| one.at_us < cut_us)..];
    let (mut oldest, mut admitted) = (0, 0);
    for newest in admissions {
        admitted += newest.units;
        while admissions[oldest].at_us + window_us <= newest.at_us {
            admitted -= admissions[oldest].units;
            oldest += 1;
        }
        let (from_us, to_us) = (admissions[oldest].at_us, newest.at_us);
        // Units that are spent in the interval were granted at most one lease before it.
        let granted_us = from_us.saturating_sub(lease_us);
        let since_us = from_us.saturating_sub(aftermath_us);
        let lost = forgotten_between(&journal.forgotten, since_us, to_us);
        let allowed = journal.loosest(invariants, 0, (granted_us, to_us)) + lost;
        if admitted > allowed {
            return Some(Broken { from_us, to_us, admitted, allowed });
        }
    }
    None
}
