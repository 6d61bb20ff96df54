//! The events and log lines of `log_only` rules and abuse rules.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;
use trypema::clock::ManualClock;
use trypema::observer::{Event, Observer, ShadowDenial, TracingObserver};
use trypema::rules::{Engine, Request};
use trypema::{BlockScope, RateLimiter};
use trypema_testkit::blocking::wait_for;
use trypema_testkit::own_process::in_own_process;

use super::rules;

const RULES: &str = "
rules:
  - {id: shadow, name: Tighter limit, scope: user, action: log_only, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: real, scope: user, strategy: {fixed_window: {limit: 2000, window: 1h}}}
  - {id: next, scope: user, candidate_for: real, strategy: {fixed_window: {limit: 1, window: 1h}}}
";

const LOGIN: &str = "
rules:
  - id: logins
    scope: user
    strategy: {abuse: {temp: {window: 60s, threshold: 2, block: 10m}, long: {window: 1h, threshold: 3, block: 1d}}}
";

fn engine(yaml: &str, observer: Arc<dyn Observer>) -> Engine {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock).observer(observer).build().unwrap();
    Engine::local(Arc::new(rl), rules(yaml))
}

fn request() -> Request<'static> {
    Request::new(&[("user", "ann")])
}

#[derive(Debug, Default)]
struct Recorder {
    shadowed: Mutex<Vec<String>>,
    blocks: Mutex<Vec<(Option<BlockScope>, u64, u64)>>,
}

impl Observer for Recorder {
    fn decided(&self, event: &Event<'_>) {
        if let Some(attempts) = event.decision.attempts() {
            let block = (event.decision.block_scope(), attempts.short_count(), attempts.long_count());
            self.blocks.lock().unwrap().push(block);
        }
    }

    fn shadowed(&self, denial: &ShadowDenial<'_>) {
        let ShadowDenial { rule, name, key, cost, count, .. } = denial;
        self.shadowed.lock().unwrap().push(format!("{rule} ({name}) {key} {cost} {count}"));
    }
}

#[test]
fn the_observer_is_told_what_a_rule_that_only_logs_would_have_denied() {
    let recorder = Arc::new(Recorder::default());
    let engine = engine(RULES, recorder.clone());
    for _ in 0..4 {
        assert!(engine.try_check(&request()).unwrap().unwrap().is_allowed());
    }
    wait_for(engine.peek(&request())).unwrap();
    wait_for(engine.record(&request())).unwrap();
    let told = recorder.shadowed.lock().unwrap().clone();
    // `peek` counts nothing, and a candidate is reported as a comparison instead.
    let expected = [1, 2, 3].map(|count| format!("shadow (Tighter limit) shadow|user=ann 1 {count}"));
    assert_eq!(told, expected);
}

#[test]
fn the_observer_is_told_the_counts_and_the_window_of_a_block() {
    let recorder = Arc::new(Recorder::default());
    let engine = engine(LOGIN, recorder.clone());
    for _ in 0..3 {
        let verdict = engine.try_check(&request()).unwrap().unwrap();
        let decided = verdict.rules().next().unwrap();
        assert_eq!(decided.block_scope(), decided.decision.block_scope());
    }
    let blocks = recorder.blocks.lock().unwrap().clone();
    assert_eq!(blocks[..2], [(None, 1, 1), (Some(BlockScope::Temp), 2, 2)]);
    assert!(blocks[2].0.is_some() && blocks[2].1 >= 2, "{blocks:?}");
}

/// A log that tests can read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The lines that `work` logs at `level` or above. Needs a process of its own: other threads without a
/// subscriber may disable an event for all of them when they are the first to reach it.
fn logged(level: tracing::Level, work: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).with_max_level(level);
    tracing::subscriber::with_default(subscriber.finish(), work);
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn some_of_these_denials_are_logged_with_rule_and_key() {
    let test = "engine::logging::some_of_these_denials_are_logged_with_rule_and_key";
    in_own_process(test, denials_are_logged_with_rule_and_key);
}

fn denials_are_logged_with_rule_and_key() {
    let engine = engine(RULES, Arc::new(TracingObserver));
    let lines = logged(tracing::Level::INFO, || {
        for _ in 0..1_100 {
            engine.try_check(&request()).unwrap().unwrap();
        }
    });
    let first = lines.first().unwrap();
    let parts = [
        "INFO",
        "rule=\"shadow\"",
        "name=\"Tighter limit\"",
        "key=\"shadow|user=ann\"",
        "count=1",
        "would have denied",
    ];
    assert!(parts.iter().all(|part| first.contains(part)), "{first}");
    // Logged at 1, 2, 4 … 1,024, and at 1,000.
    assert_eq!(lines.len(), 12, "{lines:#?}");
}

#[test]
fn the_debug_log_has_the_counts_and_the_window_of_a_block() {
    let test = "engine::logging::the_debug_log_has_the_counts_and_the_window_of_a_block";
    in_own_process(test, the_counts_and_the_window_of_a_block_are_logged);
}

fn the_counts_and_the_window_of_a_block_are_logged() {
    let engine = engine(LOGIN, Arc::new(TracingObserver));
    let lines = logged(tracing::Level::DEBUG, || {
        for _ in 0..2 {
            engine.try_check(&request()).unwrap().unwrap();
        }
    });
    let blocked = lines.iter().find(|line| line.contains("is_allowed=false")).unwrap();
    let parts = ["scope=\"temp\"", "short_count=2", "long_count=2"];
    assert!(parts.iter().all(|part| blocked.contains(part)), "{blocked}");
}
