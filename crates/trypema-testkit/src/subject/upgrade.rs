//! The Redis provider as a subject during a rolling upgrade.
#![allow(clippy::unwrap_used, reason = "a test that cannot make its limiter should stop right there")]

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::redis::{RedisConnection, RedisReceipt};

use super::library::{LibrarySubject, Provides};
use super::redis::RedisStrategy;
use crate::blocking::{self, Blocking};
use crate::random::Random;

/// Connections of two versions to one server.
#[derive(Debug)]
pub struct Versions {
    /// Runs the scripts of an earlier version.
    pub old: RedisConnection,
    /// Runs the current scripts.
    pub new: RedisConnection,
}

/// A limiter of each version with the same keys. A seed decides which of them receives a call.
#[derive(Debug)]
pub struct OnTwoVersions<M> {
    limits: [RateLimiter; 2],
    random: RefCell<Random>,
    strategy: PhantomData<M>,
}

/// Two versions with one clock: each call goes to one of them.
pub type UpgradeSubject<M> = LibrarySubject<M, OnTwoVersions<M>>;

impl<M: RedisStrategy> UpgradeSubject<M> {
    /// Creates a subject on both connections whose keys start with `prefix`.
    pub fn on(versions: &Versions, prefix: &str, seed: u64) -> Self {
        let clock = Arc::new(ManualClock::default());
        let limits = [&versions.old, &versions.new]
            .map(|connection| blocking::limiter(connection, prefix, &clock).build().unwrap());
        let random = RefCell::new(Random::seeded(seed));
        Self::new(clock, OnTwoVersions { limits, random, strategy: PhantomData })
    }
}

impl<M: RedisStrategy> Provides<M> for OnTwoVersions<M> {
    type Receipt = RedisReceipt;
    type Verbs<'a>
        = Blocking<'a, M::Strategy>
    where
        M: 'a;

    /// The scripts of earlier versions have no postpaid takes and debits.
    const CAN_OVERDRAW: bool = false;

    fn verbs(&self) -> Blocking<'_, M::Strategy> {
        let either = self.random.borrow_mut().below(2) as usize;
        Blocking(M::redis_limiter(&self.limits[either]))
    }
}
