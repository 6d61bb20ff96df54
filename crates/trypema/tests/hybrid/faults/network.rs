//! Redis is up and keeps its state, but is unreachable: leased units are spent, and no unit is admitted
//! twice.

use trypema::redis::{OnFailure, RedisFailureKind};
use trypema_testkit::blocking::runtime;
use trypema_testkit::redis::wait_until;
use trypema_testkit::subject::HybridStrategy;

use super::scene::{
    A_LEASE, CAPACITY, Scene, WINDOW, call_until_leased, held, most, spend_held, take, take_all,
    wait_until_reached,
};

/// A network fault: how to start and to end it.
struct Harm {
    name: &'static str,
    begin: fn(&Scene),
    end: fn(&Scene),
    /// Whether Redis can grant a lease whose reply never reaches the instance.
    is_losing_leases: bool,
}

const LOST_REPLIES: Harm = Harm {
    name: "replies are lost",
    begin: |scene| scene.proxy.drop_replies(),
    end: |scene| {
        scene.proxy.heal();
        scene.proxy.cut();
    },
    is_losing_leases: true,
};
const CUT_ON_REPLY: Harm = Harm {
    name: "connections break on reply",
    begin: |scene| scene.proxy.cut_on_reply(),
    end: |scene| scene.proxy.heal(),
    is_losing_leases: true,
};
const FROZEN_SERVER: Harm = Harm {
    name: "Redis is stopped",
    begin: |scene| scene.server.stop().unwrap(),
    end: |scene| scene.server.cont().unwrap(),
    is_losing_leases: true,
};
const FROZEN_NETWORK: Harm = Harm {
    name: "the network is silent",
    begin: |scene| scene.proxy.freeze(),
    end: |scene| {
        scene.proxy.heal();
        scene.proxy.cut();
    },
    is_losing_leases: true,
};
const REFUSED: Harm = Harm {
    name: "connections are refused",
    begin: |scene| scene.proxy.refuse(),
    end: |scene| scene.proxy.heal(),
    is_losing_leases: false,
};

/// During the fault, leased units are spent and further calls fail in time. Afterwards, at most the rest of
/// the limit is admitted.
fn survives<S: HybridStrategy>(harm: &Harm) {
    let what = format!("{} while {}", S::NAME, harm.name);
    let scene = Scene::start();
    let (rl, limit) = (scene.instance(OnFailure::Fail), S::limit(CAPACITY, WINDOW));
    let mut admitted = call_until_leased::<S>(&rl, &limit);
    (harm.begin)(&scene);
    admitted += spend_held::<S>(&rl, &limit);
    for _ in 0..3 {
        let failure = take::<S>(&rl, &limit, 1).unwrap_err();
        assert_ne!(failure.kind(), RedisFailureKind::Refused, "{what}: {failure}");
    }
    (harm.end)(&scene);
    wait_until_reached(&rl);
    admitted += take_all::<S>(&rl, &limit);
    assert!(admitted <= most::<S>(), "{what}: {admitted} of {}", most::<S>());
    assert!(scene.used::<S>(&limit) >= admitted.min(CAPACITY), "{what}: all that was admitted is counted");
    if !harm.is_losing_leases {
        assert!(admitted >= CAPACITY, "{what}: only {admitted} of {CAPACITY}");
    }
    scene.pass_windows();
    assert!(take::<S>(&rl, &limit, CAPACITY).unwrap().is_allowed(), "{what}: a window later all is there");
}

macro_rules! rows {
    ($($row:ident => $harm:ident),+ $(,)?) => {
        $(
            #[test]
            fn $row() {
                fn row<S: HybridStrategy>() {
                    survives::<S>(&$harm);
                }

                for_every_leased!(row);
            }
        )+
    };
}

rows! {
    lost_replies => LOST_REPLIES,
    connections_that_break_on_reply => CUT_ON_REPLY,
    a_stopped_server => FROZEN_SERVER,
    a_silent_network => FROZEN_NETWORK,
    refused_connections => REFUSED,
}

/// A connection that was cut while idle is replaced, and the whole limit is still admitted.
#[test]
fn a_cut_connection() {
    fn is_made_anew<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(OnFailure::Fail), S::limit(CAPACITY, WINDOW));
        let mut admitted = call_until_leased::<S>(&rl, &limit);
        scene.proxy.cut();
        admitted += spend_held::<S>(&rl, &limit);
        wait_until_reached(&rl);
        admitted += take_all::<S>(&rl, &limit);
        assert!((CAPACITY..=most::<S>()).contains(&admitted), "{}: {admitted}", S::NAME);
    }

    for_every_leased!(is_made_anew);
}

/// The background task repeats a refund once Redis is reachable again, if it is certain that the refund was
/// not sent.
#[test]
fn what_could_not_be_given_back_is_given_back_later() {
    fn is_given_back<S: HybridStrategy>() {
        let scene = Scene::start();
        let (rl, limit) = (scene.instance(OnFailure::Fail), S::limit(CAPACITY, WINDOW));
        let taken = call_until_leased::<S>(&rl, &limit);
        assert!(held::<S>(&rl) > 0);
        scene.proxy.refuse();
        runtime().spawn(rl.hybrid().keep_in_sync());
        scene.clock.advance(A_LEASE * 3);
        assert!(take::<S>(&rl, &limit, 1).is_err(), "{}", S::NAME);
        scene.proxy.heal();
        wait_until_reached(&rl);
        let is_given_back = || {
            scene.clock.advance(A_LEASE);
            scene.used::<S>(&limit) <= taken
        };
        wait_until("the rest to be given back", is_given_back).unwrap();
    }

    for_every_leased!(is_given_back);
}

/// Calls that wait for another caller's request fail together with it, in time.
#[test]
fn callers_that_wait_together_fail_together() {
    fn fail<S: HybridStrategy>() {
        let scene = Scene::start();
        let rl = std::sync::Arc::new(scene.instance(OnFailure::Fail));
        let limit = S::limit(CAPACITY, WINDOW);
        call_until_leased::<S>(&rl, &limit);
        spend_held::<S>(&rl, &limit);
        scene.proxy.freeze();
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (rl, limit) = (rl.clone(), limit.clone());
                std::thread::spawn(move || take::<S>(&rl, &limit, 1).is_err())
            })
            .collect();
        let failed =
            callers.into_iter().filter_map(|caller| caller.join().ok()).filter(|failed| *failed).count();
        assert_eq!(failed, 20, "{}", S::NAME);
        scene.heal(&rl);
        assert!(take::<S>(&rl, &limit, 1).unwrap().is_allowed(), "{}", S::NAME);
    }

    for_every_leased!(fail);
}
