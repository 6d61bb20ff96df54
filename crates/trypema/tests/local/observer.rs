//! The events that an observer receives, and the calls that produce none.

#![allow(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::observer::{Event, Observer};
use trypema::{
    AbuseLimit, AbuseTier, ConcurrencyLimit, FixedWindowLimit, RateLimit, RateLimiter, SlidingWindowLimit,
    TokenBucketLimits, TokenLimit,
};

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    strategy: &'static str,
    key: String,
    cost: u64,
    is_allowed: bool,
    limit: u64,
    remaining: u64,
    latency: Duration,
}

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Told>>);

impl Recorder {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().expect("nobody panicked"))
    }
}

impl Observer for Recorder {
    fn decided(&self, event: &Event<'_>) {
        self.0.lock().expect("nobody panicked").push(Told {
            strategy: event.strategy,
            key: event.key.to_owned(),
            cost: event.cost,
            is_allowed: event.decision.is_allowed(),
            limit: event.decision.limit(),
            remaining: event.decision.remaining(),
            latency: event.latency,
        });
    }
}

fn observed() -> (Arc<Recorder>, RateLimiter) {
    let recorder = Arc::new(Recorder::default());
    let rl =
        RateLimiter::builder().clock(Arc::new(ManualClock::default())).observer(recorder.clone()).build();
    (recorder, rl.expect("the defaults are valid"))
}

fn told(strategy: &'static str, cost: u64, is_allowed: bool, remaining: u64) -> Told {
    Told { strategy, key: "ann".into(), cost, is_allowed, limit: 3, remaining, latency: Duration::ZERO }
}

#[test]
fn every_take_of_every_strategy_is_told() {
    let (recorder, rl) = observed();
    let local = rl.local();
    let minute = Duration::from_secs(60);
    let rate = RateLimit::try_from(0.05).unwrap(); // 3 a minute
    let fixed = FixedWindowLimit::new(3, minute).unwrap();
    let sliding = SlidingWindowLimit::new(3, minute).unwrap();
    let concurrency = ConcurrencyLimit::new(3, minute).unwrap();
    let bucket = TokenBucketLimits::from(TokenLimit::new(3, minute).unwrap());
    let tier = AbuseTier::new(minute, 4, minute).unwrap();
    let abuse = AbuseLimit::new(tier, tier);
    for cost in [2, 2] {
        local.absolute().inc("ann", &rate, cost);
        local.suppressed().inc("ann", &rate, cost);
        local.fixed_window().take("ann", &fixed, cost);
        local.sliding_window().take("ann", &sliding, cost);
        local.token_bucket().take("ann", &bucket, cost);
        local.abuse().take("ann", &abuse, cost);
        local.concurrency().take("ann", &concurrency, cost);
    }
    let names =
        ["absolute", "suppressed", "fixed_window", "sliding_window", "token_bucket", "abuse", "concurrency"];
    let expected: Vec<Told> = names
        .iter()
        .map(|name| told(name, 2, true, 1))
        // A blocked key has no units left.
        .chain(names.iter().map(|name| told(name, 2, false, u64::from(*name != "abuse"))))
        .collect();
    assert_eq!(recorder.take(), expected);
}

#[test]
fn what_spends_nothing_is_not_told() {
    let (recorder, rl) = observed();
    let windows = rl.local().fixed_window();
    let limit = FixedWindowLimit::new(3, Duration::from_secs(60)).unwrap();
    let rate = RateLimit::try_from(0.05).unwrap();
    windows.peek("ann", &limit, 1);
    windows.usage("ann", &limit);
    windows.key("ann").peek(&limit, 1);
    windows.reset("ann");
    windows.forget_stale(Duration::ZERO);
    assert_eq!(windows.live_keys().count(), 0);
    rl.local().absolute().is_allowed("ann");
    rl.local().suppressed().is_allowed("ann");
    assert_eq!(recorder.take(), []);

    rl.local().absolute().inc("ann", &rate, 1);
    assert_eq!(recorder.take(), [told("absolute", 1, true, 2)]);
}

#[test]
fn takes_through_a_handle_are_told() {
    let (recorder, rl) = observed();
    let limit = FixedWindowLimit::new(3, Duration::from_secs(60)).unwrap();
    let ann = rl.local().fixed_window().key("ann");
    ann.take(&limit, 3);
    ann.take(&limit, 1);
    ann.take(&limit, 9);
    let expected = [
        told("fixed_window", 3, true, 0),
        told("fixed_window", 1, false, 0),
        told("fixed_window", 9, false, 0),
    ];
    assert_eq!(recorder.take(), expected);
}

#[test]
fn an_attempt_that_is_checked_is_told() {
    let (recorder, rl) = observed();
    let tier = AbuseTier::new(Duration::from_secs(60), 4, Duration::from_secs(60)).unwrap();
    rl.local().abuse().check("ann", &AbuseLimit::new(tier, tier));
    assert_eq!(recorder.take(), [told("abuse", 1, true, 2)]);
}

/// `reserve` and `take_up_to` are takes too, so the observer receives them.
#[test]
fn reserving_and_taking_up_to_are_told() {
    let (recorder, rl) = observed();
    let limit = FixedWindowLimit::new(3, Duration::from_secs(60)).unwrap();
    let windows = rl.local().fixed_window();
    windows.take_with_receipt("ann", &limit, 1);
    windows.take_up_to("ann", &limit, 2);
    assert_eq!(recorder.take().len(), 2);
}

#[cfg(feature = "tracing")]
mod tracing_events {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use trypema::observer::TracingObserver;
    use trypema::{FixedWindowLimit, RateLimiter};
    use trypema_testkit::own_process::in_own_process;

    #[derive(Debug, Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// In a process of its own: other threads without a subscriber may disable an event for all of them when
    /// they are the first to reach it.
    #[test]
    fn a_debug_event_per_decision() {
        in_own_process("observer::tracing_events::a_debug_event_per_decision", || {
            let written = Written::default();
            let writer = written.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .finish();
            let rl = RateLimiter::builder().observer(Arc::new(TracingObserver)).build().unwrap();
            let limit = FixedWindowLimit::new(3, Duration::from_secs(86_400)).unwrap();
            // `with_default` is in a crate that this one does not depend on. A scoped guard has the same effect.
            let _guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
            rl.local().fixed_window().take("ann", &limit, 2);
            rl.local().fixed_window().peek("ann", &limit, 1);
            rl.local().fixed_window().take("ann", &limit, 2);

            let written = written.0.lock().unwrap();
            let text = String::from_utf8_lossy(&written);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 2, "{text}");
            for part in ["DEBUG", "trypema", "rate limit decision", "fixed_window", "ann", "cost=2"] {
                assert!(lines.iter().all(|line| line.contains(part)), "{part}: {text}");
            }
            assert!(lines[0].contains("is_allowed=true") && lines[0].contains("remaining=1"));
            assert!(lines[1].contains("is_allowed=false") && lines[1].contains("retry_after"));
        });
    }
}
