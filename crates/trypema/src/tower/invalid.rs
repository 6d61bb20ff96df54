//! What can be wrong with a layer.

use thiserror::Error;

use crate::error::TrypemaError;

/// Why a layer cannot be built.
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
    /// Numbers that make no limit.
    #[error(transparent)]
    Limit(#[from] TrypemaError),
    /// No limit at all.
    #[error("no limit: give `limit`, or `per_second` and `burst_size`")]
    NoLimit,
    /// A limit, and numbers for another one.
    #[error("two limits: give `limit`, or `per_second` and `burst_size`, but not both")]
    TwoLimits,
    /// A name that cannot be part of a counter's name.
    #[error("invalid name {given:?}: need 1 to {max_bytes} letters, digits, `_`, `-` and `.`")]
    Name {
        /// The name that was given, or its start.
        given: String,
        /// The longest name allowed.
        max_bytes: usize,
    },
    /// A limiter that is shared, and no name that tells this layer's counters from those of others.
    #[error("no name: the counters of a limiter that is given need a `name` of their own")]
    NoName,
    /// Requests that would be charged after the response and given back as well.
    #[error("`charge_if` and `refund_if` exclude each other")]
    ChargeAndRefund,
    /// More attributes than a request of rules may have.
    #[error("{given} attributes: at most {max} are allowed")]
    Attributes {
        /// How many were given.
        given: usize,
        /// How many are allowed.
        max: usize,
    },
}
