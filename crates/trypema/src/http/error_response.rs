//! The error that handlers return, in plain JSON.

use std::fmt;

use ::http::{Response, StatusCode};
use serde::Serialize;

use super::error_code::ErrorCode;
use super::response_parts::{ResponseParts, STORE_RETRY_SECONDS};
use super::text::html_safe_json;
use crate::error::TrypemaError;

/// An error that a handler returns and that clients receive as JSON.
///
/// ```
/// use trypema::http::{ErrorCode, ErrorResponse};
///
/// let error = ErrorResponse::new(ErrorCode::TooManyAttempts)
///     .with_message("Too many attempts for login. Try again in 30 seconds.")
///     .with_retry_after(30);
/// let response = error.into_http_response::<String>();
/// assert_eq!(response.status(), 429);
/// assert_eq!(response.headers()["retry-after"], "30");
/// assert_eq!(
///     response.body(),
///     r#"{"code":"TooManyAttempts","message":"Too many attempts for login. Try again in 30 seconds.","retry_after":30,"context":{"retryAfter":30}}"#,
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorResponse {
    code: ErrorCode,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Context>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<String>,
}

/// The wait once more, for clients that read `context.retryAfter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    retry_after: u64,
}

impl ErrorResponse {
    /// Creates an error with the default message of `code`.
    pub fn new(code: ErrorCode) -> Self {
        let message = format!("{}.", code.phrase());
        Self { code, message, retry_after: None, context: None, details: None }
    }

    /// Replaces the message for people.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// Adds the wait: in the header `Retry-After`, in `retry_after` and in `context.retryAfter`.
    #[must_use]
    pub fn with_retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), context: Some(Context { retry_after: seconds }), ..self }
    }

    /// Adds details for developers. Only debug builds keep them, because they may contain host names and
    /// keys.
    #[must_use]
    pub fn with_details(self, details: impl Into<String>) -> Self {
        let details = cfg!(debug_assertions).then(|| details.into());
        Self { details, ..self }
    }

    /// Returns the error code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// Returns the message for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the number of seconds to wait before a retry. `None` if it is unknown, or if a retry cannot
    /// succeed.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Returns the details for developers, which only debug builds keep.
    pub fn details(&self) -> Option<&str> {
        self.details.as_deref()
    }

    /// Returns the error as JSON. `<`, `>` and `&` are escaped, so that the JSON stays text inside an HTML
    /// page.
    pub fn to_json(&self) -> String {
        html_safe_json(self)
    }

    /// Returns the response: the status, `Content-Type`, `Retry-After` if there is a wait, and the JSON.
    pub fn into_http_response<B: From<String>>(self) -> Response<B> {
        let (status, retry_after, body) = (self.status(), self.retry_after, self.to_json());
        ResponseParts { status, content_type: "application/json", retry_after, body }.into_http_response()
    }
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrorResponse {}

/// Only [`details`](ErrorResponse::details) contains the cause.
impl From<&TrypemaError> for ErrorResponse {
    fn from(error: &TrypemaError) -> Self {
        let response = Self::new(ErrorCode::from(error)).with_details(error.to_string());
        match response.code {
            ErrorCode::ServiceUnavailable => response.with_retry_after(STORE_RETRY_SECONDS),
            _ => response,
        }
    }
}

impl From<TrypemaError> for ErrorResponse {
    fn from(error: TrypemaError) -> Self {
        Self::from(&error)
    }
}
