//! Errors in the settings of a layer.

use thiserror::Error;

use crate::error::TrypemaError;

/// The error for a layer with invalid settings.
///
/// ```
/// use trypema::tower::{InvalidLayer, RateLimitLayer};
///
/// let error = RateLimitLayer::builder().per_second(0).burst_size(5).build().unwrap_err();
/// assert!(matches!(error, InvalidLayer::Limit(_)));
/// ```
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum InvalidLayer {
    /// The numbers of the limit are invalid.
    #[error(transparent)]
    Limit(#[from] TrypemaError),
    /// There is no limit.
    #[error("no limit: give `limit`, or `per_second` and `burst_size`")]
    NoLimit,
    /// There is a limit, and also a period or a burst size.
    #[error("two limits: give `limit`, or `per_second` and `burst_size`, but not both")]
    TwoLimits,
    /// The name cannot be part of a counter name.
    #[error("invalid name {given:?}: need 1 to {max_bytes} letters, digits, `_`, `-` and `.`")]
    Name {
        /// The name, possibly truncated.
        given: String,
        /// The longest allowed name, in bytes.
        max_bytes: usize,
    },
    /// The limiter is shared, but there is no name to separate this layer's counters from others.
    #[error("no name: a layer on a shared limiter needs a `name`")]
    NoName,
    /// `charge_if` and `refund_if` are both set.
    #[error("`charge_if` and `refund_if` cannot both be set")]
    ChargeAndRefund,
    /// The layer reserves, and `charge_if` is set: nothing can be reserved that is counted only after the
    /// response.
    #[error(
        "`charge_if` cannot be set for a layer that reserves: use `refund_if`, or let handlers settle by the \
         `ReservationHandle`"
    )]
    ChargeAndReserve,
    /// There are more attributes than a request to rules may have.
    #[error("{given} attributes: at most {max} are allowed")]
    Attributes {
        /// The number of attributes.
        given: usize,
        /// The most attributes allowed.
        max: usize,
    },
}
