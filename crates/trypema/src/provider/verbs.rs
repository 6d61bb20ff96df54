//! The verbs, on every provider.

mod decide;
mod refund;
mod reservations;
mod reset;
mod take;

pub(crate) use refund::RefundRequest;
pub(crate) use reset::ResetRequest;
