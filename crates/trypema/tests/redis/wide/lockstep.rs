//! The Redis provider and the local one receive the same calls and must return the same results.

use std::fmt::Debug;

use trypema::redis::RedisConnection;
use trypema_testkit::random::Random;
use trypema_testkit::subject::{Answer, LocalSubject, RedisStrategy, RedisSubject, Subject};

/// 2020-09-13 12:26:40 UTC.
const START_US: u64 = 1_600_000_000_000_000;
const KEY: &str = "ann";

/// Two providers with one key and one clock.
pub(crate) struct Lockstep<M: RedisStrategy> {
    redis: RedisSubject<M>,
    local: LocalSubject<M>,
    now_us: u64,
    receipts: usize,
}

impl<M: RedisStrategy<Limit: Debug>> Lockstep<M> {
    pub(crate) fn on(connection: &RedisConnection) -> Self {
        let (redis, local) = (RedisSubject::on(connection, "wide"), LocalSubject::default());
        let mut pair = Self { redis, local, now_us: START_US, receipts: 0 };
        pair.advance(0);
        pair
    }

    pub(crate) fn advance(&mut self, by_us: u64) {
        self.now_us += by_us;
        self.redis.set_clock(self.now_us);
        self.local.set_clock(self.now_us);
    }

    pub(crate) fn take(&mut self, limit: &M::Limit, cost: u64) -> Answer {
        let expected = self.local.take(KEY, limit, cost);
        assert_eq!(
            self.redis.take(KEY, limit, cost),
            expected,
            "take {cost} of {limit:?} at {}",
            self.now_us
        );
        expected
    }

    /// Reserves units on both providers and keeps the receipts.
    pub(crate) fn take_with_receipt(&mut self, limit: &M::Limit, cost: u64) {
        let expected = self.local.take_with_receipt(KEY, limit, cost, 0);
        let actual = self.redis.take_with_receipt(KEY, limit, cost, 0);
        assert_eq!(actual, expected, "reserve {cost} of {limit:?} at {}", self.now_us);
        self.receipts += usize::from(expected.receipt.is_some());
    }

    /// Makes one random call with one of the limits. Takes and refunds little, so that the length of the
    /// state stays about the same.
    pub(crate) fn anything(&mut self, random: &mut Random, limits: [&M::Limit; 3]) {
        let limit = random.pick(&limits);
        let left = self.peek(limit, 0).remaining;
        match random.below(8) {
            0 => drop(self.peek(limit, left + 1)),
            1 => drop(self.take(limit, left + 1)),
            2 => drop(self.take(limit, random.below(20))),
            3 => self.take_up_to(limit, random.below(20)),
            4 => self.refund_units(limit, random.below(50)),
            5 => self.refund_units(limit, M::capacity(limit).saturating_sub(left) / 10),
            _ => self.refund(limit, random.below(self.receipts as u64) as usize),
        }
    }

    fn peek(&mut self, limit: &M::Limit, cost: u64) -> Answer {
        let expected = self.local.peek(KEY, limit, cost);
        assert_eq!(
            self.redis.peek(KEY, limit, cost),
            expected,
            "peek {cost} of {limit:?} at {}",
            self.now_us
        );
        expected
    }

    fn take_up_to(&mut self, limit: &M::Limit, cost: u64) {
        let expected = self.local.take_up_to(KEY, limit, cost);
        assert_eq!(self.redis.take_up_to(KEY, limit, cost), expected, "up to {cost} at {}", self.now_us);
    }

    fn refund(&mut self, limit: &M::Limit, receipt: usize) {
        if receipt < self.receipts {
            let expected = self.local.refund(KEY, limit, receipt);
            assert_eq!(
                self.redis.refund(KEY, limit, receipt),
                expected,
                "refund {receipt} at {}",
                self.now_us
            );
        }
    }

    fn refund_units(&mut self, limit: &M::Limit, units: u64) {
        let expected = self.local.refund_units(KEY, limit, units);
        assert_eq!(self.redis.refund_units(KEY, limit, units), expected, "refund {units} at {}", self.now_us);
    }
}
