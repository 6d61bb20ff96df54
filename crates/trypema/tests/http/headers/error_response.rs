//! The error that handlers return, and the guards that create it.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use trypema::clock::ManualClock;
use trypema::http::{ErrorCode, ErrorResponse, guard};
use trypema::{AbuseLimit, AbuseTier, RateLimit, RateLimiter};

use super::{allowed, denied, never};

const SECOND: Duration = Duration::from_secs(1);

fn parsed(error: &ErrorResponse) -> Value {
    serde_json::from_str(&error.to_json()).unwrap()
}

#[test]
fn the_wait_is_in_both_places_and_in_the_header() {
    let error = ErrorResponse::new(ErrorCode::TooManyAttempts).with_message("No.").with_retry_after(30);
    let expected = json!({"code": "TooManyAttempts", "message": "No.", "retry_after": 30, "context": {"retryAfter": 30}});
    assert_eq!(parsed(&error), expected);
    let response = error.into_http_response::<Vec<u8>>();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.headers()["retry-after"], "30");
    assert_eq!(response.headers().len(), 2);
}

#[test]
fn without_a_wait_there_is_no_mention_of_one() {
    let error = ErrorResponse::new(ErrorCode::InternalServerError);
    assert_eq!(parsed(&error), json!({"code": "InternalServerError", "message": "The service failed."}));
    let response = error.into_http_response::<String>();
    assert_eq!(response.status(), 500);
    assert!(!response.headers().contains_key("retry-after"));
}

#[test]
fn every_code_has_its_status() {
    let codes = [
        (ErrorCode::TooManyAttempts, 429),
        (ErrorCode::RateLimited, 429),
        (ErrorCode::ServiceUnavailable, 503),
        (ErrorCode::InternalServerError, 500),
    ];
    for (code, status) in codes {
        let error = ErrorResponse::new(code);
        assert_eq!((error.status().as_u16(), error.code()), (status, code));
        assert_eq!(parsed(&error)["code"], format!("{code:?}"));
    }
}

#[test]
fn details_are_for_debug_builds() {
    let error = ErrorResponse::new(ErrorCode::ServiceUnavailable).with_details("redis-1 is away");
    let expected = cfg!(debug_assertions).then_some("redis-1 is away");
    assert_eq!(error.details(), expected);
    assert_eq!(parsed(&error).get("details").and_then(Value::as_str), expected);
}

#[test]
fn an_invalid_input_is_an_internal_error() {
    let error = ErrorResponse::from(RateLimit::try_from(f64::NAN).unwrap_err());
    assert_eq!((error.code(), error.retry_after()), (ErrorCode::InternalServerError, None));
    assert!(!error.to_string().contains("NaN"), "only details say what failed");
}

#[test]
fn a_guard_lets_pass_what_was_allowed() {
    assert_eq!(guard(&allowed(1, 0, SECOND), "exports"), Ok(()));
}

#[test]
fn a_guard_names_the_action_and_the_wait() {
    let error = |wait| guard(&denied(wait), "exports").unwrap_err();
    assert_eq!(error(SECOND * 2).message(), "Too many requests for exports. Try again in 2 seconds.");
    assert_eq!(error(SECOND / 2).message(), "Too many requests for exports. Try again in 1 second.");
    assert_eq!(error(SECOND * 2).retry_after(), Some(2));
    assert_eq!(error(SECOND).code(), ErrorCode::RateLimited);
    assert_eq!(
        guard(&denied(SECOND), "").unwrap_err().message(),
        "Too many requests. Try again in 1 second."
    );

    let never = guard(&never(), "exports").unwrap_err();
    assert_eq!((never.message(), never.retry_after()), ("Too many requests for exports.", None));
}

fn tier(window: u64, threshold: u64, block: u64) -> AbuseTier {
    AbuseTier::new(SECOND * u32::try_from(window).unwrap(), threshold, Duration::from_secs(block)).unwrap()
}

#[test]
fn the_local_wrapper_blocks_in_the_words_of_its_document() {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock.clone()).build().unwrap();
    let limit = AbuseLimit::new(tier(60, 3, 600), tier(3600, 10, 86_400));
    let attempt = || rl.local().abuse().limiter("ann", &limit, "verification code");
    assert_eq!([attempt(), attempt()], [Ok(()), Ok(())]);

    let error = attempt().unwrap_err();
    assert_eq!(error.message(), "Too many attempts for verification code. Try again in 600 seconds.");
    assert_eq!((error.code(), error.status().as_u16()), (ErrorCode::TooManyAttempts, 429));
    assert_eq!(error.retry_after(), Some(600));
    assert_eq!(rl.local().abuse().limiter("bob", &limit, "verification code"), Ok(()));

    clock.advance(Duration::from_secs(599));
    let blocked = rl.local().abuse().usage("ann", &limit);
    assert_eq!(guard(&blocked, "codes").unwrap_err().retry_after(), Some(1), "usage records no attempt");
    clock.advance(Duration::from_secs(1));
    assert_eq!(attempt(), Ok(()), "the wait was exact");
}

#[test]
fn an_attempt_that_is_never_allowed_has_no_wait() {
    let rl = RateLimiter::builder().clock(Arc::new(ManualClock::default())).build().unwrap();
    let limit = AbuseLimit::new(tier(60, 1, 60), tier(60, 1, 60));
    let error = rl.local().abuse().limiter("ann", &limit, "login").unwrap_err();
    assert_eq!((error.message(), error.retry_after()), ("Too many attempts for login.", None));
}

proptest! {
    /// Whatever the name of the action, the message is one short line and the body is safe to embed in HTML.
    #[test]
    fn any_action_makes_one_line(action in prop_oneof![any::<String>(), Just("a\r\n".repeat(5_000))]) {
        let error = guard(&denied(SECOND), &action).unwrap_err();
        prop_assert!(error.message().chars().count() <= 160);
        prop_assert!(!error.message().contains(char::is_control), "{:?}", error.message());
        prop_assert!(error.message().ends_with(". Try again in 1 second."));
        let json = error.to_json();
        prop_assert!(!json.contains(['<', '>', '&']), "{}", json);
        prop_assert_eq!(&parsed(&error)["message"], error.message());
    }
}
