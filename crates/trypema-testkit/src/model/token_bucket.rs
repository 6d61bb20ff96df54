//! Token bucket: a take pays all limits or none. The state is a debt per limit, which time pays off.

mod library;

use super::rational::{Rational, greatest_common_divisor};
use super::{Ask, MOST, Model, Origin, Refund, Taken, first_moment, wait_until};
use crate::random::Random;
use crate::subject::{Answer, Detail, Wait};

/// One limit of a token bucket.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    /// The number of tokens in a full bucket.
    pub capacity: u64,
    /// The time in which an empty bucket becomes full.
    pub refill_us: u64,
}

impl Bucket {
    /// Returns the debt that is paid off in `elapsed_us`.
    fn paid_in(&self, elapsed_us: i64) -> Rational {
        Rational::new(i128::from(self.capacity) * i128::from(elapsed_us), i128::from(self.refill_us))
    }

    /// Returns the exact time in which `owed` is paid off.
    fn time_to_pay(&self, owed: Rational) -> Rational {
        owed.times(i128::from(self.refill_us), i128::from(self.capacity))
    }

    /// Returns the number of parts of a token, of which this limit pays off whole numbers.
    fn parts(&self) -> i128 {
        let refill_us = i128::from(self.refill_us);
        refill_us / greatest_common_divisor(refill_us, self.capacity.into())
    }

    /// Converts a debt under another limit to this one, rounded up to parts of a token.
    fn takes_over(&self, debt: Debt) -> Rational {
        let parts = self.parts();
        Rational::new(debt.owed.times(parts, 1).ceil(), parts).min(self.most(debt.is_overdrawn))
    }

    /// Returns the largest debt: what was spent under a larger limit is forgiven, an overdraft is not. The
    /// number of parts that can be counted is limited.
    fn most(&self, is_overdrawn: bool) -> Rational {
        if is_overdrawn { Rational::new(MOST.into(), self.parts()) } else { self.full() }
    }

    fn full(&self) -> Rational {
        Rational::whole(self.capacity)
    }
}

/// Units that are owed from a later time on.
#[derive(Debug, Clone, Copy)]
struct Lease {
    stamp: i64,
    units: u64,
}

/// The stored debt to one limit.
#[derive(Debug, Clone, Copy)]
struct Debt {
    owed: Rational,
    /// Whether a call has spent more than was left, and that is not paid off yet.
    is_overdrawn: bool,
}

impl Debt {
    const NONE: Self = Self { owed: Rational::ZERO, is_overdrawn: false };
}

/// The debt of one key.
#[derive(Debug, Clone, Default)]
pub struct TokenBucketModel {
    last: i64,
    debts: Vec<Debt>,
    leases: Vec<Lease>,
    /// The limits that the debts are to, and the number of the count.
    limits: Vec<Bucket>,
    count: i64,
}

/// The debt to one limit at some time.
#[derive(Debug, Clone, Copy)]
struct Owed {
    due: Rational,
    /// The units that are leased and not yet due.
    later: Rational,
    most: Rational,
    is_overdrawn: bool,
}

impl Owed {
    fn total(self) -> Rational {
        (self.due + self.later).min(self.most)
    }
}

impl TokenBucketModel {
    /// Repairs the state after the clock went back by more than the longest refill: the whole debt is due
    /// from now on.
    fn repair(&mut self, limits: &[Bucket], now: i64) {
        if self.is_empty() {
            // A state without debt equals that of a new key.
            self.last = 0;
        }
        if self.last > now + longest_refill(limits) {
            // The debt stays the same, whatever the limits are now, and all leases become due.
            for lease in self.leases.drain(..) {
                for debt in &mut self.debts {
                    debt.owed = debt.owed + Rational::whole(lease.units);
                }
            }
            self.last = now;
        }
    }

