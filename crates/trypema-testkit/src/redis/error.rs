//! The error type of test servers.

use std::fmt;

/// The result type of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A server could not be started, reached or brought into the expected state.
///
/// `{}` and `{:?}` print the same, so that `unwrap` in a test shows a server's log line by line.
pub struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Returns a function for `map_err` that adds the failed action to its cause.
    pub(crate) fn during<C: fmt::Display>(doing: impl fmt::Display) -> impl FnOnce(C) -> Self {
        move |cause| Self(format!("{doing}: {cause}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Error {}
