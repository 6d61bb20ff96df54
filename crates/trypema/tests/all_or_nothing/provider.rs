//! The local provider and Redis behind one trait, so that each case is written once.

use std::fmt::Debug;
use std::sync::{Arc, Barrier};

use trypema::local::LocalReceipt;
use trypema::{Decision, Limit, MultiDecision, RateLimiter, TrypemaError};

use super::asked::{Asked, checks};

/// The result of a multi-key call.
pub(crate) type Answer<R> = Result<MultiDecision<R>, TrypemaError>;

/// A provider under test. Unexpected errors panic.
pub(crate) trait Provider {
    /// Identifies a reservation, for a refund.
    type Receipt: Clone + Debug;

    fn take_all(&self, asked: &[Asked]) -> Answer<Self::Receipt>;
    fn take_all_with_receipts(&self, asked: &[Asked]) -> Answer<Self::Receipt>;
    fn peek_all(&self, asked: &[Asked]) -> Answer<Self::Receipt>;
    fn refund_all(&self, asked: &[Asked], receipts: &[Option<Self::Receipt>]);
    fn units(receipt: &Self::Receipt) -> u64;

    /// Resets the key of a check. Returns whether the key had any state.
    fn reset(&self, asked: &Asked) -> bool;

    /// Calls `take_all` concurrently, with one thread or task per caller.
    fn take_all_at_once(&self, callers: &[Vec<Asked>]) -> Vec<MultiDecision<Self::Receipt>>;

    /// The suppression factor for this check: the share of such requests that is denied. `None` unless the
    /// suppressed strategy decides by chance.
    fn factor(&self, asked: &Asked) -> Option<f64>;

    /// The raw stored state of a check and its expiry. `None` if the provider does not expose them.
    fn stored(&self, asked: &Asked) -> Option<Stored>;

    /// Peeks at a check with cost 0.
    fn usage(&self, asked: &Asked) -> Decision {
        self.peek_all(&[asked.costing(0)]).unwrap().decisions[0]
    }

    /// The remaining units of each check.
    fn left(&self, asked: &[Asked]) -> Vec<u64> {
        asked.iter().map(|asked| self.usage(asked).remaining()).collect()
    }
}

/// The raw stored state of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    pub(crate) expires_at_ms: Option<i64>,
}

/// The local provider.
#[derive(Debug)]
pub(crate) struct OnLocal(pub(crate) Arc<RateLimiter>);

impl Provider for OnLocal {
    type Receipt = LocalReceipt;

    fn take_all(&self, asked: &[Asked]) -> Answer<LocalReceipt> {
        self.0.local().take_all(&checks(asked))
    }

    fn take_all_with_receipts(&self, asked: &[Asked]) -> Answer<LocalReceipt> {
        self.0.local().take_all_with_receipts(&checks(asked))
    }

    fn peek_all(&self, asked: &[Asked]) -> Answer<LocalReceipt> {
        self.0.local().peek_all(&checks(asked))
    }

    fn refund_all(&self, asked: &[Asked], receipts: &[Option<LocalReceipt>]) {
        self.0.local().refund_all(&checks(asked), receipts);
    }

    fn units(receipt: &LocalReceipt) -> u64 {
        receipt.units()
    }

    fn reset(&self, Asked { key, limit, .. }: &Asked) -> bool {
        let local = self.0.local();
        match limit {
            Limit::Absolute(_) => local.absolute().reset(key),
            Limit::Suppressed(_) => local.suppressed().reset(key),
            Limit::TokenBucket(_) => local.token_bucket().reset(key),
            Limit::SlidingWindow(_) => local.sliding_window().reset(key),
            Limit::FixedWindow(_) => local.fixed_window().reset(key),
            Limit::Abuse(_) => local.abuse().reset(key),
            Limit::Concurrency(_) => local.concurrency().reset(key),
        }
    }

    fn take_all_at_once(&self, callers: &[Vec<Asked>]) -> Vec<MultiDecision<LocalReceipt>> {
        let start = Barrier::new(callers.len());
        std::thread::scope(|scope| {
            let callers: Vec<_> = callers
                .iter()
                .map(|asked| {
                    scope.spawn(|| {
                        start.wait();
                        self.take_all(asked).unwrap()
                    })
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        })
    }

    fn factor(&self, asked: &Asked) -> Option<f64> {
        let Limit::Suppressed(limit) = &asked.limit else { return None };
        self.0.local().suppressed().peek(&asked.key, limit, asked.cost).suppression_factor()
    }

    fn stored(&self, _: &Asked) -> Option<Stored> {
        None
    }
}
