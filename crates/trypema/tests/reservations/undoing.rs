//! Reservations whose answer was lost: the engine undoes them when Redis answers again.

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::rules::{Engine, Request};
use trypema_testkit::blocking::{connect, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use super::faults::{LOSSES, SHARED, Scene, reserve};
use super::{a_minute, rules};

type Fault = fn(&FaultProxy);

/// Lets the engine try again until nothing is left to undo.
fn undo_everything(scene: &Scene) {
    let is_done = || {
        scene.clock.advance(Duration::from_millis(500));
        scene.engine.backlog().to_undo == 0
    };
    wait_until("the attempts to be undone", is_done).unwrap();
    wait_for(scene.engine.wait_for_settlements());
}

#[test]
fn what_an_attempt_without_an_answer_reserved_is_given_back() {
    let options = [a_minute(), a_minute().with_id("mine").unwrap()];
    for ((provider, new), lose) in SHARED.into_iter().flat_map(|shared| LOSSES.map(|lose| (shared, lose))) {
        for options in &options {
            let scene = Scene::new(new);
            lose(&scene.proxy);
            assert!(reserve(&scene.engine, options).is_err(), "{provider}");
            scene.heal();
            undo_everything(&scene);
            assert_eq!(scene.left(), [2, 100], "{provider}");
            let counts = scene.engine.backlog();
            assert_eq!((counts.undone, counts.given_up), (2, 0), "{provider}: {counts:?}");
        }
    }
}

/// The second attempt may find what the first one reserved, or not, and is undone by neither.
#[test]
fn a_repeated_request_stays_reserved() {
    let faults: [Fault; 4] =
        [FaultProxy::drop_replies, FaultProxy::cut_on_reply, FaultProxy::freeze, FaultProxy::refuse];
    for ((provider, new), fault) in SHARED.into_iter().flat_map(|shared| faults.map(|fault| (shared, fault)))
    {
        let scene = Scene::new(new);
        let options = a_minute().with_id("mine").unwrap();
        fault(&scene.proxy);
        assert!(reserve(&scene.engine, &options).is_err(), "{provider}");
        let repeated = reserve(&scene.direct, &options).unwrap();
        assert!(repeated.is_allowed(), "{provider}");
        scene.heal();
        undo_everything(&scene);
        assert_eq!(scene.left(), [1, 70], "{provider}: reserved once");
        let settled =
            wait_for(scene.direct.settle(&repeated.into_text().unwrap(), &[("tokens", 10)])).unwrap();
        assert!(settled.is_complete(), "{provider}: {settled:?}");
        assert_eq!(scene.left(), [2, 90], "{provider}");
    }
}

/// After the reservation has expired there is nothing to give back.
#[test]
fn undoing_is_given_up_when_redis_is_away_for_longer_than_the_reservation_lasts() {
    for (provider, new) in SHARED {
        let scene = Scene::new(new);
        scene.proxy.cut_on_reply();
        assert!(reserve(&scene.engine, &a_minute()).is_err(), "{provider}");
        scene.proxy.refuse();
        undo_everything(&scene);
        let counts = scene.engine.backlog();
        assert!(counts.undone + counts.given_up == 2, "{provider}: {counts:?}");
    }
}

/// A real pause of a real Redis: the request is executed when it ends, long after its deadline.
#[test]
fn a_pause_of_redis_leaks_nothing() {
    let server = Server::start().unwrap();
    let mut control = server.control().unwrap();
    let slots = "
rules:
  - {id: slots, scope: user, strategy: {concurrency: {limit: 2, hold: 1h}}}
  - {id: month, scope: user, strategy: {fixed_window: {limit: 100, per: month, zone: UTC}}}
";
    let engine = |deadline| {
        let rl =
            RateLimiter::builder().redis(connect(&server.url())).redis_deadline(deadline).build().unwrap();
        Arc::new(Engine::redis(Arc::new(rl), rules(slots)))
    };
    // The connection is there before the pause, and another engine reads the counters without haste.
    let (engine, reader) = (engine(Duration::from_millis(50)), engine(Duration::from_secs(20)));
    wait_until("a connection", || wait_for(engine.holders("slots|user=ann")).is_ok()).unwrap();
    control.command(&["CLIENT", "PAUSE", "150", "ALL"]).unwrap();
    let ann = [("user", "ann")];
    let lost = wait_for(engine.reserve(&Request::new(&ann), &a_minute())).unwrap_err();
    assert!(lost.is_store_failure(), "{lost}");
    wait_until("the attempt to be undone", || engine.backlog().to_undo == 0 && engine.backlog().undone == 2)
        .unwrap();
    assert_eq!(wait_for(reader.holders("slots|user=ann")).unwrap().unwrap(), []);
    let explained = wait_for(reader.explain(&Request::new(&ann))).unwrap();
    let left: Vec<u64> = explained.applying().map(|rule| rule.left).collect();
    assert_eq!(left, [100, 2], "of the month, and slots");
}
