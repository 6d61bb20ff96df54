//! Continuous takes while servers come and go, and their results.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use trypema::clock::{Clock, SystemClock};
use trypema::redis::RedisFailureKind;
use trypema::{AbsoluteLimit, RateGroupSizeMs, RateLimit, RateLimiter, TrypemaError, WindowSizeSeconds};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::wait_until;

/// The number of tasks per key: several, so that their calls share batches.
const TASKS: usize = 8;
/// The pause between the calls of a task, so that failing calls do not spin.
const PACE: Duration = Duration::from_millis(1);

/// Tasks that take single units from several keys until they are stopped.
pub(crate) struct Load {
    tallies: Vec<Arc<Tally>>,
    tasks: Vec<JoinHandle<()>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_stopped: AtomicBool,
    /// Counts the actions of the test, to distinguish calls before an action from calls after it.
    era: AtomicU64,
}

/// The results of one task's calls.
struct Tally {
    key: String,
    admitted: AtomicU64,
    unknown: AtomicU64,
    /// The latest era in which a call started that succeeded.
    succeeded_in: AtomicU64,
    failures: Mutex<BTreeSet<String>>,
}

/// The results of all calls on one key.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) admitted: u64,
    /// The number of calls that may or may not have been counted.
    pub(crate) unknown: u64,
    pub(crate) failures: BTreeSet<String>,
}

/// Far more units than a test takes, in a window that outlasts it.
pub(crate) fn wide_limit() -> AbsoluteLimit {
    AbsoluteLimit::new(
        RateLimit::try_from(100_000.0).unwrap(),
        WindowSizeSeconds::try_from(3_600).unwrap(),
        RateGroupSizeMs::try_from(1_000).unwrap(),
    )
}

/// The units that `name` has used so far.
pub(crate) fn used(rl: &RateLimiter, name: &str) -> u64 {
    let limit = wide_limit();
    let usage = wait_for(rl.redis().absolute().usage(&key(name), &limit)).unwrap();
    limit.capacity() - usage.remaining()
}

impl Load {
    /// Starts the tasks and waits until each has succeeded once.
    pub(crate) fn start(rl: &Arc<RateLimiter>, keys: &[&str]) -> Self {
        let state = Arc::new(State::default());
        let tally = |name: &&str| {
            Arc::new(Tally {
                key: (*name).to_owned(),
                admitted: AtomicU64::new(0),
                unknown: AtomicU64::new(0),
                succeeded_in: AtomicU64::new(0),
                failures: Mutex::default(),
            })
        };
        let tallies: Vec<_> = keys.iter().flat_map(|name| (0..TASKS).map(move |_| name)).map(tally).collect();
        let spawn = |tally: &Arc<Tally>| {
            let (rl, tally, state) = (Arc::clone(rl), Arc::clone(tally), Arc::clone(&state));
            runtime().spawn(async move { tally.take_until_stopped(&rl, &state).await })
        };
        let tasks = tallies.iter().map(spawn).collect();
        let load = Self { tallies, tasks, state };
        load.until_all_succeed();
        load
    }

    /// Waits until every task has succeeded with a call that started after this one. Returns the time that
    /// took.
    pub(crate) fn until_all_succeed(&self) -> Duration {
        let era = self.state.era.fetch_add(1, Ordering::SeqCst) + 1;
        let started = SystemClock.now();
        let succeeded = |tally: &Arc<Tally>| tally.succeeded_in.load(Ordering::SeqCst) >= era;
        wait_until("calls to succeed again", || self.tallies.iter().all(succeeded)).unwrap();
        Duration::from_micros(SystemClock.now().as_micros() - started.as_micros())
    }

    /// Ends each task after its current call.
    pub(crate) fn stop(self) -> Stopped {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        self.tasks.into_iter().for_each(|task| wait_for(task).unwrap());
        Stopped(self.tallies)
    }
}

/// The final results.
pub(crate) struct Stopped(Vec<Arc<Tally>>);

impl Stopped {
    pub(crate) fn outcome(&self, name: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for tally in self.0.iter().filter(|tally| tally.key == name) {
            outcome.admitted += tally.admitted.load(Ordering::SeqCst);
            outcome.unknown += tally.unknown.load(Ordering::SeqCst);
            outcome.failures.append(&mut tally.failures.lock().unwrap());
        }
        assert!(outcome.admitted > 0, "{name} was never taken");
        outcome
    }
}

impl Tally {
    async fn take_until_stopped(&self, rl: &RateLimiter, state: &State) {
        let (name, limit) = (key(&self.key), wide_limit());
        while !state.is_stopped.load(Ordering::SeqCst) {
            let era = state.era.load(Ordering::SeqCst);
            match rl.redis().absolute().take(&name, &limit, 1).await {
                Ok(decision) => {
                    assert!(decision.is_allowed());
                    self.admitted.fetch_add(1, Ordering::SeqCst);
                    self.succeeded_in.store(era, Ordering::SeqCst);
                }
                Err(TrypemaError::RedisError(failure)) => {
                    let is_known =
                        matches!(failure.kind(), RedisFailureKind::Unavailable | RedisFailureKind::Refused);
                    self.unknown.fetch_add(u64::from(!is_known), Ordering::SeqCst);
                    self.failures.lock().unwrap().insert(failure.to_string());
                }
                Err(error) => unreachable!("{error}"),
            }
            tokio::time::sleep(PACE).await;
        }
    }
}
