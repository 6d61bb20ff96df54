//! The responses of the middleware, and the limits that they report.

use std::time::Duration;

use http::Response;
use trypema::http::HeaderStyle;
use trypema::tower::{Denial, HeaderKeyExtractor, RateLimitLayer};
use trypema::{
    AbsoluteLimit, HardLimitFactor, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits, TokenLimit,
};

use super::scene::{
    WELCOME, answered_with, guesses, hourly, hourly_layer, limiter, request, send, with_header,
};

#[tokio::test]
async fn a_denial_is_a_problem_with_a_wait() {
    let layer = hourly_layer(1).build().unwrap();
    let welcome = send(&layer, request()).await;
    assert_eq!((welcome.status.as_u16(), welcome.body.as_str()), (200, WELCOME));
    assert!(welcome.headers.is_empty(), "{welcome:?}");

    let denied = send(&layer, request()).await;
    assert_eq!(denied.status, 429);
    // The clock shows 12:26:40, so the hour ends in 2,000 seconds.
    assert_eq!(denied.header("retry-after"), Some("2000"));
    assert_eq!(
        denied.json(),
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too many requests",
            "status": 429,
            "detail": "Try again in 2000 seconds.",
            "violated-policies": ["hourly"],
            "retry_after": 2000,
        }),
    );
    assert_eq!(denied.headers.len(), 2, "{denied:?}");
}

/// A request is admitted after the exact wait and denied a microsecond earlier. `Retry-After` is that wait,
/// rounded up.
#[tokio::test]
async fn the_wait_is_as_long_as_it_says() {
    let (rl, clock) = limiter();
    let bucket =
        RateLimitLayer::builder().per_second(4).burst_size(2).limiter(rl).name("api").build().unwrap();
    send(&bucket, request()).await;
    clock.advance(Duration::from_millis(500));
    send(&bucket, request()).await;
    let denied = send(&bucket, request()).await;
    // The bucket refills one token every four seconds. Half a second of that has passed.
    assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, Some("4")));
    clock.advance(Duration::from_micros(3_499_999));
    assert_eq!(send(&bucket, request()).await.status, 429);
    clock.advance(Duration::from_micros(1));
    assert_eq!(send(&bucket, request()).await.status, 200);
    assert_eq!(send(&bucket, request()).await.status, 429);
}

#[tokio::test]
async fn standard_fields_tell_what_is_left() {
    let layer = hourly_layer(2).use_headers(HeaderStyle::Standard).build().unwrap();
    let welcome = send(&layer, request()).await;
    assert_eq!(welcome.field("ratelimit-policy", ["q", "w"]), ("hourly".to_owned(), [2, 3_600]));
    assert_eq!(welcome.field("ratelimit", ["r", "t"]), ("hourly".to_owned(), [1, 2_000]));
    assert_eq!((welcome.header("retry-after"), welcome.body.as_str()), (None, WELCOME));

    send(&layer, request()).await;
    let denied = send(&layer, request()).await;
    assert_eq!(denied.field("ratelimit-policy", ["q", "w"]), ("hourly".to_owned(), [2, 3_600]));
    assert_eq!(denied.field("ratelimit", ["r", "t"]), ("hourly".to_owned(), [0, 2_000]));
    assert_eq!(denied.header("retry-after"), Some("2000"));
}

#[tokio::test]
async fn the_older_fields_tell_what_is_left() {
    let layer = hourly_layer(1).use_headers(HeaderStyle::XRateLimit).build().unwrap();
    for (status, retry_after) in [(200, None), (429, Some("2000"))] {
        let answer = send(&layer, request()).await;
        let told = ["limit", "remaining", "reset"]
            .map(|name| answer.header(&format!("x-ratelimit-{name}")).map(str::to_owned));
        assert_eq!(told.map(Option::unwrap), ["1", "0", "2000"]);
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (status, retry_after));
    }
}

