//! An invalid key or limit of one caller does not affect the others in its batch.

use trypema::redis::RedisFailureKind;
use trypema::{Check, Limit, TokenBucketLimits, TokenLimit, TrypemaError};
use trypema_testkit::blocking::{key, runtime};
use trypema_testkit::redis::Server;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::crowd::Crowd;
use super::{FLIGHTS, limiter, long_window};

/// A caller that returns the remaining units.
type Caller<'a> = Pin<Box<dyn Future<Output = Result<u64, TrypemaError>> + 'a>>;

/// Sends `callers` as one batch, in order.
fn in_one_flight<'a>(
    fillers: impl Fn() -> Caller<'a>,
    callers: Vec<Caller<'a>>,
) -> Vec<Result<u64, TrypemaError>> {
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    (0..FLIGHTS).for_each(|_| _ = crowd.add(fillers()));
    callers.into_iter().for_each(|caller| _ = crowd.add(caller));
    crowd.finish().into_iter().flatten().skip(FLIGHTS).collect()
}

/// A list in place of a state or of a reset counter, and strings that no strategy wrote.
#[test]
fn a_key_that_holds_something_else_fails_its_own_caller() {
    let server = Server::start().unwrap();
    let mut control = server.control().unwrap();
    control.command(&["LPUSH", "trypema:{list}:fixed_window", "1"]).unwrap();
    control.command(&["LPUSH", "trypema:{resets}:fixed_window:resets", "1"]).unwrap();
    control.command(&["SET", "trypema:{short}:fixed_window", "F"]).unwrap();
    control.command(&["SET", "trypema:{other}:fixed_window", "a string of some other program"]).unwrap();
    let (_, rl) = limiter(&server.url());
    let (windows, limit) = (rl.redis().fixed_window(), long_window(10));
    let take = |name: &'static str| -> Caller<'_> {
        let limit = &limit;
        Box::pin(async move { windows.take(&key(name), limit, 1).await.map(|decision| decision.remaining()) })
    };
    let reserve = |name: &'static str| -> Caller<'_> {
        let limit = &limit;
        Box::pin(async move {
            windows
                .take_with_receipt(&key(name), limit, 1)
                .await
                .map(|reserved| reserved.decision.remaining())
        })
    };
    let wrong = [
        ("list", take("list")),
        ("short", take("short")),
        ("other", take("other")),
        ("list", reserve("list")),
        ("resets", reserve("resets")),
    ];
    for (name, wrong) in wrong {
        let callers = vec![take("ann"), take("bob"), wrong, take("ann"), reserve("bob")];
        let mut told = in_one_flight(|| take("filler"), callers);
        match told.remove(2) {
            Err(TrypemaError::RedisError(failure)) => assert_eq!(failure.kind(), RedisFailureKind::Refused),
            other => panic!("{name}: {other:?}"),
        }
        let told: Result<Vec<u64>, _> = told.into_iter().collect();
        let left = told.unwrap_or_else(|error| panic!("{name} harmed others: {error}"));
        assert_eq!([left[0] - 1, left[1] - 1], [left[2], left[3]], "{name}: {left:?}");
    }
    let before = control.command(&["LRANGE", "trypema:{list}:fixed_window", "0", "-1"]).unwrap();
    assert_eq!(before.items().len(), 1, "left alone");
}

