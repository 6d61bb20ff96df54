//! Batches the calls of one runtime to one Redis server, or to one slot of a Cluster.
//!
//! Each caller enqueues its request and waits for a one-shot reply. A driver task ([`driver`]) takes the
//! queued requests, sends them as one script call, and distributes the replies. While batches are in
//! flight, new requests queue up, so batches grow with load, and a lone request is sent immediately. The
//! first request that finds no driver spawns one on the runtime. The driver ends when nothing
//! is queued or in flight.
//!
//! Invariants:
//! - A request is sent at most once. A request whose reply is lost fails with `OutcomeUnknown`; it is never
//!   retried.
//! - A batch is formed only when there is a connection to send it on. So a request that is still queued has
//!   spent nothing: dropping its caller cancels it, and its failure is `Unavailable`. A request in a batch
//!   counts as sent.
//! - Batches are sent in the order in which their requests were enqueued.
//! - Every caller has its own deadline. The timer thread of `clock/` enforces it, even if the driver's
//!   runtime is stuck.
//! - The queue, the size of a batch and the number of batches in flight are bounded. A request that finds
//!   the queue full, or the circuit breaker open, fails at once.
//! - A driver that ends early, because its runtime shuts down or because it panics, fails all requests that
//!   it leaves behind. A driver that was woken and has not run for [`STALLED_AFTER`] is replaced by the
//!   next request.

mod batch;
mod driver;
mod pending_request;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::failure::{RedisFailure, RedisFailureKind};
use super::protocol::{CheckReplyResult, CheckRequest};
use super::transport::RedisConnection;
use crate::clock::{Clock, ClockSource, SystemClock, Timestamp};
use batch::Batch;
use driver::Driver;
use pending_request::{PendingRequest, Stage, WaitForReply};

pub(super) use pending_request::CallOptions;

/// The maximum number of batches in flight, enough that a few callers never wait for each other. A further
/// batch starts only if it has at least a quarter as many requests as are in flight. So callers share script
/// calls under load, and the server does less work.
const MAX_BATCHES: usize = 4;

/// The maximum number of checks in one script call. Such a call occupies the server for a few milliseconds at
/// most.
const MAX_CHECKS_PER_BATCH: usize = 256;

/// The maximum number of queued requests. Further requests fail at once and spend nothing.
const MAX_QUEUED: usize = 65_536;

/// The time after which a driver that was woken and has not run counts as stalled: the thread that should run it is
/// blocked, and another may run its successor.
const STALLED_AFTER: Duration = Duration::from_millis(100);

/// The configuration of a batcher.
#[derive(Debug, Clone)]
pub(super) struct BatcherOptions {
    pub(super) connection: RedisConnection,
    /// On a Cluster: the slot of all keys of this batcher.
    pub(super) slot: u16,
    /// The time that callers usually wait before they give up.
    pub(super) call_timeout: Duration,
    /// The clock that scripts use in place of the server's, if the limiter was built with one.
    pub(super) clock: Option<ClockSource>,
}

/// A queue of requests from many callers, and the driver that sends them.
#[derive(Debug)]
pub(super) struct Batcher {
    options: BatcherOptions,
    state: Mutex<BatcherState>,
}

#[derive(Debug, Default)]
struct BatcherState {
    queue: VecDeque<Arc<PendingRequest>>,
    /// Requests whose caller waits for a reply, ordered by deadline.
    deadlines: VecDeque<Arc<PendingRequest>>,
    /// The time that the timer is set to. No caller waits for an earlier deadline.
    timer_at: Option<Timestamp>,
    driver: Option<CurrentDriver>,
    /// The number of drivers started so far.
    drivers: u64,
}

/// The state of the driver that takes requests from the queue.
#[derive(Debug)]
struct CurrentDriver {
    number: u64,
    batches_in_flight: usize,
    requests_in_flight: usize,
    /// Wakes the driver. Empty from the time it is used until the driver runs.
    waker: Option<Waker>,
    woken_at: Option<Timestamp>,
    /// Whether a caller has gone after its request was sent, so that a batch may have no callers left.
    is_caller_gone: bool,
    /// The number of requests that expired in the queue since the driver last ran.
    expired_in_queue: u32,
}

/// A new setting of the timer.
#[derive(Debug, PartialEq, Eq)]
struct TimerChange {
    at: Timestamp,
    /// The setting that it replaces.
    earlier: Option<Timestamp>,
}

/// The next step of the driver.
#[derive(Debug, PartialEq, Eq)]
enum DriverStep {
    SendBatch,
    Wait,
    End,
}

impl Batcher {
    pub(super) fn new(options: BatcherOptions) -> Arc<Self> {
        Arc::new(Self { options, state: Mutex::default() })
    }

