//! A fleet of instances in one process, each with its own connection, and a record of the requests that it
//! admits.

use std::sync::Arc;
use std::time::Duration;

use published::RateLimiterBuilder as _;
use published::hybrid::HybridRateLimiterProvider;
use trypema::clock::{Clock, ManualClock, SystemClock};
use trypema::redis::{RedisConnection, RedisKey};
use trypema::{AbsoluteLimit, RateLimiter};

use crate::redis::{Place, floors};

/// The limiter that the fleet uses.
#[derive(Clone, Copy, PartialEq)]
pub enum Contender {
    Hybrid,
    Redis,
    Published,
}

/// A fleet and its shared limit.
#[derive(Clone, Copy)]
pub struct Fleet {
    pub contender: Contender,
    pub limit: u64,
    pub window: Duration,
}

/// The load that a fleet is offered.
#[derive(Clone, Copy)]
pub struct Load {
    pub instances: u64,
    /// The request rate of all instances together.
    pub per_second: u64,
    pub lasting: Duration,
    /// Whether one instance receives nine tenths of the requests in the first half, and another in the second
    /// half.
    pub turns: bool,
}

/// The result of a run.
pub struct Run {
    /// The admitted requests, in the order in which they began.
    pub admitted: Vec<Admitted>,
    /// The times at which requests were sent, in order, in microseconds since the start.
    pub offered: Vec<u64>,
    /// The number of script calls that Redis executed.
    pub calls: u64,
}

/// The begin and the end of an admitted request, in microseconds since the start. The decision was made in
/// between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Admitted {
    began: u64,
    ended: u64,
}

impl Run {
    /// Returns the largest number of requests that were certainly admitted within one interval of this
    /// length.
    pub fn most_in(&self, window: Duration) -> usize {
        let window = window.as_micros() as u64;
        let inside = |(first, from): (usize, &Admitted)| {
            let end = from.began + window;
            let last = self.admitted.partition_point(|call| call.began < end);
            self.admitted[first..last].iter().filter(|call| call.ended < end).count()
        };
        self.admitted.iter().enumerate().map(inside).max().unwrap_or(0)
    }

    /// Returns the number of requests that one exact limiter denies if it gets the same requests at the same times.
    pub fn denied_exactly(&self, limit: &AbsoluteLimit) -> u64 {
        let clock = Arc::new(ManualClock::default());
        let start = clock.now();
        let rl = RateLimiter::builder().clock(clock.clone()).build().expect("a limiter");
        let is_denied = |at: &&u64| {
            clock.set(start + Duration::from_micros(**at));
            !rl.local().absolute().take("fleet", limit, 1).is_allowed()
        };
        self.offered.iter().filter(is_denied).count() as u64
    }

    /// Returns the number of requests that were admitted between `start` and `start + window`.
    pub fn admitted_from(&self, start: Duration, window: Duration) -> usize {
        let place =
            |moment: Duration| self.admitted.partition_point(|call| call.began < moment.as_micros() as u64);
        place(start + window) - place(start)
    }
}

/// One instance of the fleet.
pub enum Instance {
    Ours { rl: Arc<RateLimiter>, limit: AbsoluteLimit, is_hybrid: bool },
    Published { provider: Arc<HybridRateLimiterProvider>, rate: published::RateLimit },
}

