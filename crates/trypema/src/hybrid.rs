//! The hybrid provider: one limit for a whole fleet, never passed, decided in this process.
//!
//! A key that is called often is leased: an instance takes units from Redis in advance, as many as it is about to
//! need, and spends them by itself. They are counted *at the end of their lease*, so none is ever spent after the moment it
//! counts from, and no interval sees more than the limit: see `docs/guarantees.md` in the repository for the argument, and
//! for what the lower side costs.
//!
//! Three modules, each importing only those after it: `verbs` (the public calls), `background` (requests for leases, and the
//! future that [`keep_in_sync`](HybridRateLimiterProvider::keep_in_sync) returns), `state` (what an instance holds and knows of
//! each key; it reads no clock and does no I/O).

mod background;
mod state;
mod verbs;

pub use state::HybridBound;
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
pub use state::{CallTally, Chore, Decided, Grant, Holding, Pace, Taken, Trip};
pub(crate) use verbs::HybridOptions;
pub use verbs::{
    AbsoluteHybridRateLimiter, HybridRateLimiterProvider, HybridStats, KeyHandle, Limiter, Receipt,
    Reservation, Split, SuppressedHybridRateLimiter, WindowLimiter,
};