    /// Sends `checks` as one request. Returns the replies to them if they arrive before the deadline.
    pub(super) async fn send(
        self: &Arc<Self>,
        checks: Vec<CheckRequest>,
        options: CallOptions,
    ) -> Result<Vec<CheckReplyResult>, RedisFailure> {
        if let Some(failure) = self.options.connection.refusal(self.options.slot) {
            return Err(failure);
        }
        let request = PendingRequest::new(checks, options);
        self.enqueue(&request)?;
        WaitForReply { batcher: self, request }.await
    }

    /// Whether no request is queued or in flight.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.driver.is_none() && state.queue.is_empty()
    }

    fn enqueue(self: &Arc<Self>, request: &Arc<PendingRequest>) -> Result<(), RedisFailure> {
        let mut state = self.state();
        while state.deadlines.front().is_some_and(|first| first.is_finished()) {
            state.deadlines.pop_front();
        }
        if state.queue.len() >= MAX_QUEUED {
            return Err(unavailable("the queue is full (65536 requests)"));
        }
        state.queue.push_back(Arc::clone(request));
        let timer = state.add_deadline(request);
        let is_driven = state.driver.as_ref().is_some_and(|driver| !driver.is_stalled());
        let (waker, new_driver) = match is_driven {
            true => (state.waker_for_queue(), None),
            false => (None, Some(Driver::new(self, state.replace_driver()))),
        };
        drop(state);
        if let Some(timer) = timer {
            self.set_timer(timer);
        }
        waker.into_iter().for_each(Waker::wake);
        // Without a runtime, the driver is dropped here and fails the request.
        if let Some(driver) = new_driver {
            self.options.connection.runtime().spawn(driver);
        }
        Ok(())
    }

    /// Notifies the driver of callers that have gone without a reply.
    fn callers_gone(&self, stages: impl Iterator<Item = Stage>) {
        let mut state = self.state();
        let Some(driver) = &mut state.driver else { return };
        for stage in stages {
            match stage {
                Stage::Queued => driver.expired_in_queue += 1,
                Stage::Sent => driver.is_caller_gone = true,
                Stage::Finished => {}
            }
        }
        let waker = driver.take_waker();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Fails the requests whose deadline has passed, and sets the timer for the next deadline.
    fn expire(self: Arc<Self>) {
        let now = SystemClock.now();
        let mut late = Vec::new();
        let mut state = self.state();
        while let Some(first) = state.deadlines.front() {
            if !first.is_finished() && first.deadline() > now {
                break;
            }
            late.extend(state.deadlines.pop_front());
        }
        let next = state.deadlines.front().map(|first| first.deadline());
        let earlier = std::mem::replace(&mut state.timer_at, next);
        drop(state);
        let expired: Vec<Stage> = late.iter().map(|request| request.time_out()).collect();
        if expired.iter().any(|stage| *stage != Stage::Finished) {
            self.callers_gone(expired.into_iter());
        }
        if let Some(at) = next {
            self.set_timer(TimerChange { at, earlier });
        }
    }

    /// Sets the timer, and cancels an earlier setting that has not fired. Otherwise each change would leave a
    /// timer behind, which would set itself again as long as there are callers.
    fn set_timer(self: &Arc<Self>, change: TimerChange) {
        let waker = Waker::from(Arc::clone(self));
        if let Some(earlier) = change.earlier {
            SystemClock.forget(earlier, &waker);
        }
        SystemClock.wake_at(change.at, &waker);
    }

    /// Returns the time that replaces the server's, if there is a clock for it.
    fn now(&self) -> Option<Timestamp> {
        self.options.clock.as_ref().map(ClockSource::now)
    }

    fn state(&self) -> MutexGuard<'_, BatcherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatcherState {
    /// Inserts a request by its deadline. Returns the change of the timer, if it has to fire earlier. The search
    /// runs from the back: a new deadline is nearly always the latest.
    fn add_deadline(&mut self, request: &Arc<PendingRequest>) -> Option<TimerChange> {
        let later =
            self.deadlines.iter().rev().take_while(|other| other.deadline() > request.deadline()).count();
        let position = self.deadlines.len() - later;
        self.deadlines.insert(position, Arc::clone(request));
        let at = request.deadline();
        if self.timer_at.is_some_and(|timer_at| timer_at <= at) {
            return None;
        }
        Some(TimerChange { at, earlier: self.timer_at.replace(at) })
    }

    /// Installs the state of a new driver in place of the current one. Returns its number.
    fn replace_driver(&mut self) -> u64 {
        self.drivers += 1;
        self.driver = Some(CurrentDriver {
            number: self.drivers,
            batches_in_flight: 0,
            requests_in_flight: 0,
            waker: None,
            // Spawning a task wakes it.
            woken_at: Some(SystemClock.now()),
            is_caller_gone: false,
            expired_in_queue: 0,
        });
        self.drivers
    }

    /// Returns the current driver if it has this number.
    fn driver(&mut self, number: u64) -> Option<&mut CurrentDriver> {
        self.driver.as_mut().filter(|driver| driver.number == number)
    }

    /// Returns the driver's waker if the driver can send a batch of the queued requests.
    fn waker_for_queue(&mut self) -> Option<Waker> {
        let queued = self.queue.len();
        self.driver.as_mut().filter(|driver| driver.can_send(queued))?.take_waker()
    }

    /// Returns the next step of the driver with this number, after it has polled its batches in flight.
    /// Ends the driver if nothing is left to do.
    fn next_step(&mut self, number: u64) -> DriverStep {
        let queued = self.queue.len();
        match self.driver(number) {
            Some(driver) if driver.can_send(queued) => DriverStep::SendBatch,
            Some(driver) if queued > 0 || driver.batches_in_flight > 0 => DriverStep::Wait,
            _ => {
                self.end_driver(number);
                DriverStep::End
            }
        }
    }

    /// Removes the next batch from the queue. Returns `None` if no caller waits any more.
    fn next_batch(&mut self, number: u64) -> Option<Batch> {
        self.driver(number)?;
        let mut requests: Vec<Arc<PendingRequest>> =
            Vec::with_capacity(self.queue.len().min(MAX_CHECKS_PER_BATCH));
        let mut checks = 0;
        while let Some(next) = self.queue.front() {
            if !requests.is_empty() && checks + next.checks().len() > MAX_CHECKS_PER_BATCH {
                break;
            }
            if let Some(next) = self.queue.pop_front().filter(|next| next.mark_sent()) {
                checks += next.checks().len();
                requests.push(next);
            }
        }
        let driver = self.driver(number).filter(|_| !requests.is_empty())?;
        driver.batches_in_flight += 1;
        driver.requests_in_flight += requests.len();
        Some(Batch::new(requests))
    }

    /// Removes all requests from the queue, for the driver with this number. Returns none if that driver
    /// was replaced.
    fn take_queue(&mut self, number: u64) -> VecDeque<Arc<PendingRequest>> {
        if self.driver(number).is_some() { std::mem::take(&mut self.queue) } else { VecDeque::new() }
    }

    /// Ends the driver with this number. Returns the requests that it leaves in the queue.
    fn end_driver(&mut self, number: u64) -> VecDeque<Arc<PendingRequest>> {
        let queue = self.take_queue(number);
        self.driver.take_if(|driver| driver.number == number);
        queue
    }

    fn batch_ended(&mut self, number: u64, requests: usize) {
        if let Some(driver) = self.driver(number) {
            driver.batches_in_flight -= 1;
            driver.requests_in_flight -= requests;
        }
    }
}

