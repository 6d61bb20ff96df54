//! The Redis provider: one exact limit for a whole fleet, at the cost of one script call per take.
//!
//! Needs Redis 6.2 or later, or Valkey: a single server, a master behind Sentinel, or a Cluster. Each
//! strategy has a Lua twin: a script that repeats the Rust code step by step. The script uses the clock of
//! the Redis server. Every key expires by itself.
//!
//! ```no_run
//! use std::time::Duration;
//! use trypema::redis::{RedisConnection, RedisKey};
//! use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
//!
//! # async fn example() -> Result<(), trypema::TrypemaError> {
//! let connection = RedisConnection::connect("redis://127.0.0.1").await?;
//! let rl = RateLimiter::builder().redis(connection).build()?;
//! let limits = TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(1))?);
//!
//! let decision = rl.redis().token_bucket().take(&RedisKey::try_from("ann")?, &limits, 1).await?;
//! if !decision.is_allowed() {
//!     println!("try again in {:?}", decision.retry_after());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `docs/redis.md` in the repository describes the keys, the requirements, and the data that a failure can
//! lose.

mod abuse;
mod batcher;
mod compat;
mod failure;
mod fallback;
mod handle;
mod heartbeat;
mod join;
mod key;
mod key_spend;
mod lease;
mod limiter;
mod multi;
mod permissions;
mod protocol;
mod provider;
mod receipt;
mod runtime;
mod script;
mod store;
mod transport;
pub(crate) mod verb;
mod wait;

/// The Redis client that this crate uses, re-exported so that the caller's version always matches.
pub use ::redis as client;

pub use crate::local::{DecisionWithReceipt, Granted};
pub use compat::{AbsoluteRedisRateLimiter, SuppressedRedisRateLimiter};
pub use failure::{RedisFailure, RedisFailureKind, is_not_permitted};
pub use fallback::OnFailure;
pub use handle::RedisKeyHandle;
pub use key::RedisKey;
#[cfg(not(feature = "unstable-testkit"))]
pub(crate) use lease::{InstanceLiveness, LeaseArgs, LeaseResponse};
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
pub use lease::{InstanceLiveness, LeaseArgs, LeaseResponse};
pub use limiter::RedisLimiter;
pub use permissions::{CommandTarget, CommandUse, MissingPermission, RedisCommand};
pub use provider::{RedisRateLimiterOptions, RedisRateLimiterProvider};
pub use receipt::RedisReceipt;
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
pub use script::{ScriptSource, script_sources, script_sources_without_quick};
pub use transport::{RedisConnection, RedisStats};

pub(crate) use join::{all, both};
pub(crate) use key_spend::KeySpend;
pub(crate) use lease::LeaseSending;
pub(crate) use multi::read_decision;
pub(crate) use protocol::{CheckReply, CheckRequest};
#[cfg(feature = "rules")]
pub(crate) use protocol::{ReservationArgs, left_until, malformed};
#[cfg(feature = "rules")]
pub(crate) use runtime::Runtime;
pub(crate) use store::StoreConfig;

use crate::strategy::{Abuse, Concurrency, FixedWindow, SlidingWindow, TokenBucket};

/// The token-bucket limiter of the Redis provider.
pub type TokenBucketRedisRateLimiter = RedisLimiter<TokenBucket>;
/// The sliding-window-counter limiter of the Redis provider.
pub type SlidingWindowRedisRateLimiter = RedisLimiter<SlidingWindow>;
/// The fixed-window limiter of the Redis provider.
pub type FixedWindowRedisRateLimiter = RedisLimiter<FixedWindow>;
/// The abuse limiter of the Redis provider: attempt limits with blocks.
pub type AbuseRedisRateLimiter = RedisLimiter<Abuse>;
/// The concurrency limiter of the Redis provider: units held at the same time.
pub type ConcurrencyRedisRateLimiter = RedisLimiter<Concurrency>;
