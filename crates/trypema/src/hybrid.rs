//! The hybrid provider: one limit for a whole fleet, never exceeded, decided in this process.
//!
//! An instance leases units of a busy key: it takes them from Redis in advance, about as many as it will
//! need, and spends them without further calls. Redis counts leased units from the grant on, and records
//! them *at the end of their lease*. No unit is spent after that time, so each still counts for a full
//! window after it is spent, and no interval sees more than the limit. `docs/guarantees.md` in the
//! repository has the argument, and the share of a limit that leases can leave unused.
//!
//! There are three modules, and each imports only the modules after it:
//!
//! - `verbs`: the public calls.
//! - `background`: requests for leases, and the future that
//!   [`keep_in_sync`](HybridRateLimiterProvider::keep_in_sync) returns.
//! - `state`: the leases, denials and demand of each key. It reads no clock and does no I/O.

mod background;
mod state;
mod verbs;

pub use state::HybridBound;
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
pub use state::{CallTally, Holding, LeaseDecision, LocalDecision, Maintenance, Pace, RequestTiming};
pub(crate) use verbs::HybridOptions;
pub use verbs::{
    AbsoluteHybridRateLimiter, HybridKeyHandle, HybridLimiter, HybridRateLimiterProvider, HybridReceipt,
    HybridStats, Split, SuppressedHybridRateLimiter,
};
