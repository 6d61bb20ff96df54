//! The local provider as a subject.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::local::LocalLimiter;
use trypema::strategy::{Listed, Strategy};
use trypema::{LocalReceipt, RateLimiter, TrypemaError};

use super::Detail;
use super::library::{LibrarySubject, Provides};
use crate::model::Model;
use crate::trace::{self, Answer, Limit, NoLimit};

/// A strategy of the library, as tests of all strategies use it.
pub trait Modelled: Listed {
    /// Its model.
    type Model: LocalStrategy<Strategy = Self>;

    /// Returns a limit of `capacity` units per `window`.
    fn sized(capacity: u64, window: Duration) -> Result<Self::Limit, TrypemaError>;

    /// Parses the words of a limit line of a trace, after the name of the strategy.
    fn parse(words: &[&str]) -> Result<Limit, NoLimit>;

    /// Returns the answer of a decision in a trace, with all of its numbers.
    fn answer(decision: &Self::Decision<'_>) -> Answer {
        trace::core_answer(&Self::core(decision))
    }
}

/// A model whose strategy the library has.
pub trait LocalStrategy: Model {
    /// The strategy.
    type Strategy: Listed;

    /// Returns the library's limit with these numbers.
    fn limit(limit: &Self::Limit) -> <Self::Strategy as Strategy>::Limit;

    /// Returns the fields that only decisions of this strategy have.
    fn detail(decision: &<Self::Strategy as Strategy>::Decision<'_>) -> Detail {
        let _ = decision;
        Detail::Plain
    }
}

/// The local limiters of a strategy.
#[derive(Debug)]
pub struct OnLocal<M> {
    limits: RateLimiter,
    strategy: std::marker::PhantomData<M>,
}

/// A subject with its own limiter and clock.
pub type LocalSubject<M> = LibrarySubject<M, OnLocal<M>>;

impl<M: LocalStrategy> Default for LocalSubject<M> {
    fn default() -> Self {
        let clock = Arc::new(ManualClock::default());
        // Enough for all keys, in so few shards that keys share them.
        let limits = RateLimiter::builder().max_keys(40).clock(clock.clone()).build().unwrap();
        Self::new(clock, OnLocal { limits, strategy: std::marker::PhantomData })
    }
}

impl<M: LocalStrategy> Provides<M> for OnLocal<M> {
    type Receipt = LocalReceipt;
    type Verbs<'a>
        = &'a LocalLimiter<M::Strategy>
    where
        M: 'a;

    fn verbs(&self) -> &LocalLimiter<M::Strategy> {
        self.limits.local().limiter()
    }

    fn forget_stale(&self) {
        self.limits.local().forget_stale(Duration::ZERO);
    }
}
