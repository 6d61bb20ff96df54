//! The ways in which servers learn of a change: a notification from the database, one from Redis, or a poll.
//! Any one of them is enough.

use trypema_testkit::redis::{FaultProxy, wait_until};

use super::{Fleet, NEVER, limit, set_limit, soon, wait_until_they_listen};
use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

/// Makes the database notify a channel that no server listens on.
const SILENCED: &str = "
    DO $$ BEGIN
        EXECUTE replace(pg_get_functiondef('trypema_revision'::regproc), quote_literal('trypema_rules'), quote_literal('nobody'));
    END $$";

fn by_hand(scene: &Scene, limit: u64) {
    scene.database.sql(&format!("UPDATE rate_limit_rules SET limit_count = {limit}")).unwrap();
}

fn wait_for_limit(server: &Service, to: u64) {
    wait_until(&format!("a limit of {to}"), || limit(server) == Some(to)).unwrap();
}

#[test]
fn without_announcements_a_change_is_enforced_at_the_next_poll_and_not_before() {
    let scene = Scene::start();
    scene.database.sql(SILENCED).unwrap();
    let polling = scene.service(&["--rules-poll", "1s"]);
    let waiting = scene.service(&["--rules-poll", NEVER]);
    // A server reads the rules once more when it begins to listen.
    wait_until("both to listen", || listeners(&scene) == "2").unwrap();
    done(&polling, "POST", "/v1/rules", &per_user("per-user", 10));
    assert_eq!(limit(&polling), Some(10), "whoever makes a change has it at once");
    waiting.program.signal("HUP").unwrap();
    wait_for_limit(&waiting, 10);
    // Four polls of `polling`, none of `waiting`: it may still read once more, because it has begun to listen and got
    // a signal at the same time.
    for to in 11..=14 {
        by_hand(&scene, to);
        wait_for_limit(&polling, to);
    }
    let known = limit(&waiting);
    assert!(known <= Some(12), "it followed although nobody told it: {known:?}");
    waiting.program.signal("HUP").unwrap();
    wait_for_limit(&waiting, 14);
    // This also holds for a change through another server.
    set_limit(&waiting, 15);
    wait_for_limit(&polling, 15);
}

#[test]
fn one_kind_of_announcement_is_enough() {
    let Fleet { servers, redis, scene } = Fleet::start("memory");
    redis.kill_9().unwrap();
    set_limit(&servers[0], 11);
    soon(&servers, "a change without redis", |server| limit(server) == Some(11));
    by_hand(&scene, 12);
    soon(&servers, "a change by hand without redis", |server| limit(server) == Some(12));

    redis.restart().unwrap();
    wait_until_they_listen(&redis, 2);
    scene.database.sql(SILENCED).unwrap();
    set_limit(&servers[1], 13);
    soon(&servers, "a change that only redis tells of", |server| limit(server) == Some(13));
    by_hand(&scene, 14);
    set_limit(&servers[0], 15);
    soon(&servers, "the next one", |server| limit(server) == Some(15));
}

/// Without polls: the server reads missed changes when it reconnects.
#[test]
fn what_was_missed_is_caught_after_reconnecting() {
    let scene = Scene::start();
    let proxy = FaultProxy::start(scene.database.addr()).unwrap();
    let service = Service::start(&["--database-url", &scene.url_through(&proxy), "--rules-poll", NEVER]);
    done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
    proxy.refuse();
    by_hand(&scene, 11);
    assert_eq!(limit(&service), Some(10), "it cannot know");
    proxy.heal();
    wait_for_limit(&service, 11);
    // Notifications also arrive after the database has closed the server's sessions.
    for to in [12, 13] {
        scene.database.disconnect_all().unwrap();
        wait_until("the service to listen again", || listeners(&scene) == "1").unwrap();
        by_hand(&scene, to);
        soon(std::slice::from_ref(&service), "a change", |server| limit(server) == Some(to));
    }
}

fn listeners(scene: &Scene) -> String {
    let question = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'trypema' AND query LIKE 'LISTEN%'";
    scene.database.sql(question).unwrap()
}
