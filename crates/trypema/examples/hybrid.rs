//! Four instances share one limit. Few requests reach Redis, and together the instances never exceed the
//! limit.
//!
//! ```text
//! cargo run --release --example hybrid                            # redis://127.0.0.1, or REDIS_URL, or REDIS_PORT of this machine
//! cargo run --release --example hybrid -- redis://10.0.0.7:6379
//! ```

mod redis_address;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use trypema::clock::{Clock, SystemClock};
use trypema::redis::{RedisConnection, RedisKey};
use trypema::{AbsoluteLimit, RateLimiter, TrypemaError};

const INSTANCES: u64 = 4;
/// The limit of all instances together, in any window.
const LIMIT: u64 = 40_000;
const WINDOW: Duration = Duration::from_secs(2);
/// The rate of each instance. All instances together offer twice the limit.
const CALLS_PER_SECOND: u64 = 10_000;
const LASTING: Duration = Duration::from_secs(6);
/// The interval between two groups of requests.
const TICK: Duration = Duration::from_millis(5);

/// The start and the end of an admitted call, in microseconds. The decision was made in between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Admitted {
    began: u64,
    ended: u64,
}

/// The results of one instance.
struct Tally {
    admitted: Vec<Admitted>,
    calls: u64,
    leases: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&redis_address::chosen()).await {
        Ok(is_within_limit) if is_within_limit => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            // The URL may contain a password, so it is not printed.
            eprintln!("{error}");
            eprintln!("Start one (redis-server), or give its address: --example hybrid -- redis://host:port");
            ExitCode::FAILURE
        }
    }
}

/// Runs all instances at the same time. Returns whether they stayed within the limit.
async fn run(url: &str) -> Result<bool, TrypemaError> {
    println!(
        "limit: {LIMIT} calls in any {WINDOW:?}, shared by {INSTANCES} instances of {CALLS_PER_SECOND} calls a second\n"
    );
    // A new key for each run, so that earlier runs do not count.
    let key = RedisKey::encode(format!("example:{}", SystemClock.now().as_micros()));
    let mut tasks = JoinSet::new();
    for _ in 0..INSTANCES {
        // In production, each instance is a separate process. The instances share nothing but Redis.
        let connection = RedisConnection::connect(url).await?;
        let rl = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(1)).build()?;
        tasks.spawn(call(Arc::new(rl), key.clone()));
    }
    let tallies: Result<Vec<Tally>, TrypemaError> = tasks.join_all().await.into_iter().collect();
    Ok(report(&tallies?))
}

/// Runs one instance at its rate, and releases its leases at the end.
async fn call(rl: Arc<RateLimiter>, key: RedisKey) -> Result<Tally, TrypemaError> {
    tokio::spawn(rl.hybrid().keep_in_sync());
    let limit = AbsoluteLimit::per_window(LIMIT, WINDOW)?;
    let limiter = rl.hybrid().absolute();
    let mut tally = Tally { admitted: Vec::new(), calls: 0, leases: 0 };
    let (started, mut ticks) = (SystemClock.now().as_micros(), tokio::time::interval(TICK));
    loop {
        ticks.tick().await;
        let elapsed = SystemClock.now().as_micros() - started;
        if elapsed >= LASTING.as_micros() as u64 {
            break;
        }
        while tally.calls < elapsed * CALLS_PER_SECOND / 1_000_000 {
            tally.calls += 1;
            let began = SystemClock.now().as_micros();
            let decision = match limiter.try_take(&key, &limit, 1) {
                Some(decision) => decision,
                None => limiter.take(&key, &limit, 1).await?,
            };
            if decision.is_allowed() {
                tally.admitted.push(Admitted { began, ended: SystemClock.now().as_micros() });
            }
        }
    }
    rl.hybrid().release().await;
    tally.leases = rl.hybrid().stats().leases_asked;
    Ok(tally)
}

fn report(tallies: &[Tally]) -> bool {
    for (instance, tally) in tallies.iter().enumerate() {
        let (number, admitted) = (instance + 1, tally.admitted.len());
        println!(
            "instance {number}: {} calls, {admitted} admitted, {} leases requested",
            tally.calls, tally.leases
        );
    }
    let mut admitted: Vec<Admitted> =
        tallies.iter().flat_map(|tally| tally.admitted.iter().copied()).collect();
    admitted.sort_unstable();
    let surely_in_window = |(first, from): (usize, &Admitted)| {
        let end = from.began + WINDOW.as_micros() as u64;
        let last = admitted.partition_point(|call| call.began < end);
        // Calls that ended after the window may have been admitted after it.
        last - first - admitted[first..last].iter().rev().take_while(|call| call.ended >= end).count()
    };
    let most = admitted.iter().enumerate().map(surely_in_window).max().unwrap_or(0);
    println!("\nthe busiest {WINDOW:?} admitted {most} of {LIMIT}");
    most as u64 <= LIMIT
}
