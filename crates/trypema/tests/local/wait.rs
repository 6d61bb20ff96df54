//! Waiting until admitted: on time, in order, cancellable, bounded.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod executor;

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use executor::Executor;
use trypema::clock::{Clock, ManualClock, SystemClock, Timestamp};
use trypema::observer::{Event, Observer};
use trypema::strategy::{Strategy, TokenBucket};
use trypema::{Decision, FixedWindowLimit, RateLimiter, TokenBucketLimits, TokenLimit, WaitError};

const HOUR: Duration = Duration::from_secs(3_600);
const TENTH: Duration = Duration::from_millis(100);

/// The result of a wait.
type Waited = Result<Decision, WaitError>;

#[derive(Debug, Default)]
struct Takes(AtomicU64);

impl Observer for Takes {
    fn decided(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Fixture {
    clock: Arc<ManualClock>,
    takes: Arc<Takes>,
    rl: RateLimiter,
    start: Timestamp,
}

impl Fixture {
    fn new() -> Self {
        let (clock, takes) = (Arc::new(ManualClock::default()), Arc::new(Takes::default()));
        let builder = RateLimiter::builder().clock(clock.clone());
        let rl = builder.observer(takes.clone()).max_keys(64).build().unwrap();
        let start = clock.now();
        Self { clock, takes, rl, start }
    }

    /// Waits for `cost` of ann's tokens.
    async fn ann(&self, limits: &TokenBucketLimits, cost: u64, patience: Duration) -> Waited {
        let buckets = self.rl.local().token_bucket();
        let waited = buckets.wait("ann", limits, cost, patience).await;
        waited.map(|decision| TokenBucket::core(&decision))
    }

    /// Whether a queue of waiters exists: only queues have tickets.
    fn has_line(&self) -> bool {
        format!("{:?}", self.rl.local().token_bucket()).contains("next_ticket")
    }
}

/// A bucket of `capacity` tokens that refills one each tenth of a second.
fn tenths(capacity: u32) -> TokenBucketLimits {
    let refill = TENTH * capacity;
    TokenBucketLimits::from(TokenLimit::new(u64::from(capacity), refill).unwrap())
}

#[test]
fn a_waiter_is_admitted_exactly_when_it_was_told() {
    let (fixture, limits) = (Fixture::new(), tenths(10));
    let buckets = fixture.rl.local().token_bucket();
    assert!(buckets.take("ann", &limits, 10).is_allowed());
    let told = buckets.peek("ann", &limits, 7).retry_after().unwrap();
    assert_eq!(told, 7 * TENTH);

    let mut executor = Executor::new(&fixture.clock);
    executor.spawn(fixture.ann(&limits, 7, HOUR));
    assert!(fixture.has_line());
    fixture.clock.set(fixture.start + (told - Duration::from_micros(1)));
    executor.run_woken();
    assert!(executor.ended().is_empty(), "admitted early");
    executor.run();
    let ended = &executor.ended()[0];
    assert_eq!(ended.at, fixture.start + told);
    assert_eq!(ended.output.as_ref().unwrap().remaining(), 0);
    assert!(!fixture.has_line());
}

#[test]
fn nobody_waits_when_it_fits() {
    let (fixture, limits) = (Fixture::new(), tenths(2));
    let mut executor = Executor::new(&fixture.clock);
    executor.spawn(fixture.ann(&limits, 2, Duration::ZERO));
    assert!(executor.ended()[0].output.is_ok());
    assert_eq!(fixture.clock.next_wake(), None);
    assert!(!fixture.has_line());
}

#[test]
fn first_come_is_first_served() {
    let (fixture, limits) = (Fixture::new(), tenths(1));
    let mut executor = Executor::new(&fixture.clock);
    for _ in 0..20 {
        executor.spawn(fixture.ann(&limits, 1, HOUR));
    }
    executor.run();
    for (place, ended) in executor.ended().iter().enumerate() {
        assert_eq!(ended.task, place);
        assert_eq!(ended.at, fixture.start + TENTH * place as u32);
        assert!(ended.output.is_ok());
    }
}

/// A new caller cannot overtake the queue between the end of one wait and the wake-up of the next waiter.
#[test]
fn who_comes_as_the_line_moves_does_not_jump_it() {
    let (fixture, limits) = (Fixture::new(), tenths(1));
    assert!(fixture.rl.local().token_bucket().take("ann", &limits, 1).is_allowed());
    let mut executor = Executor::new(&fixture.clock);
    let first = executor.spawn(fixture.ann(&limits, 1, HOUR));
    let second = executor.spawn(fixture.ann(&limits, 1, HOUR));
    // The first waiter is dropped, and a third arrives before the second one runs.
    executor.cancel(first);
    let third = executor.spawn(fixture.ann(&limits, 1, HOUR));
    executor.run();
    let order: Vec<usize> = executor.ended().iter().map(|ended| ended.task).collect();
    assert_eq!(order, [second, third]);
}

#[test]
fn the_next_moves_up_when_a_waiter_leaves() {
    for leaver in 0..3 {
        let (fixture, limits) = (Fixture::new(), tenths(1));
        assert!(fixture.rl.local().token_bucket().take("ann", &limits, 1).is_allowed());
        let mut executor = Executor::new(&fixture.clock);
        for _ in 0..3 {
            executor.spawn(fixture.ann(&limits, 1, HOUR));
        }
        fixture.clock.advance(TENTH / 2);
        executor.cancel(leaver);
        executor.run();
        let stayed: Vec<usize> = (0..3).filter(|task| *task != leaver).collect();
        for (place, (ended, task)) in executor.ended().iter().zip(stayed).enumerate() {
            assert_eq!(ended.task, task);
            assert_eq!(ended.at, fixture.start + TENTH * (place as u32 + 1));
        }
        assert_eq!(executor.ended().len(), 2, "who left spent nothing");
        assert!(!fixture.has_line());
    }
}

/// The waiter is woken on time, but the clock steps back before it is polled. It must be woken again.
#[test]
fn a_waiter_outlives_a_clock_that_steps_back() {
    let (fixture, limits) = (Fixture::new(), tenths(1));
    assert!(fixture.rl.local().token_bucket().take("ann", &limits, 1).is_allowed());
    let mut executor = Executor::new(&fixture.clock);
    executor.spawn(fixture.ann(&limits, 1, HOUR));
    fixture.clock.set(fixture.start + TENTH);
    fixture.clock.set(fixture.start + TENTH / 2);
    executor.run_woken();
    fixture.clock.set(fixture.start + TENTH);
    executor.run_woken();
    assert_eq!(executor.ended().len(), 1, "it sleeps for ever");
}

/// Two callers leave a queue at the same time: the last one removes the queue.
#[test]
fn lines_are_gone_when_threads_leave_together() {
    const ROUNDS: usize = 20_000;
    let (fixture, limits) = (Fixture::new(), tenths(1_000));
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let key = format!("line {round}");
                    let buckets = fixture.rl.local().token_bucket();
                    barrier.wait();
                    let wait = pin!(buckets.wait(&key, &limits, 0, HOUR));
                    // Either admitted, or queued behind the other thread and dropped immediately.
                    let _ = wait.poll(&mut Context::from_waker(Waker::noop()));
                }
            });
        }
    });
    let left = format!("{:?}", fixture.rl.local().token_bucket());
    let lines = left.matches("next_ticket").count();
    assert_eq!(lines, 0, "lines of nobody, out of {ROUNDS}");
}

