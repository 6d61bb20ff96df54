//! The invariants of limits, derived from their meaning and not from the code of the library.

mod aligned;
mod estimated;
mod held;
mod refilled;
mod sliding;

use std::time::Duration;

use trypema::TrypemaError;

use super::journal::{Forgotten, KeyJournal};
use crate::random::Random;
use crate::subject::Modelled;

/// The longest distance between calls that the simulated limits count together.
const WIDEST_GROUP_US: u64 = 100_000;

/// The invariant of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invariant {
    /// No interval of the window's length contains more units than the capacity.
    Sliding {
        /// The capacity.
        capacity: u64,
        /// The window.
        window_us: u64,
    },
    /// For each of these limits, no interval contains more units than the capacity and its refill in that
    /// interval.
    Refilled(Vec<Refill>),
    /// No window that begins at a multiple of its length contains more units than the limit.
    Aligned {
        /// The limit.
        limit: u64,
        /// The window.
        window_us: u64,
    },
    /// At every admission, the units admitted in this aligned window, and the share of the previous one
    /// that has not faded yet, are within the limit. So an interval of the window's length contains less
    /// than twice the limit.
    Estimated {
        /// The limit.
        limit: u64,
        /// The window.
        window_us: u64,
    },
    /// At no time are more units held than the limit. In the fleet nobody releases any, so each is held for
    /// `hold_us`. No unit comes from a lease: an instance cannot hold what nobody asked for.
    Held {
        /// The limit.
        limit: u64,
        /// The time for which units are held.
        hold_us: u64,
    },
}

/// One limit of a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refill {
    /// The maximum number of tokens.
    pub capacity: u64,
    /// The time in which an empty bucket becomes full.
    pub refill_us: u64,
}

/// A violation of a invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The time of the first admission that counts.
    pub from_us: u64,
    /// The time of the last admission.
    pub to_us: u64,
    /// The units admitted between them.
    pub admitted: u64,
    /// The units that are allowed, including those that the store lost.
    pub allowed: u64,
}

/// A strategy whose limits have a invariant.
pub trait HasInvariant: Modelled {
    /// Returns the invariant of `limit`.
    fn invariant(limit: &Self::Limit) -> Invariant;

    /// Returns a limit of about `capacity` per `window` for a random fleet.
    fn random(capacity: u64, window: Duration, random: &mut Random) -> Result<Self::Limit, TrypemaError> {
        let _ = random;
        Self::sized(capacity, window)
    }
}

impl Invariant {
    /// Returns the first violation in `journal`, all grants of which have to be under this invariant. Units that
    /// the store lost are allowed in addition.
    pub fn violation_in(&self, journal: &KeyJournal) -> Option<Broken> {
        Self::any_violation_in(std::slice::from_ref(self), journal)
    }

    /// Returns the first violation where limits change. `invariants` are of one kind, in the order of the fleet's
    /// limits. For each interval, the loosest invariant in use around it counts.
    pub fn any_violation_in(invariants: &[Self], journal: &KeyJournal) -> Option<Broken> {
        match invariants.first()? {
            Self::Sliding { window_us, .. } => sliding::broken(invariants, *window_us, journal),
            Self::Refilled(refills) => {
                (0..refills.len()).find_map(|place| refilled::broken(invariants, place, journal))
            }
            Self::Aligned { window_us, .. } => aligned::broken(invariants, *window_us, journal),
            Self::Estimated { window_us, .. } => estimated::broken(invariants, *window_us, journal),
            Self::Held { hold_us, .. } => held::broken(invariants, *hold_us, journal),
        }
    }

    /// Returns the maximum number of units; for a token bucket that of the limit at `place`.
    fn units(&self, place: usize) -> u64 {
        match self {
            Self::Sliding { capacity, .. } => *capacity,
            Self::Refilled(refills) => refills.get(place).map_or(0, |refill| refill.capacity),
            Self::Aligned { limit, .. } | Self::Estimated { limit, .. } | Self::Held { limit, .. } => *limit,
        }
    }
}

impl KeyJournal {
    /// Returns the longest time between a grant and the end of its lease.
    fn longest_lease_us(&self) -> u64 {
        self.grants.iter().map(|grant| grant.until_us.saturating_sub(grant.at_us)).max().unwrap_or(0)
    }

    /// Returns the maximum that any invariant in use allows, for grants from `first_us` to `last_us`.
    fn loosest(&self, invariants: &[Invariant], place: usize, (first_us, last_us): (u64, u64)) -> u64 {
        if let [invariant] = invariants {
            return invariant.units(place);
        }
        let first = self.grants.partition_point(|grant| grant.at_us < first_us);
        let granted = self.grants[first..].iter().take_while(|grant| grant.at_us <= last_us);
        granted.map(|grant| invariants[grant.limit].units(place)).max().unwrap_or(0)
    }

    /// Returns the time for which a loss can have effects. A lost lease ends, and its rest is returned in
    /// place of units that were counted together with it since.
    fn aftermath_us(&self) -> u64 {
        self.longest_lease_us() + WIDEST_GROUP_US
    }

    /// Returns the times from which less is allowed than just before: after a loss, and after the last
    /// request under another limit.
    fn cuts(&self) -> Vec<u64> {
        let lease_us = self.longest_lease_us();
        let mut cuts: Vec<u64> =
            self.forgotten.iter().map(|lost| lost.at_us + self.aftermath_us() + 1).collect();
        let changes = self.grants.windows(2).filter(|pair| pair[0].limit != pair[1].limit);
        // If limits alternate, only the last change before a pause matters.
        let mut last = None;
        for pair in changes {
            if last.is_some_and(|at| pair[1].at_us > at + lease_us) {
                cuts.extend(last.map(|at| at + lease_us + 1));
            }
            last = Some(pair[1].at_us);
        }
        cuts.extend(last.map(|at| at + lease_us + 1));
        cuts.push(0);
        cuts
    }
}

/// Returns the units that the store lost from `first_us` to `last_us`.
fn forgotten_between(forgotten: &[Forgotten], first_us: u64, last_us: u64) -> u64 {
    let within = |lost: &&Forgotten| (first_us..=last_us).contains(&lost.at_us);
    forgotten.iter().filter(within).map(|lost| lost.units).sum()
}

#[cfg(test)]
mod tests;
