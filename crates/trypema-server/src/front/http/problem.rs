//! Error responses, as `application/problem+json` (RFC 9457).

use std::borrow::Cow;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use serde::Serialize;
use trypema::TrypemaError;
use trypema::http::Problem;

use super::HttpResponse;
use super::response_body::ResponseBody;
use crate::background_worker::WorkerError;
use crate::net::NotBegun;
use crate::refusal::{Permission, Refusal};

/// nginx passes a `#` on to the application. URL parsers end the path there, and other servers, such as Go's, do not.
pub(super) const FRAGMENT: &str =
    "invalid path: it has a `#`, which no client sends; a `#` in a path needs to be `%23`";

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

    /// Returns the error of an unknown path on the administration listener.
    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown path; GET / lists the routes")
    }

    pub(super) fn wrong_method(allowed: &str) -> Self {
        Self::Request {
            status: StatusCode::METHOD_NOT_ALLOWED,
            detail: format!("method not allowed; use {allowed}").into(),
            header: HeaderValue::from_str(allowed).ok().map(|value| (ALLOW, value)),
        }
    }

    /// Returns the error of a body that is too large. The connection is closed, because the rest of the
    /// body is not read.
    pub(super) fn too_large(max: usize) -> Self {
        Self::Request {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            detail: format!("the body is larger than {max} bytes").into(),
            header: Some((CONNECTION, HeaderValue::from_static("close"))),
        }
    }

    pub(super) fn too_many_streams() -> Self {
        Self::unavailable("the server has too many streams open, or is stopping; retry")
    }

    pub(super) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Request {
            status: StatusCode::SERVICE_UNAVAILABLE,
            detail: detail.into(),
            header: Some((RETRY_AFTER, HeaderValue::from_static("1"))),
        }
    }

    /// Returns the error of a request that found no room in the memory budget.
    pub(super) fn out_of_memory() -> Self {
        Self::unavailable("max_buffered_bytes is exhausted by request bodies and unread responses; retry")
    }

    fn unauthorized(detail: &'static str) -> Self {
        Self::Request {
            status: StatusCode::UNAUTHORIZED,
            detail: detail.into(),
            header: Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        }
    }

    pub(super) fn into_response(self) -> HttpResponse {
        match self {
            Self::Library(problem) => problem.into_http_response::<String>().map(ResponseBody::from),
            Self::Request { status, detail, header } => {
                let mut response = Response::new(ResponseBody::from(json(status, &detail)));
                *response.status_mut() = status;
                let content_type = HeaderValue::from_static("application/problem+json");
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                if let Some((name, value)) = header {
                    response.headers_mut().insert(name, value);
                }
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

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(detail) => Self::bad_request(detail),
            Refusal::Fragment => Self::bad_request(FRAGMENT),
            Refusal::NoToken(Permission::Decide) => {
                Self::unauthorized("this needs a caller token: send it as `Authorization: Bearer TOKEN`")
            }
            Refusal::NoToken(_) => {
                Self::unauthorized("this needs a token: send it as `Authorization: Bearer TOKEN`")
            }
            Refusal::UnknownToken => Self::unauthorized("unknown token"),
            Refusal::NoTokens => Self::unauthorized("no token is configured on this server; set admin_token"),
            Refusal::Forbidden(detail) => Self::new(StatusCode::FORBIDDEN, detail),
            Refusal::TooManyLogins(wait) => Self::Request {
                status: StatusCode::TOO_MANY_REQUESTS,
                detail: "too many wrong tokens from this address; wrong tokens are blocked until Retry-After"
                    .into(),
                header: Some((
                    RETRY_AFTER,
                    HeaderValue::from(wait.as_nanos().div_ceil(1_000_000_000) as u64),
                )),
            },
            // Usually no client reads this.
            Refusal::Closed => Self::new(
                StatusCode::REQUEST_TIMEOUT,
                "the server closed the connection before the request was complete",
            ),
            Refusal::TooBusy => Self::unavailable("the connection has too many requests at a time; retry"),
            Refusal::UnknownKey => Self::new(
                StatusCode::NOT_FOUND,
                "unknown key; use it as responses contain it, for example per-user|user=ann",
            ),
            Refusal::Failed(error) => Self::from(&error),
        }
    }
}

impl From<NotBegun> for ApiError {
    fn from(not_begun: NotBegun) -> Self {
        Refusal::from(not_begun).into()
    }
}

impl From<WorkerError> for ApiError {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Interrupted => Self::unavailable(
                "the request was interrupted by an internal error; see the log of the server",
            ),
            WorkerError::Busy => Self::unavailable("too many requests that read rules are queued; retry"),
        }
    }
}

impl From<TrypemaError> for ApiError {
    fn from(error: TrypemaError) -> Self {
        Self::from(&error)
    }
}
