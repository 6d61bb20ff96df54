//! The Redis provider: one limit for a whole fleet, exact, in one script call per take.
//!
//! Redis 6.2 or later, or Valkey: a single server, one behind Sentinel, or a Cluster. A strategy decides in a Lua
//! twin of the very code that decides in this process, by the server's clock; every key expires by itself.
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
//! How it is stored, what it needs and what is lost when: `docs/redis.md` in the repository.

mod abuse;
mod ask;
mod batcher;
mod failure;
mod handle;
mod heartbeat;
mod join;
mod key;
mod key_call;
mod lease;
mod limiter;
mod provider;
mod receipt;
mod runtime;
mod script;
mod seeds;
mod store;
mod substitute;
mod together;
mod transport;
mod wait;

/// The client that connections are made with, so that versions cannot differ.
pub use ::redis as client;

pub use crate::local::Granted;
pub use failure::{RedisFailure, RedisFailureKind};
pub use handle::KeyHandle;
pub use key::RedisKey;
#[cfg(not(feature = "unstable-testkit"))]
pub(crate) use lease::{Sharer, ToldLease};
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
pub use lease::{Sharer, ToldLease};
pub use limiter::Limiter;
pub use provider::{RedisRateLimiterOptions, RedisRateLimiterProvider};
pub use receipt::{Receipt, Reservation};
#[doc(hidden)]
pub use script::{ScriptSource, script_sources, script_sources_without_quick};
pub use seeds::{AbsoluteRedisRateLimiter, SuppressedRedisRateLimiter, WindowLimiter};
pub use substitute::OnFailure;
pub use transport::{RedisConnection, RedisStats};

pub(crate) use join::{all, both};
pub(crate) use provider::Windows;
pub(crate) use receipt::random;
pub(crate) use seeds::Windowed;
pub(crate) use store::Parts;
pub(crate) use together::holds;

use crate::strategy::{Abuse, FixedWindow, SlidingWindow, TokenBucket};

/// Token buckets in Redis.
pub type TokenBucketRedisRateLimiter = Limiter<TokenBucket>;
/// Sliding-window counters in Redis.
pub type SlidingWindowRedisRateLimiter = Limiter<SlidingWindow>;
/// Fixed windows in Redis.
pub type FixedWindowRedisRateLimiter = Limiter<FixedWindow>;
/// Attempt limits with blocks in Redis.
pub type AbuseRedisRateLimiter = Limiter<Abuse>;
