//! The verbs of the hybrid provider.

mod abuse;
mod compat;
mod decide;
mod handle;
mod limiter;
mod multi;
mod provider;
mod receipt;
mod split;
mod wait;

pub use compat::{AbsoluteHybridRateLimiter, HybridWindowLimiter, SuppressedHybridRateLimiter};
pub use handle::KeyHandle;
pub use limiter::Limiter;
pub(crate) use provider::HybridOptions;
pub use provider::{HybridRateLimiterProvider, HybridStats};
pub use receipt::{Receipt, Reservation};
pub use split::Split;
