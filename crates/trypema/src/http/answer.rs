//! A response in the making.

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Response, StatusCode};

use super::headers::{set, write_retry_after};

/// When to try again after a failure of the store: it may be back by then, and clients that are told nothing
/// come back at once.
pub(super) const STORE_RETRY_SECONDS: u64 = 1;

/// What every response to a call that was turned away has.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) retry_after: Option<u64>,
    pub(super) body: String,
}

impl Answer {
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

/// "Try again in 5 seconds."
pub(super) fn try_again_in(seconds: u64) -> String {
    let unit = if seconds == 1 { "second" } else { "seconds" };
    format!("Try again in {seconds} {unit}.")
}
