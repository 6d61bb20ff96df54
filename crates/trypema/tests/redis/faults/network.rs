//! The server works, and the network does not.

use std::time::Duration;

use trypema::TrypemaError;
use trypema::redis::RedisFailureKind;
use trypema_testkit::blocking::{runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use super::load::{CALLERS, Counts};
use super::on_both_links;
use super::scene::{Link, Scene};

on_both_links!(reply_dropped, cut, cut_instead_of_the_reply, sent_once, half_open, connections_refused);

/// Longer than the minimum time between two connection attempts.
const BETWEEN_DIALS: Duration = Duration::from_millis(300);

/// Makes calls under a fault that `strike` starts and `heal` ends.
fn under(link: Link, strike: fn(&FaultProxy), heal: fn(&FaultProxy)) -> Counts {
    let (scene, proxy) = Scene::behind_proxy(link);
    let load = scene.load();
    for _ in 0..2 {
        strike(&proxy);
        load.wait_until_failing();
        heal(&proxy);
        load.wait_until_served();
    }
    let counts = load.finish();
    counts.assert_unanswered();
    scene.assert_counted_once(&counts);
    counts
}

/// A stream that has lost bytes cannot continue, so the connection is cut at the end.
fn reply_dropped(link: Link) {
    let end = |proxy: &FaultProxy| {
        proxy.heal();
        proxy.cut();
    };
    let counts = under(link, FaultProxy::drop_replies, end);
    assert!(counts.unknown > 0, "{counts:?}");
}

fn cut_instead_of_the_reply(link: Link) {
    let counts = under(link, FaultProxy::cut_on_reply, FaultProxy::heal);
    assert!(counts.unknown > 0, "{counts:?}");
}

fn half_open(link: Link) {
    let counts = under(link, FaultProxy::freeze, FaultProxy::heal);
    assert!(counts.unknown > 0, "{counts:?}");
}

fn connections_refused(link: Link) {
    under(link, FaultProxy::refuse, FaultProxy::heal);
}

/// A call whose connection ends after the server has counted it is not sent again, although a new connection
/// is available immediately.
fn sent_once(link: Link) {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let scene = Scene::answering_at(&proxy.url(), server, link);
    for verb in 0..4 {
        let is_served = || wait_for(scene.target.take(verb)).is_ok();
        wait_until("calls to be served", is_served).unwrap();
        proxy.delay(BETWEEN_DIALS);
        wait_for(scene.target.take(verb)).unwrap();
        let before = scene.counted();
        let target = scene.target.clone();
        let call = runtime().spawn(async move { target.take(verb).await });
        wait_until("the call to be counted", || scene.counted() == before + 1).unwrap();
        proxy.cut();
        proxy.heal();
        match wait_for(call).unwrap() {
            Err(TrypemaError::RedisError(failure)) => {
                assert_eq!(failure.kind(), RedisFailureKind::OutcomeUnknown, "{failure}");
            }
            other => panic!("answered without a reply: {other:?}"),
        }
        assert_eq!(scene.counted(), before + 1);
    }
}

/// A cut connection fails the calls in flight. The next calls succeed on a new connection.
fn cut(link: Link) {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let scene = Scene::answering_at(&proxy.url(), server, link);
    let load = scene.load();
    let cuts = 5;
    for _ in 0..cuts {
        proxy.cut();
        load.wait_until_served();
    }
    let counts = load.finish();
    assert_eq!((counts.refused, counts.bad_replies), (0, 0), "{counts:?}");
    assert!(counts.unknown <= cuts * CALLERS as u64, "{counts:?}");
    scene.assert_counted_once(&counts);
}
