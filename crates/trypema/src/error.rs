//! The error type of the crate.

use std::time::Duration;

use thiserror::Error;

use crate::duration_text::DurationText;

/// An invalid input, with the values that are allowed, or a failure of the store.
///
/// A denial is never an error: it is a decision. If an input is invalid, nothing was recorded.
///
/// ```
/// use trypema::{RateLimit, TrypemaError};
///
/// let error = RateLimit::try_from(0.0).unwrap_err();
/// assert!(matches!(error, TrypemaError::InvalidRateLimit { .. }));
/// assert_eq!(error.to_string(), "invalid rate limit 0.0: need a number above 0 and at most 100000000 per second");
/// ```
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TrypemaError {
    /// A rate that is zero, negative, not finite, subnormal or too large.
    #[error("invalid rate limit {given:?}: need a number above 0 and at most {max} per second")]
    InvalidRateLimit {
        /// The rate that was given.
        given: f64,
        /// The largest rate allowed.
        max: f64,
    },
    /// A window of zero seconds, or one too long.
    #[error("invalid window size of {given_seconds} seconds: need 1 to {max_seconds} seconds")]
    InvalidWindowSize {
        /// The number of seconds that was given.
        given_seconds: u64,
        /// The largest number of seconds allowed.
        max_seconds: u64,
    },
    /// A window of zero length, or one too long.
    #[error("invalid window {}: need 1us to {}", DurationText(*given), DurationText(*max))]
    InvalidWindow {
        /// The window that was given.
        given: Duration,
        /// The longest window allowed.
        max: Duration,
    },
    /// A group size of zero, or one too long.
    #[error("invalid rate group size of {given_ms} ms: need 1 to {max_ms} ms")]
    InvalidRateGroupSize {
        /// The group size that was given.
        given_ms: u64,
        /// The largest group size allowed.
        max_ms: u64,
    },
    /// A hard limit factor below one, not finite or too large.
    #[error("invalid hard limit factor {given}: need a number from 1 to {max}")]
    InvalidHardLimitFactor {
        /// The factor that was given.
        given: f64,
        /// The largest factor allowed.
        max: f64,
    },
    /// A limit of zero, or one that is too large to be counted exactly.
    #[error("invalid limit {given}: need 1 to {max}")]
    InvalidLimit {
        /// The limit that was given.
        given: u64,
        /// The largest limit allowed here.
        max: u64,
    },
    /// A token bucket without a limit, or with too many.
    #[error("invalid number of token bucket limits {given}: need 1 to {max}")]
    InvalidLimitCount {
        /// The number of limits that were given.
        given: usize,
        /// The largest number of limits allowed.
        max: usize,
    },
    /// A capacity and a refill time that cannot be counted exactly: their product in microseconds, divided by
    /// their greatest common divisor, is 2^53 or more.
    #[error(
        "{capacity} tokens per {} cannot be counted exactly: capacity times microseconds, divided by their greatest \
         common divisor, must stay below 2^53; round one of them",
        DurationText(*refill_every)
    )]
    InexactTokenLimit {
        /// The capacity that was given.
        capacity: u64,
        /// The refill time that was given.
        refill_every: Duration,
    },
    /// A threshold of zero, or of more attempts than a state keeps.
    #[error("invalid threshold {given}: need 1 to {max} attempts")]
    InvalidThreshold {
        /// The threshold that was given.
        given: u64,
        /// The largest threshold allowed.
        max: u64,
    },
    /// A time for which units are held that is zero or too long.
    #[error("invalid hold {}: need 1us to {}", DurationText(*given), DurationText(*max))]
    InvalidHold {
        /// The time that was given.
        given: Duration,
        /// The longest time allowed.
        max: Duration,
    },
    /// A time zone that is not in the zone data.
    #[cfg(feature = "calendar")]
    #[error("unknown time zone {given:?}: need an IANA name such as Europe/Berlin{}", suggested(similar))]
    UnknownZone {
        /// The name that was given, or its start.
        given: String,
        /// The name that was probably meant.
        similar: Option<String>,
    },
    /// A start of windows at a time that does not exist, or on a day that not every month has.
    #[cfg(feature = "calendar")]
    #[error("invalid start {given}: need {need}")]
    InvalidCalendarStart {
        /// The start that was given.
        given: String,
        /// The allowed starts.
        need: &'static str,
    },
    /// A bound of zero keys.
    #[error("invalid max_keys 0: need at least 1")]
    InvalidMaxKeys,
    /// A key that cannot be part of the name of a Redis key.
    #[cfg(feature = "_redis")]
    #[error("invalid redis key {given:?}: need 1 to {max_bytes} bytes without `:`")]
    InvalidRedisKey {
        /// The key that was given, or its start.
        given: String,
        /// The longest key allowed.
        max_bytes: usize,
    },
    /// An address from which no connection can be made.
    #[cfg(feature = "_redis")]
    #[error("invalid redis address: {reason}")]
    InvalidRedisAddress {
        /// The reason; it never contains a password.
        reason: String,
    },
    /// Checks that cannot be combined in one request.
    #[error("invalid checks: {reason}")]
    InvalidChecks {
        /// The reason.
        reason: String,
    },
    /// A request to which rules cannot be applied.
    #[cfg(feature = "rules")]
    #[error("invalid request: {reason}")]
    InvalidRequest {
        /// The reason.
        reason: String,
    },
    /// A path that servers may read in too many ways: it is not known which rules are for it.
    #[cfg(feature = "rules")]
    #[error(
        "invalid path: servers may read it in more than {max_readings} ways; write it without dot segments, \
         backslashes, encoded slashes and empty segments"
    )]
    AmbiguousPath {
        /// The most readings that a path may have.
        max_readings: usize,
    },
    /// A path with a segment `.` or `..`, which front ends refuse unless their settings say otherwise.
    #[cfg(feature = "rules")]
    #[error("invalid path: it has a segment `.` or `..`, perhaps an encoded one")]
    DotSegments,
    /// A request without an attribute that a rule with `if_missing: error` needs.
    #[cfg(feature = "rules")]
    #[error("the request has no {attribute:?}, which rule {rule:?} needs")]
    MissingAttribute {
        /// The rule's id.
        rule: String,
        /// The attribute's name.
        attribute: String,
    },
    /// A request without a cost in the unit of a rule with `if_missing: error`.
    #[cfg(feature = "rules")]
    #[error("the request has no cost in {unit:?}, which rule {rule:?} counts")]
    MissingCost {
        /// The rule's id.
        rule: String,
        /// The rule's unit.
        unit: String,
    },
    /// A reservation's id that another request has used.
    #[cfg(feature = "rules")]
    #[error(
        "another request made a reservation with this id: use a new id, or repeat the same attributes and costs"
    )]
    ReservationConflict,
    /// An attempt to reserve that was undone because its answer was late. Nothing was reserved: the request can be
    /// repeated.
    #[cfg(feature = "rules")]
    #[error("the reservation was undone because its answer was late: repeat the request")]
    ReservationUndone,
    /// A reservation that another process made while the store was unreachable, and that it has not brought to the
    /// store yet. The call can be repeated.
    #[cfg(feature = "rules")]
    #[error(
        "another process made the reservation while the store was unreachable: it is not yet known here; repeat the call"
    )]
    ReservationNotYetKnown,
    /// A text that names no reservation.
    #[cfg(feature = "rules")]
    #[error("invalid reservation: {reason}")]
    InvalidReservation {
        /// The reason.
        reason: &'static str,
    },
    /// A deadline of zero.
    #[cfg(feature = "_redis")]
    #[error("invalid redis deadline 0s: need at least 1us")]
    InvalidRedisDeadline,
    /// A limit that cannot be split into the given number of parts.
    #[cfg(feature = "_redis")]
    #[error(
        "the limit cannot be split into {parts} parts: each needs at least one unit, and abuse limits cannot be split"
    )]
    InvalidSplit {
        /// The number of parts.
        parts: u32,
    },
    /// An interval between lease requests that is too short or too long.
    #[cfg(feature = "_redis")]
    #[error("invalid sync interval {}: need 1ms to {}", DurationText(*given), DurationText(*max))]
    InvalidSyncInterval {
        /// The interval that was given.
        given: Duration,
        /// The longest interval allowed.
        max: Duration,
    },
    /// A failure of Redis; see [`RedisFailureKind`](crate::redis::RedisFailureKind) for what is known about
    /// it.
    #[cfg(feature = "_redis")]
    #[error(transparent)]
    RedisError(#[from] crate::redis::RedisFailure),
}

impl TrypemaError {
    /// Whether the store failed, in which case a later retry may succeed. Otherwise an input is invalid.
    pub fn is_store_failure(&self) -> bool {
        match self {
            #[cfg(feature = "_redis")]
            Self::RedisError(_) => true,
            _ => false,
        }
    }

    /// Whether the store failed before it could change anything.
    #[cfg(feature = "tower")]
    pub(crate) fn is_certainly_unspent(&self) -> bool {
        self.is_store_failure() && !self.is_outcome_unknown()
    }

    /// Whether the store failed, and may have spent the cost all the same.
    #[cfg(feature = "rules")]
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        match self {
            #[cfg(feature = "_redis")]
            Self::RedisError(failure) => {
                use crate::redis::RedisFailureKind::{BadReply, OutcomeUnknown};
                matches!(failure.kind(), OutcomeUnknown | BadReply)
            }
            _ => false,
        }
    }
}

#[cfg(feature = "calendar")]
fn suggested(similar: &Option<String>) -> String {
    similar.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}