    /// Whether nothing of the debt was refilled at another rate, and nothing is forgiven.
    fn is_whole(&self, limits: &[Bucket]) -> bool {
        let leased: Rational =
            self.leases.iter().fold(Rational::ZERO, |sum, lease| sum + Rational::whole(lease.units));
        let is_rate = |one: &Bucket, other: &Bucket| {
            u128::from(one.capacity) * u128::from(other.refill_us)
                == u128::from(other.capacity) * u128::from(one.refill_us)
        };
        let each = limits.iter().zip(&self.limits).zip(&self.debts);
        limits.len() == self.limits.len()
            && each.into_iter().all(|((limit, before), debt)| {
                is_rate(limit, before) && debt.owed + leased <= limit.most(debt.is_overdrawn)
            })
    }

    fn is_empty(&self) -> bool {
        self.debts.iter().all(|debt| debt.owed == Rational::ZERO) && self.leases.is_empty()
    }

    /// Stores the debt that is due at `now`.
    fn settle(&mut self, limits: &[Bucket], now: i64, due: Vec<Debt>) {
        if self.is_empty() {
            self.count = now;
        } else if !self.is_whole(limits) {
            self.count += 1;
        }
        self.limits = limits.to_vec();
        self.last = now;
        self.debts = due;
        self.leases.retain(|lease| lease.stamp > now);
    }

    /// Returns the stored debt to the limit at `position`. If the number of limits has changed, this is the
    /// largest debt to any limit, overdrawn if any is.
    fn debt_of(&self, limits: &[Bucket], position: usize) -> Debt {
        if self.debts.len() == limits.len() {
            return self.debts[position];
        }
        let owed = self.debts.iter().map(|debt| debt.owed).max();
        let is_overdrawn = self.debts.iter().any(|debt| debt.is_overdrawn);
        owed.map_or(Debt::NONE, |owed| Debt { owed, is_overdrawn })
    }

    /// Returns the debt to each limit at `now`. If `now` is before the last write, nothing is paid off yet.
    fn owed_at(&self, limits: &[Bucket], now: i64) -> Vec<Owed> {
        let each = limits.iter().enumerate().map(|(position, limit)| {
            let debt = self.debt_of(limits, position);
            self.owed_to(limit, debt, now)
        });
        each.collect()
    }

    fn owed_to(&self, limit: &Bucket, debt: Debt, now: i64) -> Owed {
        let (owed, is_overdrawn) = (limit.takes_over(debt), debt.is_overdrawn);
        let most = limit.most(is_overdrawn);
        let paid = |due: Rational, elapsed: i64| (due - limit.paid_in(elapsed.max(0))).max(Rational::ZERO);
        let (mut due, mut from, mut later) = (owed, self.last, Rational::ZERO);
        for lease in &self.leases {
            let units = Rational::whole(lease.units).min(most);
            if lease.stamp <= now {
                due = (paid(due, lease.stamp - from) + units).min(most);
                from = from.max(lease.stamp);
            } else {
                later = later + units;
            }
        }
        Owed { due: paid(due, now - from), later: later.min(most), most, is_overdrawn }
    }

    /// Returns the first limit that lacks `needed` at `now`.
    fn lacking(&self, limits: &[Bucket], now: i64, needed: u64) -> Option<usize> {
        let needed = Rational::whole(needed);
        let owed = self.owed_at(limits, now);
        let lacks = |(limit, owed): (&Bucket, &Owed)| owed.total() + needed > limit.full();
        limits.iter().zip(&owed).position(lacks)
    }

