//! What an instance holds of one key, and what it knows about it. Pure, as a strategy is: it knows no clock and no Redis.

use super::demand::Demand;
use super::leases::{Lease, Leases};
use super::pace::Pace;
use crate::clock::{Span, Timestamp};
use crate::decision::{Decision, When};
use crate::strategy::{Back, Call, Leasable, LeaseAsk, Leased, Turn};

/// With less than this an answer would hardly arrive before the lease is over.
const SHORTEST_INTERVAL_US: u64 = 1_000;

/// An answer that takes longer is not waited for: whoever asked may be kept from looking at it.
const PATIENCE_US: u64 = 250_000;

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

/// A denial that holds for a while, for this cost and larger ones.
#[derive(Debug, Clone, Copy)]
struct Denial<O> {
    cost: u64,
    outcome: O,
    ahead_us: i64,
    until: u64,
}

/// What a call gets of an instance.
#[derive(Debug, Clone, Copy)]
pub enum Taken<O> {
    /// It is decided.
    Decided(Decided<O>),
    /// That depends on when exactly it is.
    Unclear,
    /// The shared count has to be asked.
    Unknown,
}

/// A decision by what is held.
#[derive(Debug, Clone, Copy)]
pub struct Decided<O> {
    /// What was decided.
    pub outcome: O,
    /// The time by the shared clock, about.
    pub now: Timestamp,
    /// Whether it is time to ask for more.
    pub is_low: bool,
}

/// When a lease was asked for and when that was answered, by the clock of the instance.
#[derive(Debug, Clone, Copy)]
pub struct Trip {
    /// Before it was sent.
    pub asked_at: Timestamp,
    /// After it was answered.
    pub answered_at: Timestamp,
}

/// A lease as it was granted.
#[derive(Debug, Clone, Copy)]
pub struct Grant<O> {
    /// The units, and where they are recorded.
    pub leased: Leased<O>,
    /// The time by the shared clock.
    pub now: Timestamp,
    /// How often the key had been reset.
    pub resets: u32,
}

