//! JSON responses.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use super::HttpResponse;
use super::response_body::ResponseBody;
use crate::net::UNACCOUNTED_BYTES;

/// The initial capacity of a response: enough for a few rules without reallocation.
const USUAL_BYTES: usize = 768;

/// Returns a JSON response.
pub(super) fn json_response(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let mut body = Vec::with_capacity(USUAL_BYTES);
    // Serialising text and numbers cannot fail.
    let _ = serde_json::to_writer(&mut body, value);
    // A long body may have twice the needed capacity, which would not be accounted for.
    if body.len() > UNACCOUNTED_BYTES {
        body.shrink_to_fit();
    }
    json_bytes(status, body)
}

pub(super) fn json_bytes(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(ResponseBody::from(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