impl Contender {
    pub const ALL: [Self; 3] = [Self::Hybrid, Self::Redis, Self::Published];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hybrid => "ours: hybrid",
            Self::Redis => "ours: Redis",
            Self::Published => "published 2.2.1 hybrid",
        }
    }

    pub async fn instance(self, url: &str, (limit, window): (u64, Duration)) -> Instance {
        if self == Self::Published {
            let manager = floors::client(url).get_connection_manager().await.expect("a connection");
            let seconds = window.as_secs();
            let provider = HybridRateLimiterProvider::builder(manager)
                .window_size(published::WindowSize::seconds_or_panic(seconds))
                .bucket_size(published::BucketSize::milliseconds_or_panic(10))
                .sync_interval(published::hybrid::SyncInterval::milliseconds_or_panic(100))
                .build()
                .expect("valid options");
            let rate = published::RateLimit::per_second_or_panic(limit as f64 / seconds as f64);
            return Instance::Published { provider, rate };
        }
        let connection = RedisConnection::connect(url).await.expect("a connection");
        let builder = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(5));
        let rl = Arc::new(builder.build().expect("a limiter"));
        tokio::spawn(rl.hybrid().keep_in_sync());
        let limit = AbsoluteLimit::per_window(limit, window).expect("a limit");
        Instance::Ours { rl, limit, is_hybrid: self == Self::Hybrid }
    }
}

impl Instance {
    pub async fn check(&self) -> bool {
        match self {
            Self::Published { provider, rate } => {
                let key = published::redis::RedisKey::new_or_panic("fleet".to_owned());
                let answer = provider.absolute().inc(&key, rate, 1).await;
                matches!(answer, Ok(published::RateLimitDecision::Allowed))
            }
            Self::Ours { rl, limit, is_hybrid } => {
                let key = RedisKey::try_from("fleet").expect("a key");
                let decision = match is_hybrid {
                    true => rl.hybrid().absolute().take(&key, limit, 1).await,
                    false => rl.redis().absolute().take(&key, limit, 1).await,
                };
                decision.expect("a decision").is_allowed()
            }
        }
    }
}

impl Fleet {
    pub fn run(&self, load: Load) -> Run {
        let place = Place::new();
        let url = place.server.url();
        let mut run = place.runtime.block_on(async {
            let mut instances = Vec::new();
            for _ in 0..load.instances {
                instances.push(self.contender.instance(&url, (self.limit, self.window)).await);
            }
            let started = SystemClock.now().as_micros();
            let tasks: Vec<_> = (0..load.instances)
                .zip(instances)
                .map(|(index, instance)| tokio::spawn(offer(index, instance, load, started)))
                .collect();
            let mut all = Run { admitted: Vec::new(), offered: Vec::new(), calls: 0 };
            for task in tasks {
                let one = task.await.expect("an instance that ends");
                all.admitted.extend(one.admitted);
                all.offered.extend(one.offered);
            }
            all
        });
        run.admitted.sort_unstable();
        run.offered.sort_unstable();
        Run { calls: place.server.script_calls(), ..run }
    }
}

/// Sends one instance's requests in small groups, as many per tick as are due by the clock.
async fn offer(index: u64, instance: Instance, load: Load, started: u64) -> Run {
    let mut run = Run { admitted: Vec::new(), offered: Vec::new(), calls: 0 };
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    loop {
        ticks.tick().await;
        let elapsed = SystemClock.now().as_micros() - started;
        if elapsed >= load.lasting.as_micros() as u64 {
            return run;
        }
        let due = due(index, load, elapsed);
        while (run.offered.len() as u64) < due {
            let began = SystemClock.now().as_micros() - started;
            run.offered.push(began);
            if instance.check().await {
                run.admitted.push(Admitted { began, ended: SystemClock.now().as_micros() - started });
            }
        }
    }
}

/// Returns the number of requests that instance `index` should have sent after `elapsed` microseconds.
fn due(index: u64, load: Load, elapsed: u64) -> u64 {
    let total = |micros: u64| micros * load.per_second / 1_000_000;
    if !load.turns {
        return total(elapsed) / load.instances;
    }
    let half = load.lasting.as_micros() as u64 / 2;
    let others = (load.instances - 1).max(1);
    let of_half = |busy: u64, micros: u64| {
        if index == busy { total(micros) * 9 / 10 } else { total(micros) / 10 / others }
    };
    of_half(0, elapsed.min(half)) + of_half(1, elapsed.saturating_sub(half))
}
