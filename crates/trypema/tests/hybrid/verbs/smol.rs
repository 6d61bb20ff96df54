//! The hybrid provider on the smol runtime.

use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::{FixedWindowLimit, RateLimiter, TokenBucketLimits, TokenLimit};
use trypema_testkit::blocking::{dial, key};
use trypema_testkit::redis::Server;

#[test]
fn waiters_are_admitted_one_after_another_inside_smol() {
    let server = Server::start().unwrap();
    let limits = TokenBucketLimits::from(TokenLimit::new(1, Duration::from_millis(20)).unwrap());
    smol::block_on(async {
        let connection = dial(&server.url()).await;
        let builder = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(20));
        let rl = builder.build().unwrap();
        let (start, minute) = (SystemClock.now(), Duration::from_secs(60));
        for _ in 0..3 {
            let waited = rl.hybrid().token_bucket().wait(&key("ann"), &limits, 1, minute).await;
            assert!(waited.unwrap().is_allowed());
        }
        assert!(SystemClock.now() >= start + Duration::from_millis(40), "three tokens take 40 ms");
    });
}

#[test]
fn leases_are_spent_refilled_and_released_inside_smol() {
    let server = Server::start().unwrap();
    let (limit, ann) =
        (FixedWindowLimit::new(10_000, Duration::from_secs(366 * 86_400)).unwrap(), key("ann"));
    smol::block_on(async {
        let connection = dial(&server.url()).await;
        let builder = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(20));
        let rl = builder.build().unwrap();
        let running = smol::spawn(rl.hybrid().keep_in_sync());
        let windows = rl.hybrid().fixed_window();
        let mut here = 0_u64;
        for _ in 0..2_000 {
            match windows.try_take(&ann, &limit, 1) {
                Some(decision) => {
                    here += 1;
                    assert!(decision.is_allowed());
                }
                None => assert!(windows.take(&ann, &limit, 1).await.unwrap().is_allowed()),
            }
        }
        assert!(here > 1_000, "only {here} of 2,000 were decided here");
        rl.hybrid().release().await;
        assert_eq!(rl.redis().fixed_window().usage(&ann, &limit).await.unwrap().remaining(), 8_000);
        drop(rl);
        running.await;
    });
}
