//! Rate limiting with seven strategies and exact decisions: inside one process, shared through Redis, or with
//! units leased from Redis.
//!
//! A *strategy* is the algorithm. A *provider* is the place where the state is kept. A *key* names the caller
//! that is limited. A *cost* is the number of units that one call spends. A denial is a decision and never an
//! `Err`: an error means that a value was invalid, or that Redis failed.
//!
//! This crate is not the `trypema` of crates.io, which is another, older crate of the same name (1.0.0 to
//! 2.2.1). Depend on this one by its git repository or by a path:
//!
//! ```toml
//! trypema = { git = "https://…" } # the address of the repository
//! trypema = { path = "../trypema/crates/trypema" }
//! ```
//!
//! # Quick start
//!
//! ```
//! use std::time::Duration;
//! use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
//!
//! let rl = RateLimiter::builder().build()?;
//! let limits = TokenBucketLimits::from(TokenLimit::new(5, Duration::from_secs(60))?);
//! let bucket = rl.local().token_bucket();
//!
//! assert!(bucket.take("ann", &limits, 5).is_allowed());
//! let denied = bucket.take("ann", &limits, 1);
//! assert!(denied.retry_after().is_some_and(|wait| wait <= Duration::from_secs(12)));
//! assert!(bucket.take("bob", &limits, 1).is_allowed(), "every key has a bucket of its own");
//! # Ok::<(), trypema::TrypemaError>(())
//! ```
//!
//! Any number of threads can share a [`RateLimiter`], by reference or `Arc`. The absolute and the suppressed
//! strategy also have [`inc`](AbsoluteLocalRateLimiter::inc) and
//! [`is_allowed`](AbsoluteLocalRateLimiter::is_allowed). These take a rate in units per second and use the
//! window of the limiter. The first rate that a key is called with applies until the key is forgotten.
//!
//! ```
//! use trypema::{RateLimit, RateLimitDecision, RateLimiter};
//!
//! let rl = RateLimiter::builder().build()?; // windows of 60 s
//! let rate = RateLimit::try_from(0.5)?; // so 30 fit
//! match rl.local().absolute().inc("ann", &rate, 1) {
//!     RateLimitDecision::Allowed => {}
//!     RateLimitDecision::Rejected { retry_after_ms, .. } => println!("try again in {retry_after_ms} ms"),
//!     RateLimitDecision::Suppressed { .. } => unreachable!("only the suppressed strategy suppresses"),
//! }
//! # Ok::<(), trypema::TrypemaError>(())
//! ```
//!
//! # Which strategy
//!
//! | you need | use | most in any window (limit L) | state of a key |
//! | --- | --- | --- | --- |
//! | a quota that is never exceeded | [absolute](AbsoluteLimit) | L | grows with live groups |
//! | to shed load gradually instead of denying everything at the limit | [suppressed](SuppressedLimit) | L × hard limit factor | up to twice that |
//! | bursts, and a steady rate after them; several limits at once | [token bucket](TokenBucketLimits) | 2 L (a full bucket and its refill) | three words |
//! | about L per window in little memory | [sliding-window counter](SlidingWindowLimit) | 2 L − 1 | three words |
//! | quotas that restart on the hour, or with each day, week or month of a calendar | [fixed window](FixedWindowLimit) | 2 L (around a boundary) | two words |
//! | to stop guessing: logins, codes, sign-ups | [abuse](AbuseLimit) | threshold − 1 | grows with attempts |
//! | at most N requests in flight | [concurrency](ConcurrencyLimit) | L at the same time | grows with holders |
//!
//! If in doubt, use a token bucket for traffic, absolute for money, and abuse for passwords.
//!
//! # How each admits a burst
//!
//! A client makes four evenly spaced calls per second, against a limit of 20 per 10 s. It starts in the
//! middle of an aligned window. The chart shows the number of admitted calls in each second.
//!
//! ```text
//! offered          44444 44444 44444 44444 44444
//! absolute         44444 ····· 44444 ····· 44444
//! suppressed       44444 22222 13132 23221 31322
//! token bucket     44444 44443 22222 22222 22222
//! sliding counter  44444 12222 22222 22222 12222
//! fixed window     44444 44444 ····· 44444 ·····
//! abuse            44443 ····· ····· ····· ·····
//!                        ^           ^     aligned windows start here
//! ```
//!
//! Absolute frees units when they are a window old, so a burst repeats. Suppressed admits all calls up to its
//! limit, then the share of calls that keeps the average at the limit. The token bucket admits a full bucket,
//! then the rate at which it refills. The sliding-window counter lets the weight of the previous window fall
//! gradually, and the fixed window forgets it at once. Abuse blocks the client, and a client that keeps
//! trying stays blocked.
//!
//! This code makes the chart, and the documentation tests check it:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use trypema::clock::ManualClock;
//! use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
//!
//! let clock = Arc::new(ManualClock::default());
//! let second_by_second = |call: &dyn Fn() -> bool| -> String {
//!     let admitted = (0..25).map(|_| {
//!         let is_admitted = |_: &i32| {
//!             let is_allowed = call();
//!             clock.advance(Duration::from_millis(250));
//!             is_allowed
//!         };
//!         (0..4).filter(is_admitted).count().to_string()
//!     });
//!     admitted.collect()
//! };
//!
//! let rl = RateLimiter::builder().clock(clock.clone()).build()?;
//! let limits = TokenBucketLimits::from(TokenLimit::new(20, Duration::from_secs(10))?);
//! let token_bucket = || rl.local().token_bucket().take("ann", &limits, 1).is_allowed();
//! assert_eq!(second_by_second(&token_bucket), "4444444443222222222222222");
//! # use trypema::*;
//! # let window = Duration::from_secs(10);
//! # let rl = RateLimiter::builder().clock(clock.clone()).window_size_seconds(WindowSizeSeconds::try_from(10)?).build()?;
//! # let rl = rl.local();
//! # let rate = RateLimit::try_from(2.0)?;
//! # let to_middle = || {
//! #     let now = trypema::clock::Clock::now(&*clock).as_micros();
//! #     clock.set(trypema::clock::Timestamp::from_micros(now - now % 10_000_000 + 15_000_000));
//! # };
//! # to_middle();
//! # assert_eq!(second_by_second(&|| rl.absolute().inc("ann", &rate, 1).is_allowed()), "4444400000444440000044444");
//! # to_middle();
//! # assert_eq!(second_by_second(&|| rl.suppressed().inc("ann", &rate, 1).is_allowed()), "4444422222131322322131322");
//! # to_middle();
//! # let limit = SlidingWindowLimit::new(20, window)?;
//! # assert_eq!(second_by_second(&|| rl.sliding_window().take("ann", &limit, 1).is_allowed()), "4444412222222222222212222");
//! # to_middle();
//! # let limit = FixedWindowLimit::new(20, window)?;
//! # assert_eq!(second_by_second(&|| rl.fixed_window().take("ann", &limit, 1).is_allowed()), "4444444444000004444400000");
//! # to_middle();
//! # let day = Duration::from_secs(86_400);
//! # let limit = AbuseLimit::new(AbuseTier::new(window, 20, window)?, AbuseTier::new(day, 1_000, day)?);
//! # assert_eq!(second_by_second(&|| rl.abuse().take("ann", &limit, 1).is_allowed()), "4444300000000000000000000");
//! # Ok::<(), trypema::TrypemaError>(())
//! ```
//!
//! # The verbs
//!
//! Every strategy has the same operations, on its [`LocalLimiter`](local::LocalLimiter). The limit is an
//! argument of each call. If you change it, the spent units still count.
//!
//! | verb | |
//! | --- | --- |
//! | [`take`](local::LocalLimiter::take) | takes the cost if all of it fits |
//! | [`peek`](local::LocalLimiter::peek) | returns the same decision, but takes nothing |
//! | [`usage`](local::LocalLimiter::usage) | returns the used and the remaining units |
//! | [`take_up_to`](local::LocalLimiter::take_up_to) | takes as much of the cost as fits |
//! | [`take_postpaid`](local::LocalLimiter::take_postpaid), [`debit`](local::LocalLimiter::debit) | takes if one unit is free; records in any case: both may overdraw the limit |
//! | [`take_with_receipt`](local::LocalLimiter::take_with_receipt), [`take_with_receipt_for`](local::LocalLimiter::take_with_receipt_for) | takes with a receipt; takes units that may be spent later |
//! | [`refund`](local::LocalLimiter::refund), [`refund_units`](local::LocalLimiter::refund_units) | refunds a take by its receipt; refunds the oldest units |
//! | [`wait`](local::LocalLimiter::wait) | waits in a queue until the cost is admitted, on any async executor |
//! | [`reset`](local::LocalLimiter::reset) | forgets a key |
//! | [`key`](local::LocalLimiter::key) | returns a handle to one key, for tight loops |
//! | [`live_keys`](local::LocalLimiter::live_keys), [`len`](local::LocalLimiter::len) | lists or counts the keys in memory |
//!
//! Most of them return a [`Decision`], or one with additions of the strategy: the balance of each limit, the
//! suppression factor, the scope of a block. It has [`is_allowed`](Decision::is_allowed),
//! [`remaining`](Decision::remaining), [`retry_after`](Decision::retry_after) (exact to the microsecond;
//! `None` if the cost can never fit) and [`reset_after`](Decision::reset_after).
//!
//! # Redis
//!
//! With the feature `redis-tokio` (on by default) or `redis-smol`, `rl.redis()` has the same operations,
//! async, for limits that several servers share: through one Redis server, Sentinel or a Cluster. Each call
//! is one script that decides and records, by the clock of the Redis server. Every key expires by itself. A
//! call has a deadline. The builder sets the result of a call when Redis fails: an `Err`, or a fallback
//! decision, which is marked as such ([`is_substitute`](Decision::is_substitute)).
#![cfg_attr(feature = "redis-tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "redis-tokio"), doc = "```ignore")]
//! use std::time::Duration;
//! use trypema::redis::{OnFailure, RedisConnection, RedisKey};
//! use trypema::{FixedWindowLimit, RateLimiter};
//!
//! # async fn example() -> Result<(), trypema::TrypemaError> {
//! let rl = RateLimiter::builder()
//!     .redis(RedisConnection::connect("redis://127.0.0.1").await?)
//!     .on_redis_failure(OnFailure::Allow)
//!     .build()?;
//! let limit = FixedWindowLimit::new(1_000, Duration::from_secs(3600))?;
//! let decision = rl.redis().fixed_window().take(&RedisKey::encode("user:ann"), &limit, 1).await?;
//! println!("{} left", decision.remaining());
//! # Ok(())
//! # }
//! ```
//!
//! `docs/redis.md` in the repository describes the stored keys, the permissions that are needed, and the data
//! that a failure of Redis can lose.
//!
//! # Hybrid
//!
//! `rl.hybrid()` has the same operations and the same counters, for keys that receive too many calls for one
//! Redis call each. An instance leases units in advance, spends them locally, and returns the rest. The
//! instances together never exceed the limit. The share of the limit that can stay unused is bounded: see
//! `docs/hybrid.md` in the repository.
//!
#![cfg_attr(feature = "redis-tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "redis-tokio"), doc = "```ignore")]
//! use std::time::Duration;
//! use trypema::redis::RedisKey;
//! use trypema::{AbsoluteLimit, RateLimiter};
//!
//! # async fn example(rl: RateLimiter) -> Result<(), trypema::TrypemaError> {
//! tokio::spawn(rl.hybrid().keep_in_sync());
//! let limit = AbsoluteLimit::per_window(600_000, Duration::from_secs(60))?;
//! let everyone = RedisKey::try_from("everyone")?;
//! let decision = match rl.hybrid().absolute().try_take(&everyone, &limit, 1) {
//!     Some(decision) => decision,
//!     None => rl.hybrid().absolute().take(&everyone, &limit, 1).await?,
//! };
//! # let _ = decision;
//! # Ok(())
//! # }
//! ```
//!
//! # Rules, HTTP and middleware
//!
//! With the feature `rules`, limits on routes and callers come from a file: `rules::Engine` checks all rules
//! that apply to a request, all or nothing, on any provider. The feature `http` has the responses
//! (`Retry-After`, `RateLimit`, problems, gRPC statuses) and client addresses. The feature `tower` has the
//! middleware for axum, hyper and tonic. See `docs/rules.md` and `docs/http.md` in the repository.
//!
//! # Clocks and tests
//!
//! Time comes from the machine's monotonic clock (in Redis, from the server's), or from a
//! [`Clock`](clock::Clock) that you set. With a [`ManualClock`](clock::ManualClock), tests need not sleep:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use trypema::clock::ManualClock;
//! use trypema::{FixedWindowLimit, RateLimiter};
//!
//! let clock = Arc::new(ManualClock::default());
//! let rl = RateLimiter::builder().clock(clock.clone()).build()?;
//! let limit = FixedWindowLimit::new(1, Duration::from_secs(3600))?;
//!
//! assert!(rl.local().fixed_window().take("ann", &limit, 1).is_allowed());
//! let wait = rl.local().fixed_window().take("ann", &limit, 1).retry_after();
//! clock.advance(wait.unwrap_or_default());
//! assert!(rl.local().fixed_window().take("ann", &limit, 1).is_allowed());
//! # Ok::<(), trypema::TrypemaError>(())
//! ```
//!
//! # Memory
//!
//! In process, a key may be forgotten once it would be treated like a fresh one. This happens when room is needed for
//! new keys, and in [`run_cleanup_loop`](RateLimiter::run_cleanup_loop), which also releases memory.
//! [`max_keys`](RateLimiterBuilder::max_keys) bounds the number of keys, even if clients invent them. When
//! the states of all keys still matter, new keys share a state, which is stricter and never looser
//! ([`WhenFull`]).
//!
//! ```
//! use std::time::Duration;
//! use trypema::{FixedWindowLimit, RateLimiter};
//!
//! let rl = RateLimiter::builder().max_keys(1_000).build()?;
//! let limit = FixedWindowLimit::new(10, Duration::from_secs(3600))?;
//! for key in 0..10_000 {
//!     rl.local().fixed_window().take(&key.to_string(), &limit, 1);
//! }
//! assert!(rl.local().fixed_window().len() <= 1_000);
//! # Ok::<(), trypema::TrypemaError>(())
//! ```
//!
//! # Watching
//!
//! An [`Observer`](observer::Observer) is called for every take, with its decision and duration, and for
//! every failure of Redis. Without one, this costs nothing. The feature `tracing` adds
//! `observer::TracingObserver`, which emits a debug event for each decision.
//!
//! # Stability
//!
//! The crate follows semantic versioning, except for items behind the feature `unstable-testkit`. These exist
//! for this project's own tests, and may change or disappear in any release.
//!
//! # Errors
//!
//! Numbers are validated when a limit is created, and a [`TrypemaError`] names the invalid value and the
//! allowed ones. After that, no operation of a local [`LocalLimiter`](local::LocalLimiter) can fail, except
//! [`wait`](local::LocalLimiter::wait), which fails if the cost is not admitted within the given time
//! ([`WaitError`], on every provider). Operations on Redis may return `TrypemaError::RedisError`, whose kind
//! tells whether anything was spent.
//!
//! ```
//! use trypema::RateLimit;
//!
//! let error = RateLimit::try_from(f64::NAN).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "invalid rate limit NaN: need a number above 0 and at most 100000000 per second",
//! );
//! ```
//!
//! `docs/guarantees.md` in the repository states the guarantees of each strategy, the reasons, and the tests.

