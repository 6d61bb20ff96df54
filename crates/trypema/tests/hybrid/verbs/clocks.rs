//! A clock that steps back, as a clock given by the user may: no additional units are admitted.

use std::time::Duration;

use trypema::clock::{Clock, Timestamp};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{Scene, call_until_leased, held, take, try_take};

const CAPACITY: u64 = 100;
const WINDOW: Duration = Duration::from_secs(20);

/// Sets the clock back by `by`.
fn step_back(scene: &Scene, by: Duration) {
    let now_us = scene.clock.now().as_micros();
    scene.clock.set(Timestamp::from_micros(now_us - by.as_micros() as u64));
}

/// After the step back, Redis dates the leased units at the new time, so an older lease is expired.
#[test]
fn a_lease_is_not_spent_for_longer_because_the_clock_went_back() {
    fn is_not_spent<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, other, limit) = (scene.instance(), scene.instance(), S::limit(CAPACITY, WINDOW));
        call_until_leased::<S>(&rl, "ann", &limit);
        assert!(take::<S>(&rl, "ann", &limit, held::<S>(&rl, "ann") + 1).is_allowed(), "{}", S::NAME);
        assert!(held::<S>(&rl, "ann") > 0, "{}", S::NAME);
        step_back(&scene, WINDOW * 10);
        // A call of another instance makes Redis see the new time and re-date the counted units.
        take::<S>(&other, "ann", &limit, 1);
        scene.clock.advance(WINDOW * 2);
        assert!(try_take::<S>(&rl, "ann", &limit, 1).is_none(), "{}: its lease is long over", S::NAME);
        assert_eq!(held::<S>(&rl, "ann"), 0, "{}", S::NAME);
    }

    for_every_leased!(is_not_spent);
}

#[test]
fn nothing_panics_and_calls_go_on_after_steps_back() {
    fn goes_on<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(), S::limit(CAPACITY, WINDOW));
        for by in [Duration::from_micros(1), Duration::from_millis(50), WINDOW / 2, WINDOW * 3] {
            call_until_leased::<S>(&rl, "ann", &limit);
            step_back(&scene, by);
            for _ in 0..3 * CAPACITY {
                take::<S>(&rl, "ann", &limit, 1);
            }
            scene.clock.advance(WINDOW * 3 + by);
            assert!(take::<S>(&rl, "ann", &limit, 1).is_allowed(), "{}: back by {by:?}", S::NAME);
            scene.clock.advance(WINDOW * 3);
        }
    }

    for_every_leased!(goes_on);
}