    /// Returns the time from which every limit has `needed`, which is at most its capacity. No time is after
    /// the last one.
    fn has_from(&self, limits: &[Bucket], now: i64, needed: u64) -> i64 {
        if self.lacking(limits, now, needed).is_none() {
            return now;
        }
        let owed = self.owed_at(limits, now);
        if self.leases.is_empty() {
            let needed = Rational::whole(needed);
            let waits = limits.iter().zip(owed).map(|(limit, owed)| {
                let lacking = owed.due + needed - limit.full();
                limit.time_to_pay(lacking.max(Rational::ZERO)).ceil() as i64
            });
            return (now + waits.max().unwrap_or(0)).min(MOST as i64);
        }
        // Leases become due in between, so search for the time, up to when all is paid off that the last of them
        // leaves.
        let due_at = self.leases.iter().map(|lease| lease.stamp).max();
        let time_to_pay = |(limit, owed): (&Bucket, &Owed)| limit.time_to_pay(owed.due + owed.later).ceil();
        let longest = limits.iter().zip(&owed).map(time_to_pay).max().unwrap_or(0) as i64;
        let surely_at = due_at.unwrap_or(now).max(now) + longest.max(longest_refill(limits));
        let has = |moment: i64| self.lacking(limits, moment, needed).is_none();
        first_moment(now, surely_at, has).min(MOST as i64)
    }

    /// Returns the time from which nothing is owed.
    fn all_paid_from(&self, limits: &[Bucket], now: i64) -> i64 {
        let each = limits.iter().enumerate().map(|(position, limit)| {
            let mut alone = self.clone();
            alone.debts = vec![self.debt_of(limits, position)];
            alone.has_from(&[*limit], now, limit.capacity)
        });
        each.max().unwrap_or(now)
    }

    fn wait(&self, limits: &[Bucket], now: i64, ask: Ask) -> Wait {
        if limits.iter().any(|limit| ask.needed > limit.capacity) {
            return Wait::Never;
        }
        wait_until(ask.now, Some(self.has_from(limits, now, ask.needed)))
    }

    /// Records an admitted call. Returns the time that identifies it.
    fn record(&mut self, limits: &[Bucket], now: i64, ask: Ask) -> i64 {
        let stamp = ask.stamp.min(now + longest_refill(limits));
        let is_leased = ask.stamp > ask.now && stamp > now;
        let debt_after = |(limit, owed): (&Bucket, Owed)| {
            let cost = Rational::whole(ask.cost).min(limit.most(true));
            let paid = if is_leased { Rational::ZERO } else { cost };
            let is_overdrawn = owed.total() + cost > limit.full();
            Debt { owed: (owed.due + paid).min(limit.most(true)), is_overdrawn }
        };
        let debts = limits.iter().zip(self.owed_at(limits, now)).map(debt_after).collect();
        self.settle(limits, now, debts);
        if !is_leased {
            return now;
        }
        self.leases.push(Lease { stamp, units: ask.cost });
        self.leases.sort_by_key(|lease| lease.stamp);
        stamp
    }

    /// Returns the tokens of a cost that can be counted in whole.
    fn countable(&self, limits: &[Bucket], now: i64, cost: u64) -> u64 {
        let owed = self.owed_at(limits, now);
        let room = |(limit, owed): (&Bucket, Owed)| (limit.most(true) - owed.total()).floor() as u64;
        limits.iter().zip(owed).map(room).min().map_or(cost, |room| cost.min(room))
    }

    fn answer(&self, limits: &[Bucket], now: i64) -> Answer {
        let owed = self.owed_at(limits, now);
        let balances: Vec<Rational> = limits
            .iter()
            .zip(&owed)
            .map(|(limit, owed)| (limit.full() - owed.total()).max(Rational::ZERO))
            .collect();
        let scarcest = (0..limits.len()).min_by_key(|position| balances[*position].floor()).unwrap_or(0);
        Answer {
            is_allowed: true,
            limit: limits[scarcest].capacity,
            remaining: balances[scarcest].floor() as u64,
            wait: Wait::Micros(0),
            reset_us: 0,
            detail: Detail::Tokens {
                failed: None,
                balances: balances.into_iter().map(Rational::to_f64).collect(),
            },
        }
    }

    /// Takes units out of the named lease if it is not due yet. Returns their number.
    fn end_lease(&mut self, now: i64, refund: Refund) -> u64 {
        let mut left = refund.units;
        for lease in &mut self.leases {
            if Some(lease.stamp) == refund.recorded && lease.stamp > now {
                let given_back = lease.units.min(left);
                lease.units -= given_back;
                left -= given_back;
            }
        }
        self.leases.retain(|lease| lease.units > 0);
        refund.units - left
    }
}

