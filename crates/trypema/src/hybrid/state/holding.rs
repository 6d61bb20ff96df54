//! What an instance holds of one key, and what it knows about it. Pure, as a strategy is: it knows no clock and no Redis.

mod answer;
mod asking;
mod denial;

pub use answer::{Chore, Decided, Grant, Taken, Trip};
use denial::Denial;

use super::demand::Demand;
use super::leases::Leases;
use super::pace::Pace;
use crate::clock::{Span, Timestamp};
use crate::decision::Decision;
use crate::strategy::{Back, Call, Leasable, Turn};

/// One key of one instance.
#[derive(Debug, Clone)]
pub struct Holding<S: Leasable> {
    limit: S::Limit,
    /// What fits at most.
    quota: u64,
    pace: Pace,
    leases: Leases,
    told: Option<Told<S::Outcome>>,
    denial: Option<Denial<S::Outcome>>,
    /// A denial of which only what a caller is told is known.
    veto: Option<Denial<Decision>>,
    demand: Demand,
    /// When the first of what is known ends: a lease, a denial, a share to draw by.
    next_end: u64,
    /// When this was last told anything.
    known_since: u64,
    /// When it is time to ask for more: once this little is left, or it is so late.
    low: u64,
    refill_at: u64,
    /// Since when somebody is asking for a lease.
    asking_since: Option<u64>,
    /// What was asked for here, and the shared count was not told.
    unreported: u64,
    drawn: u32,
}

/// What the last lease was told.
#[derive(Debug, Clone, Copy)]
struct Told<O> {
    outcome: O,
    granted: u64,
    /// What the shared clock is ahead of this one, at least.
    ahead_us: i64,
    /// Until when calls may be drawn by it.
    draws_until: Option<u64>,
}

impl<S: Leasable> Holding<S> {
    /// Nothing is held and nothing known.
    pub fn new(limit: &S::Limit, pace: Pace) -> Self {
        Self {
            limit: limit.clone(),
            quota: quota_of::<S>(limit),
            pace,
            leases: Leases::default(),
            told: None,
            denial: None,
            veto: None,
            demand: Demand::default(),
            next_end: u64::MAX,
            known_since: 0,
            low: 0,
            refill_at: u64::MAX,
            asking_since: None,
            unreported: 0,
            drawn: 0,
        }
    }

    /// The limit that everything held was granted under.
    pub fn limit(&self) -> &S::Limit {
        &self.limit
    }

    /// Goes on under another limit: what is held was not granted under it, and is given back; but not under one of another
    /// window, where it would be taken from what others have in it.
    pub fn change_limit(&mut self, limit: &S::Limit, pace: Pace) {
        if S::memory_us(limit) != S::memory_us(&self.limit) {
            self.leases.forget();
        }
        self.end_all();
        (self.limit, self.pace, self.demand) = (limit.clone(), pace, Demand::default());
        self.quota = quota_of::<S>(limit);
    }

    /// Starts as a key that was called often.
    pub fn warm(&mut self, now: Span) {
        self.demand = Demand::warm(now.earliest.as_micros());
    }

    /// Counts a call, once however often it is then tried.
    #[inline]
    pub fn count(&mut self, now: Span, cost: u64) {
        // A cost that never fits is no reason to ask for more.
        let cost = if cost > self.quota { 0 } else { cost };
        self.demand.count(now.earliest.as_micros(), self.pace.interval_us, cost);
    }

    /// Counts a call and decides it, if that can be done here, and spends what it costs.
    pub fn take(&mut self, now: Span, cost: u64) -> Taken<S::Outcome> {
        self.count(now, cost);
        self.take_telling(now, cost, |_| {})
    }

    /// As [`Holding::take`] of a call that was counted, telling where what it spends was recorded.
    #[inline]
    pub fn take_telling(&mut self, now: Span, cost: u64, tell: impl FnMut(Back)) -> Taken<S::Outcome> {
        if self.is_over(now) && !self.end_until(now) {
            return Taken::Unclear;
        }
        let taken = self.decide(now, cost);
        if let Taken::Decided(decided) = &taken {
            if S::is_counting_denied(&self.limit) {
                self.unreported = self.unreported.saturating_add(cost);
            }
            if S::is_admitted(&decided.outcome) {
                self.leases.spend(cost, tell);
            }
        }
        self.warned(taken, now)
    }

    /// What [`Holding::take`] would answer; nothing is spent.
    pub fn peek(&mut self, now: Span, cost: u64) -> Taken<S::Outcome> {
        if self.is_over(now) && !self.end_until(now) {
            return Taken::Unclear;
        }
        let drawn = self.drawn;
        let taken = self.decide(now, cost);
        self.drawn = drawn;
        taken
    }

    #[inline]
    fn decide(&mut self, now: Span, cost: u64) -> Taken<S::Outcome> {
        let decided = |outcome, ahead_us| {
            let now = Timestamp::derived(now.earliest.as_micros().saturating_add_signed(ahead_us));
            Taken::Decided(Decided { outcome, now, is_low: false })
        };
        if let Some(denial) = &self.denial
            && self.speaks_of(denial, cost)
            && cost > self.leases.left()
        {
            return decided(denial.outcome.clone(), denial.ahead_us);
        }
        let Some(told) = &self.told else { return Taken::Unknown };
        if self.leases.left() == 0 && told.draws_until.is_none() {
            return Taken::Unknown;
        }
        let turn = Turn { cost, left: self.leases.left(), granted: told.granted, drawn: &mut self.drawn };
        match S::spend(&self.limit, &told.outcome, turn) {
            Some(outcome) => decided(outcome, told.ahead_us),
            None => Taken::Unknown,
        }
    }

