//! Windows that begin at multiples of their length.

use super::{Broken, Invariant, forgotten_between};
use crate::simulator::fleet::journal::KeyJournal;

/// Returns the first window with too many units.
pub(super) fn broken(invariants: &[Invariant], window_us: u64, journal: &KeyJournal) -> Option<Broken> {
    let windows = journal.admissions.chunk_by(|one, other| one.at_us / window_us == other.at_us / window_us);
    for window in windows {
        let starts_us = window[0].at_us / window_us * window_us;
        let admitted = window.iter().map(|one| one.units).sum();
        let to_us = window[window.len() - 1].at_us;
        let lost = forgotten_between(&journal.forgotten, starts_us, to_us);
        let allowed = journal.loosest(invariants, 0, (starts_us, to_us)) + lost;
        if admitted > allowed {
            return Some(Broken { from_us: window[0].at_us, to_us, admitted, allowed });
        }
    }
    None
}
