//! The parts that all HTTP error responses have in common.

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Response, StatusCode};

use super::headers::{set, write_retry_after};

/// The `Retry-After` after a failure of the store. The store may have recovered by then. Without the header,
/// clients would retry at once.
pub(super) const STORE_RETRY_SECONDS: u64 = 1;

/// The parts of a response to a denied request.
#[derive(Debug)]
pub(super) struct ResponseParts {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) retry_after: Option<u64>,
    pub(super) body: String,
}

impl ResponseParts {
    pub(super) fn into_http_response<B: From<String>>(self) -> Response<B> {
        let mut response = Response::new(B::from(self.body));
        *response.status_mut() = self.status;
        set(response.headers_mut(), CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Some(seconds) = self.retry_after {
            write_retry_after(seconds, response.headers_mut());
        }
        response
    }
}

/// Returns a sentence such as "Try again in 5 seconds."
pub(super) fn try_again_in(seconds: u64) -> String {
    let unit = if seconds == 1 { "second" } else { "seconds" };
    format!("Try again in {seconds} {unit}.")
}
