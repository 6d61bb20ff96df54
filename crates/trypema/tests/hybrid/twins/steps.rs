//! Generates random traces of leases and of all operations that may come between them.

use std::fmt;

use trypema::clock::Timestamp;
use trypema::strategy::{Leasable, LeaseParams, LeasedUnits};
use trypema_testkit::random::Random;
use trypema_testkit::subject::RedisStrategy;

use super::mirror::Mirror;

const SHORTEST: u64 = 20;
const LONGEST: u64 = 60;

/// A multiple of ten minutes.
const START_US: u64 = 1_600_000_000_000_000;

/// The number of instances that request leases.
const INSTANCES: u64 = 4;

/// One step of a trace.
pub(crate) struct Step<M: RedisStrategy> {
    pub(crate) now_us: u64,
    pub(crate) limit: M::Limit,
    pub(crate) verb: Verb,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Verb {
    Lease { ask: LeaseParams, from: From },
    Take(u64),
    Postpaid(u64),
    Debit(u64),
    Peek(u64),
    Reserve(u64),
    Refund(usize),
    RefundUnits(u64),
    Reset,
}

/// The instance that requests a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From {
    pub(crate) instance: u64,
    pub(crate) live_for_us: u64,
}

impl<M: RedisStrategy> fmt::Display for Step<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} under {:?}", self.now_us, self.verb, self.limit)
    }
}

/// A generator of one trace.
pub(crate) struct Steps<M: RedisStrategy> {
    random: Random,
    left: u64,
    now_us: u64,
    limit: M::Limit,
    other_limit: M::Limit,
    /// The leases that were granted and not refunded.
    granted: Vec<LeasedUnits>,
    receipts: usize,
    resets: u32,
    last_remaining: u64,
    last_wait_us: u64,
}

impl<M: RedisStrategy<Strategy: Leasable>> Steps<M> {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let (limit, other_limit) = (M::random_limit(&mut random), M::random_limit(&mut random));
        let longest_us = M::spans_us(&limit).into_iter().max().unwrap();
        Self {
            left: random.between(SHORTEST, LONGEST),
            now_us: START_US + random.below(longest_us),
            random,
            limit,
            other_limit,
            granted: Vec::new(),
            receipts: 0,
            resets: 0,
            last_remaining: 0,
            last_wait_us: 0,
        }
    }

    pub(crate) fn next_step(&mut self) -> Option<Step<M>> {
        self.left = self.left.checked_sub(1)?;
        if self.random.once_in(2) {
            self.move_clock();
        }
        if self.random.once_in(25) {
            std::mem::swap(&mut self.limit, &mut self.other_limit);
        }
        let verb = self.verb();
        Some(Step { now_us: self.now_us, limit: self.limit.clone(), verb })
    }

    /// Updates the generator with the result of the last step.
    pub(crate) fn note(&mut self, mirror: &Mirror<M>) {
        if let Some(granted) = mirror.granted.last()
            && self.granted.last() != Some(granted)
        {
            self.granted.push(*granted);
        }
        (self.receipts, self.resets) = (mirror.receipts(), mirror.resets());
        (self.last_remaining, self.last_wait_us) = (mirror.last_remaining, mirror.last_wait_us);
    }

    fn verb(&mut self) -> Verb {
        if self.random.once_in(8) {
            let units = self.units();
            return if self.random.once_in(3) { Verb::Debit(units) } else { Verb::Postpaid(units) };
        }
        match self.random.below(32) {
            0..18 => Verb::Lease { ask: self.ask(), from: self.from() },
            18..24 => Verb::Take(self.units()),
            24 | 25 => Verb::Peek(self.units()),
            26 | 27 => Verb::Reserve(self.units()),
            28 | 29 => Verb::Refund(self.random.below(self.receipts as u64 + 1) as usize),
            30 => Verb::RefundUnits(self.units()),
            _ if self.random.once_in(2) => Verb::Reset,
            _ => Verb::Take(1),
        }
    }

    fn ask(&mut self) -> LeaseParams {
        let (need, want) = match self.random.below(6) {
            0 => (0, 0),
            1 => (self.units(), 0),
            2 | 3 => (0, self.units()),
            _ => (self.units(), self.units()),
        };
        let seen = if self.random.once_in(2) { self.units() } else { 0 };
        LeaseParams { need, want, length_us: self.length_us(), unspent: self.back(), reported: seen }
    }

    /// A lease duration: mostly realistic, sometimes longer than is useful.
    fn length_us(&mut self) -> u64 {
        let span_us = self.span_us();
        match self.random.below(8) {
            0 => 0,
            1 => 1,
            2 => span_us,
            3 => self.random.below(3 * span_us),
            _ => self.random.below(span_us / 32 + 2),
        }
    }

    /// Units to refund: mostly the rest of a lease, sometimes units that were already refunded or never
    /// granted.
    fn back(&mut self) -> LeasedUnits {
        let Some(granted) = self.granted.len().checked_sub(1) else { return LeasedUnits::default() };
        let index = granted - self.random.below(granted as u64 + 1).min(self.random.below(3)) as usize;
        let back = self.granted[index];
        let units = self.random.below(back.units + 1);
        match self.random.below(16) {
            0..6 => LeasedUnits::default(),
            6 => LeasedUnits { units: self.units(), ..back },
            7 => LeasedUnits {
                recorded: Timestamp::from_micros(self.now_us + self.random.below(1_000)),
                ..back
            },
            8 => LeasedUnits { resets: self.resets, ..back },
            9 => back,
            _ => {
                self.granted.remove(index);
                LeasedUnits { units, ..back }
            }
        }
    }

    fn from(&mut self) -> From {
        let live_for_us = match self.random.below(10) {
            0 => 0,
            1 => 1_000,
            _ => 3_000_000,
        };
        From { instance: self.random.below(INSTANCES), live_for_us }
    }

    fn units(&mut self) -> u64 {
        let capacity = M::capacity(&self.limit);
        match self.random.below(32) {
            0 => 0,
            1..10 => 1,
            10..18 => self.random.between(1, 5),
            18 | 19 => capacity,
            20 => capacity + 1,
            21..24 => self.last_remaining,
            24 => self.last_remaining + 1,
            25..28 => self.random.below(capacity + 2),
            28..31 => capacity / 3 + 1,
            _ => self.random.pick(&[(1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX]),
        }
    }

    fn move_clock(&mut self) {
        let span_us = self.span_us();
        if self.random.once_in(8) {
            // Steps back by a little, by up to a window, or by more.
            let back_us = match self.random.below(4) {
                0 => 1,
                1 => self.random.below(span_us / 4 + 2),
                2 => self.random.below(span_us + 1),
                _ => span_us + self.random.below(3 * span_us),
            };
            self.now_us = self.now_us.saturating_sub(back_us);
            return;
        }
        self.now_us += match self.random.below(16) {
            0 => 1,
            1..4 => self.last_wait_us.min(3 * span_us),
            4 => self.last_wait_us.min(3 * span_us).saturating_sub(1),
            5 => span_us,
            6 => span_us - self.now_us % span_us,
            7 => span_us - self.now_us % span_us - 1,
            8 => self.random.below(3 * span_us),
            _ => self.random.below(span_us / 16 + 2),
        };
    }

    fn span_us(&mut self) -> u64 {
        let spans = M::spans_us(&self.limit);
        if self.random.once_in(2) { spans.iter().copied().max().unwrap() } else { self.random.pick(&spans) }
    }
}
