//! Leases: units that an instance takes in advance from the shared count, which is the key's state in Redis,
//! to spend locally until the lease ends.
//!
//! The units are recorded at the end of the lease. No unit is spent after the time it is recorded at, so no
//! interval of a window's length exceeds the limit. The Lua twins are `redis/script/lease.lua`, and `leased` in
//! `redis/script/driver.lua` or the function `lease` of the strategy's own twin.

use super::{Call, Origin, Recorded, Refund, Wire};
use crate::clock::Timestamp;

/// The shortest lease after a partial grant, as a share of the requested length. The reply takes time to
/// arrive, so a lease must not become arbitrarily short.
pub(super) const SHORTEST: f64 = 0.25;

/// A request for a lease, which an instance sends to the shared count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseParams {
    /// The cost of a call that waits for the lease. If it cannot be granted completely, nothing is granted.
    pub need: u64,
    /// The units that the instance expects to spend until the lease ends.
    pub want: u64,
    /// The length of the lease, in microseconds.
    pub length_us: u64,
    /// Unspent units of an earlier lease, which has ended.
    pub unspent: LeasedUnits,
    /// The units that callers requested from the instance, and that it has not reported yet.
    pub reported: u64,
}

/// Leased units to return to the shared count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeasedUnits {
    /// The number of units.
    pub units: u64,
    /// The time at which they were recorded.
    pub recorded: Timestamp,
    /// The count that they joined.
    pub origin: Origin,
    /// The number of resets of the key at the time of the grant. If the key was reset after that, its units
    /// are already gone and must not be refunded.
    pub resets: u32,
}

impl LeasedUnits {
    /// Returns where the units were recorded.
    pub fn recorded(&self) -> Recorded {
        Recorded { at: self.recorded, origin: self.origin }
    }

    /// Whether the units still count at `now`, which they do for `retention_us` after they were recorded.
    /// Units that have left the window must not be refunded: the refund would come out of other units.
    pub fn is_counted(&self, now: Timestamp, retention_us: u64) -> bool {
        self.units > 0 && self.recorded.as_micros() + retention_us > now.as_micros()
    }
}

/// A lease request, with the context in which the shared count decides it.
#[derive(Debug, Clone, Copy)]
pub struct LeaseCall<'a> {
    /// The time of the request.
    pub now: Timestamp,
    /// The request.
    pub params: &'a LeaseParams,
    /// The number of instances that share the key.
    pub instances: u64,
}

/// A grant.
#[derive(Debug, Clone, Copy)]
pub struct LeaseGrant<O> {
    /// The number of units: 0, or at most the larger of `need` and `want`.
    pub units: u64,
    /// The time at which the units are recorded. The instance may spend them until then.
    pub recorded: Timestamp,
    /// The count that the units joined.
    pub origin: Origin,
    /// The outcome for the granted units. If none were granted, the outcome for a cost of `need`, or of 1 if
    /// that is 0.
    pub outcome: O,
}

/// A call that an instance decides with the units that it holds.
#[derive(Debug)]
pub struct LocalCall<'a> {
    /// The cost of the call.
    pub cost: u64,
    /// The units that the instance holds for the key.
    pub left: u64,
    /// The units of the last grant.
    pub granted: u64,
    /// The state of the instance's draws.
    pub drawn: &'a mut u32,
}

/// A strategy whose units can be leased.
pub trait Leasable: Wire {
    /// Whether the strategy grants leases.
    const IS_LEASED: bool = true;

    /// Whether an instance remembers a denial until its wait is over, and denies further calls itself.
    const REMEMBERS_DENIALS: bool = true;

    /// Whether unspent units must be refunded before the lease ends. After that, refilling pays them off, and
    /// a refund returns less.
    const REFUND_BEFORE_END: bool = false;

    /// Returns the shortest window of `limit`. Leases must be short compared with it.
    fn window_us(limit: &Self::Limit) -> u64;

    /// Grants a lease. Refunds the unspent units of an earlier lease, then records the new units at the end
    /// of the new lease.
    fn lease(limit: &Self::Limit, state: &mut Self::State, call: LeaseCall<'_>) -> LeaseGrant<Self::Outcome> {
        let LeaseCall { now, params, instances } = call;
        if params.unspent.is_counted(now, Self::retention_us(limit)) {
            let (units, recorded) = (params.unspent.units, Some(params.unspent.recorded()));
            Self::refund(limit, state, Refund { now, units, recorded });
        }
        let free = Self::available(limit, state, Call::new(now, u64::MAX));
        let units = params.share_of(free, instances);
        if units == 0 {
            let outcome = Self::decide(limit, state, Call::new(now, params.need.max(1)));
            return LeaseGrant { units, recorded: now, origin: Origin::default(), outcome };
        }
        let call = Call::new(now, units).with_stamp(params.end(now, units));
        let outcome = Self::decide(limit, state, call);
        Self::commit(limit, state, call, &outcome);
        let (recorded, origin) = (Self::recorded_at(limit, &outcome, call), Self::origin(state));
        LeaseGrant { units, recorded, origin, outcome }
    }

    /// Decides a call with the units that the instance holds. `last_outcome` is the outcome of the last
    /// grant. Returns `None` if the shared count has to decide. The caller spends the cost if the returned
    /// outcome admits it.
    fn spend(
        limit: &Self::Limit,
        last_outcome: &Self::Outcome,
        call: LocalCall<'_>,
    ) -> Option<Self::Outcome> {
        (call.cost <= call.left).then(|| Self::leased_outcome(limit, last_outcome, call))
    }

    /// Returns the outcome of a call that is admitted with leased units.
    fn leased_outcome(
        limit: &Self::Limit,
        last_outcome: &Self::Outcome,
        call: LocalCall<'_>,
    ) -> Self::Outcome;

    /// Whether the instance must report the calls that it decided itself, because the strategy counts denied
    /// calls as well.
    fn reports_local_calls(limit: &Self::Limit) -> bool {
        let _ = limit;
        false
    }

    /// Whether the instance may decide further calls by drawing with the share in `outcome` until the lease
    /// ends, even if no units were granted.
    fn allows_local_draws(outcome: &Self::Outcome) -> bool {
        let _ = outcome;
        false
    }

    /// Returns part `index` of `limit`, divided into `count` parts that are as equal as possible. The parts
    /// together never exceed the whole. Returns `None` if the limit cannot be divided.
    fn part(limit: &Self::Limit, index: u32, count: u32) -> Option<Self::Limit>;
}

impl LeaseParams {
    /// Returns the units to grant, out of `free`, to one of `instances` instances.
    pub(super) fn share_of(&self, free: u64, instances: u64) -> u64 {
        let fair = (free / instances.max(1)).max(1);
        if self.need > free { 0 } else { self.want.min(fair).max(self.need).min(free) }
    }

    /// Returns the end of a lease of `units`. If only a part of the wanted units is granted, the instance
    /// spends them sooner, so the lease is shorter.
    pub(crate) fn end(&self, now: Timestamp, units: u64) -> Timestamp {
        let part = (units as f64 / self.want.max(1) as f64).clamp(SHORTEST, 1.0);
        Timestamp::derived(now.as_micros() + (self.length_us as f64 * part) as u64)
    }
}

/// Returns part `index` of `whole`, divided into `count` parts. If there is a remainder, the first parts are
/// larger by one. Returns `None` if some part would be 0.
pub(super) fn part_of(whole: u64, index: u32, count: u32) -> Option<u64> {
    let count = u64::from(count.max(1));
    (whole >= count).then(|| whole / count + u64::from(u64::from(index) < whole % count))
}
