//! Scripts or state are flushed on the server: callers do not notice.

use trypema_testkit::redis::Server;

use super::on_both_links;
use super::scene::{Link, Scene};

on_both_links!(script_flush, flushall, acl_without_script);

/// The number of flushes under load.
const FLUSHES: usize = 20;

fn script_flush(link: Link) {
    let scene = Scene::answering(Server::start().unwrap(), link);
    let load = scene.load();
    for _ in 0..FLUSHES {
        scene.command(&["SCRIPT", "FLUSH"]);
        load.wait_until_served();
    }
    let counts = load.finish();
    counts.assert_all_admitted();
    assert_eq!(scene.counted(), counts.admitted);
}

/// `FLUSHALL` discards the spent units and has no other effect.
fn flushall(link: Link) {
    let scene = Scene::answering(Server::start().unwrap(), link);
    let load = scene.load();
    for _ in 0..FLUSHES {
        scene.command(&["FLUSHALL"]);
        load.wait_until_served();
    }
    let before = load.finish();
    before.assert_all_admitted();
    assert!(scene.counted() < before.admitted);

    scene.command(&["FLUSHALL"]);
    let after = scene.load().finish();
    after.assert_all_admitted();
    assert_eq!(scene.counted(), after.admitted);
}

/// `EVAL` caches a script as `SCRIPT LOAD` does, and needs no other permission.
fn acl_without_script(link: Link) {
    let user = "limiter on >secret ~trypema:* +eval +evalsha +time +get +set +getrange +setrange +del +pttl +pexpire +incr \
                +hello +auth +ping +info +client";
    let server = Server::builder().user(user).start().unwrap();
    let url = server.url_as("limiter", "secret");
    let scene = Scene::answering_at(&url, server, link);
    let load = scene.load();
    scene.command(&["SCRIPT", "FLUSH"]);
    load.wait_until_served();
    let counts = load.finish();
    counts.assert_all_admitted();
    assert_eq!(scene.counted(), counts.admitted);
}
