//! Denials and failures as `application/problem+json`.

use std::time::Duration;

use http::Response;
use proptest::prelude::*;
use serde_json::{Value, json};
use trypema::http::{ErrorCode, HeaderStyle, Policy, Problem, QuotaUnit};
use trypema::{RateLimit, TrypemaError};

use super::{allowed, denied, names, never};

fn policy<'a>(name: &'a str, decision: &'a trypema::Decision) -> Policy<'a> {
    Policy { name, quota: 1, window: None, unit: QuotaUnit::Spent, decision }
}

fn body(response: &Response<String>) -> Value {
    serde_json::from_str(response.body()).unwrap()
}

#[test]
fn a_denial_names_the_policies_that_denied_and_the_longest_wait() {
    let (fine, short, long) = (
        allowed(2, 1, Duration::from_secs(90)),
        denied(Duration::from_millis(500)),
        denied(Duration::from_micros(12_000_001)),
    );
    let policies = [policy("fine", &fine), policy("short", &short), policy("long", &long)];
    let response = Problem::denied(policies).unwrap().into_http_response::<String>();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["retry-after"], "13");
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": 429,
        "detail": "Try again in 13 seconds.",
        "violated-policies": ["short", "long"],
        "retry_after": 13,
    });
    assert_eq!(body(&response), expected);
}

#[test]
fn what_was_allowed_is_no_problem() {
    assert_eq!(Problem::denied([]), None);
    assert_eq!(Problem::denied([policy("fine", &allowed(1, 0, Duration::from_secs(1)))]), None);
}

#[test]
fn what_never_fits_has_no_wait() {
    let (wait, never) = (denied(Duration::from_secs(1)), never());
    let response = Problem::denied([policy("wait", &wait), policy("never", &never)]).unwrap();
    assert_eq!((response.code(), response.retry_after()), (ErrorCode::RateLimited, None));
    let response = response.into_http_response::<String>();
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(body(&response)["retry_after"], Value::Null);
    assert_eq!(body(&response)["violated-policies"], json!(["wait", "never"]));
}

#[test]
fn every_code_has_its_type_and_status() {
    let expected = [
        (ErrorCode::RateLimited, 429, "https://iana.org/assignments/http-problem-types#quota-exceeded"),
        (
            ErrorCode::TooManyAttempts,
            429,
            "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        ),
        (
            ErrorCode::ServiceUnavailable,
            503,
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        ),
        (ErrorCode::InternalServerError, 500, "about:blank"),
    ];
    for (code, status, kind) in expected {
        let response = Problem::new(code).into_http_response::<String>();
        assert_eq!(response.status(), status);
        assert_eq!(body(&response)["type"], kind);
        assert_eq!(body(&response)["status"], status);
        assert_eq!(body(&response).as_object().unwrap().len(), 3, "{}", response.body());
    }
}

#[test]
fn an_invalid_input_is_not_the_callers_fault_and_stays_inside() {
    let error: TrypemaError = RateLimit::try_from(f64::NAN).unwrap_err();
    let problem = Problem::from(&error);
    assert_eq!(problem.code(), ErrorCode::InternalServerError);
    assert!(!problem.to_json().contains("NaN"));
}

proptest! {
    /// Whatever the name of a policy, the body is safe to embed in HTML and uses the same name as the header.
    #[test]
    fn names_are_those_of_the_header(name in names()) {
        let decision = never();
        let policy = policy(&name, &decision);
        let json = Problem::denied([policy]).unwrap().to_json();
        prop_assert!(!json.contains(['<', '>', '&', '\r', '\n', '\u{2028}']), "{}", json);
        let body: Value = serde_json::from_str(&json).unwrap();
        let mut headers = http::HeaderMap::new();
        HeaderStyle::Standard.write([policy], &mut headers);
        let list: sfv::List = sfv::Parser::new(headers["ratelimit"].as_bytes()).parse().unwrap();
        let sfv::ListEntry::Item(item) = &list[0] else { panic!("{list:?}") };
        let in_header = item.bare_item.as_string().unwrap().as_str();
        prop_assert_eq!(&body["violated-policies"], &json!([in_header]));
    }

    #[test]
    fn details_arrive_as_they_were(detail in any::<String>()) {
        let json = Problem::new(ErrorCode::RateLimited).with_detail(detail.clone()).to_json();
        prop_assert!(!json.contains(['<', '>', '&']));
        let body: Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(body["detail"].as_str(), Some(detail.as_str()));
    }
}
