//! Waiting until a take is admitted, on every provider and any executor.
//!
//! The waiters of a key queue up in each process. Only the first one watches the clock and tries again; when
//! it is done, the next one moves up. So a thousand waiters cost a few thousand takes, not a million.

mod queue;
mod sleep;

use std::future::poll_fn;
use std::time::Duration;

use thiserror::Error;

use crate::clock::{ClockSource, Timestamp};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::strategy::{Effect, Strategy};
use queue::Position;

pub(crate) use queue::{MAX_WAITERS_PER_KEY, WaitQueues};
pub(crate) use sleep::{Sleep, with_timeout};

/// The reason why a wait ended without an admission. Nothing was spent, except possibly by a call that the
/// store did not answer. Strategies that count denials have counted them.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The cost can never fit.
    #[error("the cost is above the limit and can never be admitted")]
    Never,
    /// The wait would exceed the caller's patience.
    #[error("not admitted within {patience:?}")]
    TooLong {
        /// The longest time that the caller is willing to wait.
        patience: Duration,
    },
    /// Too many callers already wait for this key.
    #[error("too many waiters: {MAX_WAITERS_PER_KEY} callers already wait for this key")]
    TooManyWaiters,
    /// The store failed, and the failure policy makes that an error.
    #[error(transparent)]
    Store(#[from] TrypemaError),
}

/// The divisor of a wait that bounds its jitter: a sixteenth is small compared with the wait itself.
const JITTER_SHARE: u32 = 16;

/// The longest jitter. It spreads ten thousand keys whose windows end together, so that one Redis server can
/// serve their requests.
const LONGEST_JITTER: Duration = Duration::from_millis(250);

/// The shortest pause between two requests to a store. It is about a round trip, so that a waiter whose wait
/// is a microsecond does not keep the store busy.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The state of one waiting caller: its patience, and the time of its next try.
#[derive(Debug)]
pub(crate) struct WaitState {
    clock: ClockSource,
    patience: Duration,
    deadline: Timestamp,
    retry_at: Timestamp,
    /// Whether other processes may wait for the same time.
    has_jitter: bool,
}

impl WaitState {
    /// Returns a caller that waits from now on, by `clock`.
    pub(crate) fn new(clock: ClockSource, patience: Duration) -> Self {
        let now = clock.now();
        Self { clock, patience, deadline: now + patience, retry_at: now, has_jitter: false }
    }

    /// Returns the same caller, with jitter added to its waits: other processes share the store, and must not
    /// all call it at once.
    #[cfg(feature = "_redis")]
    pub(crate) fn with_jitter(self) -> Self {
        Self { has_jitter: true, ..self }
    }

    /// Tries until a take is admitted: `run` takes or peeks. A caller takes immediately if no other one waits for `key` and the
    /// strategy does not count denials.
    pub(crate) async fn until_admitted<'l, S, F>(
        mut self,
        queues: &WaitQueues,
        key: &[u8],
        run: impl Fn(Effect) -> F,
    ) -> Result<S::Decision<'l>, WaitError>
    where
        S: Strategy,
        F: Future<Output = Result<S::Decision<'l>, TrypemaError>>,
    {
        if S::COUNTS_DENIALS || queues.is_waiting(key) {
            self.schedule_retry(&S::core(&run(Effect::Peek).await?))?;
        } else {
            let decision = run(Effect::Take).await?;
            if S::core(&decision).is_allowed() {
                return Ok(decision);
            }
            self.schedule_retry(&S::core(&decision))?;
        }
        let _position = self.wait_for_turn(queues, key).await?;
        loop {
            self.sleep().await;
            let decision = run(Effect::Take).await?;
            if S::core(&decision).is_allowed() {
                return Ok(decision);
            }
            self.schedule_retry(&S::core(&decision))?;
        }
    }

    /// Schedules the next try after `decision`. Fails if the cost never fits, or fits only after the
    /// deadline.
    fn schedule_retry(&mut self, decision: &Decision) -> Result<(), WaitError> {
        let now = self.clock.now();
        self.retry_at = now;
        if decision.is_allowed() {
            return Ok(());
        }
        let wait = decision.retry_after().ok_or(WaitError::Never)?;
        let earliest = now + wait;
        // At the largest timestamp, a clock cannot advance: the wait would never end.
        if earliest > self.deadline || earliest == now {
            return Err(self.too_long());
        }
        self.retry_at = if self.has_jitter {
            let jitter = crate::jitter::below((wait / JITTER_SHARE).min(LONGEST_JITTER));
            (earliest + jitter).max(now + SHORTEST_PAUSE).min(self.deadline)
        } else {
            earliest
        };
        Ok(())
    }

    /// Queues up for `key`, and waits until this caller is the first. Dropping the returned position lets the
    /// next one move up.
    async fn wait_for_turn<'q>(&self, queues: &'q WaitQueues, key: &[u8]) -> Result<Position<'q>, WaitError> {
        let position = queues.join(key)?;
        let turn = poll_fn(|context| position.poll_turn(context));
        with_timeout(turn, Sleep::until(&self.clock, self.deadline)).await.ok_or_else(|| self.too_long())?;
        Ok(position)
    }

    /// Sleeps until the next try.
    async fn sleep(&self) {
        Sleep::until(&self.clock, self.retry_at).await;
    }

    fn too_long(&self) -> WaitError {
        WaitError::TooLong { patience: self.patience }
    }
}

#[cfg(all(test, feature = "_redis"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;
    use crate::decision::DecisionTime;

    fn denied(now: Timestamp, wait: Duration) -> Decision {
        Decision { not_before: now + wait, decided_at: DecisionTime::exactly(now), ..Decision::refused() }
    }

    /// Ten thousand waiters for the same time, each in its own process.
    #[test]
    fn waiters_of_many_processes_are_spread_and_never_early() {
        let clock = Arc::new(ManualClock::default());
        let source = ClockSource::Custom(clock);
        let (now, minute) = (source.now(), Duration::from_secs(60));
        let mut waits: Vec<u64> = (0..10_000)
            .map(|_| {
                let mut waiting = WaitState::new(source.clone(), minute * 2).with_jitter();
                waiting.schedule_retry(&denied(now, minute)).unwrap();
                waiting.retry_at.as_micros() - now.as_micros()
            })
            .collect();
        waits.sort_unstable();
        assert!(waits[0] >= 60_000_000, "a retry is early");
        assert!(waits[9_999] < 60_250_000, "a retry is late");
        // Evenly: no hundredth of the 250 ms has more than four times its share.
        let crowd = waits.windows(400).map(|some| some[399] - some[0]).min();
        assert!(crowd > Some(2_500), "{crowd:?}");
    }

    #[test]
    fn jitter_never_goes_beyond_patience() {
        let source = ClockSource::Custom(Arc::new(ManualClock::default()));
        let (now, patience) = (source.now(), Duration::from_secs(1));
        for _ in 0..100 {
            let mut waiting = WaitState::new(source.clone(), patience).with_jitter();
            waiting.schedule_retry(&denied(now, patience)).unwrap();
            assert_eq!(waiting.retry_at, now + patience);
            waiting.schedule_retry(&denied(now, Duration::from_micros(1))).unwrap();
            assert_eq!(waiting.retry_at, now + SHORTEST_PAUSE);
            let late = waiting.schedule_retry(&denied(now, patience + Duration::from_micros(1)));
            assert_eq!(late, Err(WaitError::TooLong { patience }));
        }
    }
}