// On docs.rs, every item shows the feature that it needs. `_redis` is what `redis-tokio` and `redis-smol` share.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(docsrs, doc(auto_cfg(hide(feature = "_redis"))))]

#[cfg(any(feature = "http", feature = "rules"))]
mod address_key;
mod check;
pub mod clock;
mod decision;
mod duration_text;
mod error;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "_redis")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
#[cfg_attr(
    not(feature = "unstable-testkit"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "the testkit needs them")
)]
pub mod hybrid;
mod jitter;
pub mod local;
mod low_level;
pub mod observer;
#[cfg(doctest)]
mod pages;
#[cfg(any(feature = "_redis", feature = "rules"))]
mod provider;
#[cfg(any(feature = "_redis", feature = "rules"))]
mod random;
mod rate_limiter;
#[cfg(feature = "_redis")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
#[cfg_attr(
    not(feature = "unstable-testkit"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "the testkit needs them")
)]
pub mod redis;
#[cfg(feature = "rules")]
mod reservation;
#[cfg(feature = "rules")]
pub mod rules;
pub mod strategy;
#[cfg(feature = "tower")]
pub mod tower;
mod units;
mod waiting;

#[cfg(any(feature = "http", feature = "rules"))]
pub use address_key::{AddressKey, Ipv6Prefix};
pub use check::{Check, MultiDecision};
pub use decision::{
    AbuseDecision, Attempts, BlockScope, Decision, DecisionTime, LimitBalance, LimiterDecision,
    RateLimitDecision, SuppressedDecision, TokenBucketDecision,
};
pub use error::TrypemaError;
#[cfg(feature = "_redis")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
pub use hybrid::{
    AbsoluteHybridRateLimiter, HybridBound, HybridRateLimiterProvider, HybridStats,
    SuppressedHybridRateLimiter,
};
pub use local::{
    AbsoluteLocalRateLimiter, AbuseLocalRateLimiter, DecisionWithReceipt, FixedWindowLocalRateLimiter,
    Granted, LiveKey, LocalKeyHandle, LocalRateLimiterOptions, LocalRateLimiterProvider, LocalReceipt,
    SlidingWindowLocalRateLimiter, SuppressedLocalRateLimiter, TokenBucketLocalRateLimiter, WaitError,
    WhenFull,
};
pub use rate_limiter::{RateLimiter, RateLimiterBuilder, RateLimiterOptions};
#[cfg(feature = "_redis")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
pub use redis::{
    AbsoluteRedisRateLimiter, AbuseRedisRateLimiter, FixedWindowRedisRateLimiter, RedisKey,
    RedisRateLimiterOptions, RedisRateLimiterProvider, SlidingWindowRedisRateLimiter,
    SuppressedRedisRateLimiter, TokenBucketRedisRateLimiter,
};
pub use strategy::limits::*;
pub use units::{HardLimitFactor, RateGroupSizeMs, RateLimit, WindowSizeSeconds};

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;

/// The examples of the repository's README, compiled and run with the documentation tests. One of them needs
/// axum. The package does not contain this file; only documentation tests read it.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
