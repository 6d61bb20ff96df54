//! The local provider and Redis behind one face, so that each case is written once.

use std::fmt::Debug;
use std::sync::{Arc, Barrier};

use trypema::local::Receipt;
use trypema::{Decision, Limit, MultiDecision, RateLimiter, TrypemaError};

use super::asked::{Asked, checks};

/// What becomes of checks that are asked together.
pub(crate) type Answer<R> = Result<MultiDecision<R>, TrypemaError>;

/// Where states are. What fails unexpectedly stops the test.
pub(crate) trait Provider {
    /// What names a take.
    type Receipt: Clone + Debug;

    fn take_all(&self, asked: &[Asked]) -> Answer<Self::Receipt>;
    fn reserve_all(&self, asked: &[Asked]) -> Answer<Self::Receipt>;
    fn peek_all(&self, asked: &[Asked]) -> Answer<Self::Receipt>;
    fn refund_all(&self, asked: &[Asked], receipts: &[Option<Self::Receipt>]);
    fn units(receipt: &Self::Receipt) -> u64;

    /// Forgets what the key of a check has spent; whether there was anything.
    fn reset(&self, asked: &Asked) -> bool;

    /// Callers that take at once, each by a thread or task of its own.
    fn take_all_at_once(&self, callers: &[Vec<Asked>]) -> Vec<MultiDecision<Self::Receipt>>;

    /// The share of calls like this one that is denied, where the suppressed strategy draws.
    fn factor(&self, asked: &Asked) -> Option<f64>;

    /// What is stored for a check, byte by byte, and until when; `None` where that cannot be seen.
    fn stored(&self, asked: &Asked) -> Option<Stored>;

    /// What a check that asks for nothing is told.
    fn usage(&self, asked: &Asked) -> Decision {
        self.peek_all(&[asked.costing(0)]).unwrap().decisions[0]
    }

    /// What is left for each check.
    fn left(&self, asked: &[Asked]) -> Vec<u64> {
        asked.iter().map(|asked| self.usage(asked).remaining()).collect()
    }
}

/// What is stored for a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    pub(crate) expires_at_ms: Option<i64>,
}

/// Inside this process.
#[derive(Debug)]
pub(crate) struct OnLocal(pub(crate) Arc<RateLimiter>);

impl Provider for OnLocal {
    type Receipt = Receipt;

    fn take_all(&self, asked: &[Asked]) -> Answer<Receipt> {
        self.0.local().take_all(&checks(asked))
    }

    fn reserve_all(&self, asked: &[Asked]) -> Answer<Receipt> {
        self.0.local().reserve_all(&checks(asked))
    }

    fn peek_all(&self, asked: &[Asked]) -> Answer<Receipt> {
        self.0.local().peek_all(&checks(asked))
    }

    fn refund_all(&self, asked: &[Asked], receipts: &[Option<Receipt>]) {
        self.0.local().refund_all(&checks(asked), receipts);
    }

    fn units(receipt: &Receipt) -> u64 {
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
        }
    }

    fn take_all_at_once(&self, callers: &[Vec<Asked>]) -> Vec<MultiDecision<Receipt>> {
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
