//! Rate limiting that can be trusted.

pub mod clock;
pub mod decision;
mod error;
pub mod strategy;
mod units;

pub use decision::*;
pub use error::TrypemaError;
pub use strategy::*;
pub use units::{HardLimitFactor, RateGroupSizeMs, RateLimit, WindowSizeSeconds};
