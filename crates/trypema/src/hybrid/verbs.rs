//! The verbs of the hybrid provider.

mod abuse;
mod decide;
mod handle;
mod limiter;
mod provider;
mod receipt;
mod seeds;
mod split;
mod together;
mod wait;

pub use handle::KeyHandle;
pub use limiter::Limiter;
pub(crate) use provider::HybridOptions;
pub use provider::{HybridRateLimiterProvider, HybridStats};
pub use receipt::{Receipt, Reservation};
pub use seeds::{AbsoluteHybridRateLimiter, SuppressedHybridRateLimiter, WindowLimiter};
pub use split::Split;
