//! The verbs of a limiter on any provider, for tests that run on all of them.

use std::time::Duration;

use trypema::Granted;
use trypema::clock::Timestamp;
use trypema::local::LocalLimiter;
use trypema::strategy::Strategy;

/// A limiter of some provider. Its methods panic if the provider returns an error, so that the test stops.
pub trait Verbs<S: Strategy> {
    /// The type of receipts.
    type Receipt: Clone;

    /// Takes `cost` if it fits.
    fn take<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l>;
    /// Returns the answer that a take would get.
    fn peek<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l>;
    /// Takes as much of `cost` as fits.
    fn take_up_to<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> Granted<S::Decision<'l>>;
    /// Takes `cost` for units that may be spent until `lease` has passed.
    fn take_with_receipt_for<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        ask: Lease,
    ) -> Reserved<'l, S, Self::Receipt>;
    /// Takes `cost` if one unit is free.
    fn take_postpaid<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l>;
    /// Takes `cost` if one unit is free, with a receipt.
    fn take_postpaid_with_receipt<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Reserved<'l, S, Self::Receipt>;
    /// Records `cost`, whatever is left.
    fn debit<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l>;
    /// Refunds a receipt.
    fn refund(&self, key: &str, limit: &S::Limit, receipt: &Self::Receipt) -> u64;
    /// Refunds the oldest units.
    fn refund_units(&self, key: &str, limit: &S::Limit, units: u64) -> u64;
    /// Resets a key.
    fn reset(&self, key: &str) -> bool;
    /// Returns the time at which a take was recorded.
    fn recorded_at(receipt: &Self::Receipt) -> Timestamp;
}

/// The units and the duration of a reservation.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    /// The number of units.
    pub cost: u64,
    /// The time in which they may be spent.
    pub lease: Duration,
}

/// A decision and its receipt.
pub type Reserved<'l, S, R> = (<S as Strategy>::Decision<'l>, Option<R>);

impl<S: Strategy> Verbs<S> for &LocalLimiter<S> {
    type Receipt = trypema::LocalReceipt;

    fn take<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        LocalLimiter::take(self, key, limit, cost)
    }

    fn peek<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        LocalLimiter::peek(self, key, limit, cost)
    }

    fn take_up_to<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> Granted<S::Decision<'l>> {
        LocalLimiter::take_up_to(self, key, limit, cost)
    }

    fn take_with_receipt_for<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        ask: Lease,
    ) -> Reserved<'l, S, trypema::LocalReceipt> {
        let reservation = LocalLimiter::take_with_receipt_for(self, key, limit, ask.cost, ask.lease);
        (reservation.decision, reservation.receipt)
    }

    fn take_postpaid<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        LocalLimiter::take_postpaid(self, key, limit, cost)
    }

    fn take_postpaid_with_receipt<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Reserved<'l, S, trypema::LocalReceipt> {
        let reservation = LocalLimiter::take_postpaid_with_receipt(self, key, limit, cost);
        (reservation.decision, reservation.receipt)
    }

    fn debit<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        LocalLimiter::debit(self, key, limit, cost)
    }

    fn refund(&self, key: &str, limit: &S::Limit, receipt: &trypema::LocalReceipt) -> u64 {
        LocalLimiter::refund(self, key, limit, receipt)
    }

    fn refund_units(&self, key: &str, limit: &S::Limit, units: u64) -> u64 {
        LocalLimiter::refund_units(self, key, limit, units)
    }

    fn reset(&self, key: &str) -> bool {
        LocalLimiter::reset(self, key)
    }

    fn recorded_at(receipt: &trypema::LocalReceipt) -> Timestamp {
        receipt.recorded_at()
    }
}