    /// The same answer, saying whether it is time to ask for more.
    #[inline]
    fn warned(&self, taken: Taken<S::Outcome>, now: Span) -> Taken<S::Outcome> {
        let is_low = !self.is_asking(now.latest)
            && self.denial.as_ref().is_none_or(|denial| denial.cost > 1)
            && (self.leases.left() <= self.low
                || now.latest.as_micros() >= self.refill_at
                || S::IS_RETURNED_EARLY && self.leases.is_owing());
        match taken {
            Taken::Decided(decided) => Taken::Decided(Decided { is_low, ..decided }),
            other => other,
        }
    }

    /// Whether units that came out of a lease still count.
    pub fn is_counting(&self, back: &Back, now: Timestamp) -> bool {
        let ahead_us = self.told.as_ref().map_or(0, |told| told.ahead_us);
        let shared_now = Timestamp::derived(now.as_micros().saturating_add_signed(ahead_us));
        back.is_counting(shared_now, S::memory_us(&self.limit))
    }

    /// Takes back what a call has spent.
    pub fn put_back(&mut self, back: Back) {
        self.leases.put_back(back);
        self.find_next_end();
    }

    /// Ends every lease, to be given back, and forgets what is known.
    pub fn end_all(&mut self) {
        self.leases.end_all();
        (self.told, self.denial, self.veto) = (None, None, None);
        self.find_next_end();
    }

    /// Forgets everything, because the shared count has.
    pub fn forget(&mut self) {
        self.leases.forget();
        self.unreported = 0;
        self.end_all();
    }

    /// Units held now.
    pub fn held(&self, now: Timestamp) -> u64 {
        self.leases.left_at(now.as_micros())
    }

    /// Whether something is to be given back.
    pub fn is_owing(&self) -> bool {
        self.leases.is_owing()
    }

    /// Whether the shared count is still to be told of something that was seen.
    pub fn is_unreported(&self) -> bool {
        self.unreported > 0
    }

    /// Whether nobody calls for it, nothing of it can be spent, and nothing is to be given back or told.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        let is_idle = self.demand.is_idle(now.as_micros(), self.pace.interval_us);
        let is_settled = !self.is_owing() && !self.is_unreported();
        is_idle && is_settled && !self.is_asking(now) && self.held(now) == 0
    }

    /// What there is to do when nobody calls.
    pub fn chore(&mut self, now: Timestamp) -> Chore {
        self.end_until(Span::at(now));
        let is_idle = self.demand.is_idle(now.as_micros(), self.pace.interval_us);
        if self.is_asking(now) {
            Chore::Nothing
        } else if self.unreported > 0 && !S::IS_LEASED {
            Chore::Settle
        } else if self.leases.is_piling_up()
            || !self.is_worth_leasing(now) && (self.leases.is_owing() || self.unreported > 0)
        {
            // Of a key that is called often, what is owed goes with the next ask.
            Chore::Settle
        } else if is_idle && self.leases.is_empty() && self.denial.is_none() && self.veto.is_none() {
            Chore::Forget
        } else {
            Chore::Nothing
        }
    }

    /// Whether something that is known may have ended.
    #[inline]
    fn is_over(&self, now: Span) -> bool {
        now.latest.as_micros() >= self.next_end || self.is_stepped_back(now)
    }

    /// Whether the clock went back, and not just by what callers are late: then nothing is known.
    #[inline]
    fn is_stepped_back(&self, now: Span) -> bool {
        now.latest.as_micros() + self.pace.interval_us < self.known_since
    }

    /// Ends what has ended by now; whether that is sure.
    fn end_until(&mut self, now: Span) -> bool {
        if self.is_stepped_back(now) {
            self.known_since = 0;
            self.end_all();
            return true;
        }
        let earliest = now.earliest.as_micros();
        self.leases.end_until(earliest);
        if self.denial.as_ref().is_some_and(|denial| denial.until <= earliest) {
            self.denial = None;
        }
        if self.veto.as_ref().is_some_and(|veto| veto.until <= earliest) {
            self.veto = None;
        }
        if self.told.as_ref().and_then(|told| told.draws_until).is_some_and(|until| until <= earliest) {
            self.told = None;
            // What was granted by the old share goes with it.
            self.leases.end_all();
        }
        self.find_next_end();
        now.latest.as_micros() < self.next_end
    }

    fn find_next_end(&mut self) {
        let draws_until = self.told.as_ref().and_then(|told| told.draws_until);
        let denied_until = self.denial.as_ref().map(|denial| denial.until);
        let vetoed_until = self.veto.as_ref().map(|veto| veto.until);
        let ends = [self.leases.first_end(), draws_until, denied_until, vetoed_until];
        self.next_end = ends.into_iter().flatten().min().unwrap_or(u64::MAX);
    }
}

/// What fits at most.
fn quota_of<S: Leasable>(limit: &S::Limit) -> u64 {
    S::fits(limit, &S::State::default(), Call::new(Timestamp::default(), u64::MAX))
}
