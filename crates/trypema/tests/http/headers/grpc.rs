//! Denials over gRPC, as a client library reads them from the headers.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use proptest::prelude::*;
use trypema::http::{ErrorCode, GrpcDenial, is_grpc};

fn response(code: ErrorCode, message: &str, retry_after: Option<Duration>) -> Response<String> {
    GrpcDenial { code, message, retry_after }.to_http_response()
}

#[test]
fn is_a_response_of_headers_alone() {
    let denial = response(ErrorCode::RateLimited, "100% used", Some(Duration::from_micros(1_500_001)));
    assert_eq!((denial.status().as_u16(), denial.body().as_str()), (200, ""));
    let headers = denial.headers();
    assert_eq!(headers[CONTENT_TYPE], "application/grpc");
    assert_eq!(headers["grpc-status"], "8");
    assert_eq!(headers["grpc-message"], "100%25 used");
    assert_eq!(headers["grpc-retry-pushback-ms"], "1501");
    assert_eq!(headers.len(), 5);
}

/// The expected value was encoded by the reference implementation: `Status(8, "no", [RetryInfo(1.5 s)])`.
#[test]
fn the_details_are_a_status_with_retry_info() {
    let denial = response(ErrorCode::RateLimited, "no", Some(Duration::from_millis(1500)));
    let expected = "CAgSAm5vGjYKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5SZXRyeUluZm8SCgoICAEQgMq17gE";
    assert_eq!(denial.headers()["grpc-status-details-bin"], expected);
}

#[test]
fn every_code_has_its_status() {
    let codes = [
        (ErrorCode::RateLimited, "8"),
        (ErrorCode::TooManyAttempts, "8"),
        (ErrorCode::ServiceUnavailable, "14"),
        (ErrorCode::InternalServerError, "13"),
    ];
    for (code, status) in codes {
        assert_eq!(response(code, "", None).headers()["grpc-status"], status);
    }
}

#[test]
fn only_a_denial_without_a_wait_forbids_to_retry() {
    let pushback = |code, wait| response(code, "", wait).headers().get("grpc-retry-pushback-ms").cloned();
    assert_eq!(pushback(ErrorCode::RateLimited, None).unwrap(), "-1");
    assert_eq!(pushback(ErrorCode::ServiceUnavailable, None), None);
    assert_eq!(pushback(ErrorCode::InternalServerError, None), None);
    assert_eq!(pushback(ErrorCode::RateLimited, Some(Duration::ZERO)).unwrap(), "1");
    // A client would read a larger number as "do not retry".
    assert_eq!(pushback(ErrorCode::RateLimited, Some(Duration::MAX)).unwrap(), i32::MAX.to_string().as_str());
}

#[test]
fn grpc_is_told_by_its_content_type() {
    let is_so = |value| is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]));
    for grpc in
        ["application/grpc", "application/grpc+proto", "Application/GRPC+json", "application/grpc; a=b"]
    {
        assert!(is_so(grpc), "{grpc}");
    }
    for other in
        ["application/grpc-web", "application/grpc-web+proto", "application/grpcx", "application/json", ""]
    {
        assert!(!is_so(other), "{other}");
    }
    assert!(!is_grpc(&HeaderMap::new()));
}

/// Decodes a `grpc-message` as the gRPC specification requires.
fn percent_decoded(value: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut rest = value;
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(&after[..2]).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}

proptest! {
    #[test]
    fn messages_arrive_as_they_were(message in any::<String>()) {
        let denial = response(ErrorCode::RateLimited, &message, Some(Duration::from_secs(1)));
        let value = denial.headers()["grpc-message"].as_bytes();
        prop_assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)));
        let expected: String = message
            .chars()
            .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
            .collect();
        if expected.chars().count() <= 256 {
            prop_assert_eq!(percent_decoded(value), expected);
        }
        prop_assert_eq!(denial.headers().len(), 5);
    }
}

#[test]
fn a_long_message_is_cut() {
    let denial = response(ErrorCode::RateLimited, &"🦀".repeat(10_000), Some(Duration::from_secs(1)));
    let message = percent_decoded(denial.headers()["grpc-message"].as_bytes());
    assert_eq!(message.chars().count(), 256);
    let bytes: usize =
        denial.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
    assert!(bytes < 8192, "{bytes} bytes are more than clients take");
}
