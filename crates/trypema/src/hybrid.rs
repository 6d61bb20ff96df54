//! The hybrid provider: one limit for a whole fleet, never passed, decided in this process.
//!
//! A key that is called often is leased: an instance takes units from Redis in advance, as many as it is about to
//! need, and spends them by itself. They are counted *at the end of their lease*, so none is ever spent after the moment it
//! counts from, and no interval sees more than the limit: see `docs/guarantees.md` in the repository for the argument, and
//! for what the lower side costs.

mod abuse;
mod bound;
mod demand;
mod errand;
mod handle;
mod heat;
mod holding;
mod hub;
mod leases;
mod limiter;
mod pace;
mod provider;
mod receipt;
mod seeds;
mod shared;
mod split;
mod sync;
mod table;
mod together;
mod wait;
mod waiting;

pub use bound::HybridBound;
pub use handle::KeyHandle;
#[doc(hidden)]
pub use holding::{Chore, Decided, Grant, Holding, Taken, Trip};
pub use limiter::Limiter;
#[doc(hidden)]
pub use pace::Pace;
pub use provider::{HybridRateLimiterProvider, HybridStats};
pub use receipt::{Receipt, Reservation};
pub use seeds::{AbsoluteHybridRateLimiter, SuppressedHybridRateLimiter, WindowLimiter};
pub use split::Split;
