//! The server dies, stalls, is slow, or is not ready yet.

use std::thread;

use trypema_testkit::redis::{FaultProxy, Server};

use super::on_both_links;
use super::scene::{DEADLINE, Link, Scene};

on_both_links!(
    kill_9,
    kill_9_without_persistence,
    sigstop,
    asleep,
    slow_within_the_deadline,
    slow_beyond_the_deadline,
    loading
);

/// A server whose acknowledged writes survive `kill -9`.
fn persistent() -> Server {
    Server::builder().set("appendonly", "yes").set("appendfsync", "always").start().unwrap()
}

fn kill_9(link: Link) {
    let scene = Scene::on(persistent(), link);
    let load = scene.load();
    for _ in 0..2 {
        scene.server.kill_9().unwrap();
        load.wait_until_failing();
        scene.server.restart().unwrap();
        load.wait_until_served();
    }
    let counts = load.finish();
    counts.assert_unanswered();
    scene.assert_counted_once(&counts);
}

/// A server without persistence loses the spent units, and everything else continues.
fn kill_9_without_persistence(link: Link) {
    let scene = Scene::on(Server::start().unwrap(), link);
    let load = scene.load();
    scene.server.kill_9().unwrap();
    load.wait_until_failing();
    let before = load.counts();
    scene.server.restart().unwrap();
    load.wait_until_served();
    let counts = load.finish();
    counts.assert_unanswered();
    assert!(scene.counted() <= counts.admitted - before.admitted + counts.unknown);
    assert!(scene.counted() > 0);
}

fn sigstop(link: Link) {
    let scene = Scene::on(Server::start().unwrap(), link);
    let load = scene.load();
    for _ in 0..2 {
        scene.server.stop().unwrap();
        load.wait_until_failing();
        scene.server.cont().unwrap();
        load.wait_until_served();
    }
    let counts = load.finish();
    counts.assert_unanswered();
    assert!(counts.unknown > 0, "what was sent to a stopped server may run later: {counts:?}");
    scene.assert_counted_once(&counts);
}

/// `DEBUG SLEEP`: stands for another client's script or command that blocks the server.
fn asleep(link: Link) {
    let server = Server::builder().set("enable-debug-command", "yes").start().unwrap();
    let scene = Scene::on(server, link);
    let load = scene.load();
    scene.command(&["DEBUG", "SLEEP", "0.7"]);
    load.wait_until_served();
    let counts = load.finish();
    counts.assert_unanswered();
    scene.assert_counted_once(&counts);
}

fn slow_within_the_deadline(link: Link) {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let scene = Scene::answering_at(&proxy.url(), server, link);
    let load = scene.load();
    proxy.delay(DEADLINE);
    load.wait_until_served();
    let counts = load.finish();
    counts.assert_all_admitted();
    assert_eq!(scene.counted(), counts.admitted);
}

fn slow_beyond_the_deadline(link: Link) {
    let (scene, proxy) = Scene::behind_proxy(link);
    let load = scene.load();
    for delay in [DEADLINE, DEADLINE * 3] {
        proxy.delay(delay);
        load.wait_until_failing();
        proxy.heal();
        load.wait_until_served();
    }
    let counts = load.finish();
    counts.assert_unanswered();
    assert!(counts.unknown > 0, "{counts:?}");
    scene.assert_counted_once(&counts);
}

/// A server that is loading its data replies with an error to these calls.
fn loading(link: Link) {
    let settings = [
        ("enable-debug-command", "yes"),
        ("key-load-delay", "2000"),
        ("loading-process-events-interval-bytes", "1024"),
    ];
    let server = Server::builder().set("appendonly", "yes").set("appendfsync", "always");
    let server = settings.iter().fold(server, |server, (name, value)| server.set(name, value));
    let scene = Scene::on(server.start().unwrap(), link);
    scene.command(&["DEBUG", "POPULATE", "1000"]);
    let load = scene.load();
    scene.server.kill_9().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| scene.server.restart().unwrap());
        load.wait_until_failing();
    });
    load.wait_until_served();
    let counts = load.finish();
    counts.assert_unanswered();
    scene.assert_counted_once(&counts);
}
