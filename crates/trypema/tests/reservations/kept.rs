//! Reservations that a process counts itself while Redis is unreachable: they keep their ids, and Redis learns of them.

use std::num::NonZeroU32;
use std::time::Duration;

use trypema::TrypemaError;
use trypema::redis::OnFailure;
use trypema::rules::{Request, Reservation, ReservationRef, SettledStatus, Settlement};
use trypema_testkit::blocking::wait_for;
use trypema_testkit::redis::{FaultProxy, wait_until};

use super::a_minute;
use super::faults::{SHARED, Scene, reserve};

const LOCAL: OnFailure = OnFailure::Local { instances: NonZeroU32::MIN };

/// Ways in which Redis is away: it never gets the request, or executes it and is not heard.
const OUTAGES: [fn(&FaultProxy); 2] = [FaultProxy::refuse, FaultProxy::drop_replies];

fn on_every_outage(mut play: impl FnMut(&str, &Scene)) {
    for ((provider, new), outage) in SHARED.into_iter().flat_map(|shared| OUTAGES.map(|way| (shared, way))) {
        let scene = Scene::with_policy(new, LOCAL);
        outage(&scene.proxy);
        play(provider, &scene);
    }
}

fn reserve_here(scene: &Scene) -> Reservation {
    let reserved = reserve(&scene.engine, &a_minute()).unwrap();
    assert!(reserved.is_allowed());
    reserved
}

/// Ends the outage, and lets the engine bring everything to Redis.
fn catch_up(scene: &Scene) {
    scene.heal();
    let is_done = || {
        scene.clock.advance(Duration::from_millis(500));
        let counts = scene.engine.backlog();
        counts.kept == 0 && counts.to_undo == 0
    };
    wait_until("Redis to know the reservations", is_done).unwrap();
    wait_for(scene.engine.wait_for_settlements());
}

fn counted(settlement: &Settlement) -> Vec<u64> {
    let of = |status: &SettledStatus| match status {
        SettledStatus::Settled { counted, .. } => *counted,
        other => panic!("{other:?}"),
    };
    settlement.rules.iter().map(|rule| of(&rule.status)).collect()
}

#[test]
fn what_lasts_longer_than_the_outage_is_settled_by_any_process() {
    on_every_outage(|provider, scene| {
        let text = reserve_here(scene).into_text().unwrap();
        let early = wait_for(scene.direct.settle(&text, &[("tokens", 10)])).unwrap();
        let is_early =
            |status: &SettledStatus| *status == SettledStatus::Failed(TrypemaError::ReservationNotYetKnown);
        // Where Redis executed the request, it knows the reservation already.
        let is_known = early.is_settled();
        assert!(is_known || early.rules.iter().all(|rule| is_early(&rule.status)), "{provider}: {early:?}");
        catch_up(scene);
        if !is_known {
            assert_eq!(scene.left(), [1, 70], "{provider}");
            let holders = wait_for(scene.direct.holders("slots|user=ann")).unwrap().unwrap();
            assert_eq!((holders.len(), holders[0].units), (1, 1), "{provider}");
            let settled = wait_for(scene.direct.settle(&text, &[("tokens", 10)])).unwrap();
            assert_eq!(counted(&settled), [1, 10], "{provider}");
        }
        assert_eq!(scene.left(), [2, 90], "{provider}");
    });
}

/// At its real cost, which may be more than the estimate.
#[test]
fn what_was_settled_during_the_outage_counts_once_afterwards() {
    on_every_outage(|provider, scene| {
        for tokens in [10, 45] {
            let mut reserved = reserve_here(scene);
            let settled = wait_for(reserved.settle(&[("tokens", tokens)])).unwrap();
            assert!(settled.is_complete(), "{provider}: {settled:?}");
            assert_eq!(counted(&settled), [1, tokens], "{provider}");
        }
        let mut released = reserve_here(scene);
        assert_eq!(counted(&wait_for(released.release())), [0, 0], "{provider}");
        catch_up(scene);
        assert_eq!(scene.left(), [2, 45], "{provider}: 10 and 45 tokens, and no slot");
    });
}

/// The slots of this process are free again at once, and its holders are renewed.
#[test]
fn slots_are_given_back_during_the_outage() {
    on_every_outage(|provider, scene| {
        let first = reserve_here(scene);
        let mut second = reserve_here(scene);
        assert!(!reserve(&scene.engine, &a_minute()).unwrap().is_allowed(), "{provider}: two slots");
        assert_eq!(wait_for(second.renew(Duration::from_secs(60))).unwrap(), Some(Duration::from_secs(20)));
        assert_eq!(counted(&wait_for(second.release())), [0, 0], "{provider}");
        let third = reserve_here(scene);
        let texts = [first, third].map(|reserved| reserved.into_text().unwrap());
        catch_up(scene);
        assert_eq!(scene.left(), [0, 40], "{provider}");
        for text in &texts {
            assert!(wait_for(scene.direct.release(text)).unwrap().is_complete(), "{provider}");
        }
        assert_eq!(scene.left(), [2, 100], "{provider}");
    });
}

#[test]
fn an_id_names_what_this_process_keeps() {
    on_every_outage(|provider, scene| {
        let options = a_minute().with_id("mine").unwrap();
        assert!(reserve(&scene.engine, &options).unwrap().is_allowed(), "{provider}");
        let ann = [("user", "ann")];
        let mine = ReservationRef::of_id("mine", Request::new(&ann));
        let settled = wait_for(scene.engine.settle(mine, &[("tokens", 5)])).unwrap();
        assert_eq!(counted(&settled), [1, 5], "{provider}");
        let twice = wait_for(scene.engine.settle(mine, &[("tokens", 5)])).unwrap();
        assert!(twice.rules.iter().all(|rule| rule.status == SettledStatus::SettledBefore), "{twice:?}");
        catch_up(scene);
        assert_eq!(scene.left(), [2, 95], "{provider}");
    });
}

/// One of five instances counts each unit five times, but a call that fits the limit always fits: so the weight of 30
/// units is 100, and that of the 10 units that were spent is 50.
#[test]
fn an_instance_gives_back_no_more_than_it_charged() {
    for (provider, new) in SHARED {
        let scene = Scene::with_policy(new, OnFailure::Local { instances: NonZeroU32::new(5).unwrap() });
        scene.proxy.refuse();
        let mut reserved = reserve_here(&scene);
        assert_eq!(counted(&wait_for(reserved.settle(&[("tokens", 10)])).unwrap()), [1, 10], "{provider}");
        let next = reserve(&scene.engine, &a_minute()).unwrap();
        let denied_by = next.verdict().decided_by().map(|rule| rule.rule.id.clone());
        assert_eq!(denied_by.as_deref(), Some("tokens"), "{provider}: 50 of 100 are left, and 30 weigh 100");
        catch_up(&scene);
        assert_eq!(scene.left(), [2, 90], "{provider}");
    }
}
