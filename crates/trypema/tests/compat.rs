//! The examples and guarantees of the trypema 1.x documentation that need neither Redis nor a feature.
//! `redis/compat.rs` has the others.
#![cfg(not(feature = "_redis"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{
    HardLimitFactor, LocalRateLimiterOptions, RateGroupSizeMs, RateLimit, RateLimitDecision, RateLimiter,
    RateLimiterOptions, WindowSizeSeconds,
};

#[test]
fn the_quick_start_compiles_and_admits() {
    // Create rate limiter with a 60-second sliding window
    let rl = Arc::new(RateLimiter::new(RateLimiterOptions {
        local: LocalRateLimiterOptions {
            window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
            rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
            hard_limit_factor: HardLimitFactor::default(),
        },
    }));

    // Optional: Start background cleanup to remove stale keys
    rl.run_cleanup_loop();

    // Rate limit a key to 5 requests per second
    let key = "user:123";
    let rate_limit = RateLimit::try_from(5.0).unwrap();

    let mut admitted = 0;
    for _ in 0..301 {
        match rl.local().absolute().inc(key, &rate_limit, 1) {
            RateLimitDecision::Allowed => admitted += 1,
            RateLimitDecision::Rejected { retry_after_ms, .. } => {
                assert!((1..=60_000).contains(&retry_after_ms), "{retry_after_ms}");
            }
            RateLimitDecision::Suppressed { .. } => {
                panic!("only returned by suppressed strategy")
            }
        }
    }
    assert_eq!(admitted, 300);
}

#[test]
fn the_variants_have_the_documented_fields() {
    let decisions = [
        RateLimitDecision::Allowed,
        RateLimitDecision::Rejected {
            window_size_seconds: 60,
            retry_after_ms: 2500,
            remaining_after_waiting: 45,
        },
        RateLimitDecision::Suppressed { suppression_factor: 0.3, is_allowed: true },
    ];
    let allowed = decisions.map(|decision| decision.is_allowed());
    assert_eq!(allowed, [true, false, true]);
}

#[test]
fn both_import_paths_name_the_same_types() {
    let options: trypema::local::LocalRateLimiterOptions = LocalRateLimiterOptions {
        window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
        rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
        hard_limit_factor: HardLimitFactor::default(),
    };
    let rl = RateLimiter::new(RateLimiterOptions { local: options });
    let provider: &trypema::local::LocalRateLimiterProvider = rl.local();
    let _: &trypema::LocalRateLimiterProvider = provider;
    let absolute: &trypema::local::AbsoluteLocalRateLimiter = provider.absolute();
    let _: &trypema::AbsoluteLocalRateLimiter = absolute;
    let suppressed: &trypema::local::SuppressedLocalRateLimiter = provider.suppressed();
    let _: &trypema::SuppressedLocalRateLimiter = suppressed;
}

/// A limiter with a window of ten seconds and a clock that the test advances.
fn manual() -> (Arc<ManualClock>, RateLimiter) {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder()
        .window_size_seconds(WindowSizeSeconds::try_from(10).unwrap())
        .clock(clock.clone())
        .build()
        .unwrap();
    (clock, rl)
}

fn rate(per_second: f64) -> RateLimit {
    RateLimit::try_from(per_second).unwrap()
}

#[test]
fn rates_need_not_be_whole() {
    let (_, rl) = manual();
    let answers = (0..100).map(|_| rl.local().absolute().inc("ann", &rate(5.5), 1));
    assert_eq!(answers.filter(RateLimitDecision::is_allowed).count(), 55, "10 s × 5.5/s");
}

