//! Requests that get no answer: why not, as `application/problem+json` (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use trypema::TrypemaError;
use trypema::http::Problem;

use super::Answer;
use crate::background_worker::NotDone;

/// A request that gets no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The client's fault.
    Request { status: StatusCode, detail: Cow<'static, str>, header: Option<(HeaderName, HeaderValue)> },
    /// Something that the library has a problem for.
    Library(Box<Problem>),
}

/// What a refusal says.
#[derive(Debug, Serialize)]
struct Details<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Request { status, detail: detail.into(), header: None }
    }

    pub(super) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// A path of the administration listener that leads nowhere.
    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is nothing here; GET / says what there is")
    }

    pub(super) fn wrong_method(allowed: &str) -> Self {
        Self::Request {
            status: StatusCode::METHOD_NOT_ALLOWED,
            detail: format!("only {allowed} is understood here").into(),
            header: HeaderValue::from_str(allowed).ok().map(|value| (ALLOW, value)),
        }
    }

    /// A body that is too large: what is left of it is not waited for.
    pub(super) fn too_large(max: usize) -> Self {
        Self::Request {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            detail: format!("the body is larger than {max} bytes").into(),
            header: Some((CONNECTION, HeaderValue::from_static("close"))),
        }
    }

    /// A request of a connection that has ended, so that hardly anybody will read this.
    pub(super) fn too_late() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive")
    }

    pub(super) fn unavailable(detail: &'static str) -> Self {
        Self::Request {
            status: StatusCode::SERVICE_UNAVAILABLE,
            detail: detail.into(),
            header: Some((RETRY_AFTER, HeaderValue::from_static("1"))),
        }
    }

    /// The memory budget of all connections is exhausted.
    pub(super) fn out_of_memory() -> Self {
        Self::unavailable("the service holds as many request bodies and unread answers as it may")
    }

    pub(super) fn unauthorized(detail: &'static str) -> Self {
        Self::Request {
            status: StatusCode::UNAUTHORIZED,
            detail: detail.into(),
            header: Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        }
    }

    /// A wrong token from an address that has failed too often.
    pub(super) fn too_many_logins(wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self::Request {
            status: StatusCode::TOO_MANY_REQUESTS,
            detail: "too many wrong tokens from this address: only a valid token is accepted".into(),
            header: Some((RETRY_AFTER, HeaderValue::from(seconds))),
        }
    }

    pub(super) fn into_answer(self) -> Answer {
        match self {
            Self::Library(problem) => problem.into_http_response::<String>().map(Full::from),
            Self::Request { status, detail, header } => {
                let mut response = Response::new(Full::new(Bytes::from(json(status, &detail))));
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

    /// The same as one of several answers.
    pub(super) fn to_json(&self) -> String {
        match self {
            Self::Library(problem) => problem.to_json(),
            Self::Request { status, detail, .. } => json(*status, detail),
        }
    }
}

fn json(status: StatusCode, detail: &str) -> String {
    let title = status.canonical_reason().unwrap_or("Error");
    let details = Details { r#type: "about:blank", title, status: status.as_u16(), detail };
    // Only texts and numbers, which always can be written.
    serde_json::to_string(&details).unwrap_or_default()
}

/// A failure of the store says nothing of itself: it may name hosts. What is wrong with a request is told.
impl From<&TrypemaError> for Refusal {
    fn from(error: &TrypemaError) -> Self {
        match error {
            TrypemaError::InvalidRequest { reason } => Self::bad_request(reason.clone()),
            TrypemaError::InvalidRedisKey { .. } | TrypemaError::MissingAttribute { .. } => {
                Self::bad_request(error.to_string())
            }
            _ => Self::Library(Box::new(Problem::from(error))),
        }
    }
}

impl From<NotDone> for Refusal {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::Interrupted => Self::unavailable("the service is about to stop"),
            NotDone::Busy => Self::unavailable("too many requests that read rules wait already"),
        }
    }
}

impl From<TrypemaError> for Refusal {
    fn from(error: TrypemaError) -> Self {
        Self::from(&error)
    }
}