/// A waker keeps its task alive, so a dropped waiter must be removed before its timeout.
#[test]
fn a_waiter_that_leaves_is_forgotten() {
    let (fixture, limits) = (Fixture::new(), tenths(1));
    assert!(fixture.rl.local().token_bucket().take("ann", &limits, 1).is_allowed());
    let mut executor = Executor::new(&fixture.clock);
    for _ in 0..3 {
        let task = executor.spawn(fixture.ann(&limits, 1, HOUR));
        executor.cancel(task);
    }
    assert_eq!(fixture.clock.next_wake(), None, "somebody is still to be woken");
}

#[test]
fn a_wait_beyond_patience_ends_at_once() {
    let (fixture, limits) = (Fixture::new(), tenths(10));
    assert!(fixture.rl.local().token_bucket().take("ann", &limits, 10).is_allowed());
    let mut executor = Executor::new(&fixture.clock);
    for patience in [TENTH * 7 - Duration::from_micros(1), Duration::ZERO] {
        executor.spawn(fixture.ann(&limits, 7, patience));
        let ended = executor.ended().last().unwrap();
        assert_eq!(ended.output, Err(WaitError::TooLong { patience }));
    }
    assert_eq!(fixture.clock.next_wake(), None, "nobody sleeps");
    executor.spawn(fixture.ann(&limits, 7, TENTH * 7));
    executor.run();
    assert!(executor.ended().last().unwrap().output.is_ok());
}

#[test]
fn patience_also_ends_in_line() {
    let (fixture, limits) = (Fixture::new(), tenths(10));
    assert!(fixture.rl.local().token_bucket().take("ann", &limits, 10).is_allowed());
    let mut executor = Executor::new(&fixture.clock);
    executor.spawn(fixture.ann(&limits, 10, HOUR));
    let patience = TENTH * 3;
    executor.spawn(fixture.ann(&limits, 1, patience));
    executor.run();
    let [impatient, patient] = executor.ended() else {
        panic!("both end");
    };
    assert_eq!(impatient.at, fixture.start + patience);
    let error = impatient.output.as_ref().unwrap_err();
    assert_eq!(error.to_string(), "not admitted within 300ms");
    assert_eq!((patient.task, patient.at), (0, fixture.start + TENTH * 10));
}

