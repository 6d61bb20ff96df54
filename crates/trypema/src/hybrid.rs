//! The hybrid provider.

mod demand;
mod holding;
mod leases;
mod pace;

#[doc(hidden)]
pub use holding::{Chore, Decided, Grant, Holding, Taken, Trip};
#[doc(hidden)]
pub use pace::Pace;
