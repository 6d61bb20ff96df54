//! Leases: units that an instance takes from the shared count, to spend by itself until the lease ends.
//!
//! They are recorded at the lease's end, so none is spent after the moment it counts from: no interval sees more than
//! the limit. The twin is `lease` in `redis/script/driver.lua`, and in a strategy's own script where it has one.

use super::{Call, Refund, Wire};
use crate::clock::Timestamp;

/// A lease is shortened, where less was granted than wanted, to this share of its length at most: an answer takes time
/// to arrive.
const SHORTEST: f64 = 0.25;

/// What an instance asks the shared count for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseAsk {
    /// What somebody waits for: granted whole, or nothing is.
    pub need: u64,
    /// What the instance could spend until the lease ends.
    pub want: u64,
    /// How long it takes to spend that.
    pub length_us: u64,
    /// What is left of a lease that has ended, and where that was recorded.
    pub back: Back,
    /// What was asked of the instance since it last said so.
    pub seen: u64,
}

/// Units that were not spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Back {
    /// How many.
    pub units: u64,
    /// Where they were recorded.
    pub recorded: Timestamp,
    /// How often the key had been reset when they were granted: of what was forgotten, nothing is given back.
    pub resets: u32,
}

impl Back {
    /// Whether they still count at `now`, for `memory_us` after they were recorded: what has left is nobody's to take away.
    pub fn is_counting(&self, now: Timestamp, memory_us: u64) -> bool {
        self.units > 0 && self.recorded.as_micros() + memory_us > now.as_micros()
    }
}

/// A request for a lease, as the shared count meets it.
#[derive(Debug, Clone, Copy)]
pub struct LeaseCall<'a> {
    /// The present.
    pub now: Timestamp,
    /// What is asked for.
    pub ask: &'a LeaseAsk,
    /// How many instances share the key.
    pub sharers: u64,
}

/// What was granted.
#[derive(Debug, Clone, Copy)]
pub struct Leased<O> {
    /// How many units, from none to what was wanted or needed.
    pub units: u64,
    /// Where they are recorded: they may be spent until then.
    pub recorded: Timestamp,
    /// What deciding found: for the units, or, if there are none, why there are not.
    pub outcome: O,
}

/// A call that is decided by what its instance holds.
#[derive(Debug)]
pub struct Turn<'a> {
    /// What the call asks for.
    pub cost: u64,
    /// What the instance holds of the key.
    pub left: u64,
    /// What was granted last.
    pub granted: u64,
    /// The last draw.
    pub drawn: &'a mut u32,
}

/// A strategy whose units can be leased.
pub trait Leasable: Wire {
    /// Whether leases make sense at all.
    const IS_LEASED: bool = true;

    /// Whether units have to be given back before the moment they count from, since later they may have been used up by time.
    const IS_RETURNED_EARLY: bool = false;

    /// The window that leases have to be short beside: the shortest, if there are several.
    fn window_us(limit: &Self::Limit) -> u64;

    /// Grants a lease: takes back what is left of an old one, and records the new one at its end.
    fn lease(limit: &Self::Limit, state: &mut Self::State, call: LeaseCall<'_>) -> Leased<Self::Outcome> {
        let LeaseCall { now, ask, sharers } = call;
        if ask.back.is_counting(now, Self::memory_us(limit)) {
            let (units, recorded) = (ask.back.units, Some(ask.back.recorded));
            Self::refund(limit, state, Refund { now, units, recorded });
        }
        let free = Self::fits(limit, state, Call::new(now, u64::MAX));
        let units = ask.share_of(free, sharers);
        if units == 0 {
            let outcome = Self::decide(limit, state, Call::new(now, ask.need.max(1)));
            return Leased { units, recorded: now, outcome };
        }
        let call = Call::new(now, units).stamped(ask.end(now, units));
        let outcome = Self::decide(limit, state, call);
        Self::commit(limit, state, call, &outcome);
        Leased { units, recorded: Self::recorded_at(limit, &outcome, call), outcome }
    }

    /// What a call gets of what is held, where the last lease was told `told`; `None` if it has to be asked for. It is
    /// spent if the outcome is admitted.
    fn spend(limit: &Self::Limit, told: &Self::Outcome, turn: Turn<'_>) -> Option<Self::Outcome> {
        (turn.cost <= turn.left).then(|| Self::of_lease(limit, told, turn))
    }

    /// The outcome of a call that is admitted out of a lease.
    fn of_lease(limit: &Self::Limit, told: &Self::Outcome, turn: Turn<'_>) -> Self::Outcome;

    /// Whether calls that are denied out of memory are to be told to the shared count.
    fn is_counting_denied(limit: &Self::Limit) -> bool {
        let _ = limit;
        false
    }

    /// Whether `outcome`, for which nothing was granted, lets the instance decide all the same until the lease's end.
    fn is_drawing(outcome: &Self::Outcome) -> bool {
        let _ = outcome;
        false
    }

    /// The part of `limit` that has this `index` of `count` equal ones, which together are never more than the whole;
    /// `None` where it cannot be divided.
    fn part(limit: &Self::Limit, index: u32, count: u32) -> Option<Self::Limit>;
}

impl LeaseAsk {
    /// The units to grant of `free` to one of `sharers`.
    pub(super) fn share_of(&self, free: u64, sharers: u64) -> u64 {
        let fair = (free / sharers.max(1)).max(1);
        if self.need > free { 0 } else { self.want.min(fair).max(self.need).min(free) }
    }

    /// When a lease of `units` ends. One that is smaller than wanted is spent sooner, and need not last as long.
    pub(crate) fn end(&self, now: Timestamp, units: u64) -> Timestamp {
        let part = (units as f64 / self.want.max(1) as f64).clamp(SHORTEST, 1.0);
        Timestamp::derived(now.as_micros() + (self.length_us as f64 * part) as u64)
    }
}

/// `whole` divided into `count` parts, of which the first ones get what is left over; `None` if some would get nothing.
pub(super) fn part_of(whole: u64, index: u32, count: u32) -> Option<u64> {
    let count = u64::from(count.max(1));
    (whole >= count).then(|| whole / count + u64::from(u64::from(index) < whole % count))
}
