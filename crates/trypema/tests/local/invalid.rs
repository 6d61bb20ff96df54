//! Invalid values return a typed error that names the value and the allowed range. A cost that can never fit
//! is denied with "never".

use std::time::Duration;

use trypema::strategy::{Strategy, TokenBucket};
use trypema::{
    AbuseLimit, AbuseTier, FixedWindowLimit, HardLimitFactor, RateGroupSizeMs, RateLimit, RateLimitDecision,
    RateLimiter, SlidingWindowLimit, TokenBucketLimits, TokenLimit, TrypemaError, WindowSizeSeconds,
};

const SECOND: Duration = Duration::from_secs(1);
const LONGEST_SECONDS: u64 = 366 * 86_400;
const LONGEST: Duration = Duration::from_secs(LONGEST_SECONDS);

/// The smallest number that cannot be counted exactly.
const TOO_MANY: u64 = 1 << 53;

fn says<T>(result: Result<T, TrypemaError>, message: &str) {
    let error = result.err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some(message));
}

#[test]
fn rates() {
    let subnormal = f64::MIN_POSITIVE / 2.0;
    for (given, shown) in [
        (0.0, "0.0".to_owned()),
        (-0.0, "-0.0".to_owned()),
        (-1.0, "-1.0".to_owned()),
        (f64::NAN, "NaN".to_owned()),
        (f64::INFINITY, "inf".to_owned()),
        (f64::NEG_INFINITY, "-inf".to_owned()),
        (subnormal, "1.1125369292536007e-308".to_owned()),
        (100_000_001.0, "100000001.0".to_owned()),
        (f64::MAX, "1.7976931348623157e308".to_owned()),
    ] {
        let result = RateLimit::try_from(given);
        assert!(matches!(result, Err(TrypemaError::InvalidRateLimit { .. })));
        let allowed = "need a number above 0 and at most 100000000 per second";
        says(result, &format!("invalid rate limit {shown}: {allowed}"));
    }
    for given in [f64::MIN_POSITIVE, 5.5, 100_000_000.0] {
        assert_eq!(RateLimit::try_from(given).map(|rate| *rate), Ok(given));
    }
}

#[test]
fn windows() {
    let allowed = "need 1us to 366d";
    for (given, shown) in [
        (Duration::ZERO, "0s"),
        (LONGEST + Duration::from_nanos(1), "366d1us"),
        (Duration::MAX, "213503982334601d7h16s"),
    ] {
        let message = format!("invalid window {shown}: {allowed}");
        says(FixedWindowLimit::new(1, given), &message);
        says(SlidingWindowLimit::new(1, given), &message);
        says(TokenLimit::new(1, given), &message);
        says(AbuseTier::new(given, 1, SECOND), &message);
        says(AbuseTier::new(SECOND, 1, given), &message);
    }
    for given in [Duration::from_nanos(1), SECOND, LONGEST] {
        assert!(FixedWindowLimit::new(1, given).is_ok());
        assert!(AbuseTier::new(given, 1, given).is_ok());
    }
    let allowed = "need 1 to 31622400 seconds";
    says(WindowSizeSeconds::try_from(0), &format!("invalid window size of 0 seconds: {allowed}"));
    let message = format!("invalid window size of 31622401 seconds: {allowed}");
    says(WindowSizeSeconds::try_from(LONGEST_SECONDS + 1), &message);
    assert!(WindowSizeSeconds::try_from(u64::MAX).is_err());
    assert!(WindowSizeSeconds::try_from(LONGEST_SECONDS).is_ok());
}

