//! Callers that take continuously, and their results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use trypema::clock::{Clock, SystemClock};
use trypema::redis::{RedisFailureKind, RedisKey};
use trypema::{AbsoluteLimit, Check, Limit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{runtime, wait_for};
use trypema_testkit::redis::wait_until;

/// More callers than concurrent script calls, so that some share a batch.
pub(crate) const CALLERS: usize = 12;

/// The pause after each call, so that failing calls do not spin: the tests share few processors.
const PACE: Duration = Duration::from_millis(1);

/// The number of successful calls per caller after which it counts as served.
const SERVED: u64 = 10;

/// The number of calls by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) unavailable: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) bad_replies: u64,
    /// Calls that had not returned after their deadline and the allowance.
    hung: u64,
}

impl Counts {
    pub(crate) fn failed(&self) -> u64 {
        self.unavailable + self.unknown + self.refused + self.bad_replies
    }

    /// Asserts that no call failed.
    pub(crate) fn assert_all_admitted(&self) {
        assert_eq!(*self, Self { admitted: self.admitted, ..Self::default() });
    }

    /// Asserts that some calls failed and that all of them are known to be unspent.
    pub(crate) fn assert_known_unspent(&self) {
        assert!(self.failed() > 0, "{self:?}");
        assert_eq!((self.unknown, self.bad_replies), (0, 0), "{self:?}");
    }

    /// Asserts that some calls failed, none of them by a reply of the server.
    pub(crate) fn assert_unanswered(&self) {
        assert!(self.failed() > 0, "{self:?}");
        assert_eq!((self.refused, self.bad_replies), (0, 0), "{self:?}");
    }

    fn add(&mut self, result: &Result<bool, TrypemaError>) {
        match result {
            Ok(true) => self.admitted += 1,
            Ok(false) => panic!("the limit is never reached, and a failure is no denial"),
            Err(TrypemaError::RedisError(failure)) => match failure.kind() {
                RedisFailureKind::Unavailable => self.unavailable += 1,
                RedisFailureKind::OutcomeUnknown => self.unknown += 1,
                RedisFailureKind::Refused => self.refused += 1,
                RedisFailureKind::BadReply => self.bad_replies += 1,
                other => panic!("a kind that no row knows: {other}"),
            },
            Err(other) => panic!("not a failure of Redis: {other}"),
        }
    }
}

/// The limit that every caller takes from, one unit at a time.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) rl: Arc<RateLimiter>,
    pub(crate) key: RedisKey,
    pub(crate) limit: AbsoluteLimit,
    /// A call that takes longer than this counts as hung.
    pub(crate) patience: Duration,
}

impl Target {
    /// Takes one unit by one of the operations that spend. Returns whether it was admitted.
    pub(crate) async fn take(&self, verb: usize) -> Result<bool, TrypemaError> {
        let Self { rl, key, limit, .. } = self;
        let limiter = rl.redis().absolute();
        Ok(match verb % 4 {
            0 => limiter.take_with_receipt(key, limit, 1).await?.decision.is_allowed(),
            1 => {
                let limit = Limit::from(*limit);
                let check = Check::new(key.as_str(), &limit, 1);
                rl.redis().take_all(&[check]).await?.is_allowed
            }
            _ => limiter.take(key, limit, 1).await?.is_allowed(),
        })
    }

    async fn call(&self, verb: usize, counts: &Mutex<Counts>) {
        let start = SystemClock.now();
        let result = tokio::time::timeout(2 * self.patience, self.take(verb)).await;
        let is_late = SystemClock.now() > start + self.patience;
        let mut counts = counts.lock().unwrap();
        counts.hung += u64::from(is_late || result.is_err());
        if let Ok(result) = &result {
            counts.add(result);
        }
    }
}

/// Makes about `calls` calls with all callers concurrently. Asserts that none takes too long.
pub(crate) fn calls(target: &Target, calls: usize) -> Counts {
    let counts = Arc::new(Mutex::default());
    let caller = |verb| {
        let (target, counts) = (target.clone(), Arc::clone(&counts));
        runtime().spawn(async move {
            for _ in 0..calls / CALLERS {
                target.call(verb, &counts).await;
                tokio::task::yield_now().await;
            }
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    callers.into_iter().for_each(|caller| wait_for(caller).unwrap());
    let counts = *counts.lock().unwrap();
    assert_eq!(counts.hung, 0, "calls that took too long: {counts:?}");
    counts
}

/// Callers that run until they are stopped.
pub(crate) struct Load {
    counts: Arc<Mutex<Counts>>,
    is_over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the callers and waits until all are served.
    pub(crate) fn start(target: &Target) -> Self {
        let (counts, is_over) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let caller = |verb| {
            let (target, counts, is_over) = (target.clone(), Arc::clone(&counts), Arc::clone(&is_over));
            runtime().spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    target.call(verb, &counts).await;
                    tokio::time::sleep(PACE).await;
                }
            })
        };
        let callers = (0..CALLERS).map(caller).collect();
        let load = Self { counts, is_over, callers };
        load.wait_until_served();
        load
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }

    /// Waits until calls are admitted (again).
    pub(crate) fn wait_until_served(&self) {
        let before = self.counts().admitted;
        let goal = before + SERVED * CALLERS as u64;
        self.wait_until("calls to be served", |counts| counts.admitted >= goal);
    }

    /// Waits until a number of further calls have failed.
    pub(crate) fn wait_until_failing(&self) {
        let goal = self.counts().failed() + SERVED * CALLERS as u64;
        self.wait_until("calls to fail", |counts| counts.failed() >= goal);
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(Counts) -> bool) {
        let result = wait_until(what, || is_so(self.counts()));
        result.unwrap_or_else(|error| panic!("{error}: {:?}", self.counts()));
    }

    /// Ends the load. Asserts that no caller panicked and no call took too long.
    pub(crate) fn finish(self) -> Counts {
        self.is_over.store(true, Ordering::Relaxed);
        for caller in self.callers {
            wait_for(caller).unwrap();
        }
        let counts = *self.counts.lock().unwrap();
        println!("{counts:?}");
        assert_eq!(counts.hung, 0, "calls that took too long: {counts:?}");
        counts
    }
}
