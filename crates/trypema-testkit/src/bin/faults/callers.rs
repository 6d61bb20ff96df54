//! Tasks that call Redis in a loop and measure the duration of each call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use trypema::clock::{Clock, SystemClock, Timestamp};
use trypema::redis::RedisKey;
use trypema::{FixedWindowLimit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, runtime, wait_for};
use trypema_testkit::redis::wait_until;

use super::Seen;

/// The number of callers: more than the number of batches in flight.
const CALLERS: usize = 8;

/// The library's default deadline.
const DEADLINE: Duration = Duration::from_millis(50);

/// The delay between two calls of one caller, so that all callers together do not saturate a small machine.
const PACE: Duration = Duration::from_millis(1);

/// Running callers.
pub(crate) struct Callers {
    log: Arc<Log>,
    tasks: Vec<JoinHandle<()>>,
}

struct Log {
    rl: RateLimiter,
    key: RedisKey,
    limit: FixedWindowLimit,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    seen: Seen,
    /// The time at which the fault ended.
    healed: Option<Timestamp>,
    /// Whether each caller has been served since the fault ended.
    served: [bool; CALLERS],
    /// Whether each caller has been served at all.
    started: [bool; CALLERS],
    is_over: bool,
}

impl Callers {
    /// Starts the callers and waits until all have been served.
    pub(crate) fn start(url: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let rl = RateLimiter::builder().redis(connect(url)).redis_deadline(DEADLINE).build()?;
        let log = Arc::new(Log {
            rl,
            key: RedisKey::try_from("ann")?,
            limit: FixedWindowLimit::new(1 << 40, Duration::from_secs(86_400))?,
            progress: Mutex::default(),
        });
        let caller = |number| {
            let log = Arc::clone(&log);
            runtime().spawn(async move {
                while !log.progress().is_over {
                    log.call(number).await;
                    tokio::time::sleep(PACE).await;
                }
            })
        };
        let tasks = (0..CALLERS).map(caller).collect();
        wait_until("calls to be served", || log.progress().started == [true; CALLERS])?;
        // Exclude the first calls, which also set up connections.
        log.progress().seen = Seen::default();
        Ok(Self { log, tasks })
    }

    /// Marks the end of the fault, and waits until every caller is served again.
    pub(crate) fn finish_when_served(self) -> Result<Seen, Box<dyn std::error::Error>> {
        self.log.progress().healed = Some(SystemClock.now());
        wait_until("calls to be served again", || self.log.progress().served == [true; CALLERS])?;
        self.log.progress().is_over = true;
        for task in self.tasks {
            wait_for(task)?;
        }
        Ok(self.log.progress().seen)
    }
}

impl Log {
    async fn call(&self, caller: usize) {
        let start = SystemClock.now();
        let result = self.rl.redis().fixed_window().take(&self.key, &self.limit, 1).await;
        let end = SystemClock.now();
        self.progress().add(caller, [start, end], &result.map(|_| ()));
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn add(&mut self, caller: usize, [start, end]: [Timestamp; 2], result: &Result<(), TrypemaError>) {
        self.seen.calls += 1;
        self.seen.lateness = self.seen.lateness.max(between(start, end).saturating_sub(DEADLINE));
        if result.is_err() {
            self.seen.failed += 1;
            return;
        }
        self.started[caller] = true;
        if let Some(healed) = self.healed.filter(|healed| start >= *healed && !self.served[caller]) {
            self.served[caller] = true;
            self.seen.recovery = self.seen.recovery.max(between(healed, end));
        }
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(to.as_micros().saturating_sub(from.as_micros()))
}
