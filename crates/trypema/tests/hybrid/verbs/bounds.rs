//! All state is bounded: keys in Redis expire, and the table in memory has a fixed capacity.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use trypema::strategy::Abuse;
use trypema::{AbuseLimit, AbuseTier, RateLimiter};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::redis::{Control, Server};
use trypema_testkit::subject::HybridStrategy;

use super::counting_allocator::live_bytes;
use super::scene::{SYNC, Scene, WINDOW, call_until_leased, release, take};

/// The names of all keys in Redis, each with its time to live in milliseconds.
fn times_to_live(control: &mut Control) -> Vec<(String, i64)> {
    let names = control.command(&["KEYS", "*"]).unwrap();
    let of = |name: &trypema_testkit::redis::Reply| {
        let ttl = control.command(&[b"PTTL".as_slice(), name.bytes()]).unwrap();
        (name.text(), ttl.integer().unwrap())
    };
    names.items().iter().map(of).collect()
}

#[test]
fn every_key_in_redis_has_a_time_to_live() {
    fn has<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, other, limit) = (scene.instance(), scene.instance(), S::limit(100, WINDOW));
        let mut control = scene.server.control().unwrap();
        let all_die = |control: &mut Control, least: usize, after: &str| {
            let keys = times_to_live(control);
            assert!(keys.len() >= least, "{} after {after}: {keys:?}", S::NAME);
            assert!(keys.iter().all(|(_, ttl)| *ttl > 0), "{} after {after}: {keys:?}", S::NAME);
        };
        call_until_leased::<S>(&rl, "ann", &limit);
        all_die(&mut control, 2, "a lease");
        let receipt =
            wait_for(S::hybrid(&rl).take_with_receipt(&key("ann"), &limit, 1)).unwrap().receipt.unwrap();
        call_until_leased::<S>(&other, "ann", &limit);
        scene.clock.advance(SYNC * 2);
        wait_for(S::hybrid(&rl).refund(&key("ann"), &limit, &receipt)).unwrap();
        take::<S>(&rl, "ann", &limit, 200);
        take::<S>(&other, "ann", &limit, 10);
        all_die(&mut control, 2, "refunds and denials");
        wait_for(S::hybrid(&other).reset(&key("ann"))).unwrap();
        all_die(&mut control, 1, "a reset");
        call_until_leased::<S>(&rl, "ann", &limit);
        release(&rl);
        release(&other);
        all_die(&mut control, 1, "a release");
    }

    for_every_leased!(has);
}

/// The number of distinct keys in the test. An instance keeps at most 65,536 per strategy.
const HOSTILE_KEYS: usize = 200_000;
const AT_ONCE: usize = 2_000;

/// Attempts of keys that are each used once and blocked immediately do not accumulate in memory.
#[test]
fn hostile_keys_do_not_grow_the_table_beyond_its_bound() {
    let server = Server::start().unwrap();
    let tier = AbuseTier::new(Duration::from_secs(600), 1, Duration::from_secs(600)).unwrap();
    let limit = AbuseLimit::new(tier, tier);
    // A current-thread runtime, because allocations are counted per thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (filled, after) = runtime.block_on(async {
        let connection = trypema_testkit::blocking::dial(&server.url()).await;
        let builder = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(60));
        let rl = Arc::new(builder.build().unwrap());
        let mut filled = 0;
        for batch in 0..HOSTILE_KEYS / AT_ONCE {
            if batch * AT_ONCE == HOSTILE_KEYS / 2 {
                filled = live_bytes();
            }
            attack(&rl, limit, batch).await;
        }
        (filled, live_bytes())
    });
    let grown = after - filled;
    // The second half of the keys needs no memory beyond buffers.
    assert!(grown < 2 << 20, "{grown} bytes more after the second half, on {filled}");
}

async fn attack(rl: &Arc<RateLimiter>, limit: AbuseLimit, batch: usize) {
    let mut attempts = JoinSet::new();
    for index in 0..AT_ONCE {
        let (rl, hostile) = (Arc::clone(rl), key(&format!("hostile {batch} {index}")));
        attempts
            .spawn(async move { Abuse::hybrid(&rl).take(&hostile, &limit, 1).await.unwrap().is_allowed() });
    }
    assert!(!attempts.join_all().await.into_iter().any(|is_allowed| is_allowed));
}
