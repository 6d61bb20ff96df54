//! Error responses, as `application/problem+json` (RFC 9457).

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONNECTION, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http_body_util::{Either, Full};
use serde::Serialize;
use trypema::TrypemaError;
use trypema::http::Problem;

use super::HttpResponse;
use super::response::response;
use crate::background_worker::WorkerError;
use crate::refusal::Refusal;

/// A request that gets an error response.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// An error with a status and a detail of the server.
    Request { status: StatusCode, detail: Cow<'static, str>, header: Option<(HeaderName, HeaderValue)> },
    /// An error that the library describes.
    Library(Box<Problem>),
}

/// The JSON body of an error.
#[derive(Debug, Serialize)]
struct Details<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Request { status, detail: detail.into(), header: None }
    }

    pub(super) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Returns the error of an unknown path on the administration listener.
    pub(super) fn unknown_path() -> Self {
        Self::not_found("unknown path; GET / lists the routes")
    }

    /// Returns the error of a body that is too large. The connection is closed, because the rest of the
    /// body is not read.
    pub(super) fn too_large(max: usize) -> Self {
        let detail = format!("the body is larger than {max} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
            .with_header(CONNECTION, HeaderValue::from_static("close"))
    }

    pub(super) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            .with_header(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Returns the error of a request that found no room in the memory budget.
    pub(super) fn out_of_memory() -> Self {
        Self::unavailable("max_buffered_bytes is exhausted by request bodies and unread responses; retry")
    }

    /// Sets the header of an error that the library does not describe.
    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        if let Self::Request { header, .. } = &mut self {
            *header = Some((name, value));
        }
        self
    }

    pub(super) fn into_response(self) -> HttpResponse {
        match self {
            Self::Library(problem) => problem.into_http_response::<Full<Bytes>>().map(Either::Left),
            Self::Request { status, detail, header } => {
                let mut response = response(status, "application/problem+json", json(status, &detail));
                response.headers_mut().extend(header);
                response
            }
        }
    }

    /// Returns the JSON body, for one element of a batch response.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Library(problem) => problem.to_json(),
            Self::Request { status, detail, .. } => json(*status, detail),
        }
    }
}

fn json(status: StatusCode, detail: &str) -> String {
    let title = status.canonical_reason().unwrap_or("Error");
    let details = Details { r#type: "about:blank", title, status: status.as_u16(), detail };
    // Serialising text and numbers cannot fail.
    serde_json::to_string(&details).unwrap_or_default()
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let (status, header) = match &refusal {
            Refusal::Failed(error) => return Self::from(error),
            Refusal::Invalid(_) | Refusal::Fragment => (StatusCode::BAD_REQUEST, None),
            Refusal::NoToken(_) | Refusal::UnknownToken | Refusal::NoTokens => {
                (StatusCode::UNAUTHORIZED, Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))))
            }
            Refusal::Forbidden(_) => (StatusCode::FORBIDDEN, None),
            Refusal::TooManyLogins(wait) => {
                let wait_s = HeaderValue::from(wait.as_nanos().div_ceil(1_000_000_000) as u64);
                (StatusCode::TOO_MANY_REQUESTS, Some((RETRY_AFTER, wait_s)))
            }
            // Usually no client reads this.
            Refusal::Closed => (StatusCode::REQUEST_TIMEOUT, None),
            Refusal::TooBusy => {
                (StatusCode::SERVICE_UNAVAILABLE, Some((RETRY_AFTER, HeaderValue::from_static("1"))))
            }
            Refusal::UnknownKey => (StatusCode::NOT_FOUND, None),
        };
        Self::Request { status, detail: refusal.to_string().into(), header }
    }
}

/// Hides the details of a store failure, which may name hosts, and shows what is wrong with a request.
impl From<&TrypemaError> for ApiError {
    fn from(error: &TrypemaError) -> Self {
        match error {
            TrypemaError::InvalidRequest { reason } => Self::bad_request(reason.clone()),
            TrypemaError::ReservationConflict => Self::new(StatusCode::CONFLICT, error.to_string()),
            TrypemaError::ReservationNotYetKnown => Self::unavailable(
                "not_yet_known: another server made the reservation while Redis was unreachable; repeat the request",
            ),
            TrypemaError::InvalidReservation { .. }
            | TrypemaError::InvalidHold { .. }
            | TrypemaError::InvalidRedisKey { .. }
            | TrypemaError::AmbiguousPath { .. }
            | TrypemaError::DotSegments
            | TrypemaError::MissingAttribute { .. }
            | TrypemaError::MissingCost { .. } => Self::bad_request(error.to_string()),
            _ => Self::Library(Box::new(Problem::from(error))),
        }
    }
}

impl From<TrypemaError> for ApiError {
    fn from(error: TrypemaError) -> Self {
        Self::from(&error)
    }
}

impl From<WorkerError> for ApiError {
    fn from(error: WorkerError) -> Self {
        Self::unavailable(match error {
            WorkerError::Interrupted => {
                "the request was interrupted by an internal error; see the log of the server"
            }
            WorkerError::Busy => "too many requests that read rules are queued; retry",
        })
    }
}
