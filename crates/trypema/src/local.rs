//! The local provider: limits inside this process. It is synchronous and exact, and serves any number of
//! threads.

mod abuse;
mod compat;
#[cfg(feature = "rules")]
mod decide;
mod handle;
mod key;
mod limiter;
#[cfg(all(test, loom))]
mod loom_tests;
mod map;
mod multi;
mod overflow;
mod provider;
mod receipt;
#[cfg(feature = "rules")]
mod reservations;
mod shard;
mod wait;

pub use crate::waiting::WaitError;
pub use compat::{AbsoluteLocalRateLimiter, SuppressedLocalRateLimiter};
pub use handle::LocalKeyHandle;
pub use limiter::{LiveKey, LocalLimiter};
pub use map::WhenFull;
pub use provider::{LocalRateLimiterOptions, LocalRateLimiterProvider};
pub use receipt::{DecisionWithReceipt, Granted, LocalReceipt};

#[cfg(feature = "_redis")]
pub(crate) use limiter::TimedOutcome;
pub(crate) use map::Bound;
pub(crate) use provider::LimiterConfig;
#[cfg(all(feature = "rules", feature = "_redis"))]
pub(crate) use reservations::without_room;

use crate::strategy::{Abuse, Concurrency, FixedWindow, SlidingWindow, TokenBucket};

/// Token buckets in this process.
pub type TokenBucketLocalRateLimiter = LocalLimiter<TokenBucket>;
/// Sliding-window counters in this process.
pub type SlidingWindowLocalRateLimiter = LocalLimiter<SlidingWindow>;
/// Fixed windows in this process.
pub type FixedWindowLocalRateLimiter = LocalLimiter<FixedWindow>;
/// Attempt limits with blocks in this process.
pub type AbuseLocalRateLimiter = LocalLimiter<Abuse>;
/// Units held at the same time in this process.
pub type ConcurrencyLocalRateLimiter = LocalLimiter<Concurrency>;