fn longest_refill(limits: &[Bucket]) -> i64 {
    let refills = limits.iter().map(|limit| limit.refill_us as i64);
    refills.max().unwrap_or(0)
}

impl Model for TokenBucketModel {
    const NAME: &'static str = "token_bucket";
    type Limit = Vec<Bucket>;

    fn take(&mut self, limits: &Vec<Bucket>, ask: Ask) -> Taken {
        self.repair(limits, ask.now);
        let now = ask.now.max(self.last);
        let failed = if ask.needed == 0 { None } else { self.lacking(limits, now, ask.needed) };
        let wait = match failed {
            None => Wait::Micros(0),
            Some(_) => self.wait(limits, now, ask),
        };
        let units = self.countable(limits, now, ask.cost);
        let recorded = if failed.is_none() && ask.cost > 0 { self.record(limits, now, ask) } else { now };
        let mut answer = self.answer(limits, now);
        answer.is_allowed = failed.is_none();
        answer.wait = wait;
        answer.reset_us = (self.all_paid_from(limits, now) - ask.now) as u64;
        if let Detail::Tokens { failed: first, .. } = &mut answer.detail {
            *first = failed;
        }
        let origin = Origin { window_end: 0, count: self.count };
        Taken { answer, recorded, units, origin }
    }

    fn fits(&self, limits: &Vec<Bucket>, ask: Ask) -> u64 {
        let nothing = self.peek(limits, ask.costing(0));
        nothing.remaining.min(ask.cost)
    }

    /// Refunds to each limit the part of the take that time has not paid off yet. Returns the smallest
    /// refund, in whole tokens.
    fn refund(&mut self, limits: &Vec<Bucket>, refund: Refund) -> u64 {
        let is_certain = refund.origin.count == self.count && self.is_whole(limits);
        if refund.recorded.is_some() && !is_certain {
            return 0;
        }
        self.repair(limits, refund.now);
        let now = refund.now.max(self.last);
        let leased = self.end_lease(now, refund);
        let units = refund.units - leased;
        let paid_us = refund.recorded.map_or(0, |moment| (now - moment).max(0));
        let mut least = Rational::whole(units);
        let mut due = Vec::new();
        for (limit, owed) in limits.iter().zip(self.owed_at(limits, now)) {
            let taken = Rational::whole(units).min(owed.most);
            let unpaid = (taken - limit.paid_in(paid_us)).max(Rational::ZERO);
            let given_back = unpaid.min(owed.due);
            least = least.min(given_back);
            let left = owed.due - given_back;
            let is_overdrawn = owed.is_overdrawn && left + owed.later > limit.full();
            due.push(Debt { owed: left, is_overdrawn });
        }
        self.settle(limits, now, due);
        leased + least.floor() as u64
    }

    fn memory_us(limits: &Vec<Bucket>) -> i64 {
        longest_refill(limits)
    }

    fn random_limit(random: &mut Random) -> Vec<Bucket> {
        let count = random.pick(&[1, 1, 1, 2, 2, 3, 4, 5, 11, 16]);
        let refills = [1, 7, 999_983, 1_000_000, 1_000_000, 3_000_000, 60_000_000, 86_400_000_000];
        let each = (0..count).map(|_| Bucket {
            capacity: random.pick(&[1, 2, 3, 7, 10, 100, 1_000]),
            refill_us: random.pick(&refills),
        });
        each.collect()
    }

    fn spans_us(limits: &Vec<Bucket>) -> Vec<u64> {
        let a_token = |limit: &Bucket| limit.refill_us.div_ceil(limit.capacity);
        let each = limits.iter().flat_map(|limit| [a_token(limit), limit.refill_us]);
        each.collect()
    }

    fn capacity(limits: &Vec<Bucket>) -> u64 {
        limits.iter().map(|limit| limit.capacity).min().unwrap_or(0)
    }
}
