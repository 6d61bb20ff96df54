//! Generates a trace step by step, from a seed and the answers so far.

use super::step::{KEYS, Reply, Step, Verb};
use crate::model::Model;
use crate::random::Random;

/// The minimum and maximum number of steps in a trace.
const SHORTEST: u64 = 20;
const LONGEST: u64 = 60;

/// The start of most traces: 2020-09-13, on a multiple of ten minutes.
const USUAL_START_US: u64 = 1_600_000_000_000_000;

/// The latest time in a trace, so that no time in it reaches the last one that is supported (2^53 µs).
const LAST_MOMENT_US: u64 = 6_000_000_000_000_000;

const YEAR_US: u64 = 365 * 86_400 * 1_000_000;

/// The number of leases in one trace: as many as a token bucket tracks separately.
const MOST_LEASES: u64 = 8;

/// The changes that a trace makes besides spending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Several keys. Stale keys are removed now and then, which must not change any answer.
    Forgetting,
    /// One key, whose limit changes. Nothing is removed, because a key is stale by the limit of its last
    /// call.
    Limits,
    /// One key. The clock goes back by a little or by a lot, and the limit changes. Nothing is removed,
    /// because a removed key would be missing after the clock goes back.
    ClockAndLimits,
}

/// A generator of one trace.
#[derive(Debug)]
pub struct Walk<M: Model> {
    random: Random,
    changes: Changes,
    /// Whether some calls are postpaid takes and debits.
    is_overdrawing: bool,
    leases_left: u64,
    steps_left: u64,
    now_us: u64,
    limit: M::Limit,
    other_limit: M::Limit,
    /// The wait and the remaining units of the last answer.
    last_wait_us: u64,
    last_remaining: u64,
    /// The key of every receipt; `None` after another key was reset, which may invalidate the receipt.
    receipts: Vec<Option<&'static str>>,
}

impl<M: Model> Walk<M> {
    /// Creates the trace of `seed`.
    pub fn new(seed: u64) -> Self {
        let kinds = [Changes::Forgetting, Changes::Limits, Changes::ClockAndLimits];
        Self::changing(seed, kinds[(seed % 3) as usize])
    }

    /// Creates the trace of `seed` with these changes.
    pub fn changing(seed: u64, changes: Changes) -> Self {
        let mut random = Random::seeded(seed);
        let limit = M::random_limit(&mut random);
        let other_limit = M::random_limit(&mut random);
        let longest_us = longest_span_us::<M>(&limit);
        let now_us = if random.once_in(4) {
            random.below(3 * longest_us)
        } else {
            USUAL_START_US + random.below(longest_us)
        };
        Self {
            changes,
            is_overdrawing: false,
            leases_left: MOST_LEASES,
            steps_left: random.between(SHORTEST, LONGEST),
            now_us,
            limit,
            other_limit,
            last_wait_us: 0,
            last_remaining: 0,
            receipts: Vec::new(),
            random,
        }
    }

    /// Returns the same trace, in which some calls are postpaid takes and debits.
    #[must_use]
    pub fn overdrawing(self) -> Self {
        Self { is_overdrawing: true, ..self }
    }

