//! Many leased keys, with callers that call again as soon as their call returns.

use std::sync::Arc;
use std::time::Duration;

use trypema::redis::{RedisConnection, RedisKey};
use trypema::{AbsoluteLimit, RateLimiter};
use trypema_testkit::redis::Server;

use super::fleet::script_calls;

const IN_FLIGHT: usize = 64;
/// Few enough that each key is called several times per interval (429 ms) even on a slow machine. `cargo
/// xtask bench hybrid` uses 10,000.
const KEYS: usize = 500;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq)]
enum Provider {
    Hybrid,
    Redis,
}

/// Redis script calls per call, measured after the same number of calls for warm-up.
async fn script_calls_per_call(provider: Provider, calls: usize) -> f64 {
    let server = Server::start().unwrap();
    let connection = RedisConnection::connect(&server.url()).await.unwrap();
    let builder = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(10));
    let rl = Arc::new(builder.build().unwrap());
    if provider == Provider::Hybrid {
        tokio::spawn(rl.hybrid().keep_in_sync());
    }
    let mut counts = [0; 2];
    for count in &mut counts {
        let callers =
            (0..IN_FLIGHT).map(|caller| tokio::spawn(call(Arc::clone(&rl), provider, caller..calls)));
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        *count = script_calls(&server);
    }
    (counts[1] - counts[0]) as f64 / calls as f64
}

/// Makes every 64th call of `calls`, one after the other.
async fn call(rl: Arc<RateLimiter>, provider: Provider, calls: std::ops::Range<usize>) {
    let limit = AbsoluteLimit::per_window(1_000_000_000, WINDOW).unwrap();
    for number in calls.step_by(IN_FLIGHT) {
        let key = RedisKey::try_from(format!("key_{}", number % KEYS)).unwrap();
        let decision = match provider {
            Provider::Hybrid => rl.hybrid().absolute().take(&key, &limit, 1).await,
            Provider::Redis => rl.redis().absolute().take(&key, &limit, 1).await,
        };
        assert!(decision.unwrap().is_allowed());
        if number % 1_024 < IN_FLIGHT {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_keys_need_a_quarter_of_the_script_calls_of_the_redis_provider() {
    let redis = script_calls_per_call(Provider::Redis, 20_000).await;
    let hybrid = script_calls_per_call(Provider::Hybrid, 1_000_000).await;
    println!("script calls per call: hybrid {hybrid:.4}, redis {redis:.4}");
    assert!(hybrid <= 0.25 * redis, "{hybrid} beside {redis}");
}
