//! The wrapper of the abuse limiter's document: `limiter(...) -> Result<(), ErrorResponse>`, which keeps a call
//! site to one line, on each provider.

use std::time::Duration;

use trypema::http::{ErrorCode, ErrorResponse};
use trypema::{AbuseLimit, AbuseTier, RateLimiter, RedisKey};
use trypema_testkit::blocking::{connect, wait_for};

use super::Fixture;

/// The call site of the document: a code is sent unless there were too many attempts.
async fn send_code(
    rl: &RateLimiter,
    provider: &str,
    limit: &AbuseLimit,
) -> Result<&'static str, ErrorResponse> {
    let prefix = RedisKey::encode("verification:ann@example.com");
    match provider {
        "local" => rl.local().abuse().limiter(prefix.as_str(), limit, "verification code")?,
        "redis" => rl.redis().abuse().limiter(&prefix, limit, "verification code").await?,
        _ => rl.hybrid().abuse().limiter(&prefix, limit, "verification code").await?,
    }
    Ok("sent")
}

#[test]
fn the_wrapper_keeps_its_promises_on_every_provider() {
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let temp = AbuseTier::new(10 * minute, 3, 10 * minute).unwrap();
    let long = AbuseTier::new(hour, 10, 24 * hour).unwrap();
    let limit = AbuseLimit::new(temp, long);
    for provider in ["local", "redis", "hybrid"] {
        let fixture = Fixture::new();
        let builder = RateLimiter::builder().redis(connect(fixture.server.url()));
        let rl = builder.redis_prefix(fixture.prefix.clone()).redis_deadline(minute).build().unwrap();
        let attempt = || wait_for(send_code(&rl, provider, &limit));
        assert_eq!([attempt(), attempt()], [Ok("sent"), Ok("sent")], "{provider}");

        let error = attempt().unwrap_err();
        assert_eq!((error.code(), error.status().as_u16()), (ErrorCode::TooManyAttempts, 429), "{provider}");
        // A block on the server's clock may have run for a moment.
        let seconds = error.retry_after().unwrap();
        assert!((540..=600).contains(&seconds), "{provider}: {seconds}");
        let message = format!("Too many attempts for verification code. Try again in {seconds} seconds.");
        assert_eq!(error.message(), message, "{provider}");

        let response = error.into_http_response::<String>();
        assert_eq!(response.headers()["retry-after"], seconds.to_string(), "{provider}");
        assert!(response.body().contains(&format!(r#""context":{{"retryAfter":{seconds}}}"#)), "{provider}");
    }
}
