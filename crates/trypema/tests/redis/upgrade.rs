//! Servers of two versions share one Redis, as during a rolling upgrade.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod newer_state;

use std::time::Duration;

use trypema::redis::RedisConnection;
use trypema::{BlockScope, RateLimiter};
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::differential::against_model;
use trypema_testkit::model::{
    AbsoluteModel, AbuseModel, FixedWindowModel, SlidingWindowModel, SuppressedModel, TokenBucketModel,
};
use trypema_testkit::redis::{FaultProxy, Server};
use trypema_testkit::redis_scripts::ArchivedVersion;
use trypema_testkit::subject::{RedisStrategy, UpgradeSubject, Versions};

use crate::strategies::Limits;

/// The number of steps in random traces per strategy and archived version.
const STEPS: usize = 10_000;

/// A server, and the proxy through which clients of an archived version reach it.
pub(crate) struct Upgrade {
    pub(crate) server: Server,
    pub(crate) proxy: FaultProxy,
}

impl Upgrade {
    /// One upgrade from each archived version.
    pub(crate) fn from_all() -> impl Iterator<Item = Self> {
        let archived = ArchivedVersion::all().unwrap();
        assert!(!archived.is_empty(), "testdata/redis-scripts holds no version");
        archived.into_iter().map(|version| {
            let server = Server::start().unwrap();
            let proxy = version.proxy(&server).unwrap();
            Self { server, proxy }
        })
    }

    pub(crate) fn versions(&self) -> Versions {
        Versions { old: connect(&self.proxy.url()), new: connect(&self.server.url()) }
    }
}

/// Plays random traces in which either version decides each step. Every field of every decision must equal
/// the model's.
///
/// Concurrency is left out: the archived scripts were made before it, and refuse its number. A fleet may use it
/// once no server of such a version runs.
fn decides_as_one<M: RedisStrategy>() {
    for upgrade in Upgrade::from_all() {
        let versions = upgrade.versions();
        let (mut steps, mut seed) = (0, 0);
        while steps < STEPS {
            let mut subject = UpgradeSubject::<M>::on(&versions, &format!("{}_{seed}", M::NAME), seed);
            match against_model::<M, _>(seed, &mut subject) {
                Ok(played) => steps += played,
                Err(difference) => panic!("{difference}"),
            }
            seed += 1;
        }
        let by_old = upgrade.proxy.rewritten() as usize;
        assert!(by_old > STEPS / 4, "the archived scripts ran {by_old} times in {steps} steps");
    }
}

#[test]
fn two_versions_of_absolute_decide_as_one() {
    decides_as_one::<AbsoluteModel>();
}

#[test]
fn two_versions_of_suppressed_decide_as_one() {
    decides_as_one::<SuppressedModel>();
}

#[test]
fn two_versions_of_token_bucket_decide_as_one() {
    decides_as_one::<TokenBucketModel>();
}

#[test]
fn two_versions_of_sliding_window_decide_as_one() {
    decides_as_one::<SlidingWindowModel>();
}

#[test]
fn two_versions_of_fixed_window_decide_as_one() {
    decides_as_one::<FixedWindowModel>();
}

#[test]
fn two_versions_of_abuse_decide_as_one() {
    decides_as_one::<AbuseModel>();
}

/// A limiter whose calls a busy machine does not cut off.
fn patient(connection: RedisConnection) -> RateLimiter {
    RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(20)).build().unwrap()
}

/// Earlier versions know no overdraft: they take an overdrawn key for an exhausted one.
#[test]
fn an_earlier_version_admits_nothing_while_a_key_is_overdrawn() {
    for upgrade in Upgrade::from_all() {
        let Versions { old, new } = upgrade.versions();
        let [old, new] = [old, new].map(patient);
        let (ann, limits) = (key("ann"), Limits::of(8, Duration::from_secs(3_600)));
        let limit = &limits.token_bucket;
        let (old, new) = (old.redis().token_bucket(), new.redis().token_bucket());
        assert!(wait_for(new.take_postpaid(&ann, limit, 800)).unwrap().is_allowed());
        for limiter in [old, new] {
            assert!(!wait_for(limiter.take(&ann, limit, 1)).unwrap().is_allowed());
        }
    }
}

#[test]
fn blocks_hold_for_both_versions_and_either_ends_them() {
    for upgrade in Upgrade::from_all() {
        let Versions { old, new } = upgrade.versions();
        let [old, new] = [old, new].map(patient);
        let limit = Limits::of(8, Duration::from_secs(3_600)).abuse;
        for (blocking, other) in [(&old, &new), (&new, &old)] {
            let ann = key("ann");
            let is_allowed = || wait_for(other.redis().abuse().take(&ann, &limit, 1)).unwrap().is_allowed();
            let block = blocking.redis().abuse().block(&ann, Duration::from_secs(60), BlockScope::Temp);
            wait_for(block).unwrap();
            assert!(!is_allowed());
            assert!(wait_for(other.redis().abuse().unblock(&ann)).unwrap());
            assert!(is_allowed());
        }
    }
}
