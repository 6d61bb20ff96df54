//! The Redis provider on the smol runtime.
#![cfg(feature = "redis-smol")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::RedisKey;
use trypema::{FixedWindowLimit, RateLimiter, TokenBucketLimits, TokenLimit};
use trypema_testkit::redis::Server;

/// Long, because the machine may be busy with other tests.
const DEADLINE: Duration = Duration::from_secs(20);

/// A limit whose window does not end during a test.
fn limit() -> FixedWindowLimit {
    FixedWindowLimit::new(10, Duration::from_secs(366 * 86_400)).unwrap()
}

async fn limiter(server: &Server) -> RateLimiter {
    let connection = trypema_testkit::blocking::dial(&server.url()).await;
    RateLimiter::builder().redis(connection).redis_deadline(DEADLINE).build().unwrap()
}

#[test]
fn the_verbs_work_inside_smol() {
    let server = Server::start().unwrap();
    smol::block_on(async {
        let rl = limiter(&server).await;
        let (windows, limit, ann) = (rl.redis().fixed_window(), limit(), RedisKey::try_from("ann").unwrap());
        assert_eq!(windows.take(&ann, &limit, 4).await.unwrap().remaining(), 6);
        assert!(windows.peek(&ann, &limit, 6).await.unwrap().is_allowed());
        assert!(!windows.take(&ann, &limit, 7).await.unwrap().is_allowed());
        let reserved = windows.take_with_receipt(&ann, &limit, 2).await.unwrap();
        assert_eq!(reserved.decision.remaining(), 4);
        assert_eq!(windows.refund(&ann, &limit, &reserved.receipt.unwrap()).await.unwrap(), 2);
        assert_eq!(windows.usage(&ann, &limit).await.unwrap().remaining(), 6);
        assert!(windows.reset(&ann).await.unwrap());
    });
}

#[test]
fn takes_of_many_tasks_admit_exactly_the_capacity_inside_smol() {
    let server = Server::start().unwrap();
    let admitted = smol::block_on(async {
        let rl = Arc::new(limiter(&server).await);
        let take = |_| {
            let rl = Arc::clone(&rl);
            smol::spawn(async move {
                let ann = RedisKey::try_from("ann").unwrap();
                rl.redis().fixed_window().take(&ann, &limit(), 1).await.unwrap().is_allowed()
            })
        };
        let tasks: Vec<_> = (0..200).map(take).collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += u64::from(task.await);
        }
        admitted
    });
    assert_eq!(admitted, limit().limit());
}

#[test]
fn waiters_are_admitted_one_after_another_inside_smol() {
    let server = Server::start().unwrap();
    let limits = TokenBucketLimits::from(TokenLimit::new(1, Duration::from_millis(20)).unwrap());
    smol::block_on(async {
        let rl = Arc::new(limiter(&server).await);
        let start = SystemClock.now();
        let wait = |_| {
            let (rl, limits) = (Arc::clone(&rl), limits.clone());
            smol::spawn(async move {
                let minute = Duration::from_secs(60);
                let ann = RedisKey::encode("user:ann");
                rl.redis().token_bucket().wait(&ann, &limits, 1, minute).await.unwrap().is_allowed()
            })
        };
        let tasks: Vec<_> = (0..5).map(wait).collect();
        for task in tasks {
            assert!(task.await);
        }
        assert!(SystemClock.now() >= start + Duration::from_millis(80), "five tokens take 80 ms");
    });
}

#[test]
fn a_server_that_comes_back_is_found_again_inside_smol() {
    let server = Server::start().unwrap();
    smol::block_on(async {
        let rl = limiter(&server).await;
        let (windows, limit, ann) = (rl.redis().fixed_window(), limit(), RedisKey::try_from("ann").unwrap());
        assert!(windows.take(&ann, &limit, 1).await.unwrap().is_allowed());
        server.restart().unwrap();
        // Only time restores the connection, so the test retries with pauses, up to a limit.
        for _ in 0..200 {
            if let Ok(decision) = windows.take(&ann, &limit, 1).await {
                return assert_eq!(decision.remaining(), 9, "the server started empty");
            }
            smol::Timer::after(Duration::from_millis(25)).await;
        }
        unreachable!("no call succeeded");
    });
}
