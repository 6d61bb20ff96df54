//! The reasons why a request gets no answer from the rules. Each front end translates them into its protocol.

use std::borrow::Cow;
use std::time::Duration;

use trypema::TrypemaError;

/// The kind of operations that a caller may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Permission {
    /// Nothing: everybody may.
    Open,
    /// To check and to reserve: callers, if the server has tokens for them, otherwise everybody.
    Decide,
    /// To read rules and counters: readers and admins.
    Read,
    /// To change rules and counters: admins.
    Change,
}

/// The reason why an operation was not carried out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refusal {
    /// The request is malformed.
    Invalid(Cow<'static, str>),
    /// The path has a `#`, which no client sends.
    Fragment,
    /// The request has no token, and needs one.
    NoToken(Permission),
    /// The token is unknown.
    UnknownToken,
    /// The server has no tokens.
    NoTokens,
    /// The token is for other operations.
    Forbidden(&'static str),
    /// Too many wrong tokens came from this address, which is blocked for this time.
    TooManyLogins(Duration),
    /// The connection was closed before the request was complete.
    Closed,
    /// The connection has too many requests at a time.
    TooBusy,
    /// No rule has a counter of this name.
    UnknownKey,
    /// The rules or the store could not decide the request.
    Failed(TrypemaError),
}

impl Refusal {
    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(detail.into())
    }

    /// Returns a word for the reason, for protocols without statuses of their own.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::Fragment => "invalid",
            Self::NoToken(_) | Self::UnknownToken | Self::NoTokens => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::TooManyLogins(_) => "too_many_logins",
            Self::Closed => "closed",
            Self::TooBusy => "busy",
            Self::UnknownKey => "unknown_key",
            Self::Failed(TrypemaError::ReservationConflict) => "conflict",
            Self::Failed(error) if error.is_store_failure() => "unavailable",
            Self::Failed(_) => "invalid",
        }
    }
}

impl From<TrypemaError> for Refusal {
    fn from(error: TrypemaError) -> Self {
        Self::Failed(error)
    }
}
