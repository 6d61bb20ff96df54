//! Instances that share a Redis and a manual clock, and callers that wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use trypema::clock::{Clock, ManualClock, Timestamp};
use trypema::redis::RedisKey;
use trypema::strategy::{Strategy, TokenBucket};
use trypema::{Decision, RateLimiter, RateLimiterBuilder, TokenBucketLimits, TokenLimit, WaitError};
use trypema_testkit::blocking::{connect, key, limiter, runtime, wait_for};
use trypema_testkit::redis::Server;
use trypema_testkit::subject::HybridStrategy;

pub(crate) const WINDOW: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const TENTH: Duration = Duration::from_millis(100);
pub(crate) const MICROSECOND: Duration = Duration::from_micros(1);

/// The result of a wait.
pub(crate) type Waited = Result<Decision, WaitError>;

/// A provider with `take` and `wait`.
pub(crate) trait Provider: Sync + 'static {
    fn take<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit, cost: u64) -> Decision;

    /// Waits until admitted. The future is `Send` for every strategy.
    fn wait<'a, S: HybridStrategy>(
        rl: &'a RateLimiter,
        key: &'a RedisKey,
        limit: &'a S::Limit,
        cost: u64,
        patience: Duration,
    ) -> impl Future<Output = Waited> + Send + 'a;

    /// The number of callers that wait for token buckets.
    fn waiters(rl: &RateLimiter) -> usize;

    /// Waits for `cost` units of ann in a new task.
    fn spawn<S: HybridStrategy>(
        rl: &Arc<RateLimiter>,
        limit: &S::Limit,
        cost: u64,
        patience: Duration,
    ) -> JoinHandle<Waited> {
        let (rl, limit) = (Arc::clone(rl), limit.clone());
        runtime().spawn(async move { Self::wait::<S>(&rl, &key("ann"), &limit, cost, patience).await })
    }
}

pub(crate) struct Redis;

impl Provider for Redis {
    fn take<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit, cost: u64) -> Decision {
        S::core(&wait_for(S::redis(rl).take(&key("ann"), limit, cost)).unwrap())
    }

    async fn wait<'a, S: HybridStrategy>(
        rl: &'a RateLimiter,
        key: &'a RedisKey,
        limit: &'a S::Limit,
        cost: u64,
        patience: Duration,
    ) -> Waited {
        S::redis(rl).wait(key, limit, cost, patience).await.map(|decision| S::core(&decision))
    }

    fn waiters(rl: &RateLimiter) -> usize {
        format!("{:?}", rl.redis().token_bucket()).matches("Waiter {").count()
    }
}

pub(crate) struct Hybrid;

impl Provider for Hybrid {
    fn take<S: HybridStrategy>(rl: &RateLimiter, limit: &S::Limit, cost: u64) -> Decision {
        S::core(&wait_for(S::hybrid(rl).take(&key("ann"), limit, cost)).unwrap())
    }

    async fn wait<'a, S: HybridStrategy>(
        rl: &'a RateLimiter,
        key: &'a RedisKey,
        limit: &'a S::Limit,
        cost: u64,
        patience: Duration,
    ) -> Waited {
        S::hybrid(rl).wait(key, limit, cost, patience).await.map(|decision| S::core(&decision))
    }

    fn waiters(rl: &RateLimiter) -> usize {
        Redis::waiters(rl)
    }
}

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) clock: Arc<ManualClock>,
}

impl Scene {
    pub(crate) fn start() -> Self {
        Self { server: Server::start().unwrap(), clock: Arc::new(ManualClock::default()) }
    }

    pub(crate) fn building(&self) -> RateLimiterBuilder {
        limiter(&connect(&self.server.url()), "trypema", &self.clock)
    }