/// Wherever the invalid key is in a multi-key call, nothing of that call is spent, and callers in the same
/// batch get their own replies.
#[test]
fn a_request_with_a_key_that_holds_something_else_fails_alone() {
    let server = Server::start().unwrap();
    server.control().unwrap().command(&["LPUSH", "trypema:{list}:fixed_window", "1"]).unwrap();
    let (_, rl) = limiter(&server.url());
    let (windows, limit) = (rl.redis().fixed_window(), long_window(100));
    let any = Limit::from(limit);
    let take = |name: &'static str| -> Caller<'_> {
        let limit = &limit;
        Box::pin(async move { windows.take(&key(name), limit, 1).await.map(|decision| decision.remaining()) })
    };
    // Returns the remaining units of the last key.
    let take_all = |names: [&'static str; 3]| -> Caller<'_> {
        let (redis, any) = (rl.redis(), &any);
        Box::pin(async move {
            let answer = redis.take_all(&names.map(|key| Check::new(key, any, 1))).await?;
            Ok(answer.decisions[2].remaining())
        })
    };
    for round in 0..3 {
        let mut names = ["cid", "dan", "eve"];
        names[round] = "list";
        let callers = vec![
            take("ann"),
            take_all(names),
            take("bob"),
            take_all(["fay", "gus", "ann"]),
            take_all(names),
            take("gus"),
            take("ann"),
        ];
        let told = in_one_flight(|| take("filler"), callers);
        // In each round, ann spends three units, gus two and bob one.
        let [ann, gus, bob] = [3, 2, 1].map(|units| 100 - units * round as u64);
        let expected =
            [Some(ann - 1), None, Some(bob - 1), Some(ann - 2), None, Some(gus - 2), Some(ann - 3)];
        for (number, (told, expected)) in told.iter().zip(&expected).enumerate() {
            match told {
                Err(TrypemaError::RedisError(failure)) if expected.is_none() => {
                    assert_eq!(failure.kind(), RedisFailureKind::Refused);
                }
                told => {
                    assert_eq!(told.as_ref().ok(), expected.as_ref(), "caller {number} was told {told:?}")
                }
            }
        }
    }
    let usage = ["cid", "dan", "eve"].map(|key| Check::new(key, &any, 0));
    let usage = trypema_testkit::blocking::wait_for(rl.redis().peek_all(&usage)).unwrap();
    assert!(usage.decisions.iter().all(|decision| decision.remaining() == 100), "{usage:?}");
}

/// Callers of one key may use different limits. The state must be kept for as long as any of them counts it.
#[test]
fn a_look_by_another_limit_changes_nothing_for_a_token_bucket() {
    let server = Server::start().unwrap();
    let rl = trypema::RateLimiter::builder()
        .redis(trypema_testkit::blocking::connect(&server.url()))
        .redis_deadline(Duration::from_secs(20))
        .build()
        .unwrap();
    let bucket = |capacity, seconds| TokenLimit::new(capacity, Duration::from_secs(seconds)).unwrap();
    let slow = TokenBucketLimits::new([bucket(10, 3_600), bucket(20, 7_200)]).unwrap();
    let slow_alone = TokenBucketLimits::from(bucket(10, 3_600));
    let quick = TokenBucketLimits::from(bucket(7, 1));
    let (buckets, mut control) = (rl.redis().token_bucket(), server.control().unwrap());
    let reserve = |name: &'static str, limits| -> Caller<'_> {
        Box::pin(async move {
            buckets
                .take_with_receipt(&key(name), limits, 10)
                .await
                .map(|reserved| reserved.decision.remaining())
        })
    };
    let peek = |name: &'static str| -> Caller<'_> {
        let quick = &quick;
        Box::pin(async move { buckets.peek(&key(name), quick, 1).await.map(|decision| decision.remaining()) })
    };
    let callers =
        vec![reserve("ann", &slow), peek("ann"), reserve("bob", &slow_alone), peek("bob"), peek("cid")];
    let told: Result<Vec<u64>, _> = in_one_flight(|| peek("filler"), callers).into_iter().collect();
    let told = told.unwrap();
    assert_eq!([told[0], told[2], told[4]], [0, 0, 6]);
    for name in ["trypema:{ann}:tokens", "trypema:{bob}:tokens"] {
        let left_s = control.command(&["PTTL", name]).unwrap().integer().unwrap() / 1_000;
        assert!((3_590..=3_600).contains(&left_s), "{name} has {left_s} s");
    }
}

/// While units are pending, each take of a batch is decided by itself and does not reuse the first one's
/// forecast.
#[test]
fn takes_beside_a_lease_are_answered_one_by_one() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let limits = TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(1)).unwrap());
    let (redis, local, ann, bob) =
        (rl.redis().token_bucket(), rl.local().token_bucket(), key("ann"), key("bob"));
    let lease = Duration::from_millis(500);
    assert!(local.take_with_receipt_for("ann", &limits, 2, lease).receipt.is_some());
    let reserved =
        trypema_testkit::blocking::wait_for(redis.take_with_receipt_for(&ann, &limits, 2, lease)).unwrap();
    assert!(reserved.receipt.is_some());
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    for caller in 0..FLIGHTS + 3 {
        let name = if caller < FLIGHTS { &bob } else { &ann };
        let (redis, limits) = (redis, &limits);
        crowd.add(async move { redis.take(name, limits, 2).await.unwrap().reset_after() });
    }
    let resets: Vec<Duration> = crowd.finish().into_iter().flatten().skip(FLIGHTS).collect();
    let expected: Vec<Duration> = (0..3).map(|_| local.take("ann", &limits, 2).reset_after()).collect();
    assert_eq!(resets, expected);
}
