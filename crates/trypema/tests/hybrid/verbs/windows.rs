//! Aligned windows: units that were leased in one window are not spent in the next.

use std::time::Duration;

use trypema::clock::{Clock, Timestamp};
use trypema::strategy::{FixedWindow, SlidingWindow};
use trypema::{CalendarStart, CalendarWindow, FixedWindowLimit};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{Scene, WINDOW, call_until_leased, held, release, take, try_take, used};

const CAPACITY: u64 = 1_000;

/// Sets the clock of `scene` to `by` before the end of a window.
fn before_the_end(scene: &Scene, by: Duration) {
    let window_us = WINDOW.as_micros() as u64;
    let end_us = (scene.clock.now().as_micros() / window_us + 2) * window_us;
    scene.clock.set(Timestamp::from_micros(end_us - by.as_micros() as u64));
}

fn ends_with_its_window<S: HybridStrategy>() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
    before_the_end(&scene, Duration::from_millis(20));
    let taken = call_until_leased::<S>(&rl, "ann", &limit);
    assert!(held::<S>(&rl, "ann") > 0, "{}", S::NAME);
    scene.clock.advance(Duration::from_millis(19));
    assert!(try_take::<S>(&rl, "ann", &limit, 1).unwrap().is_allowed(), "{}: still in its window", S::NAME);
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(held::<S>(&rl, "ann"), 0, "{}", S::NAME);
    assert!(try_take::<S>(&rl, "ann", &limit, 1).is_none(), "{}", S::NAME);
    let next = take::<S>(&rl, "ann", &limit, 1);
    assert!(next.is_allowed(), "{}", S::NAME);
    release(&rl);
    // A sliding window still counts nearly all of the previous window.
    let carried = if S::NAME == "sliding_window" { taken + 1 } else { 0 };
    assert_eq!(used::<S>(&rl, "ann", &limit), carried + 1, "{}", S::NAME);
}

#[test]
fn a_lease_of_a_fixed_window_ends_with_it() {
    ends_with_its_window::<FixedWindow>();
}

#[test]
fn a_lease_of_a_sliding_window_ends_with_it() {
    ends_with_its_window::<SlidingWindow>();
}

/// A hot key is admitted exactly the limit in each window.
#[test]
fn each_fixed_window_is_used_to_the_full() {
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(), FixedWindow::limit(100, Duration::from_secs(1)));
    let mut admitted = std::collections::BTreeMap::<u64, u64>::new();
    for _ in 0..4_000 {
        scene.clock.advance(Duration::from_millis(1));
        let window = scene.clock.now().as_micros() / 1_000_000;
        *admitted.entry(window).or_default() +=
            u64::from(take::<FixedWindow>(&rl, "ann", &limit, 1).is_allowed());
    }
    let full: Vec<u64> = admitted.into_values().skip(1).take(2).collect();
    assert_eq!(full, [100, 100]);
}

/// A limit's window changes just before a boundary, on either instance first. A lease from the old window is
/// not refunded out of units that others spent in the new one.
#[test]
fn what_was_leased_under_another_window_is_not_taken_from_others() {
    for first in 0..2 {
        let scene = Scene::start();
        let instances = [scene.instance(), scene.instance()];
        let (holder, other) = (&instances[0], &instances[1]);
        let (before, after) = (
            FixedWindow::limit(100 * CAPACITY, Duration::from_secs(60)),
            FixedWindow::limit(100, Duration::from_secs(10)),
        );
        // The clock starts at a multiple of 10 s, 20 s before a multiple of 60 s.
        scene.clock.advance(Duration::from_millis(39_900));
        call_until_leased::<FixedWindow>(holder, "ann", &before);
        assert!(
            take::<FixedWindow>(holder, "ann", &before, held::<FixedWindow>(holder, "ann") + 50).is_allowed()
        );
        assert!(held::<FixedWindow>(holder, "ann") > 100);
        take::<FixedWindow>(&instances[first], "ann", &after, 1);
        scene.clock.advance(Duration::from_millis(100));
        let admitted =
            || (0..150).filter(|_| take::<FixedWindow>(other, "ann", &after, 1).is_allowed()).count();
        let at_first = admitted();
        release(holder);
        scene.clock.advance(Duration::from_millis(200));
        let later = admitted();
        assert!(at_first + later <= 100, "changed by {first}: {at_first} and {later} of 100");
    }
}

/// Units that were leased before midnight are not spent after it, and not refunded to the new day.
#[test]
fn a_lease_of_a_calendar_day_ends_with_it() {
    let scene = Scene::start();
    let rl = scene.instance();
    let days = CalendarWindow::new("Asia/Kathmandu", CalendarStart::MIDNIGHT).unwrap();
    let limit = FixedWindowLimit::calendar(CAPACITY, days).unwrap();
    let midnight = days.end_of(scene.clock.now());
    scene.clock.set(Timestamp::from_micros(midnight.as_micros() - 20_000));
    let taken = call_until_leased::<FixedWindow>(&rl, "ann", &limit);
    assert!(taken > 0 && held::<FixedWindow>(&rl, "ann") > 0);
    scene.clock.advance(Duration::from_millis(19));
    assert!(try_take::<FixedWindow>(&rl, "ann", &limit, 1).unwrap().is_allowed());
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(held::<FixedWindow>(&rl, "ann"), 0);
    assert!(try_take::<FixedWindow>(&rl, "ann", &limit, 1).is_none());
    assert!(take::<FixedWindow>(&rl, "ann", &limit, 1).is_allowed());
    release(&rl);
    assert_eq!(used::<FixedWindow>(&rl, "ann", &limit), 1);
}