    /// Returns the next step; `None` at the end.
    pub fn next_step(&mut self) -> Option<Step<M::Limit>> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        if self.random.once_in(2) {
            self.move_clock();
        }
        if self.changes != Changes::Forgetting && self.random.once_in(20) {
            std::mem::swap(&mut self.limit, &mut self.other_limit);
        }
        let key = match self.changes {
            Changes::Forgetting => self.random.pick(&KEYS),
            Changes::Limits | Changes::ClockAndLimits => KEYS[0],
        };
        let (key, verb) = self.verb(key);
        Some(Step { now_us: self.now_us, limit: self.limit.clone(), key, verb })
    }

    /// Records an answer, which shows where the boundaries are.
    pub fn note(&mut self, step: &Step<M::Limit>, reply: &Reply) {
        if let Some(answer) = reply.answer() {
            self.last_remaining = answer.remaining;
            self.last_wait_us = answer.wait.micros().unwrap_or(0);
        }
        if let Reply::Reserved(reserved) = reply
            && reserved.receipt.is_some()
        {
            self.receipts.push(Some(step.key));
        }
        if matches!(step.verb, Verb::Reset) {
            let others = self.receipts.iter_mut().filter(|key| **key != Some(step.key));
            others.for_each(|key| *key = None);
        }
    }

    fn verb(&mut self, key: &'static str) -> (&'static str, Verb) {
        let cost = self.cost();
        if self.is_overdrawing && self.random.once_in(5) {
            let verb = match self.random.below(4) {
                0 => Verb::Debit(cost),
                1 => Verb::ReservePostpaid(cost),
                _ => Verb::TakePostpaid(cost),
            };
            return (key, verb);
        }
        let verb = match self.random.below(40) {
            0..20 => Verb::Take(cost),
            20..24 => Verb::Peek(cost),
            24..27 => Verb::TakeUpTo(cost),
            27..32 => Verb::Reserve { cost, lease_us: self.lease_us() },
            32..36 if !self.receipts.is_empty() => return self.refund(key),
            32..37 => Verb::RefundUnits(cost),
            37 if self.random.once_in(3) => Verb::Reset,
            38 if self.changes == Changes::Forgetting => Verb::Forget,
            _ => Verb::Take(1),
        };
        (key, verb)
    }

    /// Refunds any receipt, used or not, newer ones more often; sometimes with a key that it does not
    /// belong to.
    fn refund(&mut self, key: &'static str) -> (&'static str, Verb) {
        let count = self.receipts.len() as u64;
        let back = self.random.below(count).min(self.random.below(count));
        let receipt = (count - 1 - back) as usize;
        match self.receipts[receipt] {
            None => (key, Verb::RefundUnits(1)),
            Some(_) if self.random.once_in(10) => (key, Verb::Refund(receipt)),
            Some(own) => (own, Verb::Refund(receipt)),
        }
    }

    fn lease_us(&mut self) -> u64 {
        let span_us = self.span_us();
        let lease_us = match self.random.below(8) {
            0 => self.random.below(span_us + 1),
            1 => span_us / 10,
            _ => 0,
        };
        if lease_us == 0 || self.leases_left == 0 {
            return 0;
        }
        self.leases_left -= 1;
        lease_us
    }

    fn cost(&mut self) -> u64 {
        let capacity = M::capacity(&self.limit);
        match self.random.below(32) {
            0 | 1 => 0,
            2..12 => 1,
            12..18 => self.random.between(1, 5),
            18 | 19 => capacity,
            20 => capacity + 1,
            21 => capacity.saturating_sub(1),
            22..25 => self.last_remaining,
            25 | 26 => self.last_remaining + 1,
            27 => self.random.below(capacity + 2),
            28..31 => capacity / 3 + 1,
            _ => {
                let huge = [(1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX as u64, u64::MAX];
                self.random.pick(&huge)
            }
        }
    }

    fn move_clock(&mut self) {
        let span_us = self.span_us();
        if self.changes == Changes::ClockAndLimits && self.random.once_in(5) {
            let back_us = self.step_back_us(span_us);
            self.now_us = self.now_us.saturating_sub(back_us);
            return;
        }
        let forward_us = match self.random.below(16) {
            0 => 1,
            1..4 => self.last_wait_us,
            4 | 5 => self.last_wait_us.saturating_sub(1),
            6 => span_us,
            7 => span_us - 1,
            8 => span_us - self.now_us % span_us,
            9 => span_us - self.now_us % span_us - 1,
            10 => self.random.below(3 * span_us),
            11 if self.random.once_in(8) => self.random.below(3 * YEAR_US),
            _ => self.random.below(span_us / 4 + 2),
        };
        self.now_us = (self.now_us + forward_us).min(LAST_MOMENT_US);
    }

    fn step_back_us(&mut self, span_us: u64) -> u64 {
        match self.random.below(10) {
            0 => 1,
            1..4 => self.random.below(span_us / 4 + 2),
            4 => span_us,
            5 => span_us + 1,
            6 => 2 * span_us,
            7 => 2 * span_us + 1,
            8 => self.random.below(5 * span_us),
            _ => self.random.below(2 * YEAR_US),
        }
    }

    /// Returns a duration at which something changes, mostly the longest one.
    fn span_us(&mut self) -> u64 {
        let spans = M::spans_us(&self.limit);
        if self.random.once_in(2) { longest_span_us::<M>(&self.limit) } else { self.random.pick(&spans) }
    }
}

fn longest_span_us<M: Model>(limit: &M::Limit) -> u64 {
    M::spans_us(limit).into_iter().max().unwrap_or(1)
}
