//! Two aligned windows, the older of which fades.

use super::{Broken, Invariant, forgotten_between};
use crate::simulator::fleet::journal::KeyJournal;

/// Returns the first admission at which the estimate exceeds the limit.
pub(super) fn broken(invariants: &[Invariant], window_us: u64, journal: &KeyJournal) -> Option<Broken> {
    let mut starts_us = 0;
    let (mut previous, mut current) = (0_u64, 0_u64);
    for one in &journal.admissions {
        let window = one.at_us / window_us * window_us;
        if window != starts_us {
            previous = if window == starts_us + window_us { current } else { 0 };
            (starts_us, current) = (window, 0);
        }
        current += one.units;
        let left_us = u128::from(window_us - (one.at_us - starts_us));
        // Rounded down for the report only; the comparison below is exact.
        let faded = (u128::from(previous) * left_us / u128::from(window_us)) as u64;
        let lost = forgotten_between(&journal.forgotten, starts_us.saturating_sub(window_us), one.at_us);
        let allowed = journal.loosest(invariants, 0, (starts_us, one.at_us)) + lost;
        let is_broken = u128::from(previous) * left_us + u128::from(current) * u128::from(window_us)
            > u128::from(allowed) * u128::from(window_us);
        if is_broken {
            return Some(Broken { from_us: starts_us, to_us: one.at_us, admitted: faded + current, allowed });
        }
    }
    None
}
