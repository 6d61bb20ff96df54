//! Denials and failures as gRPC responses.

use std::time::Duration;

use ::http::Response;
use ::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::digits::header_value;
use super::error_code::ErrorCode;
use super::headers::set;
use super::text::{is_printable, one_line, push_percent_encoded};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const GRPC_STATUS_DETAILS_BIN: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The media type of gRPC. A format or a parameter may follow.
const GRPC: &str = "application/grpc";

/// The longest message, in characters. It is sent twice, once percent-encoded with up to twelve bytes per
/// character, and clients commonly limit a header block to 8 KiB.
const MAX_MESSAGE: usize = 256;

/// The largest pushback. Clients parse a signed 32-bit integer and treat anything else as "never retry".
const MAX_PUSHBACK_MS: u128 = i32::MAX as u128;

/// The largest `google.protobuf.Duration`: 10,000 years.
const MAX_DELAY: Duration = Duration::from_secs(315_576_000_000);

/// Whether a request is gRPC: its `Content-Type` is `application/grpc`, possibly with a format (`+proto`) or
/// a parameter.
///
/// gRPC-Web is not gRPC: its clients expect the status in the body or in other headers. An outer layer that
/// translates gRPC-Web turns such a request into gRPC. Without one, the HTTP status is sufficient.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use trypema::http::is_grpc;
///
/// let with = |value| HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(value))]);
/// assert!(is_grpc(&with("application/grpc")) && is_grpc(&with("application/grpc+proto")));
/// assert!(!is_grpc(&with("application/grpc-web")) && !is_grpc(&HeaderMap::new()));
/// ```
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let Some((start, rest)) = value.as_bytes().split_at_checked(GRPC.len()) else { return false };
    start.eq_ignore_ascii_case(GRPC.as_bytes()) && matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..])
}

/// A denial or a failure as a gRPC response: headers only, with HTTP status 200.
///
/// The gRPC status is `RESOURCE_EXHAUSTED` for denials, `UNAVAILABLE` if the store is unreachable,
/// `INVALID_ARGUMENT` if the request lacks an attribute, and `INTERNAL` for everything else.
///
/// The wait is sent twice: as `grpc-retry-pushback-ms`, for the retry policies of clients, and as a
/// `google.rpc.RetryInfo` in the details, for programs. A denial without a wait tells clients not to retry.
///
/// ```
/// use std::time::Duration;
/// use trypema::http::{ErrorCode, GrpcDenial};
///
/// let denial = GrpcDenial {
///     code: ErrorCode::RateLimited,
///     message: "Too many requests.",
///     retry_after: Some(Duration::from_millis(1500)),
/// };
/// let response = denial.to_http_response::<String>();
/// assert_eq!(response.status(), 200);
/// assert_eq!(response.headers()["grpc-status"], "8");
/// assert_eq!(response.headers()["grpc-retry-pushback-ms"], "1500");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrpcDenial<'a> {
    /// The reason.
    pub code: ErrorCode,
    /// The message for people. At most 256 characters are sent.
    pub message: &'a str,
    /// The time to wait before a retry. `None` if it is unknown, or if a retry cannot succeed.
    pub retry_after: Option<Duration>,
}

impl GrpcDenial<'_> {
    /// Returns the response, with an empty body.
    pub fn to_http_response<B: Default>(&self) -> Response<B> {
        let mut response = Response::new(B::default());
        self.write(response.headers_mut());
        response
    }

    /// Writes `content-type`, `grpc-status`, `grpc-message` and the wait to `headers`.
    pub fn write(&self, headers: &mut HeaderMap) {
        set(headers, CONTENT_TYPE, HeaderValue::from_static(GRPC));
        set(headers, GRPC_STATUS, HeaderValue::from(self.status()));
        let message = one_line(self.message, MAX_MESSAGE);
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&message)) {
            set(headers, GRPC_MESSAGE, message);
        }
        if let Some(wait) = self.retry_after {
            set(headers, GRPC_RETRY_PUSHBACK_MS, header_value(pushback_ms(wait)));
            let details = STANDARD_NO_PAD.encode(status_with_delay(self.status(), &message, wait));
            if let Ok(details) = HeaderValue::try_from(details) {
                set(headers, GRPC_STATUS_DETAILS_BIN, details);
            }
        } else if self.status() == RESOURCE_EXHAUSTED {
            // Clients interpret a negative number as "do not retry".
            set(headers, GRPC_RETRY_PUSHBACK_MS, HeaderValue::from_static("-1"));
        }
    }

    fn status(&self) -> u16 {
        match self.code {
            ErrorCode::TooManyAttempts | ErrorCode::RateLimited => RESOURCE_EXHAUSTED,
            ErrorCode::ServiceUnavailable => UNAVAILABLE,
            ErrorCode::Blocked => PERMISSION_DENIED,
            ErrorCode::BadRequest => INVALID_ARGUMENT,
            ErrorCode::InternalServerError => INTERNAL,
        }
    }
}

const RESOURCE_EXHAUSTED: u16 = 8;
const PERMISSION_DENIED: u16 = 7;
const INVALID_ARGUMENT: u16 = 3;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

/// Returns the wait in whole milliseconds, rounded up, and at least 1.
fn pushback_ms(wait: Duration) -> u64 {
    let ms = wait.as_nanos().div_ceil(1_000_000).clamp(1, MAX_PUSHBACK_MS);
    u64::try_from(ms).unwrap_or(u64::MAX)
}

fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        push_percent_encoded(&mut encoded, byte, |byte| is_printable(byte) && byte != b'%');
    }
    encoded
}

/// Encodes a `google.rpc.Status` whose only detail is a `google.rpc.RetryInfo`, in the protobuf wire format.
fn status_with_delay(status: u16, message: &str, wait: Duration) -> Vec<u8> {
    let wait = wait.min(MAX_DELAY);
    let mut delay = Vec::new();
    put_number(&mut delay, 1, wait.as_secs());
    put_number(&mut delay, 2, u64::from(wait.subsec_nanos()));
    let mut retry_info = Vec::new();
    put_bytes(&mut retry_info, 1, &delay);
    let mut detail = Vec::new();
    put_bytes(&mut detail, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    put_bytes(&mut detail, 2, &retry_info);
    let mut bytes = Vec::new();
    put_number(&mut bytes, 1, u64::from(status));
    put_bytes(&mut bytes, 2, message.as_bytes());
    put_bytes(&mut bytes, 3, &detail);
    bytes
}

/// Appends an integer field. Zero is the default in protobuf and is omitted.
fn put_number(message: &mut Vec<u8>, field: u8, number: u64) {
    if number > 0 {
        message.push(field << 3);
        put_varint(message, number);
    }
}

/// Appends a string field or a nested message.
fn put_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    put_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Appends a varint: seven bits per byte, the lowest first. All bytes except the last have the high bit set.
fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        message.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}
