//! The reasons why a request gets no answer from the rules. Each front end translates them into its protocol.

use std::borrow::Cow;
use std::time::Duration;

use thiserror::Error;
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
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum Refusal {
    /// The request is malformed.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// nginx passes a `#` on to the application. URL parsers end the path there, and other servers, such as Go's, do not.
    #[error("invalid path: it has a `#`, which no client sends; a `#` in a path needs to be `%23`")]
    Fragment,
    /// The request has no token, and needs one.
    #[error(
        "this needs a {}token: send it as `Authorization: Bearer TOKEN`",
        if *.0 == Permission::Decide { "caller " } else { "" }
    )]
    NoToken(Permission),
    #[error("unknown token")]
    UnknownToken,
    #[error("no token is configured on this server; set admin_token")]
    NoTokens,
    /// The token is for other operations.
    #[error("{0}")]
    Forbidden(&'static str),
    /// Too many wrong tokens came from this address, which is blocked for this time.
    #[error("too many wrong tokens from this address; wrong tokens are blocked until Retry-After")]
    TooManyLogins(Duration),
    #[error("the server closed the connection before the request was complete")]
    Closed,
    #[error("the connection has too many requests at a time; retry")]
    TooBusy,
    /// No rule has a counter of this name.
    #[error("unknown key; use it as responses contain it, for example per-user|user=ann")]
    UnknownKey,
    /// The rules or the store could not decide the request.
    #[error(transparent)]
    Failed(#[from] TrypemaError),
}

impl Refusal {
    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(detail.into())
    }
}
