//! Concurrency: units are held until they are released or their time is over.

mod library;

use super::{Ask, MOST, Model, Origin, Refund, Taken};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

/// The maximum number of entries of a key.
const MOST_ENTRIES: usize = 4_096;

/// The longest hold that a limit can have.
const LONGEST_HOLD_US: i64 = 3_600_000_000;

/// The wait after a denial, unless everything expires sooner.
const SECOND_US: i64 = 1_000_000;

/// The limit on units that are held at the same time.
#[derive(Debug, Clone, Copy)]
pub struct HoldLimit {
    /// The number of units.
    pub limit: u64,
    /// The time for which a take holds its units, unless they are released sooner.
    pub hold_us: u64,
}

impl HoldLimit {
    fn hold(&self) -> i64 {
        self.hold_us as i64
    }
}

/// The units of one take.
#[derive(Debug, Clone, Copy)]
struct Held {
    units: u64,
    /// The time of the take, or the end of its lease. It identifies the units in a refund.
    recorded: i64,
    /// The units are held before this time.
    expires: i64,
}

impl Held {
    /// Whether the units look as if they were taken more than a hold after `now`, because the clock went back.
    fn is_from_the_future(&self, limit: &HoldLimit, now: i64) -> bool {
        let is_late =
            self.recorded > now + limit.hold() || self.expires > now + limit.hold() + LONGEST_HOLD_US;
        is_late && self.expires > now + 2 * limit.hold()
    }
}

/// The units that are held of one key.
///
/// Reservations with a name are not modelled here: nothing of them is visible to these calls but their units.
#[derive(Debug, Clone, Default)]
pub struct ConcurrencyModel {
    /// The takes whose units are held, in the order in which they expire.
    taken: Vec<Held>,
}

impl ConcurrencyModel {
    fn live(&self, now: i64) -> impl Iterator<Item = &Held> {
        self.taken.iter().filter(move |held| now < held.expires)
    }

    /// Returns the units that are held at `now`.
    fn held(&self, now: i64) -> u128 {
        self.live(now).map(|held| u128::from(held.units)).sum()
    }

    /// Returns the first time at which nothing is held any more; `now` if nothing is.
    fn empty_from(&self, now: i64) -> i64 {
        self.live(now).map(|held| held.expires).max().unwrap_or(now)
    }

    /// Repairs the takes after the clock went back: units from the future are held for one more hold.
    fn repair(&mut self, limit: &HoldLimit, now: i64) {
        for held in &mut self.taken {
            if held.is_from_the_future(limit, now) {
                held.expires = now + limit.hold();
            }
        }
        self.taken.sort_by_key(|held| held.expires);
    }

    /// Forgets expired units for good, even if the clock goes back later.
    fn forget_expired(&mut self, now: i64) {
        self.taken.retain(|held| now < held.expires);
    }

    /// Whether another take has an entry at `now`. Takes at one time, one after the other, share theirs.
    fn has_room(&self, now: i64) -> bool {
        let live: Vec<&Held> = self.live(now).collect();
        let is_same =
            |one: &&Held, next: &&Held| (one.recorded, one.expires) == (next.recorded, next.expires);
        live.chunk_by(is_same).count() < MOST_ENTRIES
    }
}

impl Model for ConcurrencyModel {
    const NAME: &'static str = "concurrency";
    const IS_WAIT_EXACT: bool = false;
    type Limit = HoldLimit;

    fn take(&mut self, limit: &HoldLimit, ask: Ask) -> Taken {
        let now = ask.now;
        let mut repaired = self.clone();
        repaired.repair(limit, now);
        let held = repaired.held(now);
        let has_room = repaired.has_room(now);
        let fits = has_room && held + u128::from(ask.needed) <= u128::from(limit.limit);
        let is_allowed = ask.needed == 0 || fits;
        // A lease counts at most one hold ahead.
        let recorded = ask.stamp.min(now + limit.hold());
        *self = repaired;
        // A debit of a full count records what can still be counted, which may be nothing.
        let units = u128::from(ask.cost).min(u128::from(MOST) - held) as u64;
        if is_allowed && units > 0 {
            self.forget_expired(now);
            self.taken.push(Held { units, recorded, expires: recorded + limit.hold() });
            self.taken.sort_by_key(|held| held.expires);
        }
        let empty_from = self.empty_from(now);
        let wait = if is_allowed {
            Wait::Micros(0)
        } else if ask.needed > limit.limit {
            Wait::Never
        } else {
            // A holder may release its units at any time, so nobody knows a better one.
            Wait::Micros(SECOND_US.min(empty_from - now) as u64)
        };
        let free = u128::from(limit.limit).saturating_sub(self.held(now));
        let has_room = has_room || self.has_room(now);
        let answer = Answer {
            is_allowed,
            limit: limit.limit,
            remaining: if has_room { free as u64 } else { 0 },
            wait,
            reset_us: (empty_from - now) as u64,
            detail: Detail::Plain,
        };
        Taken { answer, recorded, units, origin: Origin::default() }
    }

    fn fits(&self, limit: &HoldLimit, ask: Ask) -> u64 {
        let nothing = self.peek(limit, ask.costing(0));
        nothing.remaining.min(ask.cost)
    }

    /// Releases units that were recorded at the time of the receipt, or those that expire first.
    fn refund(&mut self, _: &HoldLimit, refund: Refund) -> u64 {
        self.forget_expired(refund.now);
        let mut left = refund.units;
        for held in &mut self.taken {
            if refund.recorded.is_none_or(|recorded| recorded == held.recorded) {
                let released = held.units.min(left);
                held.units -= released;
                left -= released;
            }
        }
        self.taken.retain(|held| held.units > 0);
        refund.units - left
    }

    fn memory_us(limit: &HoldLimit) -> i64 {
        limit.hold()
    }

    fn random_limit(random: &mut Random) -> HoldLimit {
        let holds = [1, 7, 10_000, 999_983, 1_000_000, 2_000_000, 60_000_000, LONGEST_HOLD_US as u64];
        HoldLimit {
            limit: random.pick(&[1, 2, 3, 5, 10, 29, 100, 5_000, MOST]),
            hold_us: random.pick(&holds),
        }
    }

    fn spans_us(limit: &HoldLimit) -> Vec<u64> {
        vec![limit.hold_us]
    }

    fn capacity(limit: &HoldLimit) -> u64 {
        limit.limit
    }
}
