//! The observer is called once per take, whether Redis or a lease decided it.

use std::sync::{Arc, Mutex};

use trypema::observer::{Event, Observer};
use trypema::strategy::FixedWindow;
use trypema::{Check, Limit, RateLimit, RateLimiter};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::subject::HybridStrategy;

use super::scene::{Scene, WINDOW, call_until_leased, held, take, try_take};

/// The cost of each observed take, and whether it was allowed.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<(u64, bool)>>);

impl Recorder {
    fn drain(&self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Recorder {
    fn decided(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push((event.cost, event.decision.is_allowed()));
    }
}

fn watched(scene: &Scene) -> (RateLimiter, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (scene.building().observer(recorder.clone()).build().unwrap(), recorder)
}

#[test]
fn each_take_is_told_once() {
    fn is_told_once<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, recorder) = watched(&scene);
        let (limit, ann) = (S::limit(100, WINDOW), key("ann"));
        let told = |what: &str, expected: &[(u64, bool)]| {
            assert_eq!(recorder.drain(), expected, "{} {what}", S::NAME);
        };
        let taken = call_until_leased::<S>(&rl, "ann", &limit);
        told("cold and leased", &vec![(1, true); taken as usize]);
        try_take::<S>(&rl, "ann", &limit, 1).unwrap();
        told("out of the lease", &[(1, true)]);
        let much = held::<S>(&rl, "ann") + 5;
        assert!(try_take::<S>(&rl, "ann", &limit, much).is_none());
        told("not answered", &[]);
        take::<S>(&rl, "ann", &limit, much);
        told("more than is held", &[(much, true)]);
        wait_for(S::hybrid(&rl).peek(&ann, &limit, 1)).unwrap();
        wait_for(S::hybrid(&rl).usage(&ann, &limit)).unwrap();
        told("looked at", &[]);
        take::<S>(&rl, "ann", &limit, 300);
        take::<S>(&rl, "ann", &limit, 300);
        told("never", &[(300, false); 2]);
    }

    for_every_leased!(is_told_once);
}

#[test]
fn reservations_and_parts_are_told_once() {
    fn is_told_once<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, recorder) = watched(&scene);
        let (limit, ann) = (S::limit(100, WINDOW), key("ann"));
        let told = |what: &str, expected: &[(u64, bool)]| {
            assert_eq!(recorder.drain(), expected, "{} {what}", S::NAME);
        };
        wait_for(S::hybrid(&rl).take_with_receipt(&ann, &limit, 2)).unwrap();
        told("a cold reservation", &[(2, true)]);
        wait_for(S::hybrid(&rl).take_up_to(&ann, &limit, 2)).unwrap();
        told("a cold part", &[(2, true)]);
        call_until_leased::<S>(&rl, "ann", &limit);
        recorder.drain();
        let reserved = wait_for(S::hybrid(&rl).take_with_receipt(&ann, &limit, 1)).unwrap();
        told("a leased reservation", &[(1, true)]);
        wait_for(S::hybrid(&rl).refund(&ann, &limit, &reserved.receipt.unwrap())).unwrap();
        told("a refund", &[]);
        let more = held::<S>(&rl, "ann") + 3;
        wait_for(S::hybrid(&rl).take_up_to(&ann, &limit, more)).unwrap();
        told("a part, held and not", &[(more, true)]);
    }

    for_every_leased!(is_told_once);
}

#[test]
fn calls_of_the_published_names_are_told_once() {
    let scene = Scene::start();
    let (rl, recorder) = watched(&scene);
    let rate = RateLimit::try_from(10.0).unwrap();
    for _ in 0..6 {
        assert!(wait_for(rl.hybrid().absolute().inc(&key("ann"), &rate, 1)).unwrap().is_allowed());
        assert!(wait_for(rl.hybrid().suppressed().inc(&key("ann"), &rate, 1)).unwrap().is_allowed());
        assert_eq!(recorder.drain(), [(1, true); 2]);
    }
    wait_for(rl.hybrid().absolute().is_allowed(&key("ann"))).unwrap();
    assert_eq!(recorder.drain(), []);
}

#[test]
fn checks_that_are_asked_together_are_told_once_each() {
    let scene = Scene::start();
    let (rl, recorder) = watched(&scene);
    let limit = FixedWindow::limit(100, WINDOW);
    call_until_leased::<FixedWindow>(&rl, "hot", &limit);
    recorder.drain();
    let limit = Limit::from(limit);
    let take = |hot: u64, cold: u64| {
        let checks = [Check::new("hot", &limit, hot), Check::new("cold", &limit, cold)];
        let is_allowed = wait_for(rl.hybrid().take_all(&checks)).unwrap().is_allowed;
        let mut told = recorder.drain();
        told.sort_unstable();
        (is_allowed, told)
    };
    assert_eq!(take(1, 2), (true, vec![(1, true), (2, true)]));
    // The observer receives the decision of each check by itself.
    let (is_allowed, told) = take(1, 200);
    assert_eq!((is_allowed, told.last()), (false, Some(&(200, false))));
    assert!(told.len() <= 2, "{told:?}");
}
