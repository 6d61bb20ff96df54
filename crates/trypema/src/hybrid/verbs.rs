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

pub use compat::{AbsoluteHybridRateLimiter, SuppressedHybridRateLimiter};
pub use handle::HybridKeyHandle;
pub use limiter::HybridLimiter;
pub(crate) use provider::HybridOptions;
pub use provider::{HybridRateLimiterProvider, HybridStats};
pub use receipt::HybridReceipt;
pub use split::Split;
