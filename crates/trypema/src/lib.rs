//! Rate limiting that can be trusted.

pub mod clock;
mod decision;
mod error;
pub mod local;
pub mod observer;
mod rate_limiter;
pub mod strategy;
mod units;

pub use decision::{
    AbuseDecision, BlockScope, Decision, LimitBalance, LimiterDecision, RateLimitDecision,
    SuppressedDecision, TokenBucketDecision, When,
};
pub use error::TrypemaError;
pub use local::{
    AbsoluteLocalRateLimiter, AbuseLocalRateLimiter, FixedWindowLocalRateLimiter, Granted,
    KeyHandle, LiveKey, LocalRateLimiterOptions, LocalRateLimiterProvider, Receipt, Reservation,
    SlidingWindowLocalRateLimiter, SuppressedLocalRateLimiter, TokenBucketLocalRateLimiter,
    WaitError, WhenFull,
};
pub use rate_limiter::{RateLimiter, RateLimiterBuilder, RateLimiterOptions};
pub use strategy::{
    AbsoluteLimit, AbuseLimit, AbuseTier, FixedWindowLimit, SlidingWindowLimit, SuppressedLimit,
    TokenBucketLimits, TokenLimit,
};
pub use units::{HardLimitFactor, RateGroupSizeMs, RateLimit, WindowSizeSeconds};
