//! The verbs of a limiter, whatever the provider, for tests that run on all of them.

use std::time::Duration;

use trypema::Granted;
use trypema::clock::Timestamp;
use trypema::local::Limiter;
use trypema::strategy::Strategy;

/// A limiter of some provider. One that cannot be asked stops the test.
pub trait Verbs<S: Strategy> {
    /// What names a take.
    type Receipt: Clone;

    /// Takes `cost` if it fits.
    fn take<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l>;
    /// What a take would answer.
    fn peek<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l>;
    /// Takes as much of `cost` as fits.
    fn take_up_to<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> Granted<S::Decision<'l>>;
    /// Takes `cost` for units to be spent until `lease` has passed.
    fn reserve_for<'l>(&self, key: &str, limit: &'l S::Limit, ask: Lease) -> Reserved<'l, S, Self::Receipt>;
    /// Gives back what a receipt names.
    fn refund(&self, key: &str, limit: &S::Limit, receipt: &Self::Receipt) -> u64;
    /// Gives back the oldest units.
    fn refund_units(&self, key: &str, limit: &S::Limit, units: u64) -> u64;
    /// Forgets a key.
    fn reset(&self, key: &str) -> bool;
    /// Where a take was recorded.
    fn recorded_at(receipt: &Self::Receipt) -> Timestamp;
}

/// What is reserved.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    /// The units.
    pub cost: u64,
    /// How long they may be spent.
    pub lease: Duration,
}

/// A decision and the receipt that came with it.
pub type Reserved<'l, S, R> = (<S as Strategy>::Decision<'l>, Option<R>);

impl<S: Strategy> Verbs<S> for &Limiter<S> {
    type Receipt = trypema::Receipt;

    fn take<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        Limiter::take(self, key, limit, cost)
    }

    fn peek<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        Limiter::peek(self, key, limit, cost)
    }

    fn take_up_to<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> Granted<S::Decision<'l>> {
        Limiter::take_up_to(self, key, limit, cost)
    }

    fn reserve_for<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        ask: Lease,
    ) -> Reserved<'l, S, trypema::Receipt> {
        let reservation = Limiter::reserve_for(self, key, limit, ask.cost, ask.lease);
        (reservation.decision, reservation.receipt)
    }

    fn refund(&self, key: &str, limit: &S::Limit, receipt: &trypema::Receipt) -> u64 {
        Limiter::refund(self, key, limit, receipt)
    }

    fn refund_units(&self, key: &str, limit: &S::Limit, units: u64) -> u64 {
        Limiter::refund_units(self, key, limit, units)
    }

    fn reset(&self, key: &str) -> bool {
        Limiter::reset(self, key)
    }

    fn recorded_at(receipt: &trypema::Receipt) -> Timestamp {
        receipt.recorded_at()
    }
}
