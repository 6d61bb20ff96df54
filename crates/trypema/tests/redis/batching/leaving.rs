//! Callers that are dropped at any stage, and callers whose deadline passes.

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::RedisFailureKind;
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, key, runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, Server};

use super::crowd::Crowd;
use super::{FLIGHTS, add_alone, limiter, long_window};

const CALLERS: usize = 40;
const CAPACITY: u64 = 1_000;
/// Replies are held back until the test releases them.
const HELD: Duration = Duration::from_secs(10);

/// The state of the callers at the time when some of them are dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// The first few callers are in their own batches. The others are queued.
    Started,
    /// The first reply has arrived, and the next batch contains all queued callers.
    Boarded,
}

/// Starts all callers and drops some at a stage. Returns the remaining units that the others saw, and the
/// units used.
fn left_after(stage: Stage, leaving: &[usize]) -> (Vec<u64>, u64) {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let (_, rl) = limiter(&proxy.url());
    let (windows, limit, ann) = (rl.redis().fixed_window(), long_window(CAPACITY), key("ann"));
    wait_for(windows.take(&ann, &limit, 0)).unwrap();
    proxy.delay(HELD);
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    let take = || async { windows.take(&ann, &limit, 1).await.unwrap().remaining() };
    (0..FLIGHTS).for_each(|_| add_alone(&mut crowd, &server, take()));
    (FLIGHTS..CALLERS).for_each(|_| _ = crowd.add(take()));
    if stage == Stage::Boarded {
        proxy.release();
        loop {
            let woken = crowd.next_woken();
            if crowd.poll(woken) {
                break;
            }
        }
    }
    // Queued callers first: a batch whose callers are all dropped makes room for them.
    leaving.iter().rev().for_each(|caller| crowd.cancel(*caller));
    proxy.heal();
    let left = crowd.finish().into_iter().flatten().collect();
    (left, CAPACITY - wait_for(windows.usage(&ann, &limit)).unwrap().remaining())
}

/// Each remaining caller has its own place in the sequence. Gaps belong to callers that were dropped after
/// their request was sent.
fn assert_answered(stage: Stage, leaving: &[usize], sent: usize) {
    let (mut left, used) = left_after(stage, leaving);
    let stayed = CALLERS - leaving.len();
    left.sort_unstable();
    left.dedup();
    assert_eq!(left.len(), stayed, "{stage:?} {leaving:?}: each has an answer of its own");
    let used = used as usize;
    assert!((stayed..=stayed + sent).contains(&used), "{stage:?} {leaving:?}: {used} used of {stayed}");
    assert!(left[0] >= CAPACITY - used as u64);
}

#[test]
fn one_that_leaves_before_it_was_sent_spends_nothing_and_harms_nobody() {
    for leaving in
        [vec![FLIGHTS], vec![FLIGHTS + 1, FLIGHTS + 2], vec![CALLERS - 1], (FLIGHTS..CALLERS).collect()]
    {
        assert_answered(Stage::Started, &leaving, 0);
    }
}

#[test]
fn one_that_leaves_after_it_was_sent_harms_nobody() {
    assert_answered(Stage::Started, &[0], 1);
    assert_answered(Stage::Started, &[0, 1, 2, 3], 4);
    assert_answered(Stage::Started, &[1, 3, FLIGHTS, FLIGHTS + 3], 2);
    assert_answered(Stage::Boarded, &[FLIGHTS], 1);
    assert_answered(Stage::Boarded, &[FLIGHTS + 1], 1);
    assert_answered(Stage::Boarded, &[FLIGHTS, FLIGHTS + 1, CALLERS - 1], 3);
    assert_answered(Stage::Boarded, &(FLIGHTS..CALLERS - 1).collect::<Vec<_>>(), CALLERS);
    assert_answered(Stage::Boarded, &(FLIGHTS..CALLERS).collect::<Vec<_>>(), CALLERS);
}

/// The driver task waits for the replies, so a caller that is no longer polled does not block others.
#[test]
fn one_that_is_never_polled_again_harms_nobody() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let (windows, limit, ann) = (rl.redis().fixed_window(), long_window(CAPACITY), key("ann"));
    wait_for(windows.take(&ann, &limit, 0)).unwrap();
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    for _ in 0..CALLERS {
        crowd.add(async { windows.take(&ann, &limit, 1).await.unwrap().remaining() });
    }
    let stalled = [0, FLIGHTS, FLIGHTS + 1];
    let others = || (0..CALLERS).filter(|caller| !stalled.contains(caller));
    while !others().all(|caller| crowd.has_result(caller)) {
        let woken = crowd.next_woken();
        if !stalled.contains(&woken) {
            crowd.poll(woken);
        }
    }
    assert_eq!(CAPACITY - wait_for(windows.usage(&ann, &limit)).unwrap().remaining(), CALLERS as u64);
}

/// The callers of a batch and those at the front of the queue are dropped while others wait.
#[test]
fn those_that_leave_in_front_keep_nobody_waiting() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let (windows, limit, ann) = (rl.redis().fixed_window(), long_window(CAPACITY), key("ann"));
    wait_for(windows.take(&ann, &limit, 0)).unwrap();
    let _runtime = runtime().enter();
    let mut crowd = Crowd::new();
    for _ in 0..FLIGHTS + 2 {
        crowd.add(async { windows.take(&ann, &limit, 1).await.unwrap().remaining() });
    }
    crowd.cancel(0);
    crowd.cancel(FLIGHTS);
    while !crowd.poll(FLIGHTS + 1) {
        crowd.next_woken();
    }
}

const DEADLINE: Duration = Duration::from_millis(300);
const APART: Duration = Duration::from_millis(10);
/// The time by which a busy machine may be late.
const SLACK: Duration = Duration::from_secs(5);

/// The time that a caller waited, and its failure.
type Waited = (Duration, Option<RedisFailureKind>);

async fn timed_take(rl: Arc<RateLimiter>) -> Waited {
    let started = SystemClock.now();
    let answer = rl.redis().fixed_window().take(&key("ann"), &long_window(CAPACITY), 1).await;
    let waited = Duration::from_micros(SystemClock.now().as_micros() - started.as_micros());
    match answer {
        Ok(_) => (waited, None),
        Err(TrypemaError::RedisError(failure)) => (waited, Some(failure.kind())),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn each_caller_keeps_its_own_deadline() {
    let server = Server::start().unwrap();
    let builder = RateLimiter::builder().redis(connect(&server.url())).redis_deadline(DEADLINE);
    let rl = Arc::new(builder.build().unwrap());
    assert_eq!(wait_for(timed_take(Arc::clone(&rl))).1, None);
    server.stop().unwrap();
    let waited: Vec<Waited> = wait_for(async {
        let mut tasks = Vec::new();
        for _ in 0..20 {
            tasks.push(runtime().spawn(timed_take(Arc::clone(&rl))));
            tokio::time::sleep(APART).await;
        }
        let mut waited = Vec::new();
        for task in tasks {
            waited.push(task.await.unwrap());
        }
        waited
    });
    server.cont().unwrap();
    for (number, (waited, told)) in waited.iter().enumerate() {
        assert!(*waited < DEADLINE + SLACK, "caller {number} waited {waited:?}");
        let is_sent = number < FLIGHTS;
        let expected = if is_sent { RedisFailureKind::OutcomeUnknown } else { RedisFailureKind::Unavailable };
        assert!(!is_sent || *waited >= DEADLINE - APART, "caller {number} waited {waited:?}");
        assert!(!is_sent || *told == Some(expected), "caller {number}: {told:?}");
        assert!(told.is_some());
    }
}
