//! Two instances share one limit through Redis. Together they never exceed it.
//!
//! ```text
//! cargo run --example redis                            # redis://127.0.0.1, or REDIS_URL, or REDIS_PORT of this machine
//! cargo run --example redis -- redis://10.0.0.7:6379
//! ```

mod redis_address;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use trypema::clock::{Clock, SystemClock};
use trypema::redis::{RedisConnection, RedisKey};
use trypema::{AbsoluteLimit, RateGroupSizeMs, RateLimit, RateLimiter, TrypemaError, WindowSizeSeconds};

const INSTANCES: usize = 2;
const TASKS: usize = 4;
const CALLS: usize = 100;
const WINDOW_SECONDS: u64 = 10;
const CALLS_PER_SECOND: f64 = 10.0;

/// The results of one task.
#[derive(Default)]
struct Tally {
    admitted: usize,
    denied: usize,
    shortest_wait: Option<Duration>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&redis_address::chosen()).await {
        Ok(is_within_limit) if is_within_limit => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(TrypemaError::RedisError(failure)) => {
            // The URL may contain a password, so it is not printed.
            eprintln!("Redis is unreachable: {failure}");
            eprintln!("Start one (redis-server), or give its address: --example redis -- redis://host:port");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all instances at the same time. Returns whether they stayed within the limit.
async fn run(url: &str) -> Result<bool, TrypemaError> {
    let limit = AbsoluteLimit::new(
        RateLimit::try_from(CALLS_PER_SECOND)?,
        WindowSizeSeconds::try_from(WINDOW_SECONDS)?,
        RateGroupSizeMs::try_from(10)?,
    );
    // A new key for each run, so that earlier runs do not count.
    let key = RedisKey::encode(format!("example:{}", SystemClock.now().as_micros()));

    let mut tasks: JoinSet<Result<(usize, Tally), TrypemaError>> = JoinSet::new();
    for instance in 0..INSTANCES {
        // In production, each instance is a separate process. The instances share nothing but Redis.
        let connection = RedisConnection::connect(url).await?;
        // Longer than the default of 50 ms, which suits a server that must respond quickly.
        let deadline = Duration::from_secs(1);
        let rl = Arc::new(RateLimiter::builder().redis(connection).redis_deadline(deadline).build()?);
        for _ in 0..TASKS {
            let (rl, key) = (Arc::clone(&rl), key.clone());
            tasks.spawn(async move { Ok((instance, call(&rl, &key, &limit).await?)) });
        }
    }

    let mut tallies: Vec<Tally> = (0..INSTANCES).map(|_| Tally::default()).collect();
    for finished in tasks.join_all().await {
        let (instance, tally) = finished?;
        tallies[instance].add(&tally);
    }
    Ok(report(&tallies))
}

/// Runs one task, which takes one unit at a time.
async fn call(rl: &RateLimiter, key: &RedisKey, limit: &AbsoluteLimit) -> Result<Tally, TrypemaError> {
    let mut tally = Tally::default();
    for _ in 0..CALLS {
        let decision = rl.redis().absolute().take(key, limit, 1).await?;
        if decision.is_allowed() {
            tally.admitted += 1;
        } else {
            tally.denied += 1;
            tally.note_wait(decision.retry_after());
        }
    }
    Ok(tally)
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.admitted += other.admitted;
        self.denied += other.denied;
        self.note_wait(other.shortest_wait);
    }

    fn note_wait(&mut self, wait: Option<Duration>) {
        self.shortest_wait = [self.shortest_wait, wait].into_iter().flatten().min();
    }
}

fn report(tallies: &[Tally]) -> bool {
    let capacity = CALLS_PER_SECOND as usize * WINDOW_SECONDS as usize;
    println!(
        "limit: {capacity} calls in any {WINDOW_SECONDS} s, shared by {INSTANCES} instances of {TASKS} tasks\n"
    );
    let mut together = Tally::default();
    for (instance, tally) in tallies.iter().enumerate() {
        println!("instance {}: {:>3} admitted, {:>3} denied", instance + 1, tally.admitted, tally.denied);
        together.add(tally);
    }
    println!("together:   {:>3} admitted, {:>3} denied", together.admitted, together.denied);
    if let Some(wait) = together.shortest_wait {
        println!("\nshortest wait of a denied request: {} ms", wait.as_millis());
    }
    together.admitted <= capacity
}
