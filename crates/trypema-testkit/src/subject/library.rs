//! A provider of the library as a subject.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{ManualClock, Timestamp};
use trypema::strategy::Strategy;

use super::local::LocalStrategy;
use super::{Answer, Reserved, Subject, UpTo, Wait};
use crate::verbs::{Lease, Verbs};

/// The limiters of one strategy.
pub trait Provides<M: LocalStrategy> {
    /// The type of receipts.
    type Receipt: Clone;
    /// The type of its verbs.
    type Verbs<'a>: Verbs<M::Strategy, Receipt = Self::Receipt>
    where
        Self: 'a;

    /// Whether it has postpaid takes and debits.
    const CAN_OVERDRAW: bool = true;

    /// Returns its verbs.
    fn verbs(&self) -> Self::Verbs<'_>;

    /// Removes every state that equals a fresh one, unless the provider does that by itself.
    fn forget_stale(&self) {}
}

/// A provider with its own clock.
#[derive(Debug)]
pub struct LibrarySubject<M: LocalStrategy, P: Provides<M>> {
    clock: Arc<ManualClock>,
    provider: P,
    receipts: Vec<P::Receipt>,
}

impl<M: LocalStrategy, P: Provides<M>> LibrarySubject<M, P> {
    /// Creates a subject whose time is `clock`.
    pub fn new(clock: Arc<ManualClock>, provider: P) -> Self {
        Self { clock, provider, receipts: Vec::new() }
    }

    /// Keeps a receipt. Returns its number.
    fn keep(&mut self, receipt: Option<P::Receipt>) -> Option<usize> {
        receipt.map(|receipt| {
            self.receipts.push(receipt);
            self.receipts.len() - 1
        })
    }
}

fn answer<M: LocalStrategy>(decision: &<M::Strategy as Strategy>::Decision<'_>) -> Answer {
    let core = M::Strategy::core(decision);
    let (retry_after, reset_after) = (core.retry_after(), core.reset_after());
    assert!(
        retry_after.is_none_or(|wait| wait <= reset_after),
        "{} retries after its reset: {core:?}",
        M::NAME
    );
    Answer {
        is_allowed: core.is_allowed(),
        limit: core.limit(),
        remaining: core.remaining(),
        wait: retry_after.map_or(Wait::Never, |wait| Wait::Micros(micros(wait))),
        reset_us: micros(reset_after),
        detail: M::detail(decision),
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

impl<M: LocalStrategy, P: Provides<M>> Subject for LibrarySubject<M, P> {
    type Limit = M::Limit;
    const CAN_OVERDRAW: bool = P::CAN_OVERDRAW;

    fn set_clock(&mut self, now_us: u64) {
        self.clock.set(Timestamp::from_micros(now_us));
    }

    fn take(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Answer {
        answer::<M>(&self.provider.verbs().take(key, &M::limit(limit), cost))
    }

    fn peek(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Answer {
        answer::<M>(&self.provider.verbs().peek(key, &M::limit(limit), cost))
    }

    fn take_up_to(&mut self, key: &str, limit: &M::Limit, cost: u64) -> UpTo {
        let limit = M::limit(limit);
        let granted = self.provider.verbs().take_up_to(key, &limit, cost);
        UpTo { units: granted.units, answer: answer::<M>(&granted.decision) }
    }

    fn take_with_receipt(&mut self, key: &str, limit: &M::Limit, cost: u64, lease_us: u64) -> Reserved {
        let lease = Lease { cost, lease: Duration::from_micros(lease_us) };
        let limit = M::limit(limit);
        let (decision, receipt) = self.provider.verbs().take_with_receipt_for(key, &limit, lease);
        Reserved { answer: answer::<M>(&decision), receipt: self.keep(receipt) }
    }

    fn take_postpaid(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Answer {
        answer::<M>(&self.provider.verbs().take_postpaid(key, &M::limit(limit), cost))
    }

    fn take_postpaid_with_receipt(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Reserved {
        let limit = M::limit(limit);
        let (decision, receipt) = self.provider.verbs().take_postpaid_with_receipt(key, &limit, cost);
        Reserved { answer: answer::<M>(&decision), receipt: self.keep(receipt) }
    }

    fn debit(&mut self, key: &str, limit: &M::Limit, cost: u64) -> Answer {
        answer::<M>(&self.provider.verbs().debit(key, &M::limit(limit), cost))
    }

    fn refund(&mut self, key: &str, limit: &M::Limit, receipt: usize) -> u64 {
        self.provider.verbs().refund(key, &M::limit(limit), &self.receipts[receipt])
    }

    fn refund_units(&mut self, key: &str, limit: &M::Limit, units: u64) -> u64 {
        self.provider.verbs().refund_units(key, &M::limit(limit), units)
    }

    fn reset(&mut self, key: &str) {
        self.provider.verbs().reset(key);
    }

    fn forget_stale(&mut self) {
        self.provider.forget_stale();
    }
}