impl CurrentDriver {
    /// Whether one more batch may start with `queued` requests.
    fn can_send(&self, queued: usize) -> bool {
        queued > 0 && self.batches_in_flight < MAX_BATCHES && queued * MAX_BATCHES >= self.requests_in_flight
    }

    fn take_waker(&mut self) -> Option<Waker> {
        let waker = self.waker.take()?;
        self.woken_at = Some(SystemClock.now());
        Some(waker)
    }

    /// Whether the driver was woken more than [`STALLED_AFTER`] ago and has not run since.
    fn is_stalled(&self) -> bool {
        self.woken_at.is_some_and(|woken_at| SystemClock.now() > woken_at + STALLED_AFTER)
    }
}

/// The timer calls this at the next deadline.
impl Wake for Batcher {
    fn wake(self: Arc<Self>) {
        self.expire();
    }
}

fn unavailable(message: &'static str) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(deadline_us: u64) -> Arc<PendingRequest> {
        PendingRequest::new(Vec::new(), CallOptions::with_deadline(Timestamp::from_micros(deadline_us)))
    }

    fn change(at: u64, earlier: Option<u64>) -> Option<TimerChange> {
        Some(TimerChange { at: Timestamp::from_micros(at), earlier: earlier.map(Timestamp::from_micros) })
    }

    #[test]
    fn the_timer_fires_at_the_earliest_deadline() {
        let mut state = BatcherState::default();
        assert_eq!(state.add_deadline(&request(50)), change(50, None));
        assert_eq!(state.add_deadline(&request(60)), None);
        assert_eq!(state.add_deadline(&request(20)), change(20, Some(50)));
        assert_eq!(state.add_deadline(&request(30)), None);
    }

    /// The timer of a call that was answered is still set. A call with an earlier deadline must not wait for it.
    #[test]
    fn the_timer_of_an_answered_call_does_not_delay_an_earlier_deadline() {
        let mut state = BatcherState::default();
        state.add_deadline(&request(50));
        state.deadlines.clear(); // as `enqueue` does with requests that have their reply
        assert_eq!(state.add_deadline(&request(20)), change(20, Some(50)));
    }
}
