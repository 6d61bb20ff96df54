//! The reason for an error response, as a single code.

use ::http::StatusCode;
use serde::Serialize;

use crate::decision::Decision;
use crate::error::TrypemaError;
#[cfg(feature = "_redis")]
use crate::redis::RedisFailureKind;

/// The reason for an error response: the basis of [`ErrorResponse`](super::ErrorResponse),
/// [`Problem`](super::Problem) and [`GrpcDenial`](super::GrpcDenial).
///
/// A failure of the store is not the client's fault and is never a 429.
///
/// ```
/// use trypema::http::ErrorCode;
///
/// assert_eq!(ErrorCode::TooManyAttempts.status(), 429);
/// assert_eq!(ErrorCode::ServiceUnavailable.status(), 503);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum ErrorCode {
    /// Too many logins, codes or other attempts: 429.
    TooManyAttempts,
    /// Too many requests of any other kind: 429.
    RateLimited,
    /// An operator blocked the client, by a block list or by an override of its key: 403.
    Blocked,
    /// The request lacks an attribute that a rule with `if_missing: error` needs, or its path has dot segments
    /// or too many readings: 400.
    BadRequest,
    /// The store is unreachable: 503.
    ServiceUnavailable,
    /// The store sent an invalid reply or refused the request, or another error occurred: 500.
    InternalServerError,
}

impl ErrorCode {
    /// Returns the code of a denial: [`RateLimited`](Self::RateLimited), or
    /// [`ServiceUnavailable`](Self::ServiceUnavailable) if the failure policy denied the request because the
    /// store failed. A cost that can never fit is always `RateLimited`, because it does not depend on the
    /// store.
    pub fn of_denial(decision: &Decision) -> Self {
        let is_by_store = decision.is_substitute() && !decision.is_never();
        if is_by_store { Self::ServiceUnavailable } else { Self::RateLimited }
    }

    /// Returns the HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooManyAttempts | Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Blocked => StatusCode::FORBIDDEN,
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::InternalServerError => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns a short phrase for people.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Self::TooManyAttempts => "Too many attempts",
            Self::RateLimited => "Too many requests",
            Self::Blocked => "Blocked",
            Self::BadRequest => "The request is invalid",
            Self::ServiceUnavailable => "The service is temporarily unavailable",
            Self::InternalServerError => "The service failed",
        }
    }
}

/// Returns [`ServiceUnavailable`](ErrorCode::ServiceUnavailable) if Redis is unreachable or does not reply in
/// time, or if a later call may know the reservation, [`BadRequest`](ErrorCode::BadRequest) if the request lacks an
/// attribute or its path is invalid, and
/// [`InternalServerError`](ErrorCode::InternalServerError) otherwise.
impl From<&TrypemaError> for ErrorCode {
    fn from(error: &TrypemaError) -> Self {
        match error {
            #[cfg(feature = "_redis")]
            TrypemaError::RedisError(failure) => match failure.kind() {
                RedisFailureKind::Unavailable | RedisFailureKind::OutcomeUnknown => Self::ServiceUnavailable,
                RedisFailureKind::Refused | RedisFailureKind::BadReply => Self::InternalServerError,
            },
            #[cfg(feature = "rules")]
            TrypemaError::ReservationUndone | TrypemaError::ReservationNotYetKnown => {
                Self::ServiceUnavailable
            }
            #[cfg(feature = "rules")]
            TrypemaError::MissingAttribute { .. }
            | TrypemaError::MissingCost { .. }
            | TrypemaError::AmbiguousPath { .. }
            | TrypemaError::DotSegments => Self::BadRequest,
            _ => Self::InternalServerError,
        }
    }
}

#[cfg(all(test, feature = "_redis"))]
mod tests {
    use super::*;
    use crate::redis::RedisFailure;

    #[test]
    fn a_failure_of_redis_is_never_429() {
        let kinds = [
            (RedisFailureKind::Unavailable, 503),
            (RedisFailureKind::OutcomeUnknown, 503),
            (RedisFailureKind::Refused, 500),
            (RedisFailureKind::BadReply, 500),
        ];
        for (kind, status) in kinds {
            let error = TrypemaError::RedisError(RedisFailure::new(kind, "10.1.2.3 is away"));
            assert_eq!(ErrorCode::from(&error).status(), status, "{kind}");
        }
    }
}
