//! What a limit forbids, worked out from what it means and from nothing else.

mod aligned;
mod estimated;
mod refilled;
mod sliding;

use trypema::strategy::{
    Absolute, AbsoluteLimit, FixedWindow, FixedWindowLimit, Leasable, SlidingWindow, SlidingWindowLimit,
    Suppressed, SuppressedLimit, TokenBucket, TokenBucketLimits,
};

use super::journal::{Forgotten, KeyJournal};

/// Calls that the simulated limits count together lie no further apart than this.
const WIDEST_GROUP_US: u64 = 100_000;

/// What is never passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Law {
    /// No interval of the window's length sees more than the capacity.
    Sliding {
        /// The capacity.
        capacity: u64,
        /// The window.
        window_us: u64,
    },
    /// No interval sees more than the capacity and what was refilled in it, for each of these limits.
    Refilled(Vec<Refill>),
    /// No window that begins at a multiple of its length sees more than the limit.
    Aligned {
        /// The limit.
        limit: u64,
        /// The window.
        window_us: u64,
    },
    /// Whenever something is admitted, what was admitted in this aligned window and the share of the one before that
    /// has not faded yet are within the limit. So an interval of the window's length sees less than twice the limit.
    Estimated {
        /// The limit.
        limit: u64,
        /// The window.
        window_us: u64,
    },
}

/// One of a bucket's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refill {
    /// Tokens at most.
    pub capacity: u64,
    /// How long an empty bucket takes to be full.
    pub refill_us: u64,
}

/// More than a law allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The first admission that counts.
    pub from_us: u64,
    /// The last.
    pub to_us: u64,
    /// Units admitted from the one to the other.
    pub admitted: u64,
    /// Units that are allowed, with what was forgotten.
    pub allowed: u64,
}

/// A strategy whose limits are laws.
pub trait Legal: Leasable {
    /// What `limit` forbids.
    fn law(limit: &Self::Limit) -> Law;
}

impl Law {
    /// What in `journal`, of which all was granted under this law, breaks it. Where the store forgot, so much more is
    /// allowed.
    pub fn broken_by(&self, journal: &KeyJournal) -> Option<Broken> {
        Self::any_broken_by(std::slice::from_ref(self), journal)
    }

    /// The same where there are several laws of one kind, by the place of the limits that were granted under: of those
    /// in use around an interval the loosest counts.
    pub fn any_broken_by(laws: &[Self], journal: &KeyJournal) -> Option<Broken> {
        match laws.first()? {
            Self::Sliding { window_us, .. } => sliding::broken(laws, *window_us, journal),
            Self::Refilled(refills) => {
                (0..refills.len()).find_map(|place| refilled::broken(laws, place, journal))
            }
            Self::Aligned { window_us, .. } => aligned::broken(laws, *window_us, journal),
            Self::Estimated { window_us, .. } => estimated::broken(laws, *window_us, journal),
        }
    }

    /// Units at most, in whatever it counts them; of a bucket's limits, the one at `place`.
    fn units(&self, place: usize) -> u64 {
        match self {
            Self::Sliding { capacity, .. } => *capacity,
            Self::Refilled(refills) => refills.get(place).map_or(0, |refill| refill.capacity),
            Self::Aligned { limit, .. } | Self::Estimated { limit, .. } => *limit,
        }
    }
}

impl KeyJournal {
    /// The longest that anything granted may wait to be spent.
    fn longest_lease_us(&self) -> u64 {
        self.grants.iter().map(|grant| grant.until_us.saturating_sub(grant.at_us)).max().unwrap_or(0)
    }

    /// The most that any law in use allowed, for grants from `first_us` to `last_us`.
    fn loosest(&self, laws: &[Law], place: usize, (first_us, last_us): (u64, u64)) -> u64 {
        if let [law] = laws {
            return law.units(place);
        }
        let first = self.grants.partition_point(|grant| grant.at_us < first_us);
        let granted = self.grants[first..].iter().take_while(|grant| grant.at_us <= last_us);
        granted.map(|grant| laws[grant.limit].units(place)).max().unwrap_or(0)
    }

    /// How long what was forgotten may go on to be missing: a lease that was forgotten ends, and what is left of it is
    /// given back in place of what was counted together with it since.
    fn aftermath_us(&self) -> u64 {
        self.longest_lease_us() + WIDEST_GROUP_US
    }

    /// Moments from which on less is allowed than from just before: after something was forgotten, and after the store
    /// was last asked under another limit.
    fn cuts(&self) -> Vec<u64> {
        let lease_us = self.longest_lease_us();
        let mut cuts: Vec<u64> =
            self.forgotten.iter().map(|lost| lost.at_us + self.aftermath_us() + 1).collect();
        let changes = self.grants.windows(2).filter(|pair| pair[0].limit != pair[1].limit);
        // Where limits alternate, only the last before a rest is of interest.
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

/// What was forgotten from `first_us` to `last_us`.
fn forgotten_between(forgotten: &[Forgotten], first_us: u64, last_us: u64) -> u64 {
    let within = |lost: &&Forgotten| (first_us..=last_us).contains(&lost.at_us);
    forgotten.iter().filter(within).map(|lost| lost.units).sum()
}

impl Legal for Absolute {
    fn law(limit: &AbsoluteLimit) -> Law {
        Law::Sliding { capacity: limit.capacity(), window_us: limit.window().as_micros() as u64 }
    }
}

/// What is held on average is no law; the hard limit is.
impl Legal for Suppressed {
    fn law(limit: &SuppressedLimit) -> Law {
        Law::Sliding { capacity: limit.hard(), window_us: limit.window().as_micros() as u64 }
    }
}

impl Legal for TokenBucket {
    fn law(limits: &TokenBucketLimits) -> Law {
        let refill = |limit: &trypema::TokenLimit| Refill {
            capacity: limit.capacity(),
            refill_us: limit.refill_every().as_micros() as u64,
        };
        Law::Refilled(limits.as_slice().iter().map(refill).collect())
    }
}

impl Legal for FixedWindow {
    fn law(limit: &FixedWindowLimit) -> Law {
        Law::Aligned { limit: limit.limit(), window_us: limit.window().as_micros() as u64 }
    }
}

impl Legal for SlidingWindow {
    fn law(limit: &SlidingWindowLimit) -> Law {
        Law::Estimated { limit: limit.limit(), window_us: limit.window().as_micros() as u64 }
    }
}

#[cfg(test)]
mod tests;