#[test]
fn what_never_fits_is_not_waited_for() {
    let (fixture, limits) = (Fixture::new(), tenths(10));
    let mut executor = Executor::new(&fixture.clock);
    executor.spawn(fixture.ann(&limits, 11, Duration::MAX));
    assert_eq!(executor.ended()[0].output, Err(WaitError::Never));
    assert!(!fixture.has_line());
}

#[test]
fn two_thousand_waiters_do_not_stampede() {
    const WAITERS: u32 = 2_000;
    let (fixture, limits) = (Fixture::new(), tenths(10));
    let mut executor = Executor::new(&fixture.clock);
    for _ in 0..WAITERS {
        executor.spawn(fixture.ann(&limits, 1, HOUR));
    }
    executor.run();
    for (place, ended) in executor.ended().iter().enumerate() {
        let wait = TENTH * (place as u32 + 1).saturating_sub(10);
        assert_eq!((ended.task, ended.at), (place, fixture.start + wait));
        assert!(ended.output.is_ok());
    }
    assert_eq!(executor.ended().len(), WAITERS as usize);
    let takes = fixture.takes.0.load(Ordering::Relaxed);
    assert!(takes <= 3 * u64::from(WAITERS), "{takes} takes");

    assert!(!fixture.has_line(), "the line is gone with the last waiter");
    executor.spawn(fixture.ann(&limits, 1, HOUR));
    executor.run();
    let wait = TENTH * (WAITERS + 1 - 10);
    assert_eq!(executor.ended().last().unwrap().at, fixture.start + wait);
}

#[test]
fn a_line_has_an_end() {
    const MAX_WAITERS: usize = 10_000;
    let (fixture, limits) = (Fixture::new(), tenths(1));
    assert!(fixture.rl.local().token_bucket().take("ann", &limits, 1).is_allowed());
    let mut executor = Executor::new(&fixture.clock);
    for _ in 0..MAX_WAITERS {
        executor.spawn(fixture.ann(&limits, 1, HOUR));
    }
    assert!(executor.ended().is_empty(), "all of them wait");
    executor.spawn(fixture.ann(&limits, 1, HOUR));
    let turned_away = executor.ended()[0].output.clone().unwrap_err();
    assert_eq!(turned_away, WaitError::TooManyWaiters);
    assert_eq!(turned_away.to_string(), "too many waiters: 10000 callers already wait for this key");
    // Another key has its own queue, and dropping a waiter frees its place.
    let buckets = fixture.rl.local().token_bucket();
    executor.spawn(async { buckets.wait("bob", &limits, 1, HOUR).await.map(|bob| TokenBucket::core(&bob)) });
    assert!(executor.ended()[1].output.is_ok());
    executor.cancel(MAX_WAITERS / 2);
    executor.spawn(fixture.ann(&limits, 1, HOUR));
    assert_eq!(executor.ended().len(), 2);
    (0..=MAX_WAITERS + 2).for_each(|task| executor.cancel(task));
    assert!(!fixture.has_line());
}

#[test]
fn windows_can_be_waited_for_as_well() {
    let fixture = Fixture::new();
    let limit = FixedWindowLimit::new(1, Duration::from_secs(60)).unwrap();
    let windows = fixture.rl.local().fixed_window();
    let mut executor = Executor::new(&fixture.clock);
    for _ in 0..2 {
        executor.spawn(windows.wait("ann", &limit, 1, HOUR));
    }
    executor.run();
    // The clock starts 40 s into a minute.
    assert_eq!(executor.ended()[1].at, fixture.start + Duration::from_secs(20));
}

#[test]
fn the_system_clock_wakes_a_waiter() {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let rl = RateLimiter::builder().build().unwrap();
    let limits = TokenBucketLimits::from(TokenLimit::new(1, Duration::from_millis(20)).unwrap());
    let start = SystemClock.now();
    assert!(rl.local().token_bucket().take("ann", &limits, 1).is_allowed());
    let mut wait = pin!(rl.local().token_bucket().wait("ann", &limits, 1, HOUR));
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let decision = loop {
        match wait.as_mut().poll(&mut context) {
            Poll::Ready(decision) => break decision,
            Poll::Pending => std::thread::park(),
        }
    };
    assert!(decision.is_ok_and(|decision| decision.is_allowed()));
    assert!(SystemClock.now() >= start + Duration::from_millis(20));
}
