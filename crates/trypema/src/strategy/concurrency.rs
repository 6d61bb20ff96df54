//! Concurrency: a number of units that may be held at the same time.

#[cfg(feature = "_redis")]
mod lease;
#[cfg(feature = "_redis")]
mod wire;

use std::time::Duration;

use super::reservations::{Entry, MAX_HOLD, ReservationTable};
use super::{Call, Refund, SharedState, Strategy};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime, NEVER};
use crate::error::TrypemaError;
use crate::units::MAX_EXACT;

/// The wait after a denial, unless everything that is held expires sooner. Holders release their units when
/// they are done, so nobody knows the exact wait.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The limit on units held at the same time; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct Concurrency;

/// The units that may be held at the same time, and the longest time for which a holder keeps them without a
/// renewal.
///
/// ```
/// use std::time::Duration;
/// use trypema::ConcurrencyLimit;
///
/// let limit = ConcurrencyLimit::new(20, Duration::from_secs(60))?;
/// assert_eq!((limit.limit(), limit.hold()), (20, Duration::from_secs(60)));
/// assert!(ConcurrencyLimit::new(0, Duration::from_secs(60)).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyLimit {
    limit: u64,
    hold_us: u64,
}

impl ConcurrencyLimit {
    /// Returns a limit of `limit` units. A holder that neither releases nor renews its units loses them after
    /// `hold`, which is at most one hour and is rounded up to whole microseconds.
    ///
    /// A key has at most 4,096 holders at a time, whatever its limit.
    pub fn new(limit: u64, hold: Duration) -> Result<Self, TrypemaError> {
        if limit == 0 || limit > MAX_EXACT {
            return Err(TrypemaError::InvalidLimit { given: limit, max: MAX_EXACT });
        }
        if hold.is_zero() || hold > MAX_HOLD {
            return Err(TrypemaError::InvalidHold { given: hold, max: MAX_HOLD });
        }
        Ok(Self { limit, hold_us: hold.as_nanos().div_ceil(1_000) as u64 })
    }

    /// Returns a limit that stands for a table of reservations beside the counter of another strategy.
    #[cfg(feature = "rules")]
    pub(crate) fn of_table() -> Self {
        Self { limit: MAX_EXACT, hold_us: MAX_HOLD.as_micros() as u64 }
    }

    /// Returns the units that may be held at the same time.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the longest time for which a holder keeps its units without a renewal.
    pub fn hold(&self) -> Duration {
        Duration::from_micros(self.hold_us)
    }

    /// Returns the same, as the window of the limit.
    pub(super) fn window(&self) -> Duration {
        self.hold()
    }

    /// Returns the time from which `call` holds its units for the usual time: at most one hold ahead, because
    /// more would look like a clock that went back.
    fn recorded_at(&self, call: Call) -> u64 {
        call.stamp.as_micros().min(call.now.as_micros() + self.hold_us)
    }
}

/// The concurrency strategy's state of a key.
pub type ConcurrencyState = ReservationTable;

/// The outcome of the concurrency strategy.
#[derive(Debug, Clone, Copy)]
pub struct ConcurrencyOutcome {
    is_admitted: bool,
    is_never: bool,
    remaining: u64,
    not_before: u64,
    resets_at: u64,
    /// The units that were held before.
    held: u64,
}

impl ConcurrencyOutcome {
    /// Returns the outcome of `call` if `held` units are held, of which the last expire at `latest`.
    fn new(limit: &ConcurrencyLimit, call: Call, table: HeldUnits) -> Self {
        let HeldUnits { units, has_room, latest } = table;
        let now = call.now.as_micros();
        let free = if has_room { limit.limit.saturating_sub(units) } else { 0 };
        let is_admitted = call.needed <= free;
        let is_recorded = is_admitted && call.units_to_record(units, MAX_EXACT) > 0;
        let resets_at = match (is_recorded, units > 0 || !has_room) {
            (true, _) => latest.max(limit.recorded_at(call) + limit.hold_us),
            (false, true) => latest,
            (false, false) => now,
        };
        let soon = now + RETRY_AFTER.as_micros() as u64;
        Self {
            is_admitted,
            is_never: call.needed > limit.limit,
            remaining: if is_admitted { free.saturating_sub(call.cost) } else { free },
            not_before: if is_admitted { now } else { soon.min(resets_at.max(now + 1)) },
            resets_at: resets_at.max(now),
            held: units,
        }
    }
}