    /// An instance with its own connection.
    pub(crate) fn instance(&self) -> Arc<RateLimiter> {
        Arc::new(self.building().build().unwrap())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Takes all of ann's units. Returns the wait for the next one.
    pub(crate) fn use_up<P: Provider, S: HybridStrategy>(
        &self,
        rl: &RateLimiter,
        limit: &S::Limit,
    ) -> Duration {
        loop {
            let decision = P::take::<S>(rl, limit, 1);
            if !decision.is_allowed() {
                return decision.retry_after().unwrap();
            }
        }
    }

    /// Waits until a caller sleeps that wakes before `horizon`. Returns its wake-up time.
    pub(crate) async fn asleep(&self, horizon: Timestamp) -> Timestamp {
        loop {
            match self.clock.next_wake() {
                Some(at) if at < horizon => return at,
                _ => tokio::task::yield_now().await,
            }
        }
    }

    /// Moves the clock from one wake-up to the next until `is_done`, and calls `before` with the time before
    /// each step.
    pub(crate) async fn run_until(&self, is_done: impl Fn() -> bool, mut before: impl FnMut(Timestamp)) {
        let horizon = self.now() + HOUR;
        while !is_done() {
            match self.clock.next_wake() {
                Some(at) if at < horizon => {
                    before(self.now());
                    self.clock.set(at);
                }
                _ => tokio::task::yield_now().await,
            }
        }
    }

    /// The number of script calls that Redis has executed.
    pub(crate) fn calls(&self) -> u64 {
        let info = self.server.info("commandstats").unwrap();
        let calls = |command: &str| {
            let mut parts = info.text(command).split(',');
            parts.find_map(|part| part.strip_prefix("calls=")?.parse::<u64>().ok()).unwrap_or(0)
        };
        // An unknown script is sent again with `EVAL`, so the two numbers overlap.
        calls("cmdstat_eval").max(calls("cmdstat_evalsha"))
    }

    /// Every state in Redis, except the lists of instances.
    pub(crate) fn dump(&self) -> Vec<(String, Vec<u8>)> {
        let mut control = self.server.control().unwrap();
        let names = control.command(&["KEYS", "*"]).unwrap();
        let mut names: Vec<String> = names.items().iter().map(|name| name.text()).collect();
        names.retain(|name| !name.ends_with(":instances"));
        names.sort();
        let mut get = |name: String| {
            let state = control.command(&["GET", &name]).unwrap().bytes().to_vec();
            (name, state)
        };
        names.into_iter().map(&mut get).collect()
    }
}

/// A bucket of `capacity` tokens that refills one each tenth of a second.
pub(crate) fn tenths(capacity: u32) -> TokenBucketLimits {
    TokenBucketLimits::from(TokenLimit::new(u64::from(capacity), TENTH * capacity).unwrap())
}

/// The order in which waiters were admitted.
#[derive(Default)]
pub(crate) struct Admitted(Mutex<Vec<usize>>);

impl Admitted {
    pub(crate) fn push(&self, waiter: usize) {
        self.0.lock().unwrap().push(waiter);
    }

    pub(crate) fn order(&self) -> Vec<usize> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Spawns callers that wait for a token, one after the other, and records each admission.
    pub(crate) fn spawn_in_order<P: Provider>(
        self: &Arc<Self>,
        rl: &Arc<RateLimiter>,
        limits: &TokenBucketLimits,
        count: usize,
    ) -> Vec<JoinHandle<()>> {
        let spawn = |waiter| {
            let (admitted, waiting) = (Arc::clone(self), Arc::clone(rl));
            let limits = limits.clone();
            let task = runtime().spawn(async move {
                P::wait::<TokenBucket>(&waiting, &key("ann"), &limits, 1, HOUR).await.unwrap();
                admitted.push(waiter);
            });
            while P::waiters(rl) <= waiter {
                std::thread::yield_now();
            }
            task
        };
        (0..count).map(spawn).collect()
    }
}

/// The remaining tokens of ann.
pub(crate) fn left(rl: &RateLimiter, limits: &TokenBucketLimits) -> u64 {
    let usage = wait_for(rl.redis().token_bucket().usage(&key("ann"), limits)).unwrap();
    TokenBucket::core(&usage).remaining()
}