/// The layer works with every strategy and reports the wait of each.
#[tokio::test]
async fn limits_of_every_strategy() {
    let minute = Duration::from_secs(60);
    let bucket = TokenBucketLimits::from(TokenLimit::new(2, minute).unwrap());
    let window = AbsoluteLimit::per_window(2, minute).unwrap();
    let layers: [(trypema::Limit, i64); 6] = [
        (window.into(), 60),
        (SuppressedLimit::above(window, HardLimitFactor::try_from(1.0).unwrap()).into(), 60),
        (bucket.into(), 30),
        (SlidingWindowLimit::new(2, minute).unwrap().into(), 50),
        (hourly(2).into(), 2_000),
        (guesses().into(), 600),
    ];
    for (limit, wait) in layers {
        let strategy = limit.strategy();
        let layer = RateLimitLayer::builder().limit(limit).limiter(limiter().0).name("any");
        let layer = layer.use_headers(HeaderStyle::Standard).build().unwrap();
        assert_eq!(send(&layer, request()).await.status, 200, "{strategy}");
        assert_eq!(send(&layer, request()).await.status, 200, "{strategy}");
        let denied = send(&layer, request()).await;
        let (_, [left, reset]) = denied.field("ratelimit", ["r", "t"]);
        assert_eq!((denied.status.as_u16(), left, reset), (429, 0, wait), "{strategy}");
        let kind = if strategy == "abuse" { "abnormal-usage-detected" } else { "quota-exceeded" };
        assert!(denied.json()["type"].as_str().unwrap().ends_with(kind), "{strategy}");
    }
}

/// Waiting does not help a request that costs more than the whole limit.
#[tokio::test]
async fn what_never_fits_has_no_wait() {
    let layer = hourly_layer(1).cost(|_| 2).use_headers(HeaderStyle::Standard).build().unwrap();
    let denied = send(&layer, request()).await;
    assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, None));
    let problem = denied.json();
    assert_eq!(problem["detail"], "Retrying will not succeed.");
    assert_eq!(problem.get("retry_after"), None);
    // Nothing was spent.
    assert_eq!(denied.field("ratelimit", ["r", "t"]).1[0], 1);
}

#[tokio::test]
async fn an_error_handler_makes_the_answer() {
    let plain = |denial: &Denial<'_>| {
        assert_eq!(denial.request().uri.path(), "/");
        assert!(!denial.is_grpc() && denial.verdict().is_none() && denial.error().is_none());
        let mut response = Response::new(format!("{:?} {:?}", denial.code(), denial.retry_after()));
        *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
        if denial.missing_key().is_some() {
            response.headers_mut().insert("retry-after", http::HeaderValue::from_static("7"));
        }
        response
    };
    let layer = hourly_layer(1).error_handler(plain).use_headers(HeaderStyle::XRateLimit).build().unwrap();
    send(&layer, request()).await;
    let denied = send(&layer, request()).await;
    assert_eq!((denied.status.as_u16(), denied.body.as_str()), (418, "RateLimited Some(2000s)"));
    assert_eq!(denied.header("retry-after"), Some("2000"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));

    let keyless = send(&layer, http::Request::new(())).await;
    assert_eq!((keyless.status.as_u16(), keyless.body.as_str()), (418, "InternalServerError None"));
    assert_eq!((keyless.header("retry-after"), keyless.header("x-ratelimit-limit")), (Some("7"), None));
}

/// Responses may be logged, cached or shown in pages, so they never contain the client's key.
#[tokio::test]
async fn answers_do_not_repeat_what_clients_say() {
    let api_key = HeaderKeyExtractor::new(http::HeaderName::from_static("x-api-key"));
    let layer = hourly_layer(1).key_extractor(api_key).use_headers(HeaderStyle::Standard).build().unwrap();
    let secret = || with_header(answered_with(200), "x-api-key", "s3cr3t<script>");
    send(&layer, secret()).await;
    let denied = send(&layer, secret()).await;
    assert_eq!(denied.status, 429);
    assert!(!format!("{denied:?}").contains("s3cr3t"), "{denied:?}");
}
