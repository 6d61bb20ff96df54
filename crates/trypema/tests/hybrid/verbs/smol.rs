//! The hybrid provider inside smol.

use std::time::Duration;

use trypema::redis::RedisConnection;
use trypema::{FixedWindowLimit, RateLimiter};
use trypema_testkit::blocking::key;
use trypema_testkit::redis::Server;

#[test]
fn leases_are_spent_refilled_and_released_inside_smol() {
    let server = Server::start().unwrap();
    let (limit, ann) =
        (FixedWindowLimit::new(10_000, Duration::from_secs(366 * 86_400)).unwrap(), key("ann"));
    smol::block_on(async {
        let connection = RedisConnection::connect(&server.url()).await.unwrap();
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
