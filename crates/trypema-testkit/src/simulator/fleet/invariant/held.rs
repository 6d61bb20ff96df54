//! Units that are held for a fixed time, and never leased.

use super::{Broken, Invariant, sliding};
use crate::simulator::fleet::journal::KeyJournal;

/// Returns a lease, or the first time at which too many units are held. A unit that was admitted at `t` is held
/// until just before `t + hold_us`, so the units that are held at one time were admitted within one hold.
pub(super) fn broken(invariants: &[Invariant], hold_us: u64, journal: &KeyJournal) -> Option<Broken> {
    let lease = journal.grants.iter().find(|grant| grant.units > 0 && grant.until_us > grant.at_us);
    let leased = lease.map(|grant| Broken {
        from_us: grant.at_us,
        to_us: grant.until_us,
        admitted: grant.units,
        allowed: 0,
    });
    leased.or_else(|| sliding::broken(invariants, hold_us, journal))
}