/// What there is to do about a key that nobody calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chore {
    /// Nothing, yet.
    Nothing,
    /// Something is to be given back or told.
    Settle,
    /// It can be forgotten.
    Forget,
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
        self.demand = Demand::hot(now.earliest.as_micros());
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
            && cost >= denial.cost
            && cost > self.leases.left()
        {
            return decided(denial.outcome, denial.ahead_us);
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
            && self.denial.is_none()
            && (self.leases.left() <= self.low
                || now.latest.as_micros() >= self.refill_at
                || S::IS_RETURNED_EARLY && self.leases.is_owing());
        match taken {
            Taken::Decided(decided) => Taken::Decided(Decided { is_low, ..decided }),
            other => other,
        }
    }

    /// Whether it is called often enough for a lease.
    pub fn is_worth_leasing(&self, now: Timestamp) -> bool {
        let is_long_enough = S::IS_LEASED && self.pace.interval_us >= SHORTEST_INTERVAL_US;
        is_long_enough && self.demand.is_hot(now.as_micros(), self.pace.interval_us)
    }

    /// Whether somebody is asking the shared count, and may soon be answered.
    pub fn is_asking(&self, now: Timestamp) -> bool {
        self.asking_since.is_some_and(|since| now.as_micros() < since + PATIENCE_US)
    }

    /// What to ask for, when somebody waits for `need`. What is to be given back goes with it.
    pub fn ask(&mut self, now: Timestamp, need: u64) -> LeaseAsk {
        let now = now.as_micros();
        self.asking_since = Some(now);
        let expected = self.demand.expected(now, self.pace.interval_us);
        let still_held = self.leases.left_at(now + self.pace.interval_us / 2);
        let want = if self.is_worth_leasing(Timestamp::derived(now)) {
            expected.saturating_sub(still_held)
        } else {
            0
        };
        let ask = LeaseAsk { need, want, ..self.settling() };
        // The call that needs it is seen by the shared count with it.
        if S::is_counting_denied(&self.limit) {
            LeaseAsk { seen: ask.seen.saturating_add(need), ..ask }
        } else {
            ask
        }
    }

    /// What to ask for only to give something back, or to tell what was seen.
    pub fn settle(&mut self, now: Timestamp) -> LeaseAsk {
        self.asking_since = Some(now.as_micros());
        self.settling()
    }

    /// What was asked for here and the shared count was not told, to be told now.
    pub fn take_unreported(&mut self) -> u64 {
        std::mem::take(&mut self.unreported)
    }

    fn settling(&mut self) -> LeaseAsk {
        let back = self.leases.next_back().unwrap_or_default();
        let seen = self.take_unreported();
        LeaseAsk { need: 0, want: 0, length_us: self.pace.length_us, back, seen }
    }

    /// Notes what was granted; returns what that means for the call that needed it, if it is decided.
    pub fn granted(&mut self, ask: &LeaseAsk, trip: Trip, grant: &Grant<S::Outcome>) -> Option<S::Outcome> {
        self.asking_since = None;
        self.known_since = trip.asked_at.as_micros();
        if ask.need == 0 && ask.want == 0 {
            return None;
        }
        let Leased { units, recorded, outcome } = grant.leased;
        let is_drawing = S::is_drawing(&outcome);
        if units == 0 && !is_drawing {
            // Of a key that is asked for all the time, the next look can wait for more than one unit.
            self.remember(ask.need.max(1), trip, grant, self.pace.interval_us / 4);
            return (ask.need > 0).then_some(outcome);
        }
        if is_drawing {
            // What was granted before is not drawn by the same share.
            self.leases.end_all();
        }
        let is_needed = ask.need > 0 && !is_drawing;
        let (held, needed) = (self.leases.left(), if is_needed { ask.need } else { 0 });
        let lasts_us = recorded.as_micros().saturating_sub(grant.now.as_micros());
        let usable_us = if S::IS_RETURNED_EARLY { lasts_us - lasts_us / 5 } else { lasts_us };
        let ends_at = trip.asked_at.as_micros() + self.pace.certain_us(usable_us);
        let left = Back { units: units.saturating_sub(needed), recorded, resets: grant.resets };
        if ends_at > trip.answered_at.as_micros() {
            self.leases.add(Lease { left, ends_at });
        } else {
            self.leases.give_back(left);
        }
        let draws_until =
            is_drawing.then(|| trip.asked_at.as_micros() + self.pace.certain_us(self.pace.length_us));
        self.told = Some(Told { outcome, granted: units, ahead_us: ahead_us(trip, grant.now), draws_until });
        self.denial = None;
        self.low = self.leases.left() / 4;
        // A lease that ends with its window is followed by one of the next window, which is not there yet.
        let is_cut_short = recorded < ask.end(grant.now, units) && !is_drawing;
        self.refill_at = match is_cut_short {
            true => u64::MAX,
            false => draws_until.unwrap_or(ends_at).saturating_sub(self.pace.interval_us / 4),
        };
        self.find_next_end();
        if is_drawing && ask.need > 0 {
            return self.draw(ask.need);
        }
        is_needed.then(|| {
            let turn = Turn { cost: needed, left: held + units, granted: units, drawn: &mut self.drawn };
            S::of_lease(&self.limit, &outcome, turn)
        })
    }

    /// Draws for the call that needed the lease.
    fn draw(&mut self, cost: u64) -> Option<S::Outcome> {
        let told = self.told.as_ref()?;
        let turn = Turn { cost, left: self.leases.left(), granted: told.granted, drawn: &mut self.drawn };
        let outcome = S::spend(&self.limit, &told.outcome, turn)?;
        if S::is_admitted(&outcome) {
            self.leases.spend(cost, |_| {});
        }
        Some(outcome)
    }

    /// Remembers a denial until its wait is over, or until it is worth looking again: others may give units back.
    pub fn denied(&mut self, cost: u64, trip: Trip, grant: &Grant<S::Outcome>) {
        self.remember(cost, trip, grant, 0);
    }

    /// The same for at least `at_least_us`.
    fn remember(&mut self, cost: u64, trip: Trip, grant: &Grant<S::Outcome>, at_least_us: u64) {
        let outcome = grant.leased.outcome;
        let decision = S::core(&S::decision(&self.limit, outcome, When::exactly(grant.now)));
        let Some(wait_us) = decision.retry_after_us() else { return };
        let until = trip.answered_at.as_micros() + wait_us.clamp(at_least_us, self.pace.interval_us);
        self.known_since = trip.asked_at.as_micros();
        self.denial = Some(Denial { cost, outcome, ahead_us: ahead_us(trip, grant.now), until });
        self.find_next_end();
    }

    /// Remembers a denial of which no more is known than what its caller was told.
    pub fn vetoed(&mut self, cost: u64, answered_at: Timestamp, decision: Decision) {
        let (Some(wait_us), Some(now)) = (decision.retry_after_us(), decision.when.moment()) else { return };
        let ahead_us = now.as_micros() as i64 - answered_at.as_micros() as i64;
        let until = answered_at.as_micros() + wait_us.min(self.pace.interval_us);
        self.known_since = answered_at.as_micros();
        self.veto = Some(Denial { cost, outcome: decision, ahead_us, until });
        self.find_next_end();
    }

    /// What a call is told that is sure to be denied; it counts as seen.
    pub fn denial(&mut self, now: Span, cost: u64) -> Option<Decision> {
        if self.is_over(now) && !self.end_until(now) || cost <= self.leases.left() {
            return None;
        }
        let shared_now =
            |ahead_us| Timestamp::derived(now.earliest.as_micros().saturating_add_signed(ahead_us));
        let known = self.denial.as_ref().filter(|denial| cost >= denial.cost).map(|denial| {
            let when = When::exactly(shared_now(denial.ahead_us));
            S::core(&S::decision(&self.limit, denial.outcome, when))
        });
        let vetoed = self.veto.as_ref().filter(|veto| cost >= veto.cost);
        known
            .or(vetoed
                .map(|veto| Decision { when: When::exactly(shared_now(veto.ahead_us)), ..veto.outcome }))
    }

    /// Notes a call that was denied without being decided here.
    pub fn forgo(&mut self, cost: u64) {
        if S::is_counting_denied(&self.limit) {
            self.unreported = self.unreported.saturating_add(cost);
        }
    }

    /// Notes that the shared count gave no answer. What was not sent is asked again; what may have been is not, and
    /// then the units stay counted until they leave by themselves.
    pub fn failed(&mut self, ask: &LeaseAsk, is_unspent: bool) {
        self.asking_since = None;
        if is_unspent {
            self.leases.give_back(ask.back);
            self.unreported = self.unreported.saturating_add(ask.seen.saturating_sub(ask.need));
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

    /// Whether nobody calls for it and nothing of it can be spent.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        let is_idle = self.demand.is_idle(now.as_micros(), self.pace.interval_us);
        is_idle && !self.is_asking(now) && self.held(now) == 0
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

/// What the shared clock is ahead of the instance's, at least: the answer was under way for some time.
fn ahead_us(trip: Trip, shared_now: Timestamp) -> i64 {
    shared_now.as_micros() as i64 - trip.answered_at.as_micros() as i64
}