/// The part of a table on which a decision depends.
#[derive(Debug, Clone, Copy)]
struct HeldUnits {
    units: u64,
    has_room: bool,
    /// Everything that is held has expired at this time.
    latest: u64,
}

impl SharedState<ConcurrencyLimit> for ConcurrencyState {
    /// Returns a table with a single entry that holds as many units for as long as any entry of this one.
    fn condensed(&self, _: &ConcurrencyLimit, now: Timestamp) -> Self {
        let mut table = Self::default();
        let units = self.held(now);
        if units > 0 {
            table.insert(Entry::anonymous(units, now, self.latest_expiry()));
        }
        table
    }
}

impl Strategy for Concurrency {
    const IS_HELD: bool = true;
    const AGAINST_POSTPAID: Option<&'static str> =
        Some("the strategy concurrency limits what is held at the moment: nothing is counted afterwards");
    type Limit = ConcurrencyLimit;
    type State = ConcurrencyState;
    type Outcome = ConcurrencyOutcome;
    type Decision<'l> = Decision;

    fn decide(limit: &ConcurrencyLimit, table: &ConcurrencyState, call: Call) -> ConcurrencyOutcome {
        let latest = table.latest_expiry_at(call.now, limit.hold_us).as_micros();
        let (units, has_room) = (table.held(call.now), table.has_room(call.now));
        ConcurrencyOutcome::new(limit, call, HeldUnits { units, has_room, latest })
    }

    fn is_admitted(outcome: &ConcurrencyOutcome) -> bool {
        outcome.is_admitted
    }

    /// Holds the units without a name, until they expire.
    fn commit(
        limit: &ConcurrencyLimit,
        table: &mut ConcurrencyState,
        call: Call,
        outcome: &ConcurrencyOutcome,
    ) {
        if table.is_stepped_back(call.now, limit.hold_us) {
            table.step_back(call.now, limit.hold_us);
        }
        let units = call.units_to_record(table.held(call.now), MAX_EXACT);
        // A debit may find nothing left to count.
        if outcome.is_admitted && units > 0 {
            table.forget_expired(call.now);
            let recorded = limit.recorded_at(call);
            let expires_at = Timestamp::derived(recorded + limit.hold_us);
            table.insert(Entry::anonymous(units, Timestamp::derived(recorded), expires_at));
        }
    }

    fn recorded_units(_: &ConcurrencyLimit, outcome: &ConcurrencyOutcome, call: Call) -> u64 {
        call.units_to_record(outcome.held, MAX_EXACT)
    }

    fn recorded_at(limit: &ConcurrencyLimit, _: &ConcurrencyOutcome, call: Call) -> Timestamp {
        Timestamp::derived(limit.recorded_at(call))
    }

    fn available(limit: &ConcurrencyLimit, table: &ConcurrencyState, call: Call) -> u64 {
        Self::decide(limit, table, call.with_cost(0)).remaining.min(call.cost)
    }

    /// Releases units that were taken without a name.
    fn refund(_: &ConcurrencyLimit, table: &mut ConcurrencyState, refund: Refund) -> u64 {
        table.release_anonymous(refund.units, refund.recorded.map(|recorded| recorded.at), refund.now)
    }

    fn retention_us(limit: &ConcurrencyLimit) -> u64 {
        limit.hold_us
    }

    fn fresh_from(table: &ConcurrencyState) -> Timestamp {
        table.latest_expiry()
    }

    fn decision(limit: &ConcurrencyLimit, outcome: ConcurrencyOutcome, decided_at: DecisionTime) -> Decision {
        Decision {
            is_allowed: outcome.is_admitted,
            attempts: None,
            limit: limit.limit,
            remaining: outcome.remaining,
            not_before: match outcome.is_never && !outcome.is_admitted {
                true => NEVER,
                false => Timestamp::derived(outcome.not_before),
            },
            resets_at: Timestamp::derived(outcome.resets_at),
            decided_at,
        }
    }

    fn core(decision: &Decision) -> Decision {
        *decision
    }
}