#[test]
fn group_sizes_and_factors() {
    for given in [0, 3_600_001, u64::MAX] {
        let message = format!("invalid rate group size of {given} ms: need 1 to 3600000 ms");
        says(RateGroupSizeMs::try_from(given), &message);
    }
    for (given, shown) in [
        (0.0, "0"),
        (-2.0, "-2"),
        (0.999, "0.999"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (1_000_001.0, "1000001"),
    ] {
        let message = format!("invalid hard limit factor {shown}: need a number from 1 to 1000000");
        says(HardLimitFactor::try_from(given), &message);
    }
    assert!(HardLimitFactor::try_from(1.0).is_ok());
    assert!(HardLimitFactor::try_from(1_000_000.0).is_ok());
}

#[test]
fn limits() {
    for given in [0, TOO_MANY, u64::MAX] {
        let message = format!("invalid limit {given}: need 1 to 9007199254740991");
        says(FixedWindowLimit::new(given, SECOND), &message);
        says(TokenLimit::new(given, SECOND), &message);
    }
    assert!(FixedWindowLimit::new(TOO_MANY - 1, SECOND).is_ok());
    for given in [0, 1 << 32, TOO_MANY, u64::MAX] {
        let message = format!("invalid limit {given}: need 1 to 4294967295");
        says(SlidingWindowLimit::new(given, SECOND), &message);
    }
    for given in [0, 10_001, u64::MAX] {
        let message = format!("invalid threshold {given}: need 1 to 10000 attempts");
        says(AbuseTier::new(SECOND, given, SECOND), &message);
    }
    let no_keys = RateLimiter::builder().max_keys(0).build();
    says(no_keys, "invalid max_keys 0: need at least 1");
}

#[test]
fn token_limits() {
    let limit = TokenLimit::new(1, SECOND).unwrap();
    let most = TokenLimit::MAX_PER_BUCKET;
    for count in [0, most + 1, 1_000] {
        let message = format!("invalid number of token bucket limits {count}: need 1 to {most}");
        says(TokenBucketLimits::new(std::iter::repeat_n(limit, count)), &message);
    }
    assert!(TokenBucketLimits::new(std::iter::repeat_n(limit, most)).is_ok());

    // The capacity is coprime to the microseconds of a day, so no unit is small enough.
    says(
        TokenLimit::new((1 << 40) + 1, Duration::from_secs(86_400)),
        "1099511627777 tokens per 1d cannot be counted exactly: capacity times microseconds, divided by \
         their greatest common divisor, must stay below 2^53; round one of them",
    );
    assert!(TokenLimit::new(TOO_MANY - 1, Duration::from_micros(1)).is_ok());
    assert!(TokenLimit::new(TOO_MANY - 1, Duration::from_micros(2)).is_err());
}

/// Costs above the capacity. Their denials still report the remaining units.
const ABOVE: [u64; 6] = [4, TOO_MANY - 1, TOO_MANY, TOO_MANY + 1, i64::MAX as u64, u64::MAX];

#[test]
fn a_cost_above_capacity_is_never() {
    let rl = RateLimiter::builder().build().unwrap();
    let local = rl.local();
    let fixed = FixedWindowLimit::new(3, LONGEST).unwrap();
    let sliding = SlidingWindowLimit::new(3, LONGEST).unwrap();
    let buckets =
        TokenBucketLimits::new([TokenLimit::new(5, LONGEST).unwrap(), TokenLimit::new(3, LONGEST).unwrap()])
            .unwrap();
    let rate = RateLimit::try_from(0.05).unwrap(); // 3 a minute
    let absolute = local.absolute().limit(&rate);
    local.fixed_window().take("ann", &fixed, 1);
    local.sliding_window().take("ann", &sliding, 1);
    local.token_bucket().take("ann", &buckets, 1);
    local.absolute().take("ann", &absolute, 1);
    for cost in ABOVE {
        let by_tokens = local.token_bucket().take("ann", &buckets, cost);
        for decision in [
            local.fixed_window().take("ann", &fixed, cost),
            local.sliding_window().take("ann", &sliding, cost),
            TokenBucket::core(&by_tokens),
            local.absolute().take("ann", &absolute, cost),
        ] {
            assert!(!decision.is_allowed() && decision.is_never(), "{cost}: {decision:?}");
            assert_eq!((decision.retry_after(), decision.remaining()), (None, 2), "{cost}");
        }
    }
}

#[test]
fn a_number_of_attempts_above_the_threshold_is_never() {
    let rl = RateLimiter::builder().build().unwrap();
    let tier = AbuseTier::new(SECOND, 4, SECOND).unwrap();
    let limit = AbuseLimit::new(tier, tier);
    for cost in ABOVE {
        let decision = rl.local().abuse().take(&cost.to_string(), &limit, cost);
        assert!(decision.is_never() && decision.retry_after().is_none(), "{cost}");
        assert_eq!((decision.short_count(), decision.long_count()), (4, 4), "{cost}");
    }
}

#[test]
fn the_documented_calls_name_never() {
    let rl = RateLimiter::builder().build().unwrap();
    let rate = RateLimit::try_from(0.05).unwrap(); // 3 a minute, suppressed at most 6
    let too_slow = RateLimit::try_from(f64::MIN_POSITIVE).unwrap();
    let never = RateLimitDecision::Rejected {
        window_size_seconds: 60,
        retry_after_ms: u64::MAX,
        remaining_after_waiting: 0,
    };
    for cost in [7, TOO_MANY, u64::MAX] {
        assert_eq!(rl.local().absolute().inc("ann", &rate, cost), never);
        assert_eq!(rl.local().suppressed().inc("ann", &rate, cost), never);
    }
    // With a capacity of 0, every cost except 0 is "never".
    assert_eq!(rl.local().absolute().inc("bob", &too_slow, 1), never);
    assert_eq!(rl.local().suppressed().inc("bob", &too_slow, 1), never);
    let nothing = rl.local().absolute().inc("bob", &too_slow, 0);
    assert_eq!(nothing, RateLimitDecision::Allowed);
}

/// Between the soft and the hard limit, chance decides. A cost that a later call may admit is not "never".
#[test]
fn a_cost_that_may_be_drawn_is_not_never() {
    let rl = RateLimiter::builder().build().unwrap();
    let suppressed = rl.local().suppressed();
    let limit = suppressed.limit(&RateLimit::try_from(0.05).unwrap()); // 3 a minute, at most 6
    let decisions = (0..1_000).map(|key| suppressed.take(&key.to_string(), &limit, 4));
    for decision in decisions {
        let is_drawn = decision.suppression_factor().is_some();
        assert!(!(is_drawn && decision.is_never()), "{decision:?}");
    }
}
