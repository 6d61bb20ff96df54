//! The server is well and the network is not.

use trypema_testkit::redis::FaultProxy;

use super::load::{CALLERS, Counts};
use super::on_both_links;
use super::scene::{Link, Scene};

on_both_links!(reply_dropped, cut, cut_instead_of_the_reply, half_open, connections_refused);

/// Calls under a fault that `strike` begins and `heal` ends.
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

/// A stream that has lost bytes does not go on: the connection ends at last.
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

/// A connection that is cut costs the calls that were under way, and the next are served by a new one.
fn cut(link: Link) {
    let (scene, proxy) = Scene::behind_proxy(link);
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
