//! The documented cleanup loops: they return nothing, run once however often they are started, remove stale
//! keys, and end with the last `Arc`.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{FixedWindowLimit, RateLimiter};
use trypema_testkit::own_process::in_own_process;

/// The number of times, a millisecond apart, that the test checks the threads before it gives up.
const LOOKS: usize = 20_000;

/// Counts the threads of a process of its own.
#[test]
fn cleanup_loops_run_once_and_end_with_the_limiter() {
    let test = "cleanup::cleanup_loops_run_once_and_end_with_the_limiter";
    in_own_process(test, run_once_and_end_with_the_limiter);
}

fn run_once_and_end_with_the_limiter() {
    let clock = Arc::new(ManualClock::default());
    let build = || {
        let limiter = RateLimiter::builder().clock(clock.clone()).build();
        Arc::new(limiter.expect("the defaults are valid"))
    };
    let (one, other) = (build(), build());
    assert_eq!(cleanup_threads(), 0, "making a limiter starts nothing");

    for _ in 0..10 {
        let () = one.run_cleanup_loop();
        let () = one.run_cleanup_loop_with_config(u64::MAX, u64::MAX);
    }
    other.run_cleanup_loop_with_config(600_000, 30_000);
    eventually("one thread for each limiter", || cleanup_threads() == 2);

    let limit = FixedWindowLimit::new(1, Duration::from_secs(1)).expect("it is valid");
    one.local().fixed_window().take("ann", &limit, 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(one.local().fixed_window().len(), 1);
    one.run_cleanup_loop_with_config(0, 0);
    eventually("stale keys are forgotten", || one.local().fixed_window().is_empty());
    assert_eq!(cleanup_threads(), 2, "new numbers start no second thread");

    let weak = Arc::downgrade(&one);
    drop(one);
    eventually("the loop ends with its limiter", || cleanup_threads() == 1);
    assert_eq!(weak.strong_count(), 0, "the loop must not own the limiter");

    let last = Arc::clone(&other);
    drop(other);
    assert_eq!(cleanup_threads(), 1, "one Arc is left");
    drop(last);
    eventually("the loop ends with the last Arc", || cleanup_threads() == 0);
}

fn cleanup_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    // A thread may end after it is listed and before its name is read.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "trypema-cleanup").count()
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not within the deadline: {what}");
}