#[test]
fn the_first_rate_of_a_key_sticks_until_it_is_forgotten() {
    let (clock, rl) = manual();
    let (absolute, suppressed) = (rl.local().absolute(), rl.local().suppressed());
    for (slow, fast) in [(0.1, 10.0), (0.2, 100.0)] {
        let capacity = (slow * 10.0) as u64;
        assert!(absolute.inc("ann", &rate(slow), capacity).is_allowed());
        assert!(!absolute.inc("ann", &rate(fast), 1).is_allowed());
        assert!(!absolute.is_allowed("ann").is_allowed());
        assert!(suppressed.inc("ann", &rate(slow), capacity).is_allowed());
        assert_ne!(suppressed.inc("ann", &rate(fast), 1), RateLimitDecision::Allowed);
        clock.advance(Duration::from_secs(10));
        assert!(absolute.is_allowed("ann").is_allowed());
    }
}

#[test]
fn a_rejection_says_what_the_documentation_says() {
    let (clock, rl) = manual();
    let absolute = rl.local().absolute();
    assert!(absolute.inc("ann", &rate(1.0), 4).is_allowed());
    clock.advance(Duration::from_millis(2_500));
    assert!(absolute.inc("ann", &rate(1.0), 6).is_allowed());
    clock.advance(Duration::from_micros(500));

    let rejected = RateLimitDecision::Rejected {
        window_size_seconds: 10,
        retry_after_ms: 7_500, // 7,499.5 rounded up
        remaining_after_waiting: 6,
    };
    assert_eq!(absolute.inc("ann", &rate(1.0), 1), rejected);
    assert_eq!(absolute.is_allowed("ann"), rejected);
    clock.advance(Duration::from_millis(7_499));
    assert!(!absolute.inc("ann", &rate(1.0), 1).is_allowed());
    clock.advance(Duration::from_millis(1));
    assert!(absolute.inc("ann", &rate(1.0), 4).is_allowed());

    let never = RateLimitDecision::Rejected {
        window_size_seconds: 10,
        retry_after_ms: RateLimitDecision::NEVER_MS,
        remaining_after_waiting: 0,
    };
    assert_eq!(absolute.inc("bob", &rate(1.0), 11), never);
    assert_eq!(never.retry_after(), None);
}

#[test]
fn asking_whether_one_is_allowed_spends_nothing() {
    let (_, rl) = manual();
    let (absolute, suppressed) = (rl.local().absolute(), rl.local().suppressed());
    for _ in 0..100 {
        assert_eq!(absolute.is_allowed("new"), RateLimitDecision::Allowed);
        assert_eq!(suppressed.is_allowed("new"), RateLimitDecision::Allowed);
    }
    assert_eq!((absolute.len(), suppressed.len()), (0, 0));
    assert!(absolute.inc("new", &rate(1.0), 10).is_allowed());
    assert!(suppressed.inc("new", &rate(1.0), 10).is_allowed());
}

#[test]
fn suppression_starts_at_the_limit_and_ends_at_the_hard_one() {
    let (_, rl) = manual();
    let answers: Vec<_> = (0..10_000).map(|_| rl.local().suppressed().inc("ann", &rate(2.0), 1)).collect();
    assert!(answers[..20].iter().all(|answer| *answer == RateLimitDecision::Allowed));
    assert!(matches!(
        answers[20],
        RateLimitDecision::Suppressed { suppression_factor, .. } if (0.0..=1.0).contains(&suppression_factor)
    ));
    let admitted = answers.iter().filter(|answer| answer.is_allowed()).count();
    assert!((20..=40).contains(&admitted), "{admitted}");

    let rejected = rl.local().suppressed().inc("bob", &rate(2.0), 41);
    assert!(matches!(rejected, RateLimitDecision::Rejected { .. }));
}

#[test]
fn keys_are_limited_apart_from_each_other() {
    let (_, rl) = manual();
    for key in ["user:123", "api_endpoint_v2", "", "ключ"] {
        assert!(rl.local().absolute().inc(key, &rate(0.1), 1).is_allowed());
        assert!(!rl.local().absolute().inc(key, &rate(0.1), 1).is_allowed());
    }
}
